"""The back end `podman`: containers without a service, and without root."""

from __future__ import annotations

from skyhop.testbed.executor.backends.containers import Containers


class Podman(Containers):
    """Programs in podman's containers."""

    name = "podman"
    # The container's root is the user who runs it: what it writes is his.
    extra = ("--cgroups", "no-conmon")
