"""TCP sockets of a network namespace, as the kernel reports them (sock_diag(7), INET_DIAG).

`TcpTable` lists the sockets and keeps their final counters: the kernel announces each socket that
it destroys, to users without privileges too. A socket is known by its cookie, which it keeps after
its process has closed it and while its last bytes are still under way.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

_SOCK_DIAG = 4
_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST_DUMP = 0x301
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_INFO = 2
_ALL_STATES = 0xFFF & ~(1 << 10)
"""Bit mask of all TCP states except LISTEN (10)."""
_DESTROYED = 1 << 0 | 1 << 2
"""Groups SKNLGRP_INET_TCP_DESTROY and SKNLGRP_INET6_TCP_DESTROY."""
_ROOM_BYTES = 1 << 20
"""Receive buffer for announcements: about 2,000 sockets between two readings."""
_OPTIONS_AT, _RECEIVED_AT, _SENT_AT = 5, 128, 200
"""Offsets of tcpi_options, tcpi_bytes_received and tcpi_bytes_sent in `struct tcp_info`
(linux/tcp.h)."""
_SEGMENTS_SENT_AT, _SEGMENTS_RECEIVED_AT = 136, 140
"""Offsets of tcpi_segs_out and tcpi_segs_in in `struct tcp_info`."""
_TIMESTAMPS = 1
_ETHERNET_BYTES, _TCP_BYTES, _TIMESTAMPS_BYTES = 14, 20, 12
_IP_BYTES = {socket.AF_INET: 20, socket.AF_INET6: 40}
_ATTRIBUTE = struct.Struct("=HH")
_MESSAGE = struct.Struct("=LHHLL")
_HEADER_OF_SOCKET = 72
_ADDRESSES_AT, _COOKIE_AT, _INODE_AT = 8, 44, 68
"""Offsets in `struct inet_diag_msg`: both addresses of 16 bytes, cookie and inode."""

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class TcpSocket:
    """TCP socket with its counters since it was opened."""

    cookie: int
    """Number that identifies the socket until the next boot."""
    inode: int
    """Inode of the descriptor; 0 once the process has closed it."""
    local: IpAddress
    peer: IpAddress
    rx_bytes: int
    """Bytes received in order, without headers."""
    tx_bytes: int
    """Bytes sent, retransmissions included, without headers."""
    rx_header_bytes: int
    """Headers of the received segments, as an Ethernet device counts them."""
    tx_header_bytes: int

    @property
    def is_local(self) -> bool:
        """Whether the connection stays within this machine, and passes no device but loopback."""
        return self.peer.is_loopback or self.peer == self.local


class TcpTable:
    """Reader of the TCP sockets of the network namespace in which it was created."""

    def __init__(self) -> None:
        self._kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG)
        self._destroyed = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG)
        self._destroyed.setblocking(False)
        # Kernels without announcements refuse the groups; last bytes are then missing.
        with suppress(OSError):
            self._destroyed.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ROOM_BYTES)
            self._destroyed.bind((0, _DESTROYED))

    def close(self) -> None:
        """Close the connections to the kernel."""
        self._kernel.close()
        self._destroyed.close()

    def sockets(self) -> list[TcpSocket]:
        """Return all sockets except listening ones."""
        found: list[TcpSocket] = []
        for family in (socket.AF_INET, socket.AF_INET6):
            body = struct.pack(
                "=BBBxL48x", family, socket.IPPROTO_TCP, 1 << (_INFO - 1), _ALL_STATES
            )
            size = _MESSAGE.size + len(body)
            self._kernel.send(
                _MESSAGE.pack(size, _DIAG_BY_FAMILY, _NLM_F_REQUEST_DUMP, 0, 0) + body
            )
            found += self._answers()
        return found

    def destroyed(self) -> list[TcpSocket]:
        """Return the sockets that the kernel has destroyed since the last call."""
        found: list[TcpSocket] = []
        while True:
            try:
                found += _sockets(self._destroyed.recv(1 << 18))
            except BlockingIOError:
                return found
            except OSError:
                # The buffer was full (ENOBUFS), and some announcements are lost.
                continue

    def _answers(self) -> Iterator[TcpSocket]:
        while True:
            data = self._kernel.recv(1 << 18)
            yield from _sockets(data)
            if _is_last(data):
                return


def _is_last(data: bytes) -> bool:
    while len(data) >= _MESSAGE.size:
        size, kind, *_ = _MESSAGE.unpack_from(data)
        if kind in (_NLMSG_DONE, _NLMSG_ERROR):
            return True
        data = data[(max(size, _MESSAGE.size) + 3) & ~3 :]
    return False


def _sockets(data: bytes) -> Iterator[TcpSocket]:
    """Yield the sockets in the kernel's messages."""
    while len(data) >= _MESSAGE.size:
        size, kind, *_ = _MESSAGE.unpack_from(data)
        if kind == _DIAG_BY_FAMILY and size >= _MESSAGE.size + _HEADER_OF_SOCKET:
            found = _socket(data[_MESSAGE.size : size])
            if found is not None:
                yield found
        data = data[(max(size, _MESSAGE.size) + 3) & ~3 :]


def _socket(message: bytes) -> TcpSocket | None:
    info = _info(message[_HEADER_OF_SOCKET:])
    if info is None:
        return None
    family = socket.AddressFamily(message[0])
    local, peer = (_address(family, message[at : at + 16]) for at in _addresses_at())
    (cookie,) = struct.unpack_from("=Q", message, _COOKIE_AT)
    (inode,) = struct.unpack_from("=L", message, _INODE_AT)
    (rx,) = struct.unpack_from("=Q", info, _RECEIVED_AT)
    (tx,) = struct.unpack_from("=Q", info, _SENT_AT)
    (sent,) = struct.unpack_from("=L", info, _SEGMENTS_SENT_AT)
    (received,) = struct.unpack_from("=L", info, _SEGMENTS_RECEIVED_AT)
    header = _ETHERNET_BYTES + _TCP_BYTES
    header += _IP_BYTES[socket.AF_INET if peer.version == 4 else socket.AF_INET6]  # noqa: PLR2004
    header += _TIMESTAMPS_BYTES if info[_OPTIONS_AT] & _TIMESTAMPS else 0
    return TcpSocket(cookie, inode, local, peer, rx, tx, header * received, header * sent)


def _addresses_at() -> tuple[int, int]:
    return _ADDRESSES_AT, _ADDRESSES_AT + 16


def _address(family: socket.AddressFamily, data: bytes) -> IpAddress:
    """Return an address; an IPv4 address that is mapped into IPv6 is IPv4 on the wire."""
    if family == socket.AF_INET:
        return ipaddress.IPv4Address(data[:4])
    found = ipaddress.IPv6Address(data)
    return found.ipv4_mapped or found


def _info(attributes: bytes) -> bytes | None:
    """Return the socket's `struct tcp_info`; `None` if the kernel gives none, or an old one."""
    while len(attributes) >= _ATTRIBUTE.size:
        size, kind = _ATTRIBUTE.unpack_from(attributes)
        if kind == _INFO and size >= _ATTRIBUTE.size + _SENT_AT + 8:
            return attributes[_ATTRIBUTE.size : size]
        attributes = attributes[(max(size, _ATTRIBUTE.size) + 3) & ~3 :]
    return None
