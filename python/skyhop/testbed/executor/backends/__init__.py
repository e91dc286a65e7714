"""What a run's program is kept in: a file each, all with the same few calls."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from skyhop.testbed.clock import Clock
from skyhop.testbed.executor.assignment import Assignment
from skyhop.testbed.executor.sandbox import Ended, Furnish
from skyhop.testbed.words import Backend


class Program(Protocol):
    """A program that was started."""

    def fileno(self) -> int:
        """Return a descriptor that can be read when there is news."""

    def news(self) -> Ended | None:
        """Return how the program ended; `None` where it has not."""

    def terminate(self) -> None:
        """Ask it to end."""

    def kill(self) -> None:
        """End it, and wait until nothing of it is left."""

    def wait(self) -> None:
        """After its end: wait until nothing of it is left."""

    def processes(self) -> list[int]:
        """Return its processes, as this machine numbers them; none where that is not known."""

    def network_process(self) -> int | None:
        """Return a process in its network namespace, where that is known."""


class Keeper(Protocol):
    """A back end."""

    def lacks(self, assignment: Assignment) -> str | None:
        """Return in a line why it cannot be had here for this run; `None` where it can."""

    def start(
        self,
        assignment: Assignment,
        work: Path,
        output: tuple[int, int],
        furnish: Furnish | None,
    ) -> Program:
        """Start the run's program.

        Raises:
            RunError: it cannot be started.
        """

    def clean(self, run: str) -> None:
        """Remove whatever a killed executor may have left of a run."""


def keeper(backend: Backend, clock: Clock) -> Keeper:
    """Return a back end by its word."""
    if backend is Backend.PODMAN:
        from skyhop.testbed.executor.backends.podman import Podman

        return Podman(clock)
    if backend is Backend.DOCKER:
        from skyhop.testbed.executor.backends.docker import Docker

        return Docker(clock)
    from skyhop.testbed.executor.backends.process import Process

    return Process()
