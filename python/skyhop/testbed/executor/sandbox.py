"""The sandbox of the back end `process`: a program in namespaces of its own.

Three processes below the executor, each forked from the one before:

    outer    leaves for new namespaces (of users, unless root; mounts, PIDs, IPC, names, network)
    init     process 1 there: lays out what the program sees (`places`), waits for it
    program  gives up every privilege, takes its limits, and becomes what the job says

Each dies with the one above it, and with init dies whatever else is in its namespace: nothing is
left when the executor is killed. Besides, init and executor share a channel, whose end each takes
for the other's death; over it init says what became of the program, and is told to end it.

Root's program runs as a user of its own, that of an ordinary user as himself, without privileges
inside or outside.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from skyhop.errors import RunError
from skyhop.testbed.executor import linux, places
from skyhop.testbed.executor.assignment import Limits

_FIRST_USER = 0x7000_0000
_USERS = 1 << 24
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_LONGEST_MESSAGE = 4096
MOST_FILES = 4096
_NO_SUCH_PROGRAM = 127

Furnish = Callable[[int], "str | None"]
"""Puts a device into the network namespace of which it is given a descriptor, and returns what the
congestion control is called that was loaded for it."""
_CC = "{cc}"


@dataclass(frozen=True)
class Plan:
    """What is to be run in a sandbox, and what it may have."""

    command: list[str]
    environment: dict[str, str]
    work: Path
    places: list[places.Place]
    """What it sees of the machine's files."""
    name: str
    """What the machine is called inside."""
    own_network: bool
    may_nest: bool
    """Whether it may make namespaces of its own: live runs of skyhop do."""
    limits: Limits


@dataclass(frozen=True)
class Ended:
    """How a program ended: by a status, by a signal, or before it began."""

    exit: int | None = None
    signal: int | None = None
    failed: str | None = None


def user_of(run: str) -> int:
    """Return the user as whom root's executor runs a program: one per run, who owns nothing."""
    return _FIRST_USER + zlib.crc32(run.encode()) % _USERS


class Sandbox:
    """A sandbox with its program, as the executor sees it.

    Args:
        plan: what is run.
        user: as whom, where the executor is root's.
        output: where standard output and error go, two descriptors.
        furnish: called with the network namespace before the program starts.

    Raises:
        RunError: this machine does not let it be made.
    """

    def __init__(
        self, plan: Plan, user: int | None, output: tuple[int, int], furnish: Furnish | None
    ) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel = ours
        self._ended: Ended | None = None
        executor = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            _never_return(theirs, lambda: _outer(plan, user, output, theirs, executor))
        theirs.close()
        try:
            self._set_up(furnish)
        except BaseException:
            self.kill()
            raise

    def _set_up(self, furnish: Furnish | None) -> None:
        message, descriptors, _, _ = socket.recv_fds(self._channel, _LONGEST_MESSAGE, 1)
        said = json.loads(message) if message else {"failed": "the sandbox ended at once"}
        if "failed" in said:
            raise RunError(f"cannot make a sandbox: {said['failed']}")
        cc = None
        try:
            if furnish is not None:
                cc = furnish(descriptors[0])
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        _tell(self._channel, {"cc": cc})

    def fileno(self) -> int:
        """Return a descriptor that can be read when there is news."""
        return self._channel.fileno()

    def news(self) -> Ended | None:
        """Return how the program ended, when it has; waits for the word of it."""
        try:
            message = self._channel.recv(_LONGEST_MESSAGE)
        except OSError:
            message = b""
        return Ended(**json.loads(message)) if message else Ended(signal=signal.SIGKILL)

    def terminate(self) -> None:
        """Ask everything inside to end."""
        with suppress(OSError):
            self._channel.send(b"end")

    def kill(self) -> None:
        """End everything inside, and wait until it is gone."""
        for pid in children(self.pid) or [self.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> None:
        """Wait until nothing of it is left."""
        self._channel.close()
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def processes(self) -> list[int]:
        """Return the processes inside, init left out."""
        return below(children(self.pid))

    def network_process(self) -> int | None:
        """Return a process in the program's network namespace."""
        return next(iter(children(self.pid)), None)


def children(pid: int) -> list[int]:
    """Return a process's children; none where it has ended."""
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found.extend(int(word) for word in file.read_text().split())
        except OSError:
            continue
    return found


def below(pids: list[int]) -> list[int]:
    """Return the processes below some."""
    found = [child for pid in pids for child in children(pid)]
    for pid in found:
        found.extend(children(pid))
    return found


def give(work: Path, user: int) -> None:
    """Make the work directory the program's: the files in it are those that the job brought."""
    for directory, names, files in os.walk(work):
        for name in (*names, *files):
            os.chown(Path(directory) / name, user, user, follow_symlinks=False)
    os.chown(work, user, user)


def _never_return(channel: socket.socket, work: Callable[[], NoReturn]) -> NoReturn:
    """Do the work of a forked process; what goes wrong goes to the executor, not up the stack."""
    try:
        work()
    except BaseException as error:
        _tell(channel, {"failed": str(error) or type(error).__name__})
    finally:
        os._exit(1)


def _tell(channel: socket.socket, values: dict[str, Any], *descriptors: int) -> None:
    text = json.dumps(values).encode()[:_LONGEST_MESSAGE]
    try:
        socket.send_fds(channel, [text], descriptors)
    except OSError:
        os._exit(1)


def _outer(
    plan: Plan, user: int | None, output: tuple[int, int], channel: socket.socket, executor: int
) -> NoReturn:
    """Be the process that has the namespaces, and waits for who lives in them."""
    linux.die_with_parent(executor)
    _forget_signals()
    _leave(plan, user)
    # A change of user takes the tie away.
    linux.die_with_parent(executor)
    if plan.own_network:
        network = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        _tell(channel, {}, network)
        os.close(network)
    else:
        _tell(channel, {})
    said = channel.recv(_LONGEST_MESSAGE)
    if not said:
        os._exit(1)
    plan = _with_cc(plan, json.loads(said)["cc"])
    init = os.fork()
    if init == 0:
        _never_return(channel, lambda: _init(plan, user, output, channel))
    # Not at once: it keeps the run's lock until init, and all that lives below it, is gone.
    signal.signal(signal.SIGTERM, lambda *_: os.kill(init, signal.SIGKILL))
    linux.die_with_parent(executor, signal.SIGTERM)
    channel.close()
    for descriptor in output:
        os.close(descriptor)
    os.waitpid(init, 0)
    os._exit(0)


def _with_cc(plan: Plan, cc: str | None) -> Plan:
    """Return the plan with the name that a congestion control has got for this run alone."""
    if cc is None:
        return plan
    command = [word.replace(_CC, cc) for word in plan.command]
    return replace(plan, command=command, environment={**plan.environment, "SKYHOP_CC": cc})


def _forget_signals() -> None:
    """Take back the executor's handlers: what the terminal sends is for it alone."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _leave(plan: Plan, user: int | None) -> None:
    own = linux.NEWNS | linux.NEWPID | linux.NEWIPC | linux.NEWUTS
    own |= linux.NEWNET if plan.own_network else 0
    uid, gid = os.geteuid(), os.getegid()
    try:
        linux.unshare(own if user is not None else own | linux.NEWUSER)
    except OSError as error:
        raise RunError(f"{error.strerror}: see docs/limitations.md on namespaces") from None
    if user is None:
        _map_self(uid, gid)


def _init(
    plan: Plan, user: int | None, output: tuple[int, int], channel: socket.socket
) -> NoReturn:
    """Be process 1: prepare everything, start the program, and end with it."""
    # Seen from inside, the parent is no process.
    linux.die_with_parent(0)
    socket.sethostname(plan.name)
    if plan.own_network:
        _raise_loopback()
    places.lay_out(plan.places, plan.work, user, plan.limits.disk_bytes)
    if user is None and not plan.may_nest:
        _forbid_namespaces()
    program = _start(plan, user, output, channel)
    for descriptor in output:
        os.close(descriptor)
    _tell(channel, _wait(program, channel))
    os._exit(0)


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", _IFF_UP)
        fcntl.ioctl(control, _SIOCSIFFLAGS, request)


def _start(plan: Plan, user: int | None, output: tuple[int, int], channel: socket.socket) -> int:
    failed, fails = os.pipe()
    program = os.fork()
    if program == 0:
        try:
            channel.close()
            _become(plan, user, output, fails)
        except BaseException as error:
            os.write(fails, str(error).encode()[:_LONGEST_MESSAGE])
        finally:
            os._exit(_NO_SUCH_PROGRAM)
    os.close(fails)
    with os.fdopen(failed, "rb") as stream:
        why = stream.read()
    if why:
        raise RunError(why.decode(errors="replace"))
    return program


def _become(plan: Plan, user: int | None, output: tuple[int, int], fails: int) -> None:
    """Become the program: this returns only by an exception."""
    os.setsid()
    _limit(plan.limits)
    if user is not None:
        _become_user(user, plan.may_nest)
    linux.leave_keyring()
    linux.give_up_privileges()
    os.umask(0o022)
    os.chdir(places.HOME)
    for target, source in enumerate((os.open("/dev/null", os.O_RDONLY), *output)):
        os.dup2(source, target)
    os.dup2(fails, 3, inheritable=False)
    # The lock among them: it is not the program's.
    os.closerange(4, 1 << 20)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_DFL)
        except OSError:
            continue
    try:
        os.execvpe(plan.command[0], plan.command, plan.environment)
    except OSError as error:
        os.write(3, f"{plan.command[0]}: {error.strerror}".encode())
    os._exit(_NO_SUCH_PROGRAM)


def _become_user(user: int, may_nest: bool) -> None:
    """Change to a run's user, who makes no namespaces unless he may."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    if may_nest:
        return
    try:
        linux.unshare(linux.NEWUSER)
    except OSError:
        return  # Where ordinary users may make none there is nothing to forbid.
    _map_self(user, user)
    _forbid_namespaces()


def _map_self(uid: int, gid: int) -> None:
    """Be the same user inside a new user namespace as outside, and the only one."""
    linux.become_dumpable()
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")


def _forbid_namespaces() -> None:
    Path("/proc/sys/user/max_user_namespaces").write_text("0")


def _limit(limits: Limits) -> None:
    for kind, most in (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_NPROC, limits.processes),
        (resource.RLIMIT_FSIZE, limits.disk_bytes),
        (resource.RLIMIT_NOFILE, MOST_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))
    os.nice(limits.nice)


def _wait(program: int, channel: socket.socket) -> dict[str, Any]:
    """Wait for the program's end, bury what is orphaned, and pass on the word to end."""
    news = os.pidfd_open(program)
    while True:
        readable, _, _ = select.select([channel.fileno(), news], [], [], 1.0)
        if channel.fileno() in readable:
            if not channel.recv(16):
                os._exit(1)  # The executor is dead: all in here goes with process 1.
            os.kill(-1, signal.SIGTERM)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == program:
                code = os.waitstatus_to_exitcode(status)
                return {"exit": code} if code >= 0 else {"signal": -code}
            if pid == 0:
                break
