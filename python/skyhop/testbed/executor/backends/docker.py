"""The back end `docker`: containers by docker's service."""

from __future__ import annotations

import os

from skyhop.testbed.executor.backends.containers import Containers


class Docker(Containers):
    """Programs in docker's containers."""

    name = "docker"
    # Else what it writes would be root's.
    extra = ("--user", f"{os.getuid()}:{os.getgid()}")
