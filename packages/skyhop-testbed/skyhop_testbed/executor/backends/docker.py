"""Back end `docker`: containers of the docker service."""

from __future__ import annotations

import os

from skyhop_testbed.executor.backends.containers import Containers


class Docker(Containers):
    """Back end that runs programs in docker's containers."""

    name = "docker"
    needs_root = True

    def user(self, key: str) -> str | None:
        """Return the container's user; never root, who would own the files that it writes."""
        return super().user(key) or f"{os.getuid()}:{os.getgid()}"
