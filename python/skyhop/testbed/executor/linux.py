"""Calls of Linux's that Python 3.11 does not have: namespaces, mounts, a death with the parent."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import threading
from collections.abc import Callable
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
    """Leave for new namespaces (unshare(2))."""
    _check(_libc.unshare(flags), "cannot make namespaces")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Mount (mount(2))."""
    words = [None if w is None else os.fsencode(w) for w in (source, target, kind)]
    data = options.encode() or None
    _check(_libc.mount(*words, ctypes.c_ulong(flags), data), f"cannot mount {target}")


def unmount(target: str) -> None:
    """Unmount, once nobody uses it (umount2(2))."""
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"cannot unmount {target}")


def restrict_mount(target: str, attributes: int, *, below: bool = True) -> None:
    """Add attributes to a mount and those below it (mount_setattr(2), Linux 5.12)."""
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
        raise RunError(f"sandboxes are not known for {platform.machine()}")
    _check(_libc.syscall(number, os.fsencode(new), os.fsencode(old)), "cannot change the root")


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Send this process a signal when its parent ends; end now if that has happened already."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0), "cannot tie to the parent")
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of what this process' descendants leave behind (prctl(2))."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "cannot adopt orphans")


def become_dumpable() -> None:
    """Own one's files in /proc again after a change of user."""
    _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def leave_keyring() -> None:
    """Have an empty session keyring: the one before holds keys of whoever started this process."""
    number = _KEYCTL.get(platform.machine())
    if number is not None:
        # A kernel without keys has none to hide.
        _libc.syscall(number, _KEYCTL_JOIN_SESSION_KEYRING, None)


def give_up_privileges() -> None:
    """Take from this process, for good, whatever programs it starts could gain."""
    for capability in range(_LAST_CAPABILITY + 1):
        # Those that the kernel does not have are refused.
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "cannot give up privileges")


def inside_network(namespace: int, work: Callable[[], T]) -> T:
    """Do something inside a network namespace, of which `namespace` is a descriptor.

    A thread does it, and what it starts is inside too; the caller stays where it is.
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
