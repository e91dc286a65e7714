"""How much a run has sent and received.

In a network namespace of its own (`veth`, `none`): the bytes of all its devices but the loopback,
headers included. In the host's network: what its TCP sockets sent (repetitions included) and
received, without headers, as the kernel counts for each socket; looked at twice a second, so that
of a socket the bytes after the last look before its end are missing, and sockets that live less
than half a second may be missing altogether. UDP and ICMP are not counted there.
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
"""All but those that listen."""
_RECEIVED_AT, _SENT_AT = 128, 200
"""Where `struct tcp_info` has tcpi_bytes_received and tcpi_bytes_sent (linux/tcp.h)."""
_SEGMENTS_SENT_AT, _SEGMENTS_RECEIVED_AT = 136, 140
"""Where it has tcpi_segs_out and tcpi_segs_in."""
_ATTRIBUTE = struct.Struct("=HH")
_MESSAGE = struct.Struct("=LHHLL")
_HEADER_OF_SOCKET = 72
_INODE_AT = 68
_SOCKET = re.compile(r"socket:\[(\d+)\]")


@dataclass(frozen=True)
class Moved:
    """Bytes received and sent."""

    rx_bytes: int = 0
    tx_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Both."""
        return self.rx_bytes + self.tx_bytes


def of_namespace(pid: int) -> Moved:
    """Return what the devices of a process's network namespace moved; nothing once it is gone."""
    rx = tx = 0
    try:
        lines = Path(f"/proc/{pid}/net/dev").read_text("ascii").splitlines()[2:]
    except OSError:
        return Moved()
    for line in lines:
        name, _, counters = line.partition(":")
        if name.strip() != "lo":
            numbers = counters.split()
            rx, tx = rx + int(numbers[0]), tx + int(numbers[8])
    return Moved(rx, tx)


class OfSockets:
    """What the TCP sockets of some processes moved, those that are closed included."""

    def __init__(self, header_bytes: int = 0) -> None:
        """Begin to count.

        Args:
            header_bytes: what is added for each segment.
        """
        self._header_bytes = header_bytes
        self._seen: dict[int, tuple[int, int]] = {}
        self._gone = Moved()

    def look(self, pids: list[int]) -> Moved:
        """Count once more, and return the sum."""
        own = {inode for pid in pids for inode in _inodes(pid)}
        sockets = _tcp_sockets(self._header_bytes) if own else ()
        now = {inode: moved for inode, moved in sockets if inode in own}
        for inode, (rx, tx) in self._seen.items():
            if inode not in now:
                self._gone = Moved(self._gone.rx_bytes + rx, self._gone.tx_bytes + tx)
        self._seen = now
        return Moved(
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
    """Return the inode of each TCP socket of this namespace, and what it received and sent."""
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
