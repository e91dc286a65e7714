"""The back end `docker`: containers by docker's service."""

from __future__ import annotations

import os

from skyhop.testbed.executor.backends.containers import Containers


class Docker(Containers):
    """Programs in docker's containers."""

    name = "docker"

    def user(self, run: str) -> str | None:
        """Return always one: what the service's root writes would be root's."""
        return super().user(run) or f"{os.getuid()}:{os.getgid()}"
