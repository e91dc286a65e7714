"""Traffic of a control group (cgroup v2), UDP and ICMP included, counted by BPF programs.

A program of the type cgroup_skb runs for each packet that a socket of the group sends or receives
(bpf(2), bpf-helpers(7)). Its counters are a BPF map, which the agent opens by its id. The programs
are attached by BPF links, so the kernel detaches them when the executor ends. This needs root, or
CAP_BPF and CAP_NET_ADMIN, and a writable cgroup v2 file system.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import struct
from contextlib import suppress
from pathlib import Path

from skyhop.errors import RunError
from skyhop_testbed.executor.traffic import Traffic

GROUP = "bytes of the run's control group, with headers"
FILE = "group"
"""File in a run's directory with the id of the map."""

_CALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280}
"""Number of the system call bpf(2) by architecture."""
_MAP_CREATE, _MAP_LOOKUP, _PROG_LOAD, _MAP_OF_ID, _INFO_OF_FD, _LINK_CREATE = 0, 1, 5, 14, 15, 28
_ARRAY, _CGROUP_SKB = 2, 8
_INGRESS, _EGRESS = 0, 1
"""Types of attachment, and keys of the map."""
_LOOPBACK_KEYS = 2
"""Number that is added to a key for packets of the loopback device."""
_ATTRIBUTES_BYTES = 128
_VALUE = struct.Struct("=QQQ")
"""Bytes from the IP header on, packets as the stack handles them, and segments on the wire."""
_LENGTH_AT, _DEVICE_AT, _SEGMENTS_AT = 0, 40, 164
"""Offsets of len, ifindex and gso_segs in `struct __sk_buff` (linux/bpf.h)."""
_LOOPBACK = 1
"""Index of the loopback device in every network namespace."""
_ETHERNET_BYTES, _REPEATED_BYTES = 14, 52
"""Bytes of the Ethernet header, and of the headers that each further segment of a packet repeats
(IPv4, TCP with timestamps)."""
_UNIFIED = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))


class CountedGroup:
    """Control group of one side of a run, whose traffic the kernel counts.

    Args:
        key: key of the side, part of the group's name: client and server may be on one machine.

    Raises:
        RunError: this machine does not allow it; the message says what is missing.
    """

    def __init__(self, key: str) -> None:
        self._above = _own_group()
        self._group = _group_of(self._above, key)
        self._map = _made_map()
        self._links: list[int] = []
        try:
            self._group.mkdir(exist_ok=True)
            group = os.open(self._group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                for direction in (_INGRESS, _EGRESS):
                    program = _loaded(self._map, direction)
                    try:
                        wanted = struct.pack("=IIII", program, group, direction, 0)
                        self._links.append(_bpf(_LINK_CREATE, wanted))
                    finally:
                        os.close(program)
            finally:
                os.close(group)
        except (OSError, RunError) as error:
            self.close()
            said = error.strerror if isinstance(error, OSError) else str(error)
            raise RunError(f"{self._group}: {said}") from None

    @property
    def map_id(self) -> int:
        """Id by which another process opens the counters."""
        info = ctypes.create_string_buffer(16)
        _bpf(_INFO_OF_FD, struct.pack("=IIQ", self._map, len(info), ctypes.addressof(info)))
        return int(struct.unpack_from("=I", info.raw, 4)[0])

    def join(self) -> None:
        """Move this process into the group; its later children belong to it too.

        Raises:
            RunError: the group refuses the process.
        """
        _move(self._group, os.getpid())

    def read(self) -> Traffic:
        """Return the group's bytes so far, including those of the loopback device."""
        return _read(self._map, 0) + _read(self._map, _LOOPBACK_KEYS)

    def close(self) -> None:
        """Leave the group, and remove it if no process is left in it."""
        with suppress(RunError):
            _move(self._above, os.getpid())
        with suppress(OSError):
            self._group.rmdir()
        for descriptor in (*self._links, self._map):
            os.close(descriptor)
        self._links = []


class GroupCounters:
    """Counters of another process's group, for the agent; `None` of `read` without such a group."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / FILE
        self._map: int | None = None

    def read(self) -> Traffic | None:
        """Return the bytes so far that passed a device other than loopback."""
        try:
            if self._map is None:
                self._map = _bpf(_MAP_OF_ID, struct.pack("=I", int(self._file.read_text("ascii"))))
            return _read(self._map, 0)
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        """Close the descriptor of the counters."""
        if self._map is not None:
            os.close(self._map)
            self._map = None


def remove_group(key: str) -> None:
    """Remove the group of one side of a run whose executor was killed, if there is one."""
    with suppress(RunError, OSError):
        _group_of(_own_group(), key).rmdir()


def _group_of(above: Path, key: str) -> Path:
    return above / f"skyhop-{key}"


@functools.cache
def missing_for_groups() -> str | None:
    """Return what this machine lacks to count control groups; `None` if it can."""
    try:
        group = _own_group()
        counters = _made_map()
        try:
            os.close(_loaded(counters, _INGRESS))
        finally:
            os.close(counters)
    except RunError as error:
        return str(error)
    return None if os.access(group, os.W_OK) else f"{group} is not writable"


def _own_group() -> Path:
    """Return the directory of this process's control group.

    Raises:
        RunError: there is no cgroup v2 file system.
    """
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::/"):
                for root in _UNIFIED:
                    if (root / "cgroup.procs").exists():
                        return root / line.removeprefix("0::/")
    raise RunError("there is no cgroup v2 file system")


def _move(group: Path, pid: int) -> None:
    try:
        (group / "cgroup.procs").write_text(f"{pid}\n")
    except OSError as error:
        raise RunError(f"{group}: {error.strerror}") from None


def _made_map() -> int:
    try:
        return _bpf(_MAP_CREATE, struct.pack("=IIII", _ARRAY, 4, _VALUE.size, 2 * _LOOPBACK_KEYS))
    except OSError as error:
        raise RunError(f"BPF: {error.strerror}: it needs root, or CAP_BPF") from None


def _loaded(counters: int, key: int) -> int:
    """Load the program that counts one direction; return its descriptor."""
    code, licence = ctypes.create_string_buffer(_program(counters, key)), b"GPL"
    text = ctypes.create_string_buffer(licence)
    values = struct.pack(
        "=IIQQIIQII16sII", _CGROUP_SKB, (len(code) - 1) // 8, ctypes.addressof(code),
        ctypes.addressof(text), 0, 0, 0, 0, 0, b"", 0, key,
    )  # fmt: skip
    try:
        return _bpf(_PROG_LOAD, values)
    except OSError as error:
        said = f"BPF: {error.strerror}: it needs root, or CAP_BPF and CAP_NET_ADMIN"
        raise RunError(said) from None


def _program(counters: int, key: int) -> bytes:
    """Return the instructions of the program (linux/bpf.h; all packets pass)."""

    def line(code: int, to: int = 0, of: int = 0, offset: int = 0, value: int = 0) -> bytes:
        return struct.pack("=BBhi", code, to | of << 4, offset, value)

    load, add_atomic, move, set_to, jump_not = 0x61, 0xDB, 0xBF, 0xB7, 0x55
    return b"".join(
        (
            line(move, 6, 1),
            line(load, 7, 6, _DEVICE_AT),
            line(0x62, 10, 0, -4, key),  # Store the key on the stack.
            line(jump_not, 7, 0, 1, _LOOPBACK),
            line(0x62, 10, 0, -4, key + _LOOPBACK_KEYS),
            line(move, 2, 10),
            line(0x07, 2, 0, 0, -4),
            line(0x18, 1, 1, 0, counters) + line(0),  # The map's descriptor, in two instructions.
            line(0x85, 0, 0, 0, 1),  # bpf_map_lookup_elem
            line(0x15, 0, 0, 8, 0),
            line(load, 1, 6, _LENGTH_AT),
            line(add_atomic, 0, 1, 0),
            line(set_to, 1, 0, 0, 1),
            line(add_atomic, 0, 1, 8),
            line(load, 2, 6, _SEGMENTS_AT),
            line(0x2D, 2, 1, 1),  # If there is more than one segment, keep their number.
            line(set_to, 2, 0, 0, 1),
            line(add_atomic, 0, 2, 16),
            line(set_to, 0, 0, 0, 1),
            line(0x95),
        )
    )


def _read(counters: int, first: int) -> Traffic:
    return Traffic(*(_bytes(counters, first + key) for key in (_INGRESS, _EGRESS)))


def _bytes(counters: int, key: int) -> int:
    """Return a counter's bytes on the wire."""
    wanted = ctypes.create_string_buffer(struct.pack("=I", key), 4)
    value = ctypes.create_string_buffer(_VALUE.size)
    _bpf(
        _MAP_LOOKUP,
        struct.pack("=IIQQQ", counters, 0, ctypes.addressof(wanted), ctypes.addressof(value), 0),
    )
    moved, packets, segments = _VALUE.unpack(value.raw)
    return int(moved + _ETHERNET_BYTES * segments + _REPEATED_BYTES * (segments - packets))


def _bpf(command: int, values: bytes) -> int:
    """Call bpf(2).

    Raises:
        OSError: the kernel refuses.
    """
    number = _CALL.get(platform.machine())
    if number is None:
        raise OSError(0, f"unknown on {platform.machine()}")
    attributes = ctypes.create_string_buffer(values, _ATTRIBUTES_BYTES)
    result = ctypes.CDLL(None, use_errno=True).syscall(
        number, command, attributes, _ATTRIBUTES_BYTES
    )
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(result)
