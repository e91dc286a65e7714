"""Uplinks: how a run's namespace is connected to the network, chosen when the service starts.

    none       a veth pair to this machine, without forwarding
    nat        veth, forwarded with NAT to this machine's address; needs nft
    routed     veth, forwarded, with an address of the LAN that this machine answers ARP for
    macvlan    a device on the interface with its own MAC address; does not work over Wi-Fi
    ipvlan     a device on the interface with the interface's MAC address

With every uplink the run's TCP connections are end to end; no proxy terminates them.
"""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from skyhop.errors import InputError, RunError
from skyhop_testbed import linux
from skyhop_testbed.kernel import programs
from skyhop_testbed.kernel.journal import (
    ChangeJournal,
    ForwardingChange,
    ProxyChange,
    TableChange,
)
from skyhop_testbed.kernel.network import DEVICE, Namespace
from skyhop_testbed.kernel.programs import call

SERVICE = "service"
"""Key in place of a run's id in the journal, for changes that last as long as the service."""
_TABLE = "skyhop_runs"
_PAIR_BITS = 31
_LONGEST_NAME = 15
_PING = "0 2147483647"
"""Groups that may ping (net.ipv4.ping_group_range): all, because programs of runs are unprivileged.
"""


class Kind(StrEnum):
    """Kind of uplink, as in the module's table."""

    NONE = "none"
    NAT = "nat"
    ROUTED = "routed"
    MACVLAN = "macvlan"
    IPVLAN = "ipvlan"


@dataclass(frozen=True)
class DeviceAddress:
    """Address with prefix length, and gateway, for a run's device."""

    address: str
    gateway: str | None


class Uplink:
    """Uplink for all runs, chosen by the node's owner.

    Args:
        kind: the kind of uplink.
        interface: this machine's interface; for all kinds but "none".
        addresses: prefix of the runs' addresses: any private prefix for "none" and "nat", free
            addresses of the LAN for the others.
        gateway: gateway of the LAN, for "macvlan" and "ipvlan".
        prefix_bits: prefix length of the LAN, for "macvlan" and "ipvlan".

    Raises:
        InputError: an argument is missing or wrong.
    """

    def __init__(
        self,
        kind: Kind,
        interface: str | None = None,
        addresses: str = "10.213.0.0/20",
        gateway: str | None = None,
        prefix_bits: int = 24,
    ) -> None:
        self.kind, self.interface, self.prefix_bits = kind, interface, prefix_bits
        try:
            self._prefix = ipaddress.IPv4Network(addresses)
            self._gateway = None if gateway is None else ipaddress.IPv4Address(gateway)
        except ValueError as error:
            raise InputError(f"the uplink's addresses: {error}") from None
        if kind is not Kind.NONE and not interface:
            raise InputError(f"the uplink {kind.value} needs an interface: give --interface")
        if interface and (
            len(interface) > _LONGEST_NAME or not interface.replace("-", "").isprintable()
        ):
            raise InputError(f"{interface}: is no name of an interface")
        self._taken: dict[str, int] = {}

    @property
    def _is_pair(self) -> bool:
        return self.kind in (Kind.NONE, Kind.NAT, Kind.ROUTED)

    def unavailable_reason(self) -> str | None:
        """Return, as one line, what is missing on this machine for the uplink.

        `None` if nothing is.
        """
        needed = ["ip", "tc", *(["nft"] if self.kind is Kind.NAT else [])]
        lacking = programs.missing(*needed)
        if lacking:
            return f"not installed on this machine: {lacking}"
        if self.interface and self.interface not in _interfaces():
            return f"there is no interface {self.interface}"
        kind = "veth" if self._is_pair else self.kind.value
        if not _works(lambda: _make_devices(kind)):
            return f"the kernel has no {kind} devices"
        if self.kind is Kind.NAT and not _works(lambda: call("nft", "-f", "-", text=self._rules())):
            return "the kernel has no masquerading in nftables"
        return None

    def begin(self, changes: ChangeJournal) -> None:
        """Make the changes that last as long as the service: forwarding, and rules for NAT."""
        if self.kind not in (Kind.NAT, Kind.ROUTED):
            return
        assert self.interface is not None
        _forward(self.interface, changes)
        if self.kind is Kind.NAT:
            changes.record(SERVICE, {"kind": "nft", "table": _TABLE})
            call("nft", "-f", "-", text=self._rules())

    def _rules(self) -> str:
        return (
            f"table ip {_TABLE} {{ chain out {{ type nat hook postrouting priority 100; "
            f'ip saddr {self._prefix} oifname "{self.interface}" masquerade\n}} }}\n'
        )

    def attach(
        self, run: str, name: str, namespace: Namespace, changes: ChangeJournal
    ) -> DeviceAddress:
        """Create a run's device in its namespace; return its address and gateway.

        Args:
            run: id of the run.
            name: name of the device's end on this machine.
            namespace: the run's namespace.
            changes: journal in which the device is recorded before it is created.
        """
        changes.record(run, {"kind": "device", "name": name, "inode": namespace.inode})
        given = (
            self._attach_pair(run, name, namespace)
            if self._is_pair
            else self._attach_above(run, namespace)
        )
        if self.kind is Kind.ROUTED:
            assert self.interface is not None
            address = given.address.partition("/")[0]
            changes.record(run, {"kind": "proxy", "address": address, "interface": self.interface})
            call("ip", "neighbour", "add", "proxy", address, "dev", self.interface)
        namespace.write("ping_group_range", _PING)
        return given

    def release(self, run: str) -> None:
        """Release a run's address, so that other runs can use it."""
        self._taken.pop(run, None)

    def _attach_pair(self, run: str, name: str, namespace: Namespace) -> DeviceAddress:
        place = self._allocate(run, 2 if self.kind is not Kind.ROUTED else 1)
        peer = ["peer", "name", DEVICE, "netns", namespace.path]
        call("ip", "link", "add", name, "type", "veth", *peer, fds=(namespace.descriptor,))
        if self.kind is Kind.ROUTED:
            own, here = str(self._prefix[place]), "169.254.1.1"
            call("ip", "-batch", "-", text=(
                f"address add {here}/32 dev {name}\nlink set {name} up\n"
                f"route add {own}/32 dev {name}\n"
            ))  # fmt: skip
            bits = 32
        else:
            here, own = str(self._prefix[2 * place]), str(self._prefix[2 * place + 1])
            bits = _PAIR_BITS
            call("ip", "-batch", "-", text=(
                f"address add {here}/{bits} dev {name}\nlink set {name} up\n"
            ))  # fmt: skip
        if self.kind is not Kind.NONE:
            _conf(name, "forwarding").write_text("1")
        namespace.call("ip", "-batch", "-", text=_inside(f"{own}/{bits}", here))
        return DeviceAddress(f"{own}/{bits}", here)

    def _attach_above(self, run: str, namespace: Namespace) -> DeviceAddress:
        assert self.interface is not None
        own = f"{self._prefix[self._allocate(run, 1)]}/{self.prefix_bits}"
        mode = "bridge" if self.kind is Kind.MACVLAN else "l2"
        link = ["link", self.interface, "name", DEVICE, "netns", namespace.path]
        kind = ["type", self.kind.value, "mode", mode]
        call("ip", "link", "add", *link, *kind, fds=(namespace.descriptor,))
        gateway = None if self._gateway is None else str(self._gateway)
        namespace.call("ip", "-batch", "-", text=_inside(own, gateway))
        return DeviceAddress(own, gateway)

    def _allocate(self, run: str, step: int) -> int:
        """Return the index of the first free address (or pair), never the network's own address."""
        taken = set(self._taken.values())
        least = 0 if step > 1 or self._prefix.num_addresses == 1 else 1
        for place in range(least, self._prefix.num_addresses // step):
            if place not in taken:
                self._taken[run] = place
                return place
        raise RunError(f"all addresses of {self._prefix} are in use")


def _inside(address: str, gateway: str | None) -> str:
    lines = [f"address add {address} dev {DEVICE}", f"link set {DEVICE} up", "link set lo up"]
    if gateway is not None:
        lines.append(f"route add default via {gateway} dev {DEVICE} onlink")
    return "\n".join(lines) + "\n"


def _conf(interface: str, name: str) -> Path:
    return Path("/proc/sys/net/ipv4/conf") / interface / name


def _forward(interface: str, changes: ChangeJournal) -> None:
    """Enable forwarding on one interface; other interfaces stay unchanged."""
    file = _conf(interface, "forwarding")
    before = file.read_text().strip()
    if before != "1":
        changes.record(SERVICE, {"kind": "forwarding", "interface": interface, "before": before})
        file.write_text("1")


def _interfaces() -> list[str]:
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    return [line.partition(":")[0].strip() for line in lines]


def _works(attempt: Callable[[], object]) -> bool:
    """Return whether a function succeeds inside a temporary network namespace."""
    worked: list[bool] = []

    def inside() -> None:
        with suppress(RunError):
            linux.unshare(linux.NEWNET)
            attempt()
            worked.append(True)

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    return bool(worked)


def _make_devices(kind: str) -> None:
    # macvlan and ipvlan need a lower device; one end of the veth pair is that device.
    call("ip", "link", "add", "try0", "type", "veth", "peer", "name", "try1")
    if kind != "veth":
        call("ip", "link", "add", "link", "try0", "name", "try2", "type", kind)


def undo_forwarding(change: ForwardingChange) -> None:
    """Restore an interface's forwarding to its previous value."""
    file = _conf(change["interface"], "forwarding")
    if file.exists():
        file.write_text(change["before"])


def undo_proxy(change: ProxyChange) -> None:
    """Remove the proxy ARP entry of a run's address."""
    address, interface = change["address"], change["interface"]
    shown = call("ip", "neighbour", "show", "proxy", "dev", interface)
    if address in shown.split():
        call("ip", "neighbour", "delete", "proxy", address, "dev", interface)


def undo_nft(change: TableChange) -> None:
    """Remove the service's nftables table."""
    table = change["table"]
    if f"table ip {table}" in call("nft", "list", "tables").splitlines():
        call("nft", "delete", "table", "ip", table)
