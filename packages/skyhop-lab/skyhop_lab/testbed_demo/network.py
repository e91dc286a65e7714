"""Network namespaces of the demo, their veth pairs, addresses and routes.

A namespace is represented by its descriptor; it vanishes with the last process that has it open.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from skyhop.errors import RunError
from skyhop_lab.testbed_demo import plan
from skyhop_testbed import linux

T = TypeVar("T")
_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
_SETTINGS = (
    ("ipv4/ip_forward", "1"),
    # Every hop must answer every traceroute probe.
    ("ipv4/icmp_ratelimit", "0"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv6/conf/all/disable_ipv6", "1"),
    ("ipv6/conf/default/disable_ipv6", "1"),
)


def ip_program() -> str:
    """Return the path of the program `ip`.

    Raises:
        RunError: `ip` is not installed.
    """
    found = shutil.which("ip", path=f"{os.environ.get('PATH', '')}:{_PATH}")
    if found is None:
        raise RunError("the demo needs the program ip: install iproute2")
    return found


def make_namespace() -> int:
    """Return the descriptor of a new network namespace, without entering it."""
    made: list[int] = []
    failed: list[BaseException] = []

    def make() -> None:
        try:
            linux.unshare(linux.NEWNET)
            made.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


def inside(network: int | None, work: Callable[[], T]) -> T:
    """Call a function inside a namespace; with `None`, call it directly."""
    return work() if network is None else linux.inside_network(network, work)


class Wiring:
    """Batch of commands for `ip`, collected per namespace.

    Args:
        namespaces: descriptors by name.
    """

    def __init__(self, namespaces: Mapping[str, int]) -> None:
        self._namespaces = namespaces
        self._wires: list[tuple[str, str, str, str]] = []
        self._orders: dict[str, list[str]] = {name: ["link set lo up"] for name in namespaces}

    def wire(self, one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
        """Connect two namespaces by a veth pair.

        Each argument is (namespace, device, address/prefix).
        """
        self._wires.append((one[0], one[1], other[0], other[1]))
        for name, device, address in (one, other):
            self.do(name, f"addr add {address} dev {device}", f"link set {device} up")

    def do(self, name: str, *orders: str) -> None:
        """Add commands for `ip` in a namespace."""
        self._orders[name] += orders

    def run_all(self) -> None:
        """Run all collected commands.

        Raises:
            RunError: `ip` fails.
        """
        for one, device, other, peer in self._wires:
            descriptor = self._namespaces[other]
            order = f"link add {device} type veth peer name {peer} netns /proc/self/fd/{descriptor}"
            self._call(one, [order], (descriptor,))
        for name, orders in self._orders.items():
            self._call(name, orders)

    def _call(self, name: str, orders: Sequence[str], passed: tuple[int, ...] = ()) -> None:
        def call() -> subprocess.CompletedProcess[str]:
            for setting, value in _SETTINGS:
                # Settings that this kernel does not have are skipped.
                with suppress(OSError):
                    Path("/proc/sys/net", setting).write_text(value)
            return subprocess.run(
                [ip_program(), "-batch", "-"],
                input="\n".join(orders) + "\n",
                capture_output=True,
                text=True,
                check=False,
                pass_fds=passed,
            )

        done = inside(self._namespaces[name], call)
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
            raise RunError(f"cannot connect the demo's namespaces: ip: {name}: {said[0]}")


def join(namespaces: Mapping[str, int]) -> None:
    """Connect all namespaces by veth pairs, with addresses and routes.

    Args:
        namespaces: "host NAME", "terminal NAME" and "pop NAME" of each site, "operator 1",
            "operator 2", "wan" and "server".

    Raises:
        RunError: `ip` fails.
    """
    wiring = Wiring(namespaces)
    for site in plan.SITES:
        _join_site(wiring, site)
    wiring.wire(("operator 1", "op2", "172.16.250.1/30"), ("operator 2", "op1", "172.16.250.2/30"))
    wiring.wire(("operator 2", "wan", "172.16.251.1/30"), ("wan", "op2", "172.16.251.2/30"))
    wiring.wire(
        ("wan", plan.WAN_DEVICE, "203.0.113.1/24"),
        ("server", plan.WAN_DEVICE, f"{plan.SERVER}/24"),
    )
    wiring.do("operator 1", "route add default via 172.16.250.2")
    wiring.do("operator 2", "route add default via 172.16.251.2")
    for network in ("192.168.0.0/16", "172.16.0.0/16"):
        wiring.do("operator 2", f"route add {network} via 172.16.250.1")
    wiring.do("wan", f"addr add {plan.WAN}/32 dev lo")
    for network in ("192.168.0.0/16", "172.16.0.0/16"):
        wiring.do("wan", f"route add {network} via 172.16.251.1 src {plan.WAN}")
    wiring.do("server", "route add default via 203.0.113.1")
    wiring.run_all()


def _join_site(wiring: Wiring, site: plan.Site) -> None:
    host, terminal, pop = (f"{what} {site.name}" for what in ("host", "terminal", "pop"))
    lan = f"192.168.{site.number}.0/24"
    wiring.wire((host, plan.LAN, f"{site.host}/24"), (terminal, plan.LAN, f"{site.router}/24"))
    wiring.do(host, f"route add default via {site.router}")
    wiring.do(
        terminal,
        f"addr add {plan.DISH}/24 dev {plan.LAN}",
        f"route add default dev {plan.LINK} src {site.router}",
        f"route add {plan.POP}/32 dev {plan.LINK} src {plan.DISH}",
    )
    up, down = f"172.16.{site.number}.1", f"172.16.{site.number}.2"
    wiring.wire((pop, "op1", f"{up}/30"), ("operator 1", f"pop{site.number}", f"{down}/30"))
    wiring.do(
        pop,
        f"addr add {plan.POP}/32 dev lo",
        # Replies to traceroute must have the PoP's address.
        f"route add {lan} dev {plan.LINK} src {plan.POP}",
        f"route add 192.168.100.0/24 dev {plan.LINK} src {plan.POP}",
        f"route add default via {down}",
    )
    wiring.do("operator 1", f"route add {lan} via {up}")
