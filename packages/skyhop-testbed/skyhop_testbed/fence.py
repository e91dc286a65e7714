"""Fence of a run: the addresses that its program reaches, and the names by which owners open them.

A rule is a line of text, so that `run.json` shows what a run may reach:

    deny 192.168.100.1            one address
    allow 192.168.1.5:8080        one TCP or UDP port of it
    allow [fd12::1]:80
    deny 2001:db8:1::/64          a network

The first rule that matches a packet decides. Without a matching rule, a packet passes if its
destination is an address of the public Internet: not private (RFC 1918, RFC 4193), shared (RFC
6598), link-local, loopback, multicast, broadcast or reserved, and no tunnel that may end at such an
address (6to4, Teredo). IPv4 packets with options are dropped, as options can name further
destinations. TCP packets that answer a connection to a port in `listen` always pass.

A node's owner opens more than the public Internet by names, addresses and networks:

    "reach": ["lan", "192.168.1.5:8080"], "listen": ["6000-6010"]
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from skyhop.errors import InputError

Prefix = ipaddress.IPv4Network | ipaddress.IPv6Network

PRIVATE = (
    "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7",
)  # fmt: skip
"""Networks of homes, offices and providers: RFC 1918, RFC 6598, RFC 4193."""
NOT_PUBLIC_4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
        "172.16.0.0/12", "192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/3",
    )
)  # fmt: skip
"""IPv4 addresses that are not of the public Internet (RFC 6890); the last entry is multicast,
reserved addresses and broadcast."""
PUBLIC_6 = ipaddress.IPv6Network("2000::/3")
"""Global unicast addresses (RFC 4291); all other IPv6 addresses are not of the public Internet."""
NOT_PUBLIC_6 = tuple(ipaddress.IPv6Network(text) for text in ("2002::/16", "2001::/32"))
"""6to4 and Teredo, whose addresses contain an IPv4 address that may be private."""
LARGEST_PORT = 65_535
_MOST_RULES = 400
"""Upper limit on rules, which keeps the filter below the kernel's 4096 instructions."""
_MOST_OPENED = 64
"""Upper limit on the entries of `reach` and of `listen`."""


class Place(StrEnum):
    """Name of a group of addresses in an owner's policy."""

    DISH = "dish"
    """The terminal: 192.168.100.1, and the address that the agent's `--dish` names."""
    LAN = "lan"
    """Private networks, and networks that the machine reaches without its default route."""
    HOST = "host"
    """The machine's own addresses, but never its loopback."""


@dataclass(frozen=True)
class Rule:
    """Verdict on packets to a network, or to one port there."""

    allows: bool
    prefix: Prefix
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Parse a rule such as "allow 192.168.1.5:8080".

        Raises:
            ValueError: the text is no rule.
        """
        verdict, _, target = text.partition(" ")
        if verdict not in ("allow", "deny"):
            raise ValueError(f'"{text[:100]}" is no rule: expected allow or deny')
        prefix, port = parse_target(target)
        return cls(verdict == "allow", prefix, port)

    def __str__(self) -> str:
        """Return the rule as text."""
        return f"{'allow' if self.allows else 'deny'} {target_text(self.prefix, self.port)}"


def parse_target(text: str) -> tuple[Prefix, int | None]:
    """Parse an address, an address with a port, or a network.

    An IPv6 address before a port is in brackets.

    Raises:
        ValueError: the text has another form.
    """
    address, port = text, None
    if text.startswith("["):
        address, bracket, rest = text[1:].partition("]")
        address = address if bracket else text
        port = _port(rest.removeprefix(":")) if rest else None
    elif text.count(":") == 1:
        address, _, after = text.partition(":")
        port = _port(after)
    try:
        return ipaddress.ip_network(address), port
    except ValueError:
        raise ValueError(
            f'"{text[:100]}" is no address: expected one such as "192.168.1.5", '
            '"192.168.1.5:8080", "[fd12::1]:80" or "10.1.0.0/16"'
        ) from None


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= LARGEST_PORT):
        raise ValueError(f'"{text[:40]}" is no port: expected a number from 1 to {LARGEST_PORT}')
    return int(text)


def target_text(prefix: Prefix, port: int | None = None) -> str:
    """Return an address, network or port in the form that `parse_target` reads."""
    is_address = prefix.prefixlen == prefix.max_prefixlen
    text = str(prefix.network_address) if is_address else str(prefix)
    if port is None:
        return text
    return f"[{text}]:{port}" if prefix.version == 6 else f"{text}:{port}"  # noqa: PLR2004


def parse_ports(text: str) -> tuple[int, int]:
    """Parse a port or a range of ports, such as "5201" or "6000-6010".

    Raises:
        ValueError: the text has another form.
    """
    first, dash, last = text.partition("-")
    low = _port(first)
    high = _port(last) if dash else low
    if low > high:
        raise ValueError(f'"{text[:40]}" is no range of ports: its end is before its beginning')
    return low, high


@dataclass(frozen=True)
class Fence:
    """Addresses that a run's program reaches, and the ports on which it is reached.

    The default reaches the public Internet alone, and listens on nothing.
    """

    rules: list[str] = field(default_factory=list)
    listen: list[str] = field(default_factory=list)
    """Ports and ranges of ports on which others reach the program."""

    def parsed_rules(self) -> list[Rule]:
        """Return the rules.

        Raises:
            ValueError: a text is no rule, or there are too many.
        """
        if len(self.rules) > _MOST_RULES:
            raise ValueError(f"more than {_MOST_RULES} rules")
        return [Rule.parse(text) for text in self.rules]

    def ports(self) -> list[tuple[int, int]]:
        """Return the ranges of `listen`.

        Raises:
            ValueError: a text is no range of ports.
        """
        return [parse_ports(text) for text in self.listen]

    def may_listen(self, port: int) -> bool:
        """Return whether others reach the program on a port."""
        return any(low <= port <= high for low, high in self.ports())

    def prohibited(self) -> list[Prefix]:
        """Return networks to which no packet passes.

        With routes of the type `prohibit` the program gets an error at once instead of a timeout.
        Empty if the program listens, as its answers pass to all networks.
        """
        if self.listen:
            return []
        rules = self.parsed_rules()
        closed: list[Prefix] = [*NOT_PUBLIC_4, *NOT_PUBLIC_6]
        rules += [Rule(False, prefix) for prefix in closed]
        return [rule.prefix for rule in _effective(rules) if not rule.allows]

    def reached(self) -> list[Prefix]:
        """Return networks outside the public Internet that the program reaches."""
        return [rule.prefix for rule in _effective(self.parsed_rules()) if rule.allows]


def _effective(rules: Iterable[Rule]) -> list[Rule]:
    """Return the rules that need routes, without those that an earlier rule covers."""
    kept: list[Rule] = []
    for rule in rules:
        is_covered = any(
            each.prefix.version == rule.prefix.version and rule.prefix.subnet_of(each.prefix)  # type: ignore[arg-type]
            for each in kept
        )
        # A route cannot tell ports apart: one port that may be reached needs a route.
        if not is_covered and (rule.allows or rule.port is None):
            kept.append(rule)
    return kept


def check_reach(values: object) -> tuple[str, ...]:
    """Return the policy's `reach`, if all its entries have a known form.

    Raises:
        InputError: an entry is no name, address or network.
    """
    entries = _texts("reach", values)
    for entry in entries:
        if entry not in set(Place):
            try:
                parse_target(entry)
            except ValueError as error:
                names = ", ".join(Place)
                raise InputError(f"reach: {error}, or one of {names}") from None
    return entries


def check_listen(values: object) -> tuple[str, ...]:
    """Return the policy's `listen`, if all its entries are ports or ranges of ports.

    Raises:
        InputError: an entry is no port or range.
    """
    entries = _texts("listen", values)
    for entry in entries:
        try:
            parse_ports(entry)
        except ValueError as error:
            raise InputError(f"listen: {error}") from None
    return entries


def _texts(name: str, values: object) -> tuple[str, ...]:
    if values is None:
        return ()
    if not isinstance(values, list | tuple) or len(values) > _MOST_OPENED:
        raise InputError(f"{name}: expected a list of at most {_MOST_OPENED} entries")
    return tuple(str(value) for value in values)
