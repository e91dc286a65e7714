"""The process between the command and the stage, which leaves nothing behind.

    command    the user's; however it ends, its end of the channel is closed
    guard      has left for namespaces of its own (of users, unless root; PIDs, mounts); when the
               channel is closed or the stage has ended it ends the stage and removes its directory
    stage      process 1 of the PID namespace: with it dies everything in there, and with that go
               network namespaces, devices and mounts

The guard is in a session of its own: Ctrl-C is for the command to answer.
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
from typing import Any, NoReturn

from skyhop.errors import RunError
from skyhop.testbed.executor import linux

_PIECE = 1 << 16
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)

Stage = Callable[[socket.socket], None]


class Guard:
    """The guard, as the command sees it.

    Args:
        stage: what is done in the stage's process, with its end of the channel.
        scratch: removed at the end; `None` where it is to be kept.
    """

    def __init__(self, stage: Stage, scratch: Path | None) -> None:
        ours, theirs = socket.socketpair()
        self._rest = b""
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            _never_return(theirs, lambda: _guard(stage, scratch, theirs))
        theirs.close()
        self._channel = ours

    def fileno(self) -> int:
        """Return a descriptor that can be read when there is news."""
        return self._channel.fileno()

    def tell(self, **order: Any) -> None:
        """Tell the stage something.

        Raises:
            RunError: it is gone.
        """
        try:
            self._channel.sendall(json.dumps(order).encode() + b"\n")
        except OSError:
            raise RunError("the demo's processes have ended") from None

    def news(self, patience_s: float) -> list[dict[str, Any]]:
        """Return what the stage said meanwhile, after so long at the most.

        Raises:
            RunError: it has ended, or says that it cannot go on.
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
        said: list[dict[str, Any]] = [json.loads(line) for line in lines]
        failed = next((each["failed"] for each in said if "failed" in each), None)
        if failed is not None:
            raise RunError(str(failed))
        return said

    def close(self) -> None:
        """End everything, and wait until nothing is left."""
        self._channel.close()
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def send(channel: socket.socket, **said: Any) -> None:
    """Say something on a channel; that nobody listens any more is the guard's to see."""
    with suppress(OSError):
        channel.sendall(json.dumps(said).encode() + b"\n")


def _never_return(channel: socket.socket, work: Callable[[], object]) -> NoReturn:
    """Do the work of a forked process; what goes wrong is said, and goes not up the stack."""
    try:
        work()
    except BaseException as error:
        send(channel, failed=str(error) or type(error).__name__)
    finally:
        os._exit(1)


def _guard(stage: Stage, scratch: Path | None, channel: socket.socket) -> None:
    os.setsid()
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    try:
        _leave()
        init = os.fork()
        if init == 0:
            _never_return(channel, lambda: _init(stage, channel))
        _watch(init, channel)
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def _leave() -> None:
    """Leave for new namespaces; without root's rights one of users comes first."""
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
            f"this system does not let this user make namespaces ({error.strerror}): run the demo "
            "as root, or see docs/limitations.md"
        ) from None


def map_user(uid: int, outside_uid: int, gid: int, outside_gid: int) -> None:
    """Be a user in the namespace of users that this process has just made."""
    linux.become_dumpable()
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/gid_map").write_text(f"{gid} {outside_gid} 1")
    Path("/proc/self/uid_map").write_text(f"{uid} {outside_uid} 1")


def _watch(init: int, channel: socket.socket) -> None:
    """Wait until the stage ends or the command has, and leave nothing of the stage."""
    ended = os.pidfd_open(init)
    waiting = select.poll()
    waiting.register(channel, select.POLLRDHUP)
    waiting.register(ended, select.POLLIN)
    waiting.poll()
    with suppress(ProcessLookupError):
        os.kill(init, signal.SIGKILL)
    os.waitpid(init, 0)


def _init(stage: Stage, channel: socket.socket) -> None:
    """Be process 1: the stage."""
    # Seen from inside, the parent is no process.
    linux.die_with_parent(0)
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    with suppress(PermissionError):
        # Containers that mask parts of /proc refuse a new one.
        linux.mount("proc", "/proc", "proc", flags)
    stage(channel)
