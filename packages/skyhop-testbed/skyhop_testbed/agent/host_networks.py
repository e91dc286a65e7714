"""Networks that this machine reaches without its default route, and its own addresses.

They are read from all routing tables through rtnetlink, so that a VPN's table counts too.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from skyhop_testbed.fence import Prefix

_GET_ROUTE, _NEW_ROUTE, _DONE, _ERROR = 26, 24, 3, 2
_REQUEST_DUMP = 0x301
_HEADER, _ATTRIBUTE = struct.Struct("=LHHLL"), struct.Struct("=HH")
_ROUTE = struct.Struct("=BBBBBBBBL")
_DESTINATION = 1
_UNICAST, _LOCAL = 1, 2
_SHORTEST_BITS = {4: 8, 6: 16}
"""Prefix lengths below which a route counts as a part of the default route, as VPNs split it."""
_FAMILIES = {socket.AF_INET: 4, socket.AF_INET6: 16}


@dataclass(frozen=True)
class HostNetworks:
    """Networks near this machine, and this machine's own addresses."""

    networks: tuple[Prefix, ...] = ()
    addresses: tuple[Prefix, ...] = ()


def read_host_networks() -> HostNetworks:
    """Read the routes of this process's network namespace.

    Raises:
        OSError: the kernel does not answer.
    """
    networks, addresses = set[Prefix](), set[Prefix]()
    for kind, prefix in _routes():
        if kind == _LOCAL:
            addresses.add(prefix)
        elif kind == _UNICAST and prefix.prefixlen >= _SHORTEST_BITS[prefix.version]:
            networks.add(prefix)
    order = lambda prefix: (prefix.version, prefix.network_address.packed)  # noqa: E731
    return HostNetworks(
        tuple(sorted(networks, key=order)),
        tuple(sorted((each for each in addresses if not each.is_loopback), key=order)),
    )


def _routes() -> Iterator[tuple[int, Prefix]]:
    """Yield the type and destination of each route."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        body = _ROUTE.pack(*(0,) * 9)
        size = _HEADER.size + len(body)
        kernel.send(_HEADER.pack(size, _GET_ROUTE, _REQUEST_DUMP, 1, 0) + body)
        while True:
            data = kernel.recv(1 << 18)
            while len(data) >= _HEADER.size:
                size, kind, *_ = _HEADER.unpack_from(data)
                if kind in (_DONE, _ERROR):
                    return
                if kind == _NEW_ROUTE:
                    yield from _route(data[_HEADER.size : size])
                data = data[(size + 3) & ~3 :]


def _route(message: bytes) -> Iterator[tuple[int, Prefix]]:
    family, bits, _, _, _, _, _, kind, _ = _ROUTE.unpack_from(message)
    attributes = message[_ROUTE.size :]
    while family in _FAMILIES and len(attributes) >= _ATTRIBUTE.size:
        size, name = _ATTRIBUTE.unpack_from(attributes)
        content = attributes[_ATTRIBUTE.size : size]
        if name == _DESTINATION and len(content) == _FAMILIES[family]:
            yield kind, ipaddress.ip_network((content, bits), strict=False)
            return
        attributes = attributes[(max(size, _ATTRIBUTE.size) + 3) & ~3 :]
