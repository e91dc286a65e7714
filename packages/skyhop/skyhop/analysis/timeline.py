"""View models of timelines: panels that share a time axis, below strips of events.

A panel is a list of marks, in the order of drawing. The view model sets colours and strokes that
distinguish marks; `figures` chooses all others. A `gid` identifies a mark in the drawing (in an
SVG, by its id), for tests and tools.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from skyhop._core import PHASE_KINDS
from skyhop.analysis.styles import Dash, Marker
from skyhop.data.arrays import FloatArray
from skyhop.data.near_names import did_you_mean
from skyhop.data.records import SHOWN_EVENT_KINDS, Events, RunRecord
from skyhop.errors import InputError

GREY = "#555555"
LIGHT_GREY = "#BBBBBB"
FAR_DASH = (0, (5, 4))
NEAR_DASH = (0, (2, 1.5))

LINES_AT_MOST = 24
"""Largest number of events for which panels show a line each."""

SPANS_AT_MOST = 120
"""Largest number of spans with which panels shade short spans; long outages are always shaded."""

MISSING_LANE = 0.05
"""Height of a lane of missing values along a panel's upper edge, as a share of the panel's."""

Span: TypeAlias = tuple[float, float]
"""Span of time: begin and end, in seconds."""

Step: TypeAlias = Literal["", "post", "mid"]
"""Course of a line between two values: straight, or a step at the next value or half way."""


@dataclass(frozen=True)
class Stroke:
    """Style of a line: width in points, dash as a name or as (offset, lengths in points)."""

    colour: str
    width: float
    dash: Dash = "-"
    alpha: float | None = None
    marker: Marker | None = None
    """Marker at a few points of the line, to distinguish lines that cover each other."""


@dataclass(frozen=True)
class Line:
    """Line: values over time, shape (n,) each."""

    t_s: FloatArray
    values: FloatArray
    stroke: Stroke
    label: str = ""
    step: Step = ""
    gid: str | None = None
    behind: bool = False
    """Whether the line is drawn below earlier marks."""


@dataclass(frozen=True)
class Band:
    """Area between `low` (default 0) and `high` over time, shape (n,) each."""

    t_s: FloatArray
    low: FloatArray | None
    high: FloatArray
    colour: str
    alpha: float
    label: str = ""
    step: Step = ""


@dataclass(frozen=True)
class Level:
    """Horizontal line at a constant value."""

    value: float
    label: str


@dataclass(frozen=True)
class Dots:
    """Dots: single values over time, shape (n,) each, NaN for missing values."""

    t_s: FloatArray
    values: FloatArray
    colour: str
    label: str
    gid: str


@dataclass(frozen=True)
class Missing:
    """Times (s) at which a value is missing, such as a lost packet, shape (n,)."""

    t_s: FloatArray
    label: str
    gid: str
    colour: str = "black"
    lane: int = 0
    """Index of the lane from the panel's upper edge; the height of a lane is `MISSING_LANE`."""


@dataclass(frozen=True)
class Bars:
    """Bars of `counts` (n,) between `edges_s` (n + 1,), stacked on the values `base` (n,)."""

    edges_s: FloatArray
    counts: FloatArray
    base: FloatArray
    colour: str
    label: str


Mark: TypeAlias = Line | Band | Level | Dots | Missing | Bars


@dataclass(frozen=True)
class Panel:
    """Panel of one quantity over time."""

    what: str
    unit: str
    marks: Sequence[Mark]
    span: tuple[float, float] | None
    """Range of the axis, least and greatest value; None for the range of the data."""
    is_count: bool = False
    """Whether the values are counts; the axis then has only whole numbers."""
    shows_phases: bool = False
    """Whether the panel marks the phases of congestion controls around handovers."""
    is_log: bool = False
    note: str = ""
    """Short note above the panel."""
    height_in: float | None = None
    """Height in inches; by default it depends on the quantity."""


@dataclass(frozen=True)
class Lane:
    """Lane of a strip, with the events of one kind."""

    kind: str
    label: str
    t_s: FloatArray


@dataclass(frozen=True)
class EventStrip:
    """Events of a path: a lane per kind, and the spans in which the path was down."""

    lanes: Sequence[Lane]
    down: Sequence[Span]
    down_label: str
    shaded: Sequence[Span]
    """Outages that are also shaded in the panels below."""
    lines: Sequence[tuple[str, float]]
    """Events that are also marked in the panels below: kind and time (s)."""


@dataclass(frozen=True)
class PhaseLane:
    """Spans in which any flow was in a phase of one kind."""

    kind: str
    label: str
    spans: Sequence[Span]

    @property
    def in_panels(self) -> bool:
        """Whether the spans are few enough to be distinguishable in a panel."""
        return len(self.spans) <= SPANS_AT_MOST


@dataclass(frozen=True)
class SignalStrip:
    """Announcements of handovers, and the phases of congestion controls that they caused."""

    announced_s: FloatArray
    announced_label: str
    lanes: Sequence[PhaseLane]


@dataclass(frozen=True)
class Timeline:
    """Figure of panels over time, below a strip of events."""

    about: Literal["run", "path"]
    title: str
    end_s: float
    strip: EventStrip | None
    """Strip of the path's events; None for a run over a network, which has none."""
    panels: Sequence[Panel]
    signal: SignalStrip | None = None
    note: str = ""
    """Note below the figure."""

    def with_one_panel(self, name: str) -> Timeline:
        """Return the strips and one of the panels; the title is then a note.

        Raises:
            InputError: there is no panel of this quantity.
        """
        chosen = [panel for panel in self.panels if panel.what == name]
        if not chosen:
            raise no_panel(name, [panel.what for panel in self.panels])
        return replace(self, title="", panels=chosen, note=self.title)


def no_panel(name: str, known: Sequence[str]) -> InputError:
    """Return the error for a panel that a figure does not have."""
    hint = did_you_mean(name, known)
    return InputError(f'the figure has no panel "{name}"{hint}: choose one of {", ".join(known)}')


def from_zero(highest: float) -> tuple[float, float]:
    """Return an axis range from 0 to slightly above `highest`; to 1 if it is 0 or not known."""
    return 0.0, 1.08 * highest if np.isfinite(highest) and highest > 0 else 1.0


def highest_of(values: FloatArray) -> float:
    """Return the greatest known value; 0 if there is none."""
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else 0.0


def event_strip(events: Events, end_s: float) -> EventStrip:
    """Return the strip of a path's events up to `end_s`, with kinds in the order of figures."""
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
    """Return the strip of a run's announcements and phases; None for a run without any."""
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
    """Return the kinds to mark in panels: all if events are few, else serious kinds if few."""
    for kinds in (SHOWN_EVENT_KINDS, ("end", "lost", "restored", "change"), ("lost", "restored")):
        if sum(kind in kinds for kind in events.kinds) <= LINES_AT_MOST:
            return [kind for kind in kinds if kind in events.kinds]
    return []


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:,.1f} s"
