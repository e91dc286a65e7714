"""Where a path's latency arises: round trips along a route, cut into segments.

As in the T3P paper's section 3.4: S1 is from the host to the terminal, S2 the bent pipe, S3 to S5
the operator's hops on the ground, S6 the Internet beyond. How the paper gets from round trips to
delays it does not say. Here there are two ways, side by side:

- by trace: a hop cannot be further away than those behind it, so its round trip becomes the least
  of its own and theirs; a segment is half the difference between its ends; then the median of all
  traces. What varies from probe to probe is cut off on one side, so that segments in front come
  out smaller and those behind larger: by as much as probes of one trace differ.
- of medians: half the difference between the medians of the round trips to its ends. Nothing
  is cut off, but what all probes of a trace have in common does not cancel. A median that is above
  one behind it is taken for that; where it is above by more than a tenth of the whole, the round
  trip changed too much between the probes of too few traces, and nothing can be told of medians.

Both are medians of one direction, under the assumption that a path is as long there as back.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import numpy as np
import polars as pl

from skyhop.data.arrays import FloatArray
from skyhop.errors import InputError, RunError
from skyhop.telemetry.traces import Address, Hop, Trace

OPERATOR_AS = 14593
"""SpaceX Starlink."""


class Segment(StrEnum):
    """A piece of the path, in the order of the path."""

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

_PRIVATE, _OPERATORS = "private", "operator"
_OWNERS = {
    owner: tuple(map(ipaddress.ip_network, prefixes))
    for owner, prefixes in {
        Segment.S1: ("192.168.0.0/16", "10.0.0.0/8"),
        # Behind a carrier's NAT: Starlink's gateway is 100.64.0.1.
        Segment.S2: ("100.64.0.0/10",),
        _PRIVATE: ("172.16.0.0/12",),
        # What AS14593 has been seen with; a table of prefixes says it better.
        _OPERATORS: ("206.224.64.0/19", "149.19.108.0/23"),
    }.items()
}
_LEAST_ANSWERED = 0.25
"""A segment whose end answers less often than that is told apart from the next by too few."""
_RESAMPLES = 300
_BLOCK = 15
"""Traces that are drawn together: what is a second apart is alike, as long as a 15 s slot lasts."""
_FEWEST_BLOCKS = 4
_LEVELS = (2.5, 97.5)
_MOST_BACK = 0.1
"""So much of the whole round trip may the median of a hop be above that of one behind it."""


@dataclass(frozen=True)
class Prefixes:
    """Whose an address is: a segment or an autonomous system, by the longest prefix."""

    tables: Mapping[tuple[int, int], Mapping[int, str]] = field(default_factory=dict)

    def owner(self, address: Address) -> str | None:
        """Return what the table says of an address; None where it says nothing."""
        for length in range(address.max_prefixlen, -1, -1):
            table = self.tables.get((address.version, length))
            if table is not None:
                found = table.get(int(address) >> (address.max_prefixlen - length))
                if found is not None:
                    return found
        return None


@dataclass(frozen=True)
class Piece:
    """One segment, or several that nothing tells apart, and what it takes in one direction."""

    name: str
    what: str
    addresses: Sequence[str]
    """Who answered at its end, most often first."""
    by_trace_ms: float
    low_ms: float
    high_ms: float
    """The ends of the interval of 95 %, of `by_trace_ms`."""
    share: float
    share_low: float
    share_high: float
    """0 to 1, of the sum of the pieces."""
    of_medians_ms: float
    of_medians_share: float
    """NaN, both, where the medians cannot tell."""


@dataclass(frozen=True)
class Dissection:
    """What a route's latency consists of."""

    pieces: Sequence[Piece]
    traces: int
    used: int
    """Those in which the end of every piece answered."""
    rtt_ms: float
    """The median round trip to the destination."""
    notes: Sequence[str]

    @property
    def title(self) -> str:
        """What a figure of it is called."""
        return (
            f"Where {self.rtt_ms:.1f} ms of round trip arise: one-way medians by segment, "
            f"{self.used:,} traces"
        )

    @property
    def data(self) -> pl.DataFrame:
        """The pieces as a table."""
        return pl.DataFrame([{**vars(p), "addresses": " ".join(p.addresses)} for p in self.pieces])


def dissect(traces: Sequence[Trace], prefixes: Prefixes | None = None, seed: int = 1) -> Dissection:
    """Return the segments of a route.

    Args:
        traces: of one host to one destination, in the order of time.
        prefixes: whose addresses are, where the built-in rules do not know it.
        seed: of the intervals' resampling.

    Raises:
        InputError: no trace reached its destination, or none has the end of every segment.
    """
    route = _Route(prefixes or Prefixes())
    placed = [ends for trace in traces if (ends := route.ends(trace))]
    if not placed:
        raise InputError("no trace reached its destination: give one that answers, such as 8.8.8.8")
    told = [
        segment
        for segment in _ORDER
        if sum(segment in ends for ends in placed) >= _LEAST_ANSWERED * len(placed)
    ]
    whole = [ends for ends in placed if all(segment in ends for segment in told)]
    if not whole:
        raise InputError(
            f"no trace has an answer at the end of each of {', '.join(told)}: give more traces"
        )
    rtt_ms = np.array([[_rtt(ends[segment]) for segment in told] for ends in whole])
    names, notes = _named(told, placed)
    back_ms = _back_ms(rtt_ms)
    if back_ms > 0:
        notes.append(
            f"of medians nothing can be told: a hop's is {back_ms:.1f} ms above that of one behind "
            "it, as the round trip changed while hops were probed; give more traces"
        )
    return Dissection(
        tuple(_pieces(rtt_ms, told, names, whole, seed)),
        len(traces),
        len(whole),
        float(np.median(rtt_ms[:, -1])),
        tuple(notes),
    )


def read_prefixes(file: Path) -> Prefixes:
    """Read a table of prefixes: a line each, `PREFIX OWNER`, `#` begins a comment.

    The owner is a number of an autonomous system ("14593" or "AS14593") or a segment: S1, S2,
    S6, or "operator".

    Raises:
        InputError: the file cannot be read, or a line is not like that.
        RunError: it cannot be read for another reason.
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
    """Tells which segment ends at a hop, by its address and by where the gateway is."""

    def __init__(self, prefixes: Prefixes) -> None:
        self._prefixes = prefixes
        self._known: dict[Address, str] = {}

    def ends(self, trace: Trace) -> dict[Segment, Hop]:
        """Return the hop at the end of each segment; none of a route without its end."""
        answered = [hop for hop in trace.hops if hop.address is not None]
        if not answered or trace.destination not in (None, answered[-1].address):
            return {}
        gateway = max((h.distance for h in answered if self._owner(h) == Segment.S2), default=0)
        ends: dict[Segment, Hop] = {}
        furthest = -1
        for hop in answered[:-1]:
            segment = self._segment(hop, gateway)
            # What comes in front of a hop that was there already is not told apart from it.
            if _ORDER.index(segment) >= furthest:
                furthest = _ORDER.index(segment)
                ends[segment] = hop
        ends[Segment.S6] = answered[-1]
        return ends

    def _segment(self, hop: Hop, gateway: int) -> Segment:
        """Return the segment that a hop is in; the operator's are counted from the gateway."""
        owner = self._owner(hop)
        if owner in _ORDER:
            return Segment(owner)
        if owner == _PRIVATE and hop.distance < gateway:
            return Segment.S1
        if gateway == 0:
            return Segment.S3
        return _GROUND[min(max(hop.distance - gateway, 1), len(_GROUND)) - 1]

    def _owner(self, hop: Hop) -> str:
        """Return a segment, "operator" or "private": the operator's, or of the host's network."""
        address = hop.address
        assert address is not None, "it answered"
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


def _rtt(hop: Hop) -> float:
    assert hop.rtt_ms is not None, "it answered"
    return hop.rtt_ms


def _named(
    told: Sequence[Segment], placed: Sequence[Mapping[Segment, Hop]]
) -> tuple[list[str], list[str]]:
    """Return the names of pieces, and what is to be known about those that were merged.

    S1 and S2 are on every route: where their end does not answer, they are in the next piece. Of
    S3 to S5 there may be fewer; those that answer too seldom are in the next.
    """
    names: list[str] = []
    notes: list[str] = []
    waiting: list[str] = []
    for segment in _ORDER:
        if segment in told:
            names.append("+".join([*waiting, segment]))
            if waiting:
                notes.append(f"{' and '.join(waiting)}: no answer, so in {names[-1]}")
            waiting = []
        elif segment in (Segment.S1, Segment.S2) or any(segment in ends for ends in placed):
            waiting.append(segment)
    return names, notes


def _pieces(
    rtt_ms: FloatArray,
    told: Sequence[Segment],
    names: Sequence[str],
    whole: Sequence[Mapping[Segment, Hop]],
    seed: int,
) -> list[Piece]:
    """Return the pieces of round trips, shape (traces, segments)."""
    by_trace = one_way_ms(rtt_ms)
    delays, shares = _shares(np.median(by_trace, axis=0))
    medians = np.median(rtt_ms, axis=0, keepdims=True)
    of_medians, of_medians_shares = _shares(
        one_way_ms(medians)[0] if _back_ms(rtt_ms) == 0 else np.full(len(told), np.nan)
    )
    drawn = np.array([_shares(np.median(by_trace[rows], axis=0)) for rows in _draws(rtt_ms, seed)])
    (low, share_low), (high, share_high) = np.percentile(drawn, _LEVELS, axis=0)
    return [
        Piece(
            name,
            ", ".join(WHAT[Segment(part)] for part in name.split("+")),
            [a for a, _ in Counter(str(ends[told[at]].address) for ends in whole).most_common(3)],
            float(delays[at]), float(low[at]), float(high[at]),
            float(shares[at]), float(share_low[at]), float(share_high[at]),
            float(of_medians[at]), float(of_medians_shares[at]),
        )
        for at, name in enumerate(names)
    ]  # fmt: skip


def one_way_ms(rtt_ms: FloatArray) -> FloatArray:
    """Return each trace's segments of one direction: half of what each end adds.

    Args:
        rtt_ms: round trips to the ends, shape (traces, segments); an end cannot be further away
            than those behind it.
    """
    least = np.minimum.accumulate(rtt_ms[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(np.diff(least, axis=1, prepend=0) / 2)


def _back_ms(rtt_ms: FloatArray) -> float:
    """Return how far the median of a hop is above one behind it; 0 where it is no matter."""
    medians = np.median(rtt_ms, axis=0)
    back_ms = float((medians - np.minimum.accumulate(medians[::-1])[::-1]).max())
    return back_ms if back_ms > _MOST_BACK * medians[-1] else 0.0


def _shares(delays: FloatArray) -> FloatArray:
    """Return delays and their shares of the sum, shape (2, segments)."""
    total = delays.sum()
    return np.array([delays, delays / total if total > 0 else np.full_like(delays, np.nan)])


def _draws(rtt_ms: FloatArray, seed: int) -> list[FloatArray]:
    """Return rows of resamples: blocks of neighbours, as many rows as there are."""
    draw, count = np.random.default_rng(seed), len(rtt_ms)
    block = _BLOCK if count >= _FEWEST_BLOCKS * _BLOCK else 1
    blocks = -(-count // block)
    within = np.arange(block)
    starts = draw.integers(0, count - block + 1, (_RESAMPLES, blocks))
    return [(first[:, None] + within).ravel()[:count] for first in starts]
