"""Packet filter of a fence: classic BPF for packets that leave a run's device.

The kernel applies the filter after routing: a program that binds to a device or to an address, and
so avoids routes, does not avoid the filter.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from skyhop_testbed.fence import NOT_PUBLIC_4, NOT_PUBLIC_6, PUBLIC_6, Fence, Prefix, Rule

_INSTRUCTION = struct.Struct("=HBBI")
"""Layout of one instruction: `struct sock_filter` (linux/filter.h)."""
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
