"""What podman and docker have in common: their command line, and a container's life."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import struct
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from skyhop.errors import RunError
from skyhop.testbed.clock import Clock
from skyhop.testbed.executor import linux
from skyhop.testbed.executor.assignment import Assignment, Limits, write_durably
from skyhop.testbed.executor.environment import environment_of, filled_in
from skyhop.testbed.executor.sandbox import (
    MOST_FILES,
    Ended,
    Furnish,
    below,
    children,
    give,
    user_of,
)
from skyhop.testbed.words import Network

WORK = "/artifacts"
"""Where a container has the work directory: LEOScope's place."""
LABEL = "skyhop"
_ASKED_S = 10.0
_REMOVED_S = 30.0
_BEGUN_S = 3.0
_LOOK_S = 0.1
_SIGNALLED = 128
_CLIENT = struct.Struct("=I")
_NPROC = 4096
_FAILED = 125
"""With which podman and docker themselves fail."""


class Containers:
    """A program for containers that takes docker's commands."""

    name: str
    extra: tuple[str, ...] = ()
    """What this one is told beside what both are."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def lacks(self, assignment: Assignment) -> str | None:
        """Return in a line why it cannot be had here."""
        for is_lacking, why in (
            (shutil.which(self.name) is None, f"this node has no {self.name}"),
            (
                assignment.command is None,
                f"{self.name} runs images; scenarios and studies run with the backend process",
            ),
            (
                assignment.network is Network.VETH,
                f'{self.name}: network = "veth" is for the backend process',
            ),
            (
                any("\n" in value for value in assignment.env.values()),
                f"{self.name}: variables of more than one line are for the backend process",
            ),
        ):
            if is_lacking:
                return why
        return self._trouble()

    def _trouble(self) -> str | None:
        """Return what this program says, where it does not work."""
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

    def user(self, run: str) -> str | None:
        """Return as whom a container's program runs; `None` where its root is no root outside."""
        return f"{user_of(run)}:{user_of(run)}" if os.geteuid() == 0 else None

    def command(self, assignment: Assignment, work: Path) -> list[str]:
        """Return the command line that runs a container and stays until its end."""
        limits = assignment.limits
        words = [self.name, "run", "--rm", "--init", "--name", container_of(assignment.run)]
        for label, value in _labels(assignment.run, assignment.job).items():
            words += ["--label", f"{label}={value}"]
        words += ["--network", assignment.network.value, "--volume", f"{work}:{WORK}"]
        words += ["--workdir", WORK, "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"]
        words += ["--security-opt", "no-new-privileges", "--pull", "missing"]
        words += ["--memory", str(limits.memory_bytes), "--pids-limit", str(limits.processes)]
        for kind, most in _ulimits(limits).items():
            words += ["--ulimit", f"{kind}={most}:{most}"]
        words += self.extra
        user = self.user(assignment.run)
        if user is not None:
            words += ["--user", user]
        # Everybody on this machine may see a command line.
        words += ["--env-file", str(_environment_file(work)), "--", assignment.image or ""]
        return words + filled_in(assignment.command or [], assignment)

    def start(
        self, assignment: Assignment, work: Path, output: tuple[int, int], furnish: Furnish | None
    ) -> Container:
        """Start a container."""
        del furnish
        environment = environment_of(assignment, WORK)
        # The image knows best where its programs are.
        del environment["PATH"]
        lines = "".join(f"{name}={value}\n" for name, value in sorted(environment.items()))
        write_durably(_environment_file(work), lines.encode(), mode=0o600)
        if os.geteuid() == 0:
            give(work, user_of(assignment.run))
        command = self.command(assignment, work)
        return Container(self.name, command, assignment.run, output, self._clock)

    def clean(self, run: str) -> None:
        """Remove a run's container, if there is one."""
        if shutil.which(self.name) is not None:
            _remove(self.name, run)


class Container:
    """A container, as the executor sees it: the client's process that waits for it.

    Beside it a process of ours waits for the executor's end, and has the container end with it. It
    keeps the run's lock meanwhile: nobody takes the run for dead as long as its program lives.

    Raises:
        RunError: the client cannot be started.
    """

    def __init__(
        self, program: str, command: list[str], run: str, output: tuple[int, int], clock: Clock
    ) -> None:
        self._program, self._run, self._clock = program, run, clock
        # Podman leaves a container's processes to whoever adopts them.
        linux.adopt_orphans()
        self._watch, self._watcher = _begin_watch(program, run, output, clock)
        try:
            self._client = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output[0],
                stderr=output[1],
                start_new_session=True,
            )
        except OSError as error:
            self._end_watch()
            raise RunError(f"{program}: {error.strerror}") from None
        os.write(self._watch, _CLIENT.pack(self._client.pid))
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
        if status == _FAILED:
            return Ended(failed=f"{self._program} made no container: its word is in stderr")
        if status > _SIGNALLED and status - _SIGNALLED in signal.valid_signals():
            return Ended(signal=status - _SIGNALLED)
        return Ended(exit=status)

    def terminate(self) -> None:
        """Ask the program to end."""
        _quietly([self._program, "kill", "--signal", "TERM", container_of(self._run)])

    def kill(self) -> None:
        """Remove the container with everything in it."""
        is_at_work = lambda: self._client.poll() is None  # noqa: E731
        _remove_with_client(self._program, self._run, is_at_work, self._clock)
        self._client.kill()
        self.wait()

    def wait(self) -> None:
        """Bury the client."""
        self._client.wait()
        os.close(self._news)
        _remove(self._program, self._run)
        self._end_watch()

    def _end_watch(self) -> None:
        os.write(self._watch, b"gone")
        os.close(self._watch)
        os.waitpid(self._watcher, 0)

    def processes(self) -> list[int]:
        """Return the container's; none where a service has them, as docker's."""
        own = (self._client.pid, self._watcher)
        return below([pid for pid in children(os.getpid()) if pid not in own])

    def network_process(self) -> int | None:
        """Return none."""
        return None


def _begin_watch(program: str, run: str, output: tuple[int, int], clock: Clock) -> tuple[int, int]:
    """Start who ends a run's container when this process ends; return what tells him, and him."""
    told, tells = os.pipe()
    watcher = os.fork()
    if watcher:
        os.close(told)
        return tells, watcher
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        for descriptor in (tells, *output):
            os.close(descriptor)
        client = _CLIENT.unpack(os.read(told, _CLIENT.size) or bytes(_CLIENT.size))[0]
        if not os.read(told, _CLIENT.size):
            _remove_with_client(program, run, _may_be_there(client, clock), clock)
    finally:
        os._exit(0)


def _remove_with_client(
    program: str, run: str, is_at_work: Callable[[], bool], clock: Clock
) -> None:
    """Remove a container, and wait until its client has seen that it is gone.

    A client that is killed while it makes a container would leave half of one.
    """
    until = clock.monotonic_s() + _REMOVED_S
    while True:
        _remove(program, run)
        if not is_at_work() or clock.monotonic_s() > until:
            return
        clock.sleep(_LOOK_S)


def _may_be_there(client: int, clock: Clock) -> Callable[[], bool]:
    """Return what says whether a client lives; of one that nobody knows, for a while it may."""
    until = clock.monotonic_s() + _BEGUN_S

    def is_there() -> bool:
        if client == 0:
            return clock.monotonic_s() < until
        try:
            state = Path(f"/proc/{client}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        return state != "Z"

    return is_there


def _environment_file(work: Path) -> Path:
    return work.with_name("environment")


def _ulimits(limits: Limits) -> dict[str, int]:
    """Return limits of processes: not containers' usual ones, which not every root may set.

    How many processes there may be, a container limits by itself.
    """
    return {
        "core": 0,
        "fsize": limits.disk_bytes,
        "nofile": _within(resource.RLIMIT_NOFILE, MOST_FILES),
        "nproc": _within(resource.RLIMIT_NPROC, _NPROC),
    }


def _within(kind: int, wanted: int) -> int:
    hard = resource.getrlimit(kind)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def container_of(run: str) -> str:
    """Return what a run's container is called."""
    return f"{LABEL}_{run}"


def _labels(run: str, job: str) -> dict[str, str]:
    # The second pair is LEOScope's.
    return {f"{LABEL}.run": run, f"{LABEL}.job": job, "leotest": "true", "runid": run, "jobid": job}


def _remove(program: str, run: str) -> None:
    """Remove a run's container at once: podman's `rm --force` first waits for it to end."""
    _quietly([program, "kill", "--signal", "KILL", container_of(run)])
    _quietly([program, "rm", "--force", container_of(run)])


def _quietly(command: list[str]) -> None:
    # There is none, or it will be removed by the next that cleans.
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(command, capture_output=True, timeout=_REMOVED_S, check=False)
