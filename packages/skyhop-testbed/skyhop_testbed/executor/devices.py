"""Device of a run's network namespace: filter, address and routes, through rtnetlink.

The messages are built here because a program such as `ip` would lose the capabilities that an
unprivileged user has inside the namespace, and because a node then needs no such program.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from skyhop.errors import RunError
from skyhop_testbed.executor.packet_filter import compile_filter
from skyhop_testbed.fence import PUBLIC_6, Fence, Prefix

TAP = "tap0"
"""Name of a run's device in the network `internet`."""
GATEWAY, RESOLVER, OWN = "10.0.2.2", "10.0.2.3", "10.0.2.100"
"""Addresses of slirp4netns's gateway and resolver, and of the run (slirp4netns(1))."""
GATEWAY_6, RESOLVER_6, OWN_6 = "fd00::2", "fd00::3", "fd00::100"
MTU_BYTES = 1500
_DNS_PORT = 53

_NEWLINK, _NEWADDR, _NEWROUTE, _NEWQDISC, _NEWTFILTER = 16, 20, 24, 36, 44
_REQUEST, _ACK, _REPLACE, _CREATE = 1, 4, 0x100, 0x400
_ERROR = 2
_HEADER, _ATTRIBUTE = struct.Struct("=LHHLL"), struct.Struct("=HH")
_CLSACT, _CLSACT_HANDLE, _EGRESS = 0xFFFF_FFF1, 0xFFFF_0000, 0xFFFF_FFF3
_ALL_PROTOCOLS = 3
_KIND, _OPTIONS = 1, 2
_OPS_LENGTH, _OPS, _BPF_FLAGS, _DIRECT_ACTION = 4, 5, 8, 1
_UNICAST, _PROHIBIT, _ON_LINK = 1, 8, 4
_MAIN_TABLE, _STATIC, _UNIVERSE, _LINK = 254, 4, 0, 253
_NO_DAD = 2
_MTU = 4
_INSTRUCTION_BYTES = 8


@dataclass(frozen=True)
class DeviceSetup:
    """Setup of a run's device, which ends before its program begins."""

    fence: Fence
    device: str
    has_address: bool = False
    """Whether the device needs its address and routes; a device of the kernel service has them."""
    has_ipv6: bool = False

    def apply(self) -> None:
        """Set up the device in this process's network namespace.

        Raises:
            RunError: the kernel refuses.
        """
        try:
            index = socket.if_nametoindex(self.device)
            add_filter(index, self._with_resolver())
            if self.has_address:
                self._add_address(index)
        except OSError as error:
            raise RunError(f"cannot fence the run's network: {error.strerror}") from None

    def _with_resolver(self) -> Fence:
        """Return the fence with the resolver of slirp4netns, whose address is private."""
        if not self.has_address:
            return self.fence
        own = [f"allow {RESOLVER}:{_DNS_PORT}", f"allow [{RESOLVER_6}]:{_DNS_PORT}"]
        return Fence([*own, *self.fence.rules], self.fence.listen)

    def _add_address(self, index: int) -> None:
        _write(f"net/ipv6/conf/{self.device}/disable_ipv6", "0" if self.has_ipv6 else "1")
        _write(f"net/ipv6/conf/{self.device}/accept_ra", "0")
        _write(f"net/ipv6/conf/{self.device}/accept_dad", "0")
        _allow_ping()
        _add_address(index, OWN)
        _set_up(index)
        _add_route(ipaddress.ip_network("0.0.0.0/0"), index, GATEWAY)
        _add_route(ipaddress.ip_network(RESOLVER), index)
        if self.has_ipv6:
            _add_address(index, OWN_6)
            _add_route(ipaddress.ip_network(GATEWAY_6), index)
            _add_route(PUBLIC_6, index, GATEWAY_6)
            _add_route(ipaddress.ip_network(RESOLVER_6), index)
        for prefix in self.fence.prohibited():
            if prefix.version == 4 or self.has_ipv6:  # noqa: PLR2004
                _add_route(prefix, None)
        for prefix in self.fence.reached():
            if prefix.version == 4:  # noqa: PLR2004
                _add_route(prefix, index, GATEWAY)
            elif self.has_ipv6:
                _add_route(prefix, index, GATEWAY_6)


def raise_loopback() -> None:
    """Set the loopback device of this process's network namespace up."""
    _set_up(socket.if_nametoindex("lo"))


def add_filter(index: int, fence: Fence) -> None:
    """Attach a fence's filter to packets that leave a device.

    Raises:
        OSError: the kernel refuses, or lacks clsact or cls_bpf.
    """
    code = compile_filter(fence)
    place = struct.pack("=BxxxiLLL", 0, index, _CLSACT_HANDLE, _CLSACT, 0)
    _call(_NEWQDISC, place + _attribute(_KIND, b"clsact\0"), _CREATE)
    options = (
        _attribute(_OPS_LENGTH, struct.pack("=H", len(code) // _INSTRUCTION_BYTES))
        + _attribute(_OPS, code)
        + _attribute(_BPF_FLAGS, struct.pack("=L", _DIRECT_ACTION))
    )
    info = 1 << 16 | socket.htons(_ALL_PROTOCOLS)
    place = struct.pack("=BxxxiLLL", 0, index, 0, _EGRESS, info)
    _call(_NEWTFILTER, place + _attribute(_KIND, b"bpf\0") + _attribute(_OPTIONS, options), _CREATE)


def _set_up(index: int) -> None:
    mtu = b"" if index == 1 else _attribute(_MTU, struct.pack("=L", MTU_BYTES))
    up = 1
    _call(_NEWLINK, struct.pack("=BxHiLL", 0, 0, index, up, up) + mtu)


def _add_address(index: int, address: str) -> None:
    packed = ipaddress.ip_address(address).packed
    head = struct.pack("=BBBBL", _family(packed), 8 * len(packed), _NO_DAD, _UNIVERSE, index)
    _call(_NEWADDR, head + _attribute(2, packed) + _attribute(1, packed), _CREATE)


def _add_route(prefix: Prefix, index: int | None, gateway: str | None = None) -> None:
    """Add a route; without a device, it is of the type `prohibit`."""
    packed = prefix.network_address.packed
    scope = _LINK if index is not None and gateway is None and prefix.version == 4 else _UNIVERSE  # noqa: PLR2004
    head = struct.pack(
        "=BBBBBBBBL",
        _family(packed), prefix.prefixlen, 0, 0, _MAIN_TABLE, _STATIC, scope,
        _PROHIBIT if index is None else _UNICAST, 0 if gateway is None else _ON_LINK,
    )  # fmt: skip
    more = _attribute(1, packed) if prefix.prefixlen else b""
    if gateway is not None:
        more += _attribute(5, ipaddress.ip_address(gateway).packed)
    if index is not None:
        more += _attribute(4, struct.pack("=i", index))
    _call(_NEWROUTE, head + more, _CREATE | _REPLACE)


def _family(packed: bytes) -> int:
    return socket.AF_INET if len(packed) == 4 else socket.AF_INET6  # noqa: PLR2004


def _attribute(kind: int, content: bytes) -> bytes:
    size = _ATTRIBUTE.size + len(content)
    return _ATTRIBUTE.pack(size, kind) + content + bytes(-size % 4)


def _call(kind: int, body: bytes, flags: int = 0) -> None:
    """Send a request to the kernel, and wait for its acknowledgement.

    Raises:
        OSError: the kernel refuses.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        size = _HEADER.size + len(body)
        kernel.send(_HEADER.pack(size, kind, _REQUEST | _ACK | flags, 1, 0) + body)
        answer = kernel.recv(1 << 16)
    _, what, *_ = _HEADER.unpack_from(answer)
    (code,) = struct.unpack_from("=i", answer, _HEADER.size)
    if what == _ERROR and code:
        raise OSError(-code, os.strerror(-code))


def _allow_ping() -> None:
    """Let the program send ICMP echo requests, which needs a group that is mapped here."""
    for line in Path("/proc/self/gid_map").read_text().splitlines():
        first, _, count = (int(word) for word in line.split())
        _write("net/ipv4/ping_group_range", f"{first} {min(first + count, 1 << 31) - 1}")
        return


def _write(name: str, value: str) -> None:
    """Set a sysctl of this process's network namespace, if the kernel has it."""
    with suppress(OSError):
        Path(f"/proc/sys/{name}").write_text(value)
