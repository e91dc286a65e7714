"""Fence of a run: the addresses that its program reaches, as rules and as a packet filter.

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

The filter is classic BPF. The kernel applies it to packets that leave the run's device, after
routing: a program that binds to a device or an address, and so avoids routes, does not avoid it.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

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
        address, _, rest = text[1:].partition("]")
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
    """What a run's program reaches, and the ports on which it is reached.

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
        """Return networks to which no packet passes, whose routes may therefore be of the type
        `prohibit`: the program then gets an error at once instead of a timeout.

        Empty if the program listens, as its answers pass to all networks.
        """
        if self.listen:
            return []
        rules = self.parsed_rules()
        rules += [Rule(False, prefix) for prefix in (*NOT_PUBLIC_4, *NOT_PUBLIC_6)]
        return [rule.prefix for rule in _effective(rules) if not rule.allows]

    def reached(self) -> list[Prefix]:
        """Return networks outside the public Internet that the program reaches."""
        return [rule.prefix for rule in _effective(self.parsed_rules()) if rule.allows]


def _effective(rules: Iterable[Rule]) -> list[Rule]:
    """Return the rules that need routes, without those that an earlier rule covers."""
    kept: list[Rule] = []
    for rule in rules:
        is_covered = any(
            each.prefix.version == rule.prefix.version
            and rule.prefix.subnet_of(each.prefix)  # type: ignore[arg-type]
            for each in kept
        )
        # A route cannot tell ports apart: one port that may be reached needs a route.
        if not is_covered and (rule.allows or rule.port is None):
            kept.append(rule)
    return kept


# The filter: instructions of classic BPF (linux/filter.h) over Ethernet frames.

_INSTRUCTION = struct.Struct("=HBBI")
_LD_W, _LD_H, _LD_B = 0x20, 0x28, 0x30
_AND, _JA, _JEQ, _JGT, _JGE, _JSET, _RET = 0x54, 0x05, 0x15, 0x25, 0x35, 0x45, 0x06
_PASS, _DROP = 0, 2
"""TC_ACT_OK and TC_ACT_SHOT (linux/pkt_cls.h)."""
_ETHERTYPE, _ARP, _IPV4, _IPV6 = 12, 0x0806, 0x0800, 0x86DD
_IP = 14
"""Offset of the IP header."""
_PLAIN_IPV4 = 0x45
"""First byte of an IPv4 header without options."""
_TCP, _UDP, _ICMP_6 = 6, 17, 58
_NEIGHBOUR_DISCOVERY = (133, 136)
"""First and last ICMPv6 type of neighbour discovery (RFC 4861), except redirects."""
_SYN, _SYN_OR_ACK = 0x02, 0x12
_FRAGMENT_OFFSET = 0x1FFF
_WORD_BITS = 32

Instruction = tuple[int, int, int, int]
"""Code, jumps if true and if false, and operand; a jump of `_END` leads past the block."""
_END = -1


@dataclass(frozen=True)
class _Header:
    """Offsets in a frame of one IP version."""

    destination: int
    protocol: int
    transport: int
    fragment: int | None


_HEADERS = {
    4: _Header(_IP + 16, _IP + 9, _IP + 20, _IP + 6),
    6: _Header(_IP + 24, _IP + 6, _IP + 40, None),
}


def compile_filter(fence: Fence) -> bytes:
    """Return the filter's instructions (`struct sock_filter`).

    Raises:
        ValueError: a rule or a range of ports cannot be parsed.
    """
    rules, ports = fence.parsed_rules(), fence.ports()
    parts = {
        version: [
            *(
                each
                for low, high in ports
                for each in _block(_answer(_HEADERS[version], low, high), allows=True)
            ),
            *(each for rule in rules if rule.prefix.version == version for each in _of_rule(rule)),
        ]
        for version in (4, 6)
    }
    four = [
        (_LD_B, 0, 0, _IP), (_JEQ, 1, 0, _PLAIN_IPV4), (_RET, 0, 0, _DROP), *parts[4],
        *(each for prefix in NOT_PUBLIC_4 for each in _of_rule(Rule(False, prefix))),
        (_RET, 0, 0, _PASS),
    ]  # fmt: skip
    six = [
        *_block(_neighbour_discovery(), allows=True), *parts[6],
        *(each for prefix in NOT_PUBLIC_6 for each in _of_rule(Rule(False, prefix))),
        *_of_rule(Rule(True, PUBLIC_6)),
        (_RET, 0, 0, _DROP),
    ]  # fmt: skip
    head = [
        (_LD_H, 0, 0, _ETHERTYPE),
        (_JEQ, 0, 1, _ARP), (_RET, 0, 0, _PASS),
        (_JEQ, 0, 1, _IPV4), (_JA, 0, 0, 3),
        (_JEQ, 0, 1, _IPV6), (_JA, 0, 0, 1 + len(four)),
        (_RET, 0, 0, _DROP),
    ]  # fmt: skip
    return b"".join(_INSTRUCTION.pack(*each) for each in (*head, *four, *six))


def _of_rule(rule: Rule) -> list[Instruction]:
    header = _HEADERS[rule.prefix.version]
    tests = [*_to_prefix(header, rule.prefix)]
    if rule.port is not None:
        tests += _to_port(header, rule.port)
    return _block(tests, allows=rule.allows)


def _block(tests: Iterable[Instruction], *, allows: bool) -> list[Instruction]:
    """Return instructions that end the filter with a verdict if all tests hold."""
    body = [*tests, (_RET, 0, 0, _PASS if allows else _DROP)]
    return [
        (code, *(len(body) - at - 1 if jump == _END else jump for jump in (true, false)), operand)  # type: ignore[misc]
        for at, (code, true, false, operand) in enumerate(body)
    ]


def _to_prefix(header: _Header, prefix: Prefix) -> Iterator[Instruction]:
    left = prefix.prefixlen
    for at in range(0, len(prefix.network_address.packed), 4):
        if left <= 0:
            return
        (word,) = struct.unpack_from("!I", prefix.network_address.packed, at)
        bits = min(left, _WORD_BITS)
        left -= bits
        yield _LD_W, 0, 0, header.destination + at
        if bits < _WORD_BITS:
            yield _AND, 0, 0, (0xFFFF_FFFF << (_WORD_BITS - bits)) & 0xFFFF_FFFF
        yield _JEQ, 0, _END, word


def _to_port(header: _Header, port: int) -> Iterator[Instruction]:
    yield _LD_B, 0, 0, header.protocol
    yield _JEQ, 1, 0, _TCP
    yield _JEQ, 0, _END, _UDP
    yield from _first_fragment(header)
    yield _LD_H, 0, 0, header.transport + 2
    yield _JEQ, 0, _END, port


def _answer(header: _Header, low: int, high: int) -> Iterator[Instruction]:
    """Yield tests for a TCP packet from a port of a range that does not open a connection."""
    yield _LD_B, 0, 0, header.protocol
    yield _JEQ, 0, _END, _TCP
    yield from _first_fragment(header)
    yield _LD_H, 0, 0, header.transport
    yield _JGE, 0, _END, low
    yield _JGT, _END, 0, high
    yield _LD_B, 0, 0, header.transport + 13
    yield _AND, 0, 0, _SYN_OR_ACK
    yield _JEQ, _END, 0, _SYN


def _first_fragment(header: _Header) -> Iterator[Instruction]:
    if header.fragment is not None:
        yield _LD_H, 0, 0, header.fragment
        yield _JSET, _END, 0, _FRAGMENT_OFFSET


def _neighbour_discovery() -> Iterator[Instruction]:
    header, (first, last) = _HEADERS[6], _NEIGHBOUR_DISCOVERY
    yield _LD_B, 0, 0, header.protocol
    yield _JEQ, 0, _END, _ICMP_6
    yield _LD_B, 0, 0, header.transport
    yield _JGE, 0, _END, first
    yield _JGT, _END, 0, last
