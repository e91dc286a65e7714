"""Process between the command and the testbench, which cleans up after both.

    command    the user's process; when it ends for any reason, its end of the channel closes
    guard      lives in new namespaces (user, unless root; PID, mount); when the channel closes or
               the testbench ends, it kills the testbench and removes its directory
    testbench  process 1 of the PID namespace: its death ends all processes in there, and with
               them their network namespaces, devices and mounts

The guard has its own session, so that only the command receives Ctrl-C.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, TypedDict, Unpack

from skyhop.errors import RunError
from skyhop_testbed import linux

_PIECE = 1 << 16
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)


class Order(TypedDict, total=False):
    """Order of the command to the testbench: `do`, and the values that it needs."""

    do: str
    """Name of the order: `agents`, `owner` or `finish`."""
    port: int
    """Port of the orchestrator for agents."""
    seconds: float
    """Length of the owner's traffic."""
    bps: float
    """Rate of the owner's traffic in bit/s."""


class Message(TypedDict, total=False):
    """Message of the testbench: `event` with the values that it has, or `failed`."""

    event: str
    """Name of the event: `link`, `joined`, `packets` or `finished`."""
    failed: str
    """Reason why the testbench has ended."""
    site: str
    at_ns: int
    """Start of the site's link."""
    namespaces: int
    """Number of network namespaces that are joined."""
    owner_first_ns: int
    """Time of the first packet of the owner's traffic, or 0."""
    owner_last_ns: int
    run_first_ns: int
    run_last_ns: int


TestbenchMain = Callable[[socket.socket], None]


class Guard:
    """Guard process, as the command sees it.

    Args:
        testbench: function that the testbench's process calls with its end of the channel.
        scratch: directory that is removed at the end, if any.
    """

    def __init__(self, testbench: TestbenchMain, scratch: Path | None) -> None:
        ours, theirs = socket.socketpair()
        self._rest = b""
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            _never_return(theirs, lambda: _guard(testbench, scratch, theirs))
        theirs.close()
        self._channel = ours

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the testbench sends a message."""
        return self._channel.fileno()

    def send_order(self, **order: Unpack[Order]) -> None:
        """Send an order to the testbench.

        Raises:
            RunError: the testbench has ended.
        """
        try:
            self._channel.sendall(json.dumps(order).encode() + b"\n")
        except OSError:
            raise RunError("the demo's processes have ended") from None

    def messages(self, patience_s: float) -> list[Message]:
        """Return the testbench's messages; wait at most `patience_s` seconds for the first.

        Raises:
            RunError: the testbench has ended, or reports a failure.
        """
        if not select.select([self._channel], [], [], patience_s)[0]:
            return []
        try:
            data = self._channel.recv(_PIECE)
        except OSError:
            data = b""
        if not data:
            raise RunError("the demo's processes have ended")
        *lines, self._rest = (self._rest + data).split(b"\n")
        messages: list[Message] = [json.loads(line) for line in lines]
        failed = next((each["failed"] for each in messages if "failed" in each), None)
        if failed is not None:
            raise RunError(failed)
        return messages

    def close(self) -> None:
        """Close the channel, and wait until the guard has ended all other processes."""
        self._channel.close()
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def send(channel: socket.socket, **message: Unpack[Message]) -> None:
    """Send a message on a channel; a closed channel is no error, as the guard handles it."""
    with suppress(OSError):
        channel.sendall(json.dumps(message).encode() + b"\n")


def _never_return(channel: socket.socket, work: Callable[[], object]) -> NoReturn:
    """Run the function of a forked process, send its exception on the channel, and exit."""
    try:
        work()
    except BaseException as error:
        send(channel, failed=str(error) or type(error).__name__)
    finally:
        os._exit(1)


def _guard(testbench: TestbenchMain, scratch: Path | None, channel: socket.socket) -> None:
    os.setsid()
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    try:
        _enter_namespaces()
        init = os.fork()
        if init == 0:
            _never_return(channel, lambda: _init(testbench, channel))
        _watch(init, channel)
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def _enter_namespaces() -> None:
    """Enter new namespaces: PID and mount, and without root's privileges also user."""
    own = linux.NEWPID | linux.NEWNS
    try:
        if os.geteuid() == 0:
            with suppress(PermissionError):
                linux.unshare(own)
                return
        uid, gid = os.geteuid(), os.getegid()
        linux.unshare(own | linux.NEWUSER)
        map_user(0, uid, 0, gid)
    except OSError as error:
        raise RunError(
            f"this system forbids this user to create namespaces ({error.strerror}): run the demo "
            "as root, or see skyhop docs limitations"
        ) from None


def map_user(uid: int, outside_uid: int, gid: int, outside_gid: int) -> None:
    """Map a user and group into the user namespace that this process has just created."""
    linux.become_dumpable()
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/gid_map").write_text(f"{gid} {outside_gid} 1")
    Path("/proc/self/uid_map").write_text(f"{uid} {outside_uid} 1")


def _watch(init: int, channel: socket.socket) -> None:
    """Wait until the testbench or the command ends, then kill the testbench."""
    ended = os.pidfd_open(init)
    waiting = select.poll()
    waiting.register(channel, select.POLLRDHUP)
    waiting.register(ended, select.POLLIN)
    waiting.poll()
    with suppress(ProcessLookupError):
        os.kill(init, signal.SIGKILL)
    os.waitpid(init, 0)


def _init(testbench: TestbenchMain, channel: socket.socket) -> None:
    """Run process 1 of the PID namespace: mount /proc, then call `testbench`."""
    # In the new PID namespace getppid() returns 0 for the parent.
    linux.die_with_parent(0)
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    with suppress(PermissionError):
        # Some containers mask parts of /proc; they do not permit a new /proc.
        linux.mount("proc", "/proc", "proc", flags)
    testbench(channel)
