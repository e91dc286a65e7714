"""Reach of runs: the addresses behind an owner's names, as the rules of a run's fence.

The names are those of `fence.Place`. Without a name, runs reach the public Internet alone. The
orchestrator's addresses stay closed, except for the port of a job's server there.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from skyhop_testbed.addresses import host_of, ip_addresses
from skyhop_testbed.agent.host_networks import HostNetworks, read_host_networks
from skyhop_testbed.fence import PRIVATE, Fence, Place, Prefix, parse_target, target_text

_DNS_PORT = 53
_RESOLVERS = Path("/etc/resolv.conf")
DISH = "192.168.100.1"
"""Address of a Starlink terminal."""


class Reach:
    """Addresses near this node that fences open or close.

    Args:
        dish: address of the terminal, with a port or without.
        orchestrator: addresses of the orchestrator's ports, as host and port.
        say: function for warnings.
        networks: reads this machine's networks.
        resolve: returns the IP addresses of a host name.
    """

    def __init__(
        self,
        dish: str | None,
        orchestrator: Iterable[str],
        say: Callable[[str], None],
        *,
        networks: Callable[[], HostNetworks] | None = None,
        resolve: Callable[[str], list[str]] | None = None,
    ) -> None:
        self._dish = [DISH, *([] if dish is None else [host_of(dish)])]
        self._orchestrator = sorted({host_of(address) for address in orchestrator})
        self._say, self._networks = say, networks or read_host_networks
        self._resolve = resolve or ip_addresses
        self._known: dict[str, list[str]] = {}
        """Last known addresses of host names: a link may be down when a run begins."""

    def fence(
        self,
        reach: Iterable[str],
        listen: Iterable[str] = (),
        server: tuple[str, int] | None = None,
        *,
        needs_resolvers: bool = False,
    ) -> Fence:
        """Return the fence of a run.

        Args:
            reach: what the owner opens.
            listen: ports and ranges of ports on which others may reach the run.
            server: address and port of the job's server; the port is opened if the server is on
                the orchestrator's machine, and nothing else there.
            needs_resolvers: whether the run asks this machine's name servers itself, which may have
                private addresses; their port 53 is then open.
        """
        opened = list(reach)
        rules = [
            f"allow {target_text(*parse_target(entry))}"
            for entry in opened
            if entry not in set(Place)
        ]
        orchestrator = self._prefixes(self._orchestrator)
        if server is not None and server[1]:
            shared = [each for each in self._prefixes([server[0]]) if each in orchestrator]
            rules += [f"allow {target_text(each, server[1])}" for each in shared]
        if needs_resolvers:
            rules += [f"allow {target_text(each, _DNS_PORT)}" for each in _resolvers()]
        near = self._networks()
        rules += _rules(self._prefixes(self._dish), allows=Place.DISH in opened)
        rules += _rules(near.addresses, allows=Place.HOST in opened)
        rules += _rules(orchestrator, allows=False)
        has_lan = Place.LAN in opened
        rules += _rules(map(ipaddress.ip_network, PRIVATE), allows=True) if has_lan else []
        # Link-local addresses, such as those of metadata services, are no part of "lan".
        networks = [each for each in near.networks if not (has_lan and each.is_link_local)]
        rules += _rules(networks, allows=has_lan)
        return Fence(list(dict.fromkeys(rules)), list(listen))

    def _prefixes(self, hosts: Iterable[str]) -> list[Prefix]:
        """Return the addresses of hosts; those of a name that cannot be resolved are the last."""
        found: list[Prefix] = []
        for host in hosts:
            try:
                self._known[host] = self._resolve(host)
            except OSError as error:
                if host not in self._known:
                    self._say(f"{host}: cannot be resolved, so runs are not kept off it: {error}")
            found += [ipaddress.ip_network(each) for each in self._known.get(host, [])]
        return found


def _rules(prefixes: Iterable[Prefix], *, allows: bool) -> list[str]:
    return [f"{'allow' if allows else 'deny'} {target_text(prefix)}" for prefix in prefixes]


def _resolvers() -> list[Prefix]:
    """Return the addresses of this machine's name servers, without those on its loopback."""
    found: list[Prefix] = []
    with suppress(OSError):
        for line in _RESOLVERS.read_text(errors="replace").splitlines():
            words = line.split()
            if len(words) > 1 and words[0] == "nameserver":
                with suppress(ValueError):
                    found.append(ipaddress.ip_network(words[1].partition("%")[0]))
    return [each for each in found if not each.is_loopback]
