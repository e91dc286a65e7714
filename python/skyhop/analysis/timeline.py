"""What happens over time, as a view model: panels that share a time axis, below strips of events.

A panel is a list of marks, in the order in which they are drawn. Colours and strokes are given
where they tell things apart; everything else about the look is left to who draws. A `gid` is what
a drawing calls a mark, for those who look for it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from skyhop._core import PHASE_KINDS
from skyhop.analysis.looks import Dash, Marker
from skyhop.data.arrays import FloatArray
from skyhop.data.records import SHOWN_EVENT_KINDS, Events, RunRecord

GREY = "#555555"
LIGHT_GREY = "#BBBBBB"
FAR_DASH = (0, (5, 4))
NEAR_DASH = (0, (2, 1.5))

LINES_AT_MOST = 24
"""Panels get a line for each event up to this many events."""

SPANS_AT_MOST = 120
"""Panels shade short spans up to this many; long outages always."""

MISSING_LANE = 0.05
"""How much of a panel's height marks of missing values take, along its upper edge."""

Span: TypeAlias = tuple[float, float]
"""Begin and end, in seconds."""

Step: TypeAlias = Literal["", "post", "mid"]
"""How a value goes to the next: straight, or by a step after it or in the middle."""


@dataclass(frozen=True)
class Stroke:
    """How a line is drawn: width in points, dash as a name or as (offset, lengths in points)."""

    colour: str
    width: float
    dash: Dash = "-"
    alpha: float | None = None
    marker: Marker | None = None
    """What stands on it here and there, so that it is known where lines cover each other."""


@dataclass(frozen=True)
class Line:
    """Values over time, shape (n,) each."""

    t_s: FloatArray
    values: FloatArray
    stroke: Stroke
    label: str = ""
    step: Step = ""
    gid: str | None = None
    behind: bool = False
    """Whether it goes below what was drawn before."""


@dataclass(frozen=True)
class Band:
    """What lies between two values over time, or between 0 and one, shape (n,) each."""

    t_s: FloatArray
    low: FloatArray | None
    high: FloatArray
    colour: str
    alpha: float
    label: str = ""
    step: Step = ""


@dataclass(frozen=True)
class Level:
    """A value that holds all the time."""

    value: float
    label: str


@dataclass(frozen=True)
class Dots:
    """Single values over time, shape (n,) each, NaN where there was none."""

    t_s: FloatArray
    values: FloatArray
    colour: str
    label: str
    gid: str


@dataclass(frozen=True)
class Missing:
    """When there should have been a value, shape (n,)."""

    t_s: FloatArray
    label: str
    gid: str
    colour: str = "black"
    lane: int = 0
    """How many others are marked above it, each `MISSING_LANE` of the panel high."""


@dataclass(frozen=True)
class Bars:
    """Counts (n,) between edges (n + 1,), standing on what is below them (n,)."""

    edges_s: FloatArray
    counts: FloatArray
    base: FloatArray
    colour: str
    label: str


Mark: TypeAlias = Line | Band | Level | Dots | Missing | Bars


@dataclass(frozen=True)
class Panel:
    """One quantity over time."""

    what: str
    unit: str
    marks: Sequence[Mark]
    span: tuple[float, float] | None
    """The least and the greatest value to show; None: whatever there is."""
    whole: bool = False
    """Whether it counts something."""
    shows_phases: bool = False
    """Whether what congestion controls did about handovers is seen in it."""
    is_log: bool = False
    note: str = ""
    """What must be known to read it, in a few words."""


@dataclass(frozen=True)
class Lane:
    """All events of a kind."""

    kind: str
    label: str
    t_s: FloatArray


@dataclass(frozen=True)
class EventStrip:
    """What happened to a path: a lane per kind, and when it was down."""

    lanes: Sequence[Lane]
    down: Sequence[Span]
    down_label: str
    shaded: Sequence[Span]
    """Outages that panels below show as well."""
    lines: Sequence[tuple[str, float]]
    """Events that panels below show as well: kind and time (s)."""


@dataclass(frozen=True)
class PhaseLane:
    """When any flow was in a phase of a kind."""

    kind: str
    label: str
    spans: Sequence[Span]

    @property
    def in_panels(self) -> bool:
        """Whether there are few enough to be told apart in a panel."""
        return len(self.spans) <= SPANS_AT_MOST


@dataclass(frozen=True)
class SignalStrip:
    """What was announced, and what congestion controls did about it."""

    announced_s: FloatArray
    announced_label: str
    lanes: Sequence[PhaseLane]


@dataclass(frozen=True)
class Timeline:
    """A figure over time."""

    about: Literal["run", "path"]
    title: str
    end_s: float
    strip: EventStrip
    panels: Sequence[Panel]
    signal: SignalStrip | None = None


def from_zero(highest: float) -> tuple[float, float]:
    """Return a span from 0 to a little above `highest`, to 1 where that is 0 or not known."""
    return 0.0, 1.08 * highest if np.isfinite(highest) and highest > 0 else 1.0


def highest_of(values: FloatArray) -> float:
    """Return the greatest known value, 0 without any."""
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else 0.0


def event_strip(events: Events, end_s: float) -> EventStrip:
    """Return the strip of a path's events up to `end_s`, kinds in their order."""
    spans = events.down_spans(end_s)
    down_s = sum(end - begin for begin, end in spans)
    long_ones = [(begin, end) for begin, end in spans if end - begin >= 0.005 * end_s]
    kinds = [kind for kind in SHOWN_EVENT_KINDS if kind in events.kinds]
    return EventStrip(
        lanes=[_lane(kind, events.times(kind)) for kind in kinds],
        down=spans,
        down_label=f"down, {_duration(down_s)} in all",
        shaded=spans if len(spans) <= SPANS_AT_MOST else long_ones,
        lines=[(kind, at) for kind in _with_lines(events) for at in events.times(kind).tolist()],
    )


def signal_strip(run: RunRecord, end_s: float) -> SignalStrip | None:
    """Return the strip of a run's announcements, None where there were none and nothing done."""
    if not len(run.announced_s) and not run.phases.kinds:
        return None
    count = run.phases.kinds.count
    return SignalStrip(
        announced_s=run.announced_s,
        announced_label=f"announced ({len(run.announced_s):,})",
        lanes=[
            PhaseLane(kind, f"{kind} ({count(kind):,})", run.phases.spans(kind, end_s))
            for kind in PHASE_KINDS
            if kind in run.phases.kinds
        ],
    )


def _lane(kind: str, times_s: FloatArray) -> Lane:
    return Lane(kind, f"{kind} ({len(times_s):,})", times_s)


def _with_lines(events: Events) -> list[str]:
    """List all kinds where events are few, else the graver ones where those are few."""
    for kinds in (SHOWN_EVENT_KINDS, ("end", "lost", "restored", "change"), ("lost", "restored")):
        if sum(kind in kinds for kind in events.kinds) <= LINES_AT_MOST:
            return [kind for kind in kinds if kind in events.kinds]
    return []


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:,.1f} s"
