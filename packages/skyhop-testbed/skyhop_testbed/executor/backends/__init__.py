"""Back ends: the sandbox or container in which a run's program executes, one module each."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from skyhop_testbed.clock import Clock
from skyhop_testbed.executor.assignment import Assignment
from skyhop_testbed.executor.sandbox import AttachDevice, ProgramEnd
from skyhop_testbed.words import Backend


class Program(Protocol):
    """Running program of a back end, in the form that the executor supervises."""

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the program may have ended."""

    def poll(self) -> ProgramEnd | None:
        """Return how the program ended; `None` while it is running."""

    def terminate(self) -> None:
        """Send SIGTERM to the program."""

    def kill(self) -> None:
        """Kill the program, and wait until all its processes are gone."""

    def wait(self) -> None:
        """Wait, after the program has ended, until all its processes are gone."""

    def processes(self) -> list[int]:
        """Return the pids of the program's processes in this PID namespace; empty if unknown."""

    def network_process(self) -> int | None:
        """Return the pid of a process in the program's network namespace; `None` if unknown."""


class Launcher(Protocol):
    """Back end that starts programs."""

    def unavailable_reason(self, assignment: Assignment) -> str | None:
        """Return, as one line, why the back end cannot execute this run; `None` if it can."""

    def start(
        self,
        assignment: Assignment,
        work: Path,
        output: tuple[int, int],
        attach_device: AttachDevice | None,
    ) -> Program:
        """Start the run's program.

        Raises:
            RunError: the program cannot be started.
        """

    def clean(self, key: str) -> None:
        """Remove what is left of one side of a run whose executor was killed."""


def launcher(backend: Backend, clock: Clock) -> Launcher:
    """Return the launcher for a job's `backend`."""
    if backend is Backend.PODMAN:
        from skyhop_testbed.executor.backends.podman import Podman

        return Podman(clock)
    if backend is Backend.DOCKER:
        from skyhop_testbed.executor.backends.docker import Docker

        return Docker(clock)
    from skyhop_testbed.executor.backends.process import Process

    return Process()
