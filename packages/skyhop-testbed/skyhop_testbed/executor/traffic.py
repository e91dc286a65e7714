"""Traffic of a run: bytes received and sent.

For a run in its own network namespace (`veth`, `none`), traffic is the bytes of all devices except
the loopback, with headers. For a run in the host's namespace, it is the bytes that the run's TCP
sockets sent (retransmissions included) and received, without headers, as the kernel counts them per
socket. Sockets are read twice a second: bytes of a socket after its last reading are missing, and
sockets that live for less than half a second may be missing altogether. UDP and ICMP are not
counted in the host's namespace.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NAMESPACE = "bytes of the run's network devices, with headers"
SOCKETS = "bytes of the run's TCP sockets, without headers; no UDP"

_SOCK_DIAG = 4
_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST_DUMP = 0x301
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_INFO = 2
_ALL_STATES = 0xFFF & ~(1 << 10)
"""Bit mask of all TCP states except LISTEN (10)."""
_RECEIVED_AT, _SENT_AT = 128, 200
"""Offsets of tcpi_bytes_received and tcpi_bytes_sent in `struct tcp_info` (linux/tcp.h)."""
_SEGMENTS_SENT_AT, _SEGMENTS_RECEIVED_AT = 136, 140
"""Offsets of tcpi_segs_out and tcpi_segs_in in `struct tcp_info`."""
_ATTRIBUTE = struct.Struct("=HH")
_MESSAGE = struct.Struct("=LHHLL")
_HEADER_OF_SOCKET = 72
_INODE_AT = 68
_SOCKET = re.compile(r"socket:\[(\d+)\]")


@dataclass(frozen=True)
class Traffic:
    """Bytes received and sent."""

    rx_bytes: int = 0
    tx_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Sum of received and sent bytes."""
        return self.rx_bytes + self.tx_bytes


def namespace_traffic(pid: int) -> Traffic:
    """Return the bytes of all devices in a process's network namespace; 0 if it is gone."""
    return device_counters(Path(f"/proc/{pid}/net/dev")) or Traffic()


def device_counters(net_dev: Path, device: str | None = None) -> Traffic | None:
    """Return the bytes of a device, or of all devices but the loopback.

    The result is `None` if the file or the device does not exist.

    Args:
        net_dev: file in the format of /proc/net/dev.
        device: name of the device; `None` for all.
    """
    try:
        text = net_dev.read_text("ascii")
    except (OSError, ValueError):
        return None
    return parse_counters(text, device)


def parse_counters(text: str, device: str | None = None) -> Traffic | None:
    """Return the bytes of a device, or of all devices but the loopback.

    Args:
        text: content of /proc/net/dev.
        device: name of the device; `None` for all. The result is `None` if it does not exist.
    """
    moved = None if device else Traffic()
    for line in text.splitlines()[2:]:
        name, _, counters = line.partition(":")
        if name.strip() == device or (device is None and name.strip() != "lo"):
            numbers, before = counters.split(), moved or Traffic()
            moved = Traffic(before.rx_bytes + int(numbers[0]), before.tx_bytes + int(numbers[8]))
    return moved


class SocketCounters:
    """Byte counts of the TCP sockets of processes, including sockets that have closed."""

    def __init__(self, header_bytes: int = 0) -> None:
        """Set up the counters at 0.

        Args:
            header_bytes: bytes to add per segment, for its headers.
        """
        self._header_bytes = header_bytes
        self._seen: dict[int, tuple[int, int]] = {}
        self._gone = Traffic()

    def read(self, pids: list[int]) -> Traffic:
        """Read the counters of the processes' sockets.

        Return the total bytes since the first call.
        """
        own = {inode for pid in pids for inode in _inodes(pid)}
        sockets = _tcp_sockets(self._header_bytes) if own else ()
        now = {inode: moved for inode, moved in sockets if inode in own}
        for inode, (rx, tx) in self._seen.items():
            if inode not in now:
                self._gone = Traffic(self._gone.rx_bytes + rx, self._gone.tx_bytes + tx)
        self._seen = now
        return Traffic(
            self._gone.rx_bytes + sum(rx for rx, _ in now.values()),
            self._gone.tx_bytes + sum(tx for _, tx in now.values()),
        )


def _inodes(pid: int) -> Iterator[int]:
    try:
        names = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return
    for name in names:
        try:
            found = _SOCKET.match(str(name.readlink()))
        except OSError:
            continue
        if found:
            yield int(found[1])


def _tcp_sockets(header_bytes: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield inode, and bytes received and sent, of each TCP socket in this network namespace."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            body = struct.pack(
                "=BBBxL48x", family, socket.IPPROTO_TCP, 1 << (_INFO - 1), _ALL_STATES
            )
            size = _MESSAGE.size + len(body)
            kernel.send(_MESSAGE.pack(size, _DIAG_BY_FAMILY, _NLM_F_REQUEST_DUMP, 0, 0) + body)
            yield from _answers(kernel, header_bytes)


def _answers(kernel: socket.socket, header_bytes: int) -> Iterator[tuple[int, tuple[int, int]]]:
    while True:
        data = kernel.recv(1 << 18)
        while len(data) >= _MESSAGE.size:
            size, kind, *_ = _MESSAGE.unpack_from(data)
            if kind in (_NLMSG_DONE, _NLMSG_ERROR):
                return
            message, data = data[_MESSAGE.size : size], data[(size + 3) & ~3 :]
            (inode,) = struct.unpack_from("=L", message, _INODE_AT)
            moved = _counters(message[_HEADER_OF_SOCKET:], header_bytes)
            if moved is not None:
                yield inode, moved


def _counters(attributes: bytes, header_bytes: int) -> tuple[int, int] | None:
    while len(attributes) >= _ATTRIBUTE.size:
        size, kind = _ATTRIBUTE.unpack_from(attributes)
        if kind == _INFO and size >= _ATTRIBUTE.size + _SENT_AT + 8:
            (rx,) = struct.unpack_from("=Q", attributes, _ATTRIBUTE.size + _RECEIVED_AT)
            (tx,) = struct.unpack_from("=Q", attributes, _ATTRIBUTE.size + _SENT_AT)
            (sent,) = struct.unpack_from("=L", attributes, _ATTRIBUTE.size + _SEGMENTS_SENT_AT)
            (received,) = struct.unpack_from(
                "=L", attributes, _ATTRIBUTE.size + _SEGMENTS_RECEIVED_AT
            )
            return rx + header_bytes * received, tx + header_bytes * sent
        attributes = attributes[(max(size, _ATTRIBUTE.size) + 3) & ~3 :]
    return None
