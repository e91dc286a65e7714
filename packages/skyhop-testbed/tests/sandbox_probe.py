"""Probe of a sandbox from inside: prints a line for each forbidden action that succeeds.

The program runs inside the sandbox, with Python's standard library alone.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_LARGEST_INSIDE = 9
"""Largest pid expected in a sandbox's PID namespace."""
_LIBC = ctypes.CDLL(None, use_errno=True)
_NAMESPACES = {
    "mount": 0x0002_0000,
    "uts": 0x0400_0000,
    "ipc": 0x0800_0000,
    "user": 0x1000_0000,
    "pid": 0x2000_0000,
    "network": 0x4000_0000,
}
_SECRETS = ("/etc/shadow", "/root", "/home", "/dev/kmsg", "/dev/mem", "/proc/kcore", "/var/lib")
_SETTINGS = (
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/vm/drop_caches",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sysrq-trigger",
    "/usr/written",
    "/etc/written",
    "/written",
)


def _reads(name: str) -> bool:
    place = Path(name)
    if place.is_dir():
        return bool({each.name for each in place.iterdir()} - {"run"})
    with place.open("rb") as stream:
        return bool(stream.read(1))


def _writes(name: str) -> bool:
    os.close(os.open(name, os.O_WRONLY | (0 if name.startswith("/proc") else os.O_CREAT)))
    return True


def _opens(family: int, kind: int) -> bool:
    socket.socket(family, kind).close()
    return True


def _status(name: str) -> str:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(line.split()[-1] for line in lines if line.startswith(f"{name}:"))


def _others() -> bool:
    """Return whether processes outside the sandbox are visible, as it has only a few."""
    return sum(name.name.isdigit() for name in Path("/proc").iterdir()) > 6


def _descriptors() -> bool:
    """Return whether descriptors are open other than 0 to 2 and that of the listing."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir()) > 4


def _made(flag: int) -> bool:
    child = os.fork()
    if child == 0:
        os._exit(int(_LIBC.unshare(flag) != 0))
    return os.waitpid(child, 0)[1] == 0


def main() -> None:
    """Try all forbidden actions, and print those that succeed."""
    if os.getpid() > _LARGEST_INSIDE or not os.environ.get("SANDBOXED"):
        sys.exit("this is no sandbox: outside, the probe would change the machine")
    tries: dict[str, Callable[[], bool]] = {
        **{f"read {name}": lambda n=name: _reads(n) for name in _SECRETS},  # type: ignore[misc]
        **{f"write {name}": lambda n=name: _writes(n) for name in _SETTINGS},  # type: ignore[misc]
        **{f"make a {n} namespace": lambda f=f: _made(f) for n, f in _NAMESPACES.items()},  # type: ignore[misc]
        "raw socket": lambda: _opens(socket.AF_INET, socket.SOCK_RAW),
        "packet socket": lambda: _opens(socket.AF_PACKET, socket.SOCK_RAW),
        "mount": lambda: _LIBC.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0,
        "be root": lambda: os.geteuid() == 0,
        "set a host name": lambda: _LIBC.sethostname(b"x", 1) == 0,
        "have capabilities": lambda: int(_status("CapEff"), 16) != 0,
        "gain capabilities": lambda: int(_status("CapBnd"), 16) != 0,
        "gain privileges": lambda: _status("NoNewPrivs") != "1",
        "see other processes": _others,
        "have descriptors of others": _descriptors,
        "see devices": lambda: len(Path("/proc/net/dev").read_text().splitlines()) > 3,
        "find a key": lambda: _LIBC.syscall(250, 10, -3, b"user", b"skyhop-probe", 0) > 0,
    }
    for what, is_possible in tries.items():
        with suppress(OSError):
            if is_possible():
                print(what)


if __name__ == "__main__":
    main()
