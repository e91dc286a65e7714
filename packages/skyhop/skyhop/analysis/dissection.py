"""Latency of a route by segment, from the round trips to its hops (traceroute).

Segments are those of the T3P paper, section 3.4: S1 is from the host to the terminal, S2 the bent
pipe (terminal to gateway), S3 to S5 the operator's hops on the ground, S6 the rest of the Internet.
The paper does not say how it computes delays from round trips. This module uses two methods:

- By trace: a hop cannot be further away than later hops, so an RTT above that to a later hop of the
  trace is lowered to it. The delay of a segment is half the difference of the RTTs to its two ends;
  the result is the median over all traces. Lowering removes variation between
  probes in one direction only: early segments become smaller and late segments larger, by as much
  as the probes of one trace differ.
- Of medians: the delay of a segment is half the difference of the median RTTs to its two ends.
  No RTT is lowered, but variation that all probes of a trace have in common does not cancel. A
  median that is above the median of a later hop is lowered to it. If it is above by more than a
  tenth of the whole RTT, the RTT changed too much between the probes of too few traces, and this
  method gives no result.

Both methods give one-way delays, under the assumption that both directions have the same delay.
"""

from __future__ import annotations

import ipaddress
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile
from pathlib import Path

import numpy as np
import polars as pl

from skyhop.data.arrays import FloatArray
from skyhop.errors import InputError, RunError
from skyhop.telemetry.traces import Address, Hop, Trace

OPERATOR_AS = 14593
"""Number of the autonomous system of SpaceX Starlink."""


class Segment(StrEnum):
    """Segment of a route, in the order of the route."""

    S1 = "S1"
    S2 = "S2"
    S3 = "S3"
    S4 = "S4"
    S5 = "S5"
    S6 = "S6"


WHAT = {
    Segment.S1: "host to terminal",
    Segment.S2: "bent pipe",
    Segment.S3: "operator, first hop",
    Segment.S4: "operator, second hop",
    Segment.S5: "operator, further hops",
    Segment.S6: "Internet",
}

_ORDER = tuple(Segment)
_GROUND = (Segment.S3, Segment.S4, Segment.S5)

_PRIVATE, _OPERATORS, _SUBSCRIBER = "private", "operator", "subscriber"
_OWNERS = {
    owner: tuple(map(ipaddress.ip_network, prefixes))
    for owner, prefixes in {
        # The last is the host's own end of an IPv4 service over IPv6 (464XLAT; RFC 7335).
        Segment.S1: ("192.168.0.0/16", "10.0.0.0/8", "192.0.0.0/29"),
        # Shared address space (carrier-grade NAT): Starlink's gateway is 100.64.0.1.
        Segment.S2: ("100.64.0.0/10",),
        _PRIVATE: ("172.16.0.0/12",),
        # Prefixes observed in AS14593; a table of prefixes given by the user is more accurate.
        # IPv6: the gateways' backhaul is 2620:134:b0fe::/48 (172.16.0.0/16 in IPv4), the points of
        # presence are 2620:134:b0ff::/48, and links to other networks are in 2605:59c0::/29.
        _OPERATORS: (
            "206.224.64.0/19",
            "149.19.108.0/23",
            "2620:134:b000::/40",
            "2605:59c0::/29",
        ),
        # IPv6 has no shared address space: the host's router, which has a /56 of its own, and the
        # gateway answer from the same prefixes of AS14593 and AS45700 (their announcements of 2025
        # and the operator's geofeed). Link-local and unique local addresses may be either, too.
        _SUBSCRIBER: (
            "fe80::/10",
            "fc00::/7",
            "2401:e320::/32",
            "2406:2d40::/32",
            "2605:59c8::/29",
            "2803:9810::/32",
            "2a0d:3340::/29",
            "2c0f:2a80::/32",
        ),
    }.items()
}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
"""Well-known prefix of IPv4 addresses that a translator shows as IPv6 (RFC 6052)."""
_LEAST_BENT_PIPE_MS = 4.0
"""RTT that no hop behind a satellite stays below: light passes 330 km, the lowest altitude of
Starlink's licences, four times in 4.4 ms."""
_LEAST_ANSWERED = 0.25
"""Least share of traces in which a segment's end answers; otherwise it is merged with the next."""
_RESAMPLES = 300
_BLOCK = 15
"""Traces per block of the block bootstrap: traces at 1 Hz correlate within a 15 s slot."""
_FEWEST_BLOCKS = 4
_LEVELS = (2.5, 97.5)
_MOST_BACK = 0.1
"""Share of the whole RTT by which a hop's median RTT may exceed that of a later hop."""


@dataclass(frozen=True)
class Prefixes:
    """Table of address prefixes with their owners; an owner is a segment or an AS."""

    tables: Mapping[tuple[int, int], Mapping[int, str]] = field(default_factory=dict)

    def owner(self, address: Address) -> str | None:
        """Return the owner of an address by the longest matching prefix, None without a match."""
        for length in range(address.max_prefixlen, -1, -1):
            table = self.tables.get((address.version, length))
            if table is not None:
                found = table.get(int(address) >> (address.max_prefixlen - length))
                if found is not None:
                    return found
        return None


@dataclass(frozen=True)
class Piece:
    """One segment, or several that cannot be separated, with its one-way latency."""

    name: str
    what: str
    addresses: Sequence[str]
    """Addresses that answered at the end of the piece, the most frequent first."""
    by_trace_ms: float
    low_ms: float
    high_ms: float
    """Bounds of the 95 % confidence interval of `by_trace_ms`."""
    share: float
    share_low: float
    share_high: float
    """Bounds of the 95 % interval of `share`, the share of the sum of all pieces (0 to 1)."""
    of_medians_ms: float
    of_medians_share: float
    """Latency (ms) and share by the method of medians; NaN if that method gives no result."""


@dataclass(frozen=True)
class Dissection:
    """Latency of a route by segment."""

    pieces: Sequence[Piece]
    traces: int
    used: int
    """Number of used traces: those in which the end of every piece answered."""
    rtt_ms: float
    """Median RTT to the destination in ms."""
    notes: Sequence[str]

    @property
    def title(self) -> str:
        """Title of the figure."""
        return (
            f"Where {self.rtt_ms:.1f} ms of round trip arise: one-way medians by segment, "
            f"{self.used:,} traces"
        )

    @property
    def data(self) -> pl.DataFrame:
        """One row per piece, with the fields of `Piece` as columns."""
        return pl.DataFrame([{**vars(p), "addresses": " ".join(p.addresses)} for p in self.pieces])


def dissect(traces: Sequence[Trace], prefixes: Prefixes | None = None, seed: int = 1) -> Dissection:
    """Return the segments of a route.

    Args:
        traces: traces from one host to one destination, in order of time.
        prefixes: owners of addresses, in addition to the built-in rules.
        seed: seed of the bootstrap of the intervals.

    Raises:
        InputError: no trace reached its destination, or no trace has the ends of all segments.
    """
    route = _Route(prefixes or Prefixes(), traces)
    placed = [ends for trace in traces if (ends := route.ends(trace))]
    if not placed:
        raise InputError("no trace reached its destination: give one that answers, such as 8.8.8.8")
    segments = [
        segment
        for segment in _ORDER
        if sum(segment in ends for ends in placed) >= _LEAST_ANSWERED * len(placed)
    ]
    complete = [ends for ends in placed if all(segment in ends for segment in segments)]
    if not complete:
        raise InputError(
            f"no trace has an answer at the end of each of {', '.join(segments)}: give more traces"
        )
    rtt_ms = np.array([[_rtt(ends[segment]) for segment in segments] for ends in complete])
    names, notes = _named(segments, placed)
    back_ms = _back_ms(rtt_ms)
    if back_ms > 0:
        notes.append(
            f"no latency of medians: a hop's median is {back_ms:.1f} ms above that of a later hop, "
            "as the round trip changed while hops were probed; give more traces"
        )
    return Dissection(
        tuple(_pieces(rtt_ms, segments, names, complete, seed)),
        len(traces),
        len(complete),
        float(np.median(rtt_ms[:, -1])),
        tuple(notes),
    )


def read_prefixes(file: Path) -> Prefixes:
    """Read a table of prefixes, one line `PREFIX OWNER` each; `#` begins a comment.

    The owner is a number of an autonomous system ("14593" or "AS14593") or a segment: S1, S2,
    S6, or "operator".

    Raises:
        InputError: the file does not exist or is not text, or a line has another form.
        RunError: the file cannot be read for another reason.
    """
    try:
        text = file.read_text("utf-8")
    except FileNotFoundError:
        raise InputError(f"{file}: there is no such file") from None
    except (UnicodeDecodeError, IsADirectoryError):
        raise InputError(f"{file}: is no text") from None
    except OSError as error:
        raise RunError(f"{file}: cannot read it: {error.strerror}") from None
    tables: dict[tuple[int, int], dict[int, str]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        words = line.partition("#")[0].replace(",", " ").split()
        if not words:
            continue
        try:
            prefix, owner = words
            network = ipaddress.ip_network(prefix)
            owner = _owner(owner)
        except ValueError:
            raise InputError(
                f"{file}: line {number}: expected such as 206.224.64.0/19 AS14593"
            ) from None
        above = network.max_prefixlen - network.prefixlen
        table = tables.setdefault((network.version, network.prefixlen), {})
        table[int(network.network_address) >> above] = owner
    return Prefixes(tables)


def _owner(word: str) -> str:
    if word in (Segment.S1, Segment.S2, Segment.S6, _OPERATORS):
        return word
    digits = word.upper().removeprefix("AS")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(2**32)):
        raise ValueError(word)
    return _OPERATORS if int(digits) == OPERATOR_AS else Segment.S6


class _Route:
    """Assignment of hops to segments, by address and by distance from the gateway.

    Args:
        prefixes: owners of addresses, in addition to the built-in rules.
        traces: all traces of the route, for the least RTT of each address.
    """

    def __init__(self, prefixes: Prefixes, traces: Sequence[Trace]) -> None:
        self._prefixes = prefixes
        self._known: dict[Address, str] = {}
        self._least_ms: dict[Address, float] = {}
        for hop in (hop for trace in traces for hop in trace.hops if hop.address is not None):
            assert hop.address is not None
            least_ms = self._least_ms.get(hop.address, math.inf)
            self._least_ms[hop.address] = min(least_ms, _rtt(hop))

    def ends(self, trace: Trace) -> dict[Segment, Hop]:
        """Return the hop at the end of each segment; empty without an answer of the destination."""
        answered = [hop for hop in trace.hops if hop.address is not None]
        if not answered or trace.destination not in (None, answered[-1].address):
            return {}
        gateway = self._gateway(answered)
        ends: dict[Segment, Hop] = {}
        furthest = -1
        for hop in answered[:-1]:
            segment = self._segment(hop, gateway)
            # A segment that appears after a later one cannot be separated from it.
            if _ORDER.index(segment) >= furthest:
                furthest = _ORDER.index(segment)
                ends[segment] = hop
        ends[Segment.S6] = answered[-1]
        return ends

    def _gateway(self, answered: Sequence[Hop]) -> int:
        """Return the distance of the gateway, 0 if it did not answer.

        Among addresses of subscribers, the gateway is the furthest before the operator's hops; it
        is further away than any hop of the host's own network.
        """
        known = max((h.distance for h in answered if self._owner(h) == Segment.S2), default=0)
        near = takewhile(lambda hop: self._owner(hop) != _OPERATORS, answered[:-1])
        last = max((h for h in near if self._owner(h) == _SUBSCRIBER), key=_distance, default=None)
        if known or last is None or last.address is None:
            return known
        return last.distance if self._least_ms[last.address] >= _LEAST_BENT_PIPE_MS else 0

    def _segment(self, hop: Hop, gateway: int) -> Segment:
        """Return the segment of a hop; S3 to S5 depend on the distance from the gateway."""
        owner = self._owner(hop)
        if owner in _ORDER:
            return Segment(owner)
        if owner == _SUBSCRIBER:
            return Segment.S2 if hop.distance == gateway else Segment.S1
        if owner == _PRIVATE and hop.distance < gateway:
            return Segment.S1
        if gateway == 0:
            return Segment.S3
        return _GROUND[min(max(hop.distance - gateway, 1), len(_GROUND)) - 1]

    def _owner(self, hop: Hop) -> str:
        """Return the owner of a hop's address.

        It is a segment, "operator", "private" (local), or "subscriber" (local or the gateway).
        """
        assert hop.address is not None, "it answered"
        address = _untranslated(hop.address)
        if address not in self._known:
            found = self._prefixes.owner(address)
            self._known[address] = found or next(
                (
                    owner
                    for owner, networks in _OWNERS.items()
                    if any(address.version == net.version and address in net for net in networks)
                ),
                Segment.S6,
            )
        return self._known[address]


def _untranslated(address: Address) -> Address:
    """Return the IPv4 address that a NAT64 translator shows as an IPv6 address; others as is."""
    if address.version == _NAT64.version and address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def _distance(hop: Hop) -> int:
    return hop.distance


def _rtt(hop: Hop) -> float:
    assert hop.rtt_ms is not None, "it answered"
    return hop.rtt_ms


def _named(
    segments: Sequence[Segment], placed: Sequence[Mapping[Segment, Hop]]
) -> tuple[list[str], list[str]]:
    """Return the names of the pieces, and notes about the segments that were merged.

    S1 and S2 are on every route: if their end does not answer, they are merged with the next piece.
    Routes may lack some of S3 to S5; those that answer too seldom are merged with the next piece.
    """
    names: list[str] = []
    notes: list[str] = []
    waiting: list[str] = []
    for segment in _ORDER:
        if segment in segments:
            names.append("+".join([*waiting, segment]))
            if waiting:
                notes.append(f"{' and '.join(waiting)}: no answer, so in {names[-1]}")
            waiting = []
        elif segment in (Segment.S1, Segment.S2) or any(segment in ends for ends in placed):
            waiting.append(segment)
    return names, notes


def _pieces(
    rtt_ms: FloatArray,
    segments: Sequence[Segment],
    names: Sequence[str],
    complete: Sequence[Mapping[Segment, Hop]],
    seed: int,
) -> list[Piece]:
    """Return the pieces, from RTTs (ms) of shape (traces, segments)."""
    by_trace = one_way_ms(rtt_ms)
    delays, shares = _shares(np.median(by_trace, axis=0))
    medians = np.median(rtt_ms, axis=0, keepdims=True)
    of_medians, of_medians_shares = _shares(
        one_way_ms(medians)[0] if _back_ms(rtt_ms) == 0 else np.full(len(segments), np.nan)
    )
    drawn = np.array([_shares(np.median(by_trace[rows], axis=0)) for rows in _draws(rtt_ms, seed)])
    (low, share_low), (high, share_high) = np.percentile(drawn, _LEVELS, axis=0)
    return [
        Piece(
            name,
            ", ".join(WHAT[Segment(part)] for part in name.split("+")),
            [address for address, _ in Counter(
                str(ends[segments[at]].address) for ends in complete
            ).most_common(3)],
            float(delays[at]), float(low[at]), float(high[at]),
            float(shares[at]), float(share_low[at]), float(share_high[at]),
            float(of_medians[at]), float(of_medians_shares[at]),
        )
        for at, name in enumerate(names)
    ]  # fmt: skip


def one_way_ms(rtt_ms: FloatArray) -> FloatArray:
    """Return one-way latencies (ms) of each trace's segments: half the difference of RTTs.

    Args:
        rtt_ms: RTTs to the ends of segments, shape (traces, segments); an RTT above that to a later
            end is lowered to it.
    """
    least = np.minimum.accumulate(rtt_ms[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(np.diff(least, axis=1, prepend=0) / 2)


def _back_ms(rtt_ms: FloatArray) -> float:
    """Return by how many ms a median RTT exceeds that of a later hop; 0 if below `_MOST_BACK`."""
    medians = np.median(rtt_ms, axis=0)
    back_ms = float((medians - np.minimum.accumulate(medians[::-1])[::-1]).max())
    return back_ms if back_ms > _MOST_BACK * medians[-1] else 0.0


def _shares(delays: FloatArray) -> FloatArray:
    """Return the delays and their shares of the sum, shape (2, segments)."""
    total = delays.sum()
    return np.array([delays, delays / total if total > 0 else np.full_like(delays, np.nan)])


def _draws(rtt_ms: FloatArray, seed: int) -> list[FloatArray]:
    """Return the row indices of each bootstrap resample; rows are drawn in consecutive blocks."""
    draw, count = np.random.default_rng(seed), len(rtt_ms)
    block = _BLOCK if count >= _FEWEST_BLOCKS * _BLOCK else 1
    blocks = -(-count // block)
    within = np.arange(block)
    starts = draw.integers(0, count - block + 1, (_RESAMPLES, blocks))
    return [(first[:, None] + within).ravel()[:count] for first in starts]
