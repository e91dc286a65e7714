"""What podman and docker have in common: their command line, and a container's life."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from skyhop.errors import RunError
from skyhop.testbed.executor.assignment import Assignment
from skyhop.testbed.executor.environment import environment_of, filled_in
from skyhop.testbed.executor.sandbox import Ended, Furnish
from skyhop.testbed.words import Network

WORK = "/artifacts"
"""Where a container has the work directory: LEOScope's place."""
LABEL = "skyhop"
_ASKED_S = 10.0
_REMOVED_S = 30.0
_SIGNALLED = 128


class Containers:
    """A program for containers that takes docker's commands."""

    name: str
    extra: tuple[str, ...] = ()
    """What this one is told beside what both are."""

    def lacks(self, assignment: Assignment) -> str | None:
        """Return in a line why it cannot be had here."""
        if shutil.which(self.name) is None:
            return f"this node has no {self.name}"
        if assignment.command is None:
            return f"{self.name} runs images; scenarios and studies run with the backend process"
        if assignment.network is Network.VETH:
            return f'{self.name}: network = "veth" is for the backend process'
        try:
            asked = subprocess.run(
                [self.name, "version"],
                capture_output=True,
                text=True,
                timeout=_ASKED_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{self.name} does not answer"
        if asked.returncode:
            said = asked.stderr.strip().splitlines()
            return f"{self.name} is here but does not work: {said[-1] if said else 'no word why'}"
        return None

    def command(self, assignment: Assignment, work: Path) -> list[str]:
        """Return the command line that runs a container and stays until its end."""
        limits = assignment.limits
        environment = environment_of(assignment, WORK)
        # The image knows best where its programs are.
        del environment["PATH"]
        words = [self.name, "run", "--rm", "--init", "--name", container_of(assignment.run)]
        for label, value in _labels(assignment.run, assignment.job).items():
            words += ["--label", f"{label}={value}"]
        words += ["--network", assignment.network.value, "--volume", f"{work}:{WORK}"]
        words += ["--workdir", WORK, "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"]
        words += ["--security-opt", "no-new-privileges", "--pull", "missing"]
        words += ["--memory", str(limits.memory_bytes), "--pids-limit", str(limits.processes)]
        words += ["--ulimit", "core=0", "--ulimit", f"fsize={limits.disk_bytes}", *self.extra]
        for variable, value in sorted(environment.items()):
            words += ["--env", f"{variable}={value}"]
        words += ["--", assignment.image or ""]
        return words + filled_in(assignment.command or [], assignment)

    def start(
        self, assignment: Assignment, work: Path, output: tuple[int, int], furnish: Furnish | None
    ) -> Container:
        """Start a container."""
        del furnish
        return Container(self.name, self.command(assignment, work), assignment.run, output)

    def clean(self, run: str) -> None:
        """Remove a run's container, if there is one."""
        if shutil.which(self.name) is not None:
            _remove(self.name, run)


class Container:
    """A container, as the executor sees it: the client's process that waits for it.

    Raises:
        RunError: the client cannot be started.
    """

    def __init__(self, program: str, command: list[str], run: str, output: tuple[int, int]) -> None:
        self._program, self._run = program, run
        try:
            self._client = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output[0],
                stderr=output[1],
                start_new_session=True,
            )
        except OSError as error:
            raise RunError(f"{program}: {error.strerror}") from None
        self._news = os.pidfd_open(self._client.pid)

    def fileno(self) -> int:
        """Return a descriptor that can be read when the client has ended."""
        return self._news

    def news(self) -> Ended | None:
        """Return how the program ended: the client ends with its status."""
        status = self._client.poll()
        if status is None:
            return None
        if status < 0:
            return Ended(signal=-status)
        if status > _SIGNALLED and status - _SIGNALLED in signal.valid_signals():
            return Ended(signal=status - _SIGNALLED)
        return Ended(exit=status)

    def terminate(self) -> None:
        """Ask the program to end."""
        _quietly([self._program, "kill", "--signal", "TERM", container_of(self._run)])

    def kill(self) -> None:
        """Remove the container with everything in it."""
        _remove(self._program, self._run)
        self._client.kill()
        self.wait()

    def wait(self) -> None:
        """Bury the client."""
        self._client.wait()
        os.close(self._news)
        _remove(self._program, self._run)

    def processes(self) -> list[int]:
        """Return none: they are the container's, which limits them itself."""
        return []

    def network_process(self) -> int | None:
        """Return none."""
        return None


def container_of(run: str) -> str:
    """Return what a run's container is called."""
    return f"{LABEL}_{run}"


def _labels(run: str, job: str) -> dict[str, str]:
    # The second pair is LEOScope's.
    return {f"{LABEL}.run": run, f"{LABEL}.job": job, "leotest": "true", "runid": run, "jobid": job}


def _remove(program: str, run: str) -> None:
    _quietly([program, "rm", "--force", container_of(run)])


def _quietly(command: list[str]) -> None:
    # There is none, or it will be removed by the next that cleans.
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(command, capture_output=True, timeout=_REMOVED_S, check=False)
