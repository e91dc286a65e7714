"""Network namespace of a run, identified by its descriptor, and the device inside it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from skyhop.errors import InputError, RunError
from skyhop_testbed.kernel.programs import call
from skyhop_testbed.linux import NEWNET, inside_network

T = TypeVar("T")

DEVICE = "run0"
"""Name of a run's device inside its namespace."""
_NS_GET_NSTYPE = 0xB703


class Namespace:
    """Network namespace that an executor created for its run.

    Args:
        descriptor: the namespace's descriptor, which `close` closes.

    Raises:
        InputError: the descriptor is no network namespace, or the host's own.
    """

    def __init__(self, descriptor: int) -> None:
        try:
            kind = fcntl.ioctl(descriptor, _NS_GET_NSTYPE)
        except OSError:
            kind = 0
        if kind != NEWNET:
            os.close(descriptor)
            raise InputError("run.attach: the descriptor is no network namespace")
        self.descriptor = descriptor
        self.inode = os.fstat(descriptor).st_ino
        if self.inode in (_inode_of("self"), _inode_of("1")):
            os.close(descriptor)
            raise InputError("run.attach: a run may not change the host's network")

    @property
    def path(self) -> str:
        """Path of the namespace, valid in a program that inherits the descriptor."""
        return f"/proc/self/fd/{self.descriptor}"

    def inside(self, work: Callable[[], T]) -> T:
        """Call a function in a thread inside the namespace; return its result."""
        return inside_network(self.descriptor, work)

    def call(self, *command: str, text: str | None = None) -> str:
        """Run a program inside the namespace; return its output."""
        return self.inside(lambda: call(*command, text=text))

    def read(self, name: str) -> str:
        """Return the value of a sysctl below net.ipv4."""
        return self.inside(lambda: _sysctl(name).read_text()).strip()

    def write(self, name: str, value: str) -> None:
        """Set a sysctl below net.ipv4.

        Raises:
            OSError: the kernel refuses.
        """

        def write() -> None:
            descriptor = os.open(_sysctl(name), os.O_WRONLY)
            try:
                os.write(descriptor, value.encode())
            finally:
                os.close(descriptor)

        self.inside(write)

    def counters(self) -> tuple[int, int]:
        """Return the bytes that the run's device received and sent."""

        def read() -> tuple[int, int]:
            # /proc/net would show the namespace of the process's main thread.
            lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
            for line in lines[2:]:
                name, _, numbers = line.partition(":")
                if name.strip() == DEVICE:
                    words = numbers.split()
                    return int(words[0]), int(words[8])
            raise RunError("the run's device is gone")

        return self.inside(read)

    def close(self) -> None:
        """Close the descriptor; the namespace vanishes when its last process has ended."""
        os.close(self.descriptor)


def _inode_of(process: str) -> int:
    try:
        return Path(f"/proc/{process}/ns/net").stat().st_ino
    except OSError:
        return 0


def _sysctl(name: str) -> Path:
    return Path("/proc/sys/net/ipv4") / name


def remove_device(name: str, inode: int) -> None:
    """Remove a run's device: by its end in the host, or inside the namespace with inode `inode`."""
    if _exists(name):
        _delete(name)
        return
    for process in Path("/proc").glob("[0-9]*"):
        if _inode_of(process.name) != inode:
            continue
        try:
            descriptor = os.open(process / "ns/net", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if os.fstat(descriptor).st_ino == inode:
                inside_network(descriptor, _remove_inside)
                return
        finally:
            os.close(descriptor)


def _exists(name: str) -> bool:
    try:
        call("ip", "link", "show", name)
    except RunError:
        return False
    return True


def _remove_inside() -> None:
    if _exists(DEVICE):
        _delete(DEVICE)


def _delete(name: str) -> None:
    """Delete a device; it is no error if it vanishes with the namespace of its other end."""
    try:
        call("ip", "link", "delete", name)
    except RunError:
        if _exists(name):
            raise
