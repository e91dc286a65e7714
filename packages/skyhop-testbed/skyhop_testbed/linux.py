"""Linux system calls that Python 3.11 does not offer: namespaces, mounts, prctl(2)."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from skyhop.errors import RunError

T = TypeVar("T")

NEWNS, NEWUTS, NEWIPC = 0x0002_0000, 0x0400_0000, 0x0800_0000
NEWUSER, NEWPID, NEWNET = 0x1000_0000, 0x2000_0000, 0x4000_0000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
_PR_SET_CHILD_SUBREAPER = 36
_AT_RECURSIVE, _AT_FDCWD = 0x8000, -100
_MOUNT_SETATTR = 442
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219}
_KEYCTL_JOIN_SESSION_KEYRING = 1
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41}
_LAST_CAPABILITY = 63

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def unshare(flags: int) -> None:
    """Move this process into new namespaces (unshare(2))."""
    _check(_libc.unshare(flags), "cannot make namespaces")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Mount a file system or bind a path (mount(2))."""
    words = [None if w is None else os.fsencode(w) for w in (source, target, kind)]
    data = options.encode() or None
    _check(_libc.mount(*words, ctypes.c_ulong(flags), data), f"cannot mount {target}")


def unmount(target: str) -> None:
    """Detach a mount (umount2(2), MNT_DETACH); it vanishes once no process uses it."""
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"cannot unmount {target}")


def restrict_mount(target: str, attributes: int, *, below: bool = True) -> None:
    """Add attributes to a mount and, with `below`, to mounts below it (mount_setattr(2)).

    The call needs Linux 5.12.
    """
    values = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    flags = _AT_RECURSIVE if below else 0
    done = _libc.syscall(
        _MOUNT_SETATTR, _AT_FDCWD, os.fsencode(target), flags, values, ctypes.c_size_t(32)
    )
    _check(done, f"cannot restrict {target}")


def pivot_root(new: str, old: str) -> None:
    """Make another mount the root (pivot_root(2))."""
    number = _PIVOT_ROOT.get(platform.machine())
    if number is None:
        raise RunError(f"sandboxes are not supported on {platform.machine()}")
    _check(_libc.syscall(number, os.fsencode(new), os.fsencode(old)), "cannot change the root")


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel signal this process when its parent dies.

    Exit if the parent is already dead.
    """
    _check(_libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0), "cannot set the parent-death signal")
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants (PR_SET_CHILD_SUBREAPER of prctl(2))."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "cannot adopt orphans")


def become_dumpable() -> None:
    """Regain ownership of the process's files in /proc after a change of user."""
    _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def leave_keyring() -> None:
    """Join a new, empty session keyring; the old keyring holds keys of the agent's user."""
    number = _KEYCTL.get(platform.machine())
    if number is not None:
        # The call fails only on kernels without keyrings.
        _libc.syscall(number, _KEYCTL_JOIN_SESSION_KEYRING, None)


def give_up_privileges() -> None:
    """Drop all capabilities from the bounding set, and set no_new_privs; both are irreversible."""
    for capability in range(_LAST_CAPABILITY + 1):
        # For capabilities that this kernel does not have, the call fails.
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "cannot give up privileges")


def inside_network(namespace: int, work: Callable[[], T]) -> T:
    """Call a function inside a network namespace, given by a descriptor; return its result.

    A new thread enters the namespace, and processes that this thread starts are in it too. The
    caller's thread stays in its own namespace.
    """
    outcome: list[Any] = []

    def enter() -> None:
        try:
            _check(_libc.setns(namespace, NEWNET), "cannot enter the network namespace")
            outcome.extend((True, work()))
        except BaseException as error:
            outcome.extend((False, error))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    worked, result = outcome
    if not worked:
        raise result
    value: T = result
    return value


def call_inside(namespaces: Sequence[tuple[int, int]], work: Callable[[], T]) -> T:
    """Call a function in a child process inside namespaces; return its result, which is JSON.

    A child process can enter a user namespace that this user owns, and with it the network
    namespaces that belong to it; a thread of this process cannot.

    Args:
        namespaces: descriptors and kinds (setns(2)), in the order of entering them.
        work: the function.

    Raises:
        RunError: a namespace cannot be entered, or the function raises an exception.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            signal.set_wakeup_fd(-1)
            for descriptor, kind in namespaces:
                _check(_libc.setns(descriptor, kind), "cannot enter the namespace")
            said = {"result": work()}
        except BaseException as error:
            said = {"error": str(error) or type(error).__name__}  # type: ignore[dict-item]
        try:
            with os.fdopen(writer, "wb") as stream:
                stream.write(json.dumps(said).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        answer = json.loads(stream.read() or b'{"error": "the process inside has ended"}')
    os.waitpid(child, 0)
    if "error" in answer:
        raise RunError(answer["error"])
    result: T = answer["result"]
    return result
