"""Back end `podman`: containers without a service, and without root."""

from __future__ import annotations

from skyhop_testbed.executor.backends.containers import Containers


class Podman(Containers):
    """Back end that runs programs in podman's containers."""

    name = "podman"
    # The container's root is the user who runs podman, and owns the files that the program writes.
    extra = ("--cgroups", "no-conmon")
