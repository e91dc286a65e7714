"""Records: runs and paths as arrays, for figures, tables and metrics.

Records hold the tables of `Run` and `Path` in units for people: times in seconds, delays in
milliseconds, NaN for unknown values. `reading` creates them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from skyhop._core import PATH_EVENT_KINDS
from skyhop.data.arrays import BoolArray, FloatArray
from skyhop.data.run_headers import RunHeader

SHOWN_EVENT_KINDS = (*PATH_EVENT_KINDS, "change")
"""Kinds of events of a path and of changes by the scenario, in the order of figures."""


@dataclass(frozen=True)
class Events:
    """Events of a path: n events ordered by time."""

    t_s: FloatArray
    """Times in seconds, shape (n,)."""
    kinds: tuple[str, ...]
    """Kind of each of the n events, one of `SHOWN_EVENT_KINDS`."""
    outage_s: FloatArray
    """Time in seconds for which the path is down after each event, shape (n,)."""

    @staticmethod
    def empty() -> Events:
        """Return a record without events."""
        return Events(np.array([]), (), np.array([]))

    def times(self, kind: str) -> FloatArray:
        """Return the times of the events of one kind, in seconds."""
        return self.t_s[[name == kind for name in self.kinds]]

    def outages(self) -> FloatArray:
        """Return the times of the events of any kind with an outage, in seconds."""
        return self.t_s[self.outage_s > 0]

    def within(self, begin_s: float, end_s: float) -> Events:
        """Return the events from `begin_s` (included) to `end_s` (excluded)."""
        kept = (self.t_s >= begin_s) & (self.t_s < end_s)
        kinds = tuple(kind for kind, keep in zip(self.kinds, kept, strict=True) if keep)
        return Events(self.t_s[kept], kinds, self.outage_s[kept])

    def down_spans(self, end_s: float) -> list[tuple[float, float]]:
        """Return the spans (begin, end) in s, up to `end_s`, in which the path was down.

        Spans are disjoint and ordered.
        """
        spans = [
            (begin, begin + outage)
            for begin, outage in zip(self.t_s.tolist(), self.outage_s.tolist(), strict=True)
            if outage > 0
        ]
        lost_at: float | None = None
        for at, kind in zip(self.t_s.tolist(), self.kinds, strict=True):
            if kind == "lost" and lost_at is None:
                lost_at = at
            elif kind == "restored" and lost_at is not None:
                spans.append((lost_at, at))
                lost_at = None
        if lost_at is not None:
            spans.append((lost_at, end_s))
        return _merged(spans, end_s)


@dataclass(frozen=True)
class Phases:
    """Reactions of congestion controls to announced handovers: n phases ordered by their begin."""

    begin_s: FloatArray
    """Starts of the phases in seconds, shape (n,)."""
    length_s: FloatArray
    """Durations of the phases in seconds, shape (n,)."""
    kinds: tuple[str, ...]
    """Kind of each of the n phases, one of `PHASE_KINDS`."""
    flows: tuple[int, ...]
    """Flow id of each of the n phases."""

    def spans(self, kind: str, end_s: float) -> list[tuple[float, float]]:
        """Return the spans (begin, end) in s, up to `end_s`, in which any flow is in this phase.

        Spans are disjoint and ordered.
        """
        phases = zip(self.begin_s.tolist(), self.length_s.tolist(), self.kinds, strict=True)
        return _merged(
            [(begin, begin + length) for begin, length, name in phases if name == kind], end_s
        )


@dataclass(frozen=True)
class PathRecord:
    """Time-varying path of n frames."""

    header: Mapping[str, Any]
    """Header of the path (JSON): endpoints, constellation, policies, seed."""
    t_s: FloatArray
    """Starts of the frames in seconds, shape (n,)."""
    delay_ms: FloatArray
    """One-way delay in ms from `from` to `to`, shape (n,), NaN without a path."""
    delay_back_ms: FloatArray
    """One-way delay in ms from `to` to `from`, shape (n,), NaN without a path."""
    hops: FloatArray
    """Number of hops, shape (n,), NaN if not known."""
    rate_mbps: FloatArray
    """Measured rate of the path in Mbit/s, shape (n,), NaN if not known."""
    same_nodes: BoolArray
    """Whether each frame has the same nodes as the frame before, shape (n,)."""
    events: Events

    @property
    def duration_s(self) -> float:
        """Time that the path covers, in seconds."""
        last_s = float(self.t_s[-1]) if len(self.t_s) else 0.0
        return max(float(self.header.get("duration_ns", 0)) / 1e9, last_s)

    def endpoint(self, end: str) -> str:
        """Return the name of the end `from` or `to`."""
        value = self.header.get(end)
        return str(value.get("name", end)) if isinstance(value, Mapping) else end

    def curve(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the points of a curve of `values`: times (s) and values, shape (m,) each.

        While the nodes stay the same, values are interpolated linearly between frames, unless the
        header says `between_frames` otherwise; where the nodes change, the value jumps. The last
        value holds until the end.
        """
        linear = self.header.get("between_frames", "linear") == "linear"
        jumps = np.zeros(len(values), dtype=bool)
        jumps[1:] = ~self.same_nodes[1:] if linear else True
        at = np.flatnonzero(jumps)
        t_s = np.insert(self.t_s, at, self.t_s[at])
        drawn = np.insert(values, at, values[at - 1])
        if len(values) and self.duration_s > self.t_s[-1]:
            t_s, drawn = np.append(t_s, self.duration_s), np.append(drawn, values[-1])
        return t_s, drawn


@dataclass(frozen=True)
class FlowSeries:
    """Samples of one TCP flow, shape (n,) each; NaN where a value is not known."""

    t_s: FloatArray
    goodput_mbps: FloatArray
    cwnd_packets: FloatArray
    ssthresh_packets: FloatArray
    srtt_ms: FloatArray
    ack_rtt_ms: FloatArray
    retransmits: FloatArray
    marks: FloatArray
    """Packets that links marked (ECN) since the previous sample."""


@dataclass(frozen=True)
class LinkSeries:
    """Samples of one direction of a link, shape (n,) each."""

    t_s: FloatArray
    backlog_bytes: FloatArray
    delivered_bytes: FloatArray
    """Bytes on the wire, with Ethernet headers, that arrived since the previous sample."""
    background_bytes: FloatArray
    """Bytes of the network's background that the link carried since the previous sample."""
    drops: Mapping[str, FloatArray]
    """Packets lost since the previous sample, by reason."""
    marks: FloatArray
    """Packets that the queue marked (ECN) since the previous sample."""


@dataclass(frozen=True)
class RouteSeries:
    """Routes from one site of a network to another: n routes, ordered by time."""

    t_s: FloatArray
    """First times at which the routes hold in seconds, shape (n,); each holds until the next."""
    satellites: Sequence[tuple[int, ...]]
    """Satellites of each of the n routes, that of the sending site first; empty without a route."""


@dataclass(frozen=True)
class ProbeSeries:
    """Packets of one probe flow, shape (n,) each; the RTT of a lost packet is NaN."""

    t_s: FloatArray
    rtt_ms: FloatArray
    scheduled_rtt_ms: FloatArray


@dataclass(frozen=True)
class AppSeries:
    """Transactions of a flow's application: n transactions, ordered by their due times."""

    table: str
    """Name of the table of the transactions, one of `APP_TABLES`."""
    t_s: FloatArray
    """Due times of the transactions in seconds, shape (n,)."""
    latency_ms: FloatArray
    """Time in ms from due time to completion, shape (n,), NaN for a failed transaction."""
    mos: Mapping[str, tuple[FloatArray, FloatArray]] = field(default_factory=dict)
    """Mean opinion scores of a call's windows and the windows' starts (s), by direction."""

    @property
    def failed_s(self) -> FloatArray:
        """Due times of the failed transactions, in seconds."""
        return self.t_s[np.isnan(self.latency_ms)]


@dataclass(frozen=True)
class FilmSeries:
    """Chunks that a video player downloaded: n chunks, ordered by arrival.

    Times count from the start of the run. Chunks that never arrived are not included.
    """

    arrived_s: FloatArray
    """Times in seconds at which the chunks had arrived completely, shape (n,)."""
    bitrate_mbps: FloatArray
    """Bitrates of the chunks' tracks in Mbit/s, shape (n,)."""
    buffer_s: FloatArray
    """Buffer levels in seconds of video after each arrival, shape (n,)."""
    stall_s: FloatArray
    """Durations in seconds of the stalls before each arrival, shape (n,); 0 without a stall."""

    @property
    def end_s(self) -> float:
        """Time in seconds at which the playback of the last chunk ends; 0 without chunks."""
        return float(self.arrived_s[-1] + self.buffer_s[-1]) if len(self.arrived_s) else 0.0

    def stalls(self) -> tuple[FloatArray, FloatArray]:
        """Return the starts and ends of the stalls, in seconds."""
        stalled = self.stall_s > 0
        ends = self.arrived_s[stalled]
        return ends - self.stall_s[stalled], ends


@dataclass(frozen=True)
class RunRecord(RunHeader):
    """Run with its tables as arrays."""

    flows: Mapping[int, FlowSeries]
    """TCP flows by flow id; a flow of the summary without samples has an empty series."""
    link: Mapping[str, LinkSeries]
    """Series of the link by direction: forward, back; of several links: path, path back, NAME, …"""
    events: Events
    """Events of the path and changes by the scenario; losses are counted in `link`."""
    announced_s: FloatArray
    """Times in seconds at which handovers were announced."""
    phases: Phases
    probes: Mapping[int, ProbeSeries]
    apps: Mapping[int, AppSeries]
    """Applications by flow id, without applications that have no row in any table."""
    films: Mapping[int, FilmSeries]
    """Video players by flow id."""
    path: PathRecord | None
    """Path of the run; None if the run directory has no copy of it."""
    routes: Mapping[tuple[str, str], RouteSeries]
    """Routes of a network by their sending and receiving site, without those of a routing that
    spreads flows over several ways."""


def _merged(spans: Sequence[tuple[float, float]], end_s: float) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for begin, end in sorted((begin, min(end, end_s)) for begin, end in spans if begin < end_s):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged
