"""How a run's namespace reaches the world: the owner chooses, when he starts the service.

    none       a veth pair to this machine, and no further
    nat        veth, forwarded and behind this machine's address: needs nft
    routed     veth, forwarded, with an address of the LAN's for which this machine answers ARP
    macvlan    a device on the interface with an address of its own: not over Wi-Fi
    ipvlan     the same with the interface's MAC address

The run's own TCP sends in each of them: nothing ends connections on the way.
"""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from skyhop.errors import InputError, RunError
from skyhop.testbed.executor import linux
from skyhop.testbed.kernel import programs
from skyhop.testbed.kernel.journal import Changes
from skyhop.testbed.kernel.network import DEVICE, Namespace
from skyhop.testbed.kernel.programs import call

SERVICE = "service"
"""The "run" of changes that last as long as the service."""
_TABLE = "skyhop_runs"
_PAIR_BITS = 31
_LONGEST_NAME = 15
_PING = "0 2147483647"
"""All groups may ping (net.ipv4.ping_group_range): programs of runs have no privileges."""


class Kind(StrEnum):
    """The ways there are."""

    NONE = "none"
    NAT = "nat"
    ROUTED = "routed"
    MACVLAN = "macvlan"
    IPVLAN = "ipvlan"


@dataclass(frozen=True)
class Given:
    """What a run's device has."""

    address: str
    gateway: str | None


class Uplink:
    """The way out that the owner has chosen.

    Args:
        kind: which.
        interface: over which of this machine's interfaces; for all but "none".
        addresses: a prefix; of "none" and "nat" any private one, of the others free addresses of
            the LAN.
        gateway: the LAN's, for "macvlan" and "ipvlan".
        prefix_bits: of the LAN, for those two.

    Raises:
        InputError: something is missing or does not fit.
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
            raise InputError(f"{interface}: no interface is called so")
        self._taken: dict[str, int] = {}

    @property
    def _is_pair(self) -> bool:
        return self.kind in (Kind.NONE, Kind.NAT, Kind.ROUTED)

    def lacks(self) -> str | None:
        """Return in a line what this machine lacks for it."""
        needed = ["ip", "tc", *(["nft"] if self.kind is Kind.NAT else [])]
        lacking = programs.missing(*needed)
        if lacking:
            return f"this machine has no {lacking}"
        if self.interface and self.interface not in _interfaces():
            return f"there is no interface {self.interface}"
        kind = "veth" if self._is_pair else self.kind.value
        if not _works(lambda: _make_devices(kind)):
            return f"the kernel has no {kind} devices"
        if self.kind is Kind.NAT and not _works(lambda: call("nft", "-f", "-", text=self._rules())):
            return "the kernel has no masquerading in nftables"
        return None

    def begin(self, changes: Changes) -> None:
        """Change what has to be changed once; only "nat" and "routed" change anything."""
        if self.kind not in (Kind.NAT, Kind.ROUTED):
            return
        assert self.interface is not None
        _forward(self.interface, changes)
        if self.kind is Kind.NAT:
            changes.about_to(SERVICE, {"kind": "nft", "table": _TABLE})
            call("nft", "-f", "-", text=self._rules())

    def _rules(self) -> str:
        return (
            f"table ip {_TABLE} {{ chain out {{ type nat hook postrouting priority 100; "
            f'ip saddr {self._prefix} oifname "{self.interface}" masquerade\n}} }}\n'
        )

    def give(self, run: str, name: str, namespace: Namespace, changes: Changes) -> Given:
        """Make a run's device and put it into its namespace.

        Args:
            run: the run.
            name: what the device's end on this machine is called.
            namespace: the run's.
            changes: where it is written down first.
        """
        changes.about_to(run, {"kind": "device", "name": name, "inode": namespace.inode})
        given = self._pair(run, name, namespace) if self._is_pair else self._above(run, namespace)
        if self.kind is Kind.ROUTED:
            assert self.interface is not None
            address = given.address.partition("/")[0]
            entry = {"kind": "proxy", "address": address, "interface": self.interface}
            changes.about_to(run, entry)
            call("ip", "neighbour", "add", "proxy", address, "dev", self.interface)
        namespace.write("ping_group_range", _PING)
        return given

    def take_back(self, run: str) -> None:
        """Have a run's address free again."""
        self._taken.pop(run, None)

    def _pair(self, run: str, name: str, namespace: Namespace) -> Given:
        place = self._place(run, 2 if self.kind is not Kind.ROUTED else 1)
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
        return Given(f"{own}/{bits}", here)

    def _above(self, run: str, namespace: Namespace) -> Given:
        assert self.interface is not None
        own = f"{self._prefix[self._place(run, 1)]}/{self.prefix_bits}"
        mode = "bridge" if self.kind is Kind.MACVLAN else "l2"
        link = ["link", self.interface, "name", DEVICE, "netns", namespace.path]
        kind = ["type", self.kind.value, "mode", mode]
        call("ip", "link", "add", *link, *kind, fds=(namespace.descriptor,))
        gateway = None if self._gateway is None else str(self._gateway)
        namespace.call("ip", "-batch", "-", text=_inside(own, gateway))
        return Given(own, gateway)

    def _place(self, run: str, step: int) -> int:
        """Return the first place in the prefix that no run has; that of the network is left out."""
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


def _forward(interface: str, changes: Changes) -> None:
    """Have one interface forward; the machine's others stay as they are."""
    file = _conf(interface, "forwarding")
    before = file.read_text().strip()
    if before != "1":
        change = {"kind": "forwarding", "interface": interface, "before": before}
        changes.about_to(SERVICE, change)
        file.write_text("1")


def _interfaces() -> list[str]:
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    return [line.partition(":")[0].strip() for line in lines]


def _works(attempt: Callable[[], object]) -> bool:
    """Return whether something succeeds in a network namespace that goes at once."""
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
    # Those above an interface need one: of a pair made for that.
    call("ip", "link", "add", "try0", "type", "veth", "peer", "name", "try1")
    if kind != "veth":
        call("ip", "link", "add", "link", "try0", "name", "try2", "type", kind)


def undo_forwarding(change: dict[str, Any]) -> None:
    """Set an interface's forwarding to what it was."""
    file = _conf(str(change["interface"]), "forwarding")
    if file.exists():
        file.write_text(str(change["before"]))


def undo_proxy(change: dict[str, Any]) -> None:
    """No longer answer for a run's address."""
    address, interface = str(change["address"]), str(change["interface"])
    shown = call("ip", "neighbour", "show", "proxy", "dev", interface)
    if address in shown.split():
        call("ip", "neighbour", "delete", "proxy", address, "dev", interface)


def undo_nft(change: dict[str, Any]) -> None:
    """Remove the service's table."""
    table = str(change["table"])
    if f"table ip {table}" in call("nft", "list", "tables").splitlines():
        call("nft", "delete", "table", "ip", table)
