"""Common part of the back ends podman and docker: command line, start and end of a container."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import struct
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from skyhop.errors import RunError
from skyhop_testbed import linux, signals
from skyhop_testbed.clock import Clock
from skyhop_testbed.executor import user_network
from skyhop_testbed.executor.assignment import Assignment, Limits, write_durably
from skyhop_testbed.executor.backends.anchor import anchor_of, start_anchor
from skyhop_testbed.executor.environment import environment_of, filled_in
from skyhop_testbed.executor.sandbox import (
    MOST_FILES,
    AttachDevice,
    ProgramEnd,
    children,
    chown_tree,
    descendant_pids,
    user_of,
)
from skyhop_testbed.words import Network

WORK = "/artifacts"
"""Mount point of the work directory in a container, the same as LEOScope's."""
LABEL = "skyhop"
_VERSION_PATIENCE_S = 10.0
_REMOVED_S = 30.0
_BEGUN_S = 3.0
_POLL_S = 0.1
_SIGNALLED = 128
_CLIENT = struct.Struct("=I")
_NPROC = 4096
_FAILED = 125
"""Exit status with which podman and docker report a failure of their own, not the program's."""


class Containers:
    """Back end that uses a container command with docker's command line."""

    name: str
    needs_root: bool = False
    """Whether only root can enter the containers' network namespaces."""
    extra: tuple[str, ...] = ()
    """Additional arguments for the container command's `run`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def unavailable_reason(self, assignment: Assignment) -> str | None:
        """Return, as one line, why the back end cannot execute this run; `None` if it can."""
        for is_lacking, why in (
            (shutil.which(self.name) is None, f"{self.name} is not installed on this node"),
            (
                assignment.command is None,
                f"{self.name} runs images; scenarios and studies run with the backend process",
            ),
            (
                assignment.network is Network.VETH,
                f'{self.name}: network = "veth" is for the backend process',
            ),
            (
                assignment.network is Network.INTERNET and self.needs_root and os.geteuid() != 0,
                f'{self.name}: network = "internet" needs an agent that runs as root: use podman, '
                "or let the owner allow the network host",
            ),
            (
                any("\n" in value for value in assignment.env.values()),
                f"{self.name}: variables of more than one line are for the backend process",
            ),
        ):
            if is_lacking:
                return why
        is_internet = assignment.network is Network.INTERNET
        lacking = user_network.unavailable_reason() if is_internet else None
        return lacking or self._trouble()

    def _trouble(self) -> str | None:
        """Return why the container command does not work; `None` if it works."""
        try:
            asked = subprocess.run(
                [self.name, "version"],
                capture_output=True,
                text=True,
                timeout=_VERSION_PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{self.name} does not answer"
        if asked.returncode:
            said = asked.stderr.strip().splitlines()
            why = said[-1] if said else "it prints no error"
            return f"{self.name} is installed but does not work: {why}"
        return None

    def user(self, key: str) -> str | None:
        """Return `UID:GID` for a container's program.

        `None` keeps the container's root, which is an unprivileged user outside the container.
        """
        return f"{user_of(key)}:{user_of(key)}" if os.geteuid() == 0 else None

    def command(self, assignment: Assignment, work: Path) -> list[str]:
        """Return the command line that runs a container in the foreground."""
        limits = assignment.limits
        words = [self.name, "run", "--rm", "--init", "--name", container_of(assignment.key)]
        for label, value in _labels(assignment.run, assignment.job).items():
            words += ["--label", f"{label}={value}"]
        if assignment.signals is not None:
            words += ["--volume", f"{assignment.signals}:{signals.DIRECTORY}:ro"]
        words += [*self._network(assignment, work), "--volume", f"{work}:{WORK}"]
        words += ["--workdir", WORK, "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"]
        words += ["--security-opt", "no-new-privileges", "--pull", "missing"]
        words += ["--memory", str(limits.memory_bytes), "--pids-limit", str(limits.processes)]
        for kind, most in _ulimits(limits).items():
            words += ["--ulimit", f"{kind}={most}:{most}"]
        words += self.extra
        user = self.user(assignment.key)
        if user is not None:
            words += ["--user", user]
        # Variables are in a file, as any user of this machine can read a command line.
        words += ["--env-file", str(_environment_file(work)), "--", assignment.image or ""]
        return words + filled_in(assignment.command or [], assignment)

    def _network(self, assignment: Assignment, work: Path) -> list[str]:
        """Return the options of a container's network."""
        if assignment.network is not Network.INTERNET:
            return ["--network", assignment.network.value]
        anchor = anchor_of(container_of(assignment.key))
        resolver = f"{_resolver_file(work)}:/etc/resolv.conf:ro"
        return ["--network", f"container:{anchor}", "--volume", resolver]

    def start(
        self,
        assignment: Assignment,
        work: Path,
        output: tuple[int, int],
        attach_device: AttachDevice | None,
    ) -> Container:
        """Start the run's container.

        For the network `internet`, start its anchor first.
        """
        environment = environment_of(assignment, WORK)
        # The image's own PATH stays, as it lists where the image's programs are.
        del environment["PATH"]
        lines = "".join(f"{name}={value}\n" for name, value in sorted(environment.items()))
        write_durably(_environment_file(work), lines.encode(), mode=0o600)
        if os.geteuid() == 0:
            chown_tree(work, user_of(assignment.key))
        command = self.command(assignment, work)
        begin = None
        if assignment.network is Network.INTERNET and attach_device is not None:
            write_durably(_resolver_file(work), user_network.RESOLVER_FILE.encode())
            begin = partial(self._start_anchor, assignment, attach_device)
        key, clock = assignment.key, self._clock
        return Container(self.name, command, key, output, clock=clock, start_anchor=begin)

    def _start_anchor(self, assignment: Assignment, attach_device: AttachDevice) -> int:
        options = [*self.extra]
        for label, value in _labels(assignment.run, assignment.job).items():
            options += ["--label", f"{label}={value}"]
        for kind, most in _ulimits(assignment.limits).items():
            options += ["--ulimit", f"{kind}={most}:{most}"]
        container, image = container_of(assignment.key), assignment.image or ""
        return start_anchor(
            self.name,
            container,
            image,
            options,
            fence=assignment.fence,
            attach_device=attach_device,
        )

    def clean(self, key: str) -> None:
        """Remove the container of one side of a run, if there is one."""
        if shutil.which(self.name) is not None:
            _remove(self.name, _names(key, has_anchor=True))


class Container:
    """Running container, represented by the client process that waits for it.

    A second process, the watcher, removes the container when the executor dies. The watcher holds
    the run's lock until then, so that the run does not count as dead while its program is alive.

    Args:
        program: podman or docker.
        command: command line of the client.
        key: key of the side of the run.
        output: descriptors for standard output and error.
        clock: time and waiting.
        start_anchor: starts the container of the network, and returns its pid.

    Raises:
        RunError: the client cannot be started.
    """

    def __init__(
        self,
        program: str,
        command: list[str],
        key: str,
        output: tuple[int, int],
        *,
        clock: Clock,
        start_anchor: Callable[[], int] | None = None,
    ) -> None:
        self._program, self._key, self._clock = program, key, clock
        self._names = _names(key, has_anchor=start_anchor is not None)
        # Podman detaches a container's processes. The executor adopts them, so that it can count
        # them.
        linux.adopt_orphans()
        self._watch, self._watcher = _begin_watch(program, self._names, output, clock)
        self._anchor: int | None = None
        try:
            if start_anchor is not None:
                self._anchor = start_anchor()
            self._client = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output[0],
                stderr=output[1],
                start_new_session=True,
            )
        except (OSError, RunError) as error:
            _remove(program, self._names)
            self._end_watch()
            why = error.strerror if isinstance(error, OSError) else error
            raise RunError(f"{program}: {why}") from None
        os.write(self._watch, _CLIENT.pack(self._client.pid))
        self._pidfd = os.pidfd_open(self._client.pid)

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the client has ended."""
        return self._pidfd

    def poll(self) -> ProgramEnd | None:
        """Return how the program ended: the client exits with the program's exit status."""
        status = self._client.poll()
        if status is None:
            return None
        if status < 0:
            return ProgramEnd(signal=-status)
        if status == _FAILED:
            return ProgramEnd(failed=f"{self._program} could not run the container: see stderr")
        if status > _SIGNALLED and status - _SIGNALLED in signal.valid_signals():
            return ProgramEnd(signal=status - _SIGNALLED)
        return ProgramEnd(exit=status)

    def terminate(self) -> None:
        """Send SIGTERM to the container's program."""
        _quietly([self._program, "kill", "--signal", "TERM", container_of(self._key)])

    def kill(self) -> None:
        """Remove the container with all its processes, and wait for the client to exit."""
        is_at_work = lambda: self._client.poll() is None  # noqa: E731
        _remove_with_client(self._program, self._names, is_at_work, self._clock)
        self._client.kill()
        self.wait()

    def wait(self) -> None:
        """Wait for the client to exit, remove the container, and end the watcher."""
        self._client.wait()
        os.close(self._pidfd)
        _remove(self._program, self._names)
        self._end_watch()

    def _end_watch(self) -> None:
        os.write(self._watch, b"gone")
        os.close(self._watch)
        os.waitpid(self._watcher, 0)

    def processes(self) -> list[int]:
        """Return the pids of the container's processes.

        Empty for docker, whose service is their parent.
        """
        own = (self._client.pid, self._watcher)
        return descendant_pids([pid for pid in children(os.getpid()) if pid not in own])

    def network_process(self) -> int | None:
        """Return the pid of the network's container; `None` if there is none."""
        return self._anchor


def _begin_watch(
    program: str, names: list[str], output: tuple[int, int], clock: Clock
) -> tuple[int, int]:
    """Fork the watcher, which removes a run's container when this process dies.

    Returns:
        The write end of the pipe on which the watcher waits, and the watcher's pid.
    """
    reader, writer = os.pipe()
    watcher = os.fork()
    if watcher:
        os.close(reader)
        return writer, watcher
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        for descriptor in (writer, *output):
            os.close(descriptor)
        client = _CLIENT.unpack(os.read(reader, _CLIENT.size) or bytes(_CLIENT.size))[0]
        if not os.read(reader, _CLIENT.size):
            _remove_with_client(program, names, _client_lives(client, clock), clock)
    finally:
        os._exit(0)


def _remove_with_client(
    program: str, names: list[str], is_at_work: Callable[[], bool], clock: Clock
) -> None:
    """Remove a container, repeatedly until its client has ended, for at most 30 s.

    A client that is killed while it creates a container would leave a partial one.
    """
    until = clock.monotonic_s() + _REMOVED_S
    while True:
        _remove(program, names)
        if not is_at_work() or clock.monotonic_s() > until:
            return
        clock.sleep(_POLL_S)


def _client_lives(client: int, clock: Clock) -> Callable[[], bool]:
    """Return a function that tells whether a client is alive.

    A client whose pid is still unknown counts as alive for 3 s.
    """
    until = clock.monotonic_s() + _BEGUN_S

    def client_lives() -> bool:
        if client == 0:
            return clock.monotonic_s() < until
        try:
            state = Path(f"/proc/{client}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        return state != "Z"

    return client_lives


def _environment_file(work: Path) -> Path:
    return work.with_name("environment")


def _resolver_file(work: Path) -> Path:
    return work.with_name("resolv.conf")


def _ulimits(limits: Limits) -> dict[str, int]:
    """Return the limits for `--ulimit`, within this process's own hard limits.

    The container programs' defaults exceed what root may set in some environments. `--pids-limit`
    bounds the number of processes.
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


def container_of(key: str) -> str:
    """Return the name of the container of one side of a run."""
    return f"{LABEL}_{key}"


def _labels(run: str, job: str) -> dict[str, str]:
    # The last three labels are LEOScope's.
    return {f"{LABEL}.run": run, f"{LABEL}.job": job, "leotest": "true", "runid": run, "jobid": job}


def _names(key: str, *, has_anchor: bool) -> list[str]:
    """Return the names of a side's containers, in the order of their removal."""
    own = container_of(key)
    return [own, anchor_of(own)] if has_anchor else [own]


def _remove(program: str, names: list[str]) -> None:
    """Kill and remove containers.

    Podman's `rm --force` alone would wait for the program to end first.
    """
    _quietly([program, "kill", "--signal", "KILL", *names])
    for name in names:
        _quietly([program, "rm", "--force", name])


def _quietly(command: list[str]) -> None:
    # A failure means that there is no container, or one that the next `clean` removes.
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(command, capture_output=True, timeout=_REMOVED_S, check=False)
