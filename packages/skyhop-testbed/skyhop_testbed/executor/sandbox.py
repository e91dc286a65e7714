"""Sandbox of the back end `process`: a program in its own Linux namespaces.

Three processes run below the executor, each forked from the previous one:

    outer    enters new namespaces (user, unless root; mount, PID, IPC, UTS, network)
    init     process 1 there: builds the file system (`sandbox_fs`) and waits for the program
    program  drops every privilege, sets its limits, and executes the job's command

Each process dies with its parent, and the death of init ends all processes of its PID namespace: no
process is left when the executor is killed. In addition, init and executor share a channel. Over it
init reports the program's end, and the executor asks init to end the program; when the channel
closes, the process at the other end is dead.

If the executor is root, each run's program has a user id of its own. Otherwise the program runs as
the agent's user, without privileges inside or outside the sandbox.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from skyhop.errors import RunError
from skyhop_testbed import linux
from skyhop_testbed.executor import sandbox_fs
from skyhop_testbed.executor.assignment import Limits
from skyhop_testbed.executor.devices import DeviceSetup, raise_loopback
from skyhop_testbed.executor.user_network import Namespaces

_FIRST_USER = 0x7000_0000
_USERS = 1 << 24
_LONGEST_MESSAGE = 4096
MOST_FILES = 4096
_NO_SUCH_PROGRAM = 127

AttachDevice = Callable[[Namespaces], "str | None"]
"""Function that puts a device into a run's network namespace, and returns the name of the
congestion control that was loaded for the run. It does not close the descriptors."""
_CC = "{cc}"
_Message = dict[str, int] | dict[str, str] | dict[str, str | None]
"""Message on the channel: `failed`, `cc`, or `exit` or `signal` of the program."""


@dataclass(frozen=True)
class Plan:
    """Command of a sandbox, its environment, visible files and limits."""

    command: list[str]
    environment: dict[str, str]
    work: Path
    mounts: list[sandbox_fs.BindMount]
    """Files and directories of the machine that are visible to the program."""
    name: str
    """Host name inside the sandbox."""
    own_network: bool
    may_nest: bool
    """Whether the program may create namespaces itself, as live runs of skyhop do."""
    limits: Limits
    setup: DeviceSetup | None = None
    """Setup of the device in the run's own network namespace."""
    resolver: str | None = None
    """Content of /etc/resolv.conf in the sandbox; `None` keeps this machine's."""


@dataclass(frozen=True)
class ProgramEnd:
    """End of a program: its exit status, its signal, or why it did not start."""

    exit: int | None = None
    signal: int | None = None
    failed: str | None = None


def user_of(key: str) -> int:
    """Return the uid of the program of one side of a run under a root executor.

    Each side has its own uid, which owns no other files.
    """
    return _FIRST_USER + zlib.crc32(key.encode()) % _USERS


class Sandbox:
    """Running sandbox with its program, as the executor sees it.

    Args:
        plan: command, environment and limits.
        user: uid of the program, if the executor runs as root.
        output: descriptors for standard output and error.
        attach_device: called with the network namespace before the program starts.

    Raises:
        RunError: this machine does not allow the sandbox.
    """

    def __init__(
        self,
        plan: Plan,
        user: int | None,
        output: tuple[int, int],
        attach_device: AttachDevice | None,
    ) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel = ours
        self._ended: ProgramEnd | None = None
        executor = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            _never_return(theirs, lambda: _run_outer(plan, user, output, theirs, executor))
        theirs.close()
        try:
            self._set_up(attach_device)
        except BaseException:
            self.kill()
            raise

    def _set_up(self, attach_device: AttachDevice | None) -> None:
        message, descriptors, _, _ = socket.recv_fds(self._channel, _LONGEST_MESSAGE, 2)
        said = json.loads(message) if message else {"failed": "the sandbox ended at once"}
        if "failed" in said:
            raise RunError(f"cannot make a sandbox: {said['failed']}")
        cc = None
        try:
            if attach_device is not None:
                cc = attach_device(Namespaces(*descriptors))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        _send(self._channel, {"cc": cc})

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the program has ended."""
        return self._channel.fileno()

    def poll(self) -> ProgramEnd | None:
        """Receive init's report of the program's end; return how the program ended."""
        try:
            message = self._channel.recv(_LONGEST_MESSAGE)
        except OSError:
            message = b""
        return ProgramEnd(**json.loads(message)) if message else ProgramEnd(signal=signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM to all processes inside the sandbox."""
        with suppress(OSError):
            self._channel.send(b"end")

    def kill(self) -> None:
        """Kill all processes inside the sandbox, and wait until they are gone."""
        for pid in children(self.pid) or [self.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> None:
        """Wait until all processes inside the sandbox are gone."""
        self._channel.close()
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def processes(self) -> list[int]:
        """Return the pids of the processes inside the sandbox, except init."""
        return descendant_pids(children(self.pid))

    def network_process(self) -> int | None:
        """Return the pid of a process in the program's network namespace."""
        return next(iter(children(self.pid)), None)


def children(pid: int) -> list[int]:
    """Return the pids of a process's children; empty if it has ended."""
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found.extend(int(word) for word in file.read_text().split())
        except OSError:
            continue
    return found


def descendant_pids(pids: list[int]) -> list[int]:
    """Return the pids of all descendants of processes."""
    found = [child for pid in pids for child in children(pid)]
    for pid in found:
        found.extend(children(pid))
    return found


def chown_tree(work: Path, user: int) -> None:
    """Change the owner of the work directory and its files to the program's user."""
    for directory, names, files in os.walk(work):
        for name in (*names, *files):
            os.chown(Path(directory) / name, user, user, follow_symlinks=False)
    os.chown(work, user, user)


def _never_return(channel: socket.socket, work: Callable[[], NoReturn]) -> NoReturn:
    """Run the function of a forked process, report its exception to the executor, and exit."""
    try:
        work()
    except BaseException as error:
        _send(channel, {"failed": str(error) or type(error).__name__})
    finally:
        os._exit(1)


def _send(channel: socket.socket, values: _Message, *descriptors: int) -> None:
    text = json.dumps(values).encode()[:_LONGEST_MESSAGE]
    try:
        socket.send_fds(channel, [text], descriptors)
    except OSError:
        os._exit(1)


def _run_outer(
    plan: Plan, user: int | None, output: tuple[int, int], channel: socket.socket, executor: int
) -> NoReturn:
    """Run the outer process: create the namespaces, fork init, and wait for it."""
    linux.die_with_parent(executor)
    _ignore_signals()
    _enter_namespaces(plan, user)
    # Changing the user clears the parent-death signal, so it is set again.
    linux.die_with_parent(executor)
    _send_namespaces(plan, user, channel)
    said = channel.recv(_LONGEST_MESSAGE)
    if not said:
        os._exit(1)
    plan = _with_cc(plan, json.loads(said)["cc"])
    init = os.fork()
    if init == 0:
        _never_return(channel, lambda: _run_init(plan, user, output, channel))
    # This process gets SIGTERM instead of SIGKILL at its parent's death, as it holds the run's lock
    # until init and all its descendants are gone.
    signal.signal(signal.SIGTERM, lambda *_: os.kill(init, signal.SIGKILL))
    linux.die_with_parent(executor, signal.SIGTERM)
    channel.close()
    for descriptor in output:
        os.close(descriptor)
    os.waitpid(init, 0)
    os._exit(0)


def _send_namespaces(plan: Plan, user: int | None, channel: socket.socket) -> None:
    """Send the executor the run's own network namespace, and the user namespace of its owner."""
    names = ["net"] if plan.own_network else []
    names += ["user"] if plan.own_network and user is None else []
    opened = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in names]
    _send(channel, {}, *opened)
    for descriptor in opened:
        os.close(descriptor)


def _with_cc(plan: Plan, cc: str | None) -> Plan:
    """Return the plan with `{cc}` replaced by the name of this run's congestion control."""
    if cc is None:
        return plan
    command = [word.replace(_CC, cc) for word in plan.command]
    return replace(plan, command=command, environment={**plan.environment, "SKYHOP_CC": cc})


def _ignore_signals() -> None:
    """Ignore the signals of the terminal (tty); only the executor handles them."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _enter_namespaces(plan: Plan, user: int | None) -> None:
    own = linux.NEWNS | linux.NEWPID | linux.NEWIPC | linux.NEWUTS
    own |= linux.NEWNET if plan.own_network else 0
    uid, gid = os.geteuid(), os.getegid()
    try:
        linux.unshare(own if user is not None else own | linux.NEWUSER)
    except OSError as error:
        raise RunError(f"{error.strerror}: see skyhop docs limitations on namespaces") from None
    if user is None:
        _map_self(uid, gid)


def _run_init(
    plan: Plan, user: int | None, output: tuple[int, int], channel: socket.socket
) -> NoReturn:
    """Run process 1: build the sandbox, start the program, and exit when it has ended."""
    # In the new PID namespace getppid() returns 0 for the parent.
    linux.die_with_parent(0)
    socket.sethostname(plan.name)
    if plan.own_network:
        raise_loopback()
    if plan.setup is not None:
        plan.setup.apply()
    sandbox_fs.build_root(plan.mounts, plan.work, user, plan.limits.disk_bytes, plan.resolver)
    if user is None and not plan.may_nest:
        _forbid_namespaces()
    program = _start(plan, user, output, channel)
    for descriptor in output:
        os.close(descriptor)
    _send(channel, _wait(program, channel))
    os._exit(0)


def _start(plan: Plan, user: int | None, output: tuple[int, int], channel: socket.socket) -> int:
    failed, fails = os.pipe()
    program = os.fork()
    if program == 0:
        try:
            channel.close()
            _exec_program(plan, user, output, fails)
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


def _exec_program(plan: Plan, user: int | None, output: tuple[int, int], fails: int) -> None:
    """Execute the program in this process; raise an error if that fails."""
    os.setsid()
    _limit(plan.limits)
    if user is not None:
        _become_user(user, plan.may_nest)
    linux.leave_keyring()
    linux.give_up_privileges()
    os.umask(0o022)
    os.chdir(sandbox_fs.HOME)
    for target, source in enumerate((os.open("/dev/null", os.O_RDONLY), *output)):
        os.dup2(source, target)
    os.dup2(fails, 3, inheritable=False)
    # This also closes the run's lock, which the program must not hold.
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
    """Change to a run's user, and forbid that user to create namespaces unless `may_nest`."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    if may_nest:
        return
    try:
        linux.unshare(linux.NEWUSER)
    except OSError:
        return  # Users without privileges cannot create namespaces here anyway.
    _map_self(user, user)
    _forbid_namespaces()


def _map_self(uid: int, gid: int) -> None:
    """Map the user to itself in a new user namespace; no other user is mapped."""
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


def _wait(program: int, channel: socket.socket) -> _Message:
    """Wait for the program's end; meanwhile reap orphans and pass on requests to terminate."""
    poll = os.pidfd_open(program)
    while True:
        readable, _, _ = select.select([channel.fileno(), poll], [], [], 1.0)
        if channel.fileno() in readable:
            if not channel.recv(16):
                os._exit(1)  # The executor is dead; the exit of process 1 ends all inside.
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
