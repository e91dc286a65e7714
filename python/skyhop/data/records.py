"""Runs and paths as arrays: what figures, tables and metrics are made of.

They are views of `Run` and `Path` in the units that people read: times in seconds, delays in
milliseconds, NaN for what is not known. `reading` makes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from skyhop._core import PATH_EVENT_KINDS
from skyhop.data.arrays import BoolArray, FloatArray
from skyhop.data.heads import RunHead

SHOWN_EVENT_KINDS = (*PATH_EVENT_KINDS, "change")
"""What happens to a path, by itself or as the scenario says, in the order of figures."""


@dataclass(frozen=True)
class Events:
    """What happened to a path: n events ordered by time."""

    t_s: FloatArray
    """When, shape (n,)."""
    kinds: tuple[str, ...]
    """What, n of `SHOWN_EVENT_KINDS`."""
    outage_s: FloatArray
    """How long the path is down from then on, shape (n,)."""

    @staticmethod
    def none() -> Events:
        """Return that nothing happened."""
        return Events(np.array([]), (), np.array([]))

    def times(self, kind: str) -> FloatArray:
        """Return when events of one kind happened, in seconds."""
        return self.t_s[[name == kind for name in self.kinds]]

    def within(self, begin_s: float, end_s: float) -> Events:
        """Keep the events from `begin_s` on and before `end_s`."""
        kept = (self.t_s >= begin_s) & (self.t_s < end_s)
        kinds = tuple(kind for kind, keep in zip(self.kinds, kept, strict=True) if keep)
        return Events(self.t_s[kept], kinds, self.outage_s[kept])

    def down_spans(self, end_s: float) -> list[tuple[float, float]]:
        """Return disjoint, ordered (begin, end) in s when the path was down, up to `end_s`."""
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
    """What congestion controls did about announced handovers: n phases ordered by their begin."""

    begin_s: FloatArray
    """When each began, shape (n,)."""
    length_s: FloatArray
    """How long it lasted, shape (n,)."""
    kinds: tuple[str, ...]
    """What, n of `PHASE_KINDS`."""
    flows: tuple[int, ...]
    """Whose, n flow ids."""

    def spans(self, kind: str, end_s: float) -> list[tuple[float, float]]:
        """Return disjoint, ordered (begin, end) in s when any flow was in a phase of this kind."""
        phases = zip(self.begin_s.tolist(), self.length_s.tolist(), self.kinds, strict=True)
        return _merged(
            [(begin, begin + length) for begin, length, of in phases if of == kind], end_s
        )


@dataclass(frozen=True)
class PathRecord:
    """A path: n frames."""

    header: Mapping[str, Any]
    """The JSON header: endpoints, constellation, policies, seed."""
    t_s: FloatArray
    """When each frame begins, shape (n,)."""
    delay_ms: FloatArray
    """One-way delay from -> to, shape (n,), NaN without a path."""
    delay_back_ms: FloatArray
    """One-way delay to -> from, shape (n,), NaN without a path."""
    hops: FloatArray
    """Number of hops, shape (n,), NaN where they are not known."""
    rate_mbps: FloatArray
    """The path's measured rate in Mbit/s, shape (n,), NaN where not known."""
    same_nodes: BoolArray
    """Whether a frame has the nodes of the one before, shape (n,)."""
    events: Events

    @property
    def duration_s(self) -> float:
        """The time that the path covers."""
        last_s = float(self.t_s[-1]) if len(self.t_s) else 0.0
        return max(float(self.header.get("duration_ns", 0)) / 1e9, last_s)

    def endpoint(self, end: str) -> str:
        """Return the name of the end `from` or `to`."""
        value = self.header.get(end)
        return str(value.get("name", end)) if isinstance(value, Mapping) else end

    def curve(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return times (s) and values to draw, (m,) each.

        Within the same nodes a value goes linearly to the next frame where the header says so;
        where the nodes change it stays and then jumps. The last value holds until the end.
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
    """One TCP flow's samples, shape (n,) each; NaN where a value is not known."""

    t_s: FloatArray
    goodput_mbps: FloatArray
    cwnd_packets: FloatArray
    ssthresh_packets: FloatArray
    srtt_ms: FloatArray
    retransmits: FloatArray
    marks: FloatArray
    """Packets that links marked (ECN) during each sample."""


@dataclass(frozen=True)
class LinkSeries:
    """One direction of the link, shape (n,) each."""

    t_s: FloatArray
    backlog_bytes: FloatArray
    delivered_bytes: FloatArray
    """IP packets that arrived at the far end during each sample."""
    drops: Mapping[str, FloatArray]
    """Packets lost during each sample, by reason."""
    marks: FloatArray
    """Packets that the queue marked (ECN) during each sample."""


@dataclass(frozen=True)
class ProbeSeries:
    """One probe's packets, shape (n,) each; NaN for the RTT of a lost one."""

    t_s: FloatArray
    rtt_ms: FloatArray
    scheduled_rtt_ms: FloatArray


@dataclass(frozen=True)
class AppSeries:
    """What a flow's application did: n transactions ordered by when they were due."""

    table: str
    """What it did, one of `APP_TABLES`."""
    t_s: FloatArray
    """When each was due, shape (n,)."""
    latency_ms: FloatArray
    """From then until it was done, shape (n,), NaN where it failed."""
    mos: Mapping[str, tuple[FloatArray, FloatArray]] = field(default_factory=dict)
    """Of a call, by direction: the mean opinion scores of its windows, and when these began."""

    @property
    def failed_s(self) -> FloatArray:
        """When those were due that failed, in seconds."""
        return self.t_s[np.isnan(self.latency_ms)]


@dataclass(frozen=True)
class FilmSeries:
    """What a player did: n chunks ordered by when they came; times in s of the run."""

    arrived_s: FloatArray
    """When each had come, shape (n,)."""
    bitrate_mbps: FloatArray
    """Of its track, shape (n,)."""
    buffer_s: FloatArray
    """What was left to play once it had come, shape (n,)."""
    stall_s: FloatArray
    """How long the picture stood still for want of it, shape (n,)."""

    @property
    def end_s(self) -> float:
        """When the last chunk has been played, or where nothing came, 0."""
        return float(self.arrived_s[-1] + self.buffer_s[-1]) if len(self.arrived_s) else 0.0

    def stalls(self) -> tuple[FloatArray, FloatArray]:
        """Return when the picture began to stand still, and when it moved again."""
        stood = self.stall_s > 0
        ends = self.arrived_s[stood]
        return ends - self.stall_s[stood], ends


@dataclass(frozen=True)
class RunRecord(RunHead):
    """A run with its tables."""

    flows: Mapping[int, FlowSeries]
    """By flow id; a flow of the summary that has no samples has an empty series."""
    link: Mapping[str, LinkSeries]
    """By direction, forward and back; with several links by name: path, path back, NAME …"""
    events: Events
    """Path events and changes; losses are counted in `link`."""
    announced_s: FloatArray
    """When handovers were announced."""
    phases: Phases
    probes: Mapping[int, ProbeSeries]
    apps: Mapping[int, AppSeries]
    """By flow id; a flow is in it whose application has done something that has a table."""
    films: Mapping[int, FilmSeries]
    """By flow id, what players did."""
    path: PathRecord | None
    """The path that the run went over, where the directory holds a copy of it."""


def _merged(spans: Sequence[tuple[float, float]], end_s: float) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for begin, end in sorted((begin, min(end, end_s)) for begin, end in spans if begin < end_s):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged
