"""Drawing of timelines: strips of events, panels, and marks of events in the panels.

Kinds of events differ in colour, shape and lane. Events that are too dense for shapes become thin
ticks in the same lane, so that a strip stays readable with a thousand events. Colours of events are
from Paul Tol's muted scheme.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from skyhop._core import APP_TABLES
from skyhop.analysis.timeline import (
    FAR_DASH,
    GREY,
    MISSING_LANE,
    Band,
    Bars,
    Dots,
    EventStrip,
    Lane,
    Level,
    Line,
    Mark,
    Missing,
    Panel,
    PhaseLane,
    SignalStrip,
    Span,
    Stroke,
    Timeline,
)
from skyhop.data.arrays import FloatArray
from skyhop.data.figure_files import FigureWidth
from skyhop.figures.style import (
    MARKERS,
    Sheet,
    add_legend,
    label_time,
    label_y,
    new_figure,
    note_figure,
    pt,
    sheet_of,
    title_figure,
)

SHAPES_AT_MOST = 90
"""Largest number of events in a lane with shapes; with more, the lane shows ticks."""

_LANE_IN = 0.2
"""Height of a lane in inches."""

_DOT_SIZES = ((200, 12.0), (3000, 5.0), (np.inf, 1.5))
"""Sizes of dots: (largest number of dots, area of a dot in square points)."""

_MARKERS_AT_MOST = 7
"""Largest number of markers on a line; markers of several lines are offset from each other."""

_OUTAGE_COLOUR = "#777777"
_PHASE_COLOURS = {"hold": "#117733", "drain": "#CC6677", "probe-rtt": "#6699CC",
                  "fallback": "#AA4499"}  # fmt: skip
_TICK_HEIGHT = 0.06
"""Height of marks along a panel's upper edge (such as of drains), as a share of the panel's."""

_HEIGHTS_IN = {
    "goodput": 1.7, "srtt": 1.7, "probe RTT": 1.5, "cwnd": 1.5, "retransmits": 1.0, "queue": 1.2,
    "drops": 1.0, "marks": 1.0, "one-way delay": 2.3, "hops": 1.0, "rate": 1.3,
    "bitrate of chunks": 1.4, "buffer": 1.4,
    **{f"latency of {table}": 1.7 for table in APP_TABLES},
    "MOS": 1.3,
}  # fmt: skip
"""Height in inches of a panel, by its quantity."""


@dataclass(frozen=True)
class _EventStyle:
    """Colour and marker for a kind of event."""

    colour: str
    shape: str


_EVENT_STYLES = {
    "end": _EventStyle("#882255", "v"),
    "intermediate": _EventStyle("#44AA99", "o"),
    "reroute": _EventStyle("#999933", "s"),
    "lost": _EventStyle("#000000", "X"),
    "restored": _EventStyle("#117733", "^"),
    "change": _EventStyle("#332288", "D"),
}


def draw_timeline(timeline: Timeline, width: FigureWidth = "page") -> Sheet:
    """Draw a timeline: strips of events, and panels below them."""
    strips = [] if timeline.strip is None else [strip_height_in(timeline.strip)]
    if timeline.signal is not None:
        strips.append(_LANE_IN * (1 + len(timeline.signal.lanes)) + 0.12)
    heights = [*strips, *(p.height_in or _HEIGHTS_IN[p.what] for p in timeline.panels)]
    gaps_in = 0.75 if timeline.about == "path" else 0.6 + 0.12 * len(heights)
    figure, drawn = new_figure(sum(heights) + gaps_in, heights, width)
    axes = drawn[len(strips) :]
    if timeline.title:
        title_figure(figure, timeline.title)
    if timeline.strip is not None:
        draw_strip(drawn[0], timeline.strip)
        mark_panels(axes, timeline.strip)
    if timeline.signal is not None:
        _draw_signal(drawn[len(strips) - 1], timeline.signal)
        shown = zip(axes, timeline.panels, strict=True)
        _mark_phases([ax for ax, panel in shown if panel.shows_phases], timeline.signal)
    known: set[str] = set()
    for ax, panel in zip(axes, timeline.panels, strict=True):
        draw_panel(ax, panel)
        add_legend(ax, known)
    notes = [timeline.note] if timeline.note else []
    if figure.laid_out.is_narrow:
        notes += [f"{panel.what} {panel.note}" for panel in timeline.panels if panel.note]
    note_figure(figure, "; ".join(notes))
    label_time(axes[-1], timeline.end_s)
    figure.align_ylabels(axes)
    return figure


def draw_panel(ax: Axes, panel: Panel) -> None:
    """Draw a panel's marks, and label its y axis."""
    count = sum(map(_has_markers, panel.marks))
    place = 0
    for mark in panel.marks:
        draw_mark(ax, mark)
        if isinstance(mark, Line) and _has_markers(mark):
            place_markers(ax, mark.t_s, mark.values, mark.stroke, (place, count))
            place += 1
    if panel.span is not None:
        ax.set_ylim(*panel.span)
    if panel.note and not sheet_of(ax).laid_out.is_narrow:
        ax.set_title(panel.note, fontsize=pt(ax, 8), loc="right", color=GREY, pad=2)
    label_y(ax, panel.what, panel.unit, is_count=panel.is_count, is_log=panel.is_log)


def draw_mark(ax: Axes, mark: Mark) -> None:
    """Draw one mark of a panel."""
    match mark:
        case Line():
            _draw_line(ax, mark)
        case Band():
            _draw_band(ax, mark)
        case Level():
            ax.axhline(mark.value, label=mark.label, **stroked(ax, Stroke(GREY, 0.9, FAR_DASH)))
        case Dots():
            size = next(size for most, size in _DOT_SIZES if len(mark.t_s) <= most)
            ax.scatter(mark.t_s, mark.values, s=pt(ax, size), color=mark.colour, linewidths=0,
                       alpha=0.6, rasterized=True, label=mark.label, gid=mark.gid)  # fmt: skip
        case Missing():
            _draw_missing(ax, mark)
        case Bars():
            _draw_bars(ax, mark)


def _has_markers(mark: Mark) -> bool:
    """Return whether a mark is a line with markers: only labelled lines, the first per label."""
    return isinstance(mark, Line) and bool(mark.label and mark.stroke.marker)


def place_markers(
    ax: Axes, along: FloatArray, across: FloatArray, stroke: Stroke, place: tuple[int, int]
) -> None:
    """Set a stroke's markers on the line drawn last, offset from the markers of other lines.

    Markers distinguish lines that cover each other.

    Args:
        ax: the axes.
        along: coordinates of the line's points in the direction in which markers are spread,
            ascending, (n,).
        across: coordinates in the other direction, (n,).
        stroke: style of the line.
        place: index of the line among the lines with markers, and the number of these lines.
    """
    known = np.flatnonzero(np.isfinite(along) & np.isfinite(across))
    if stroke.marker is None or not len(known):
        return
    begin, end = along[known[0]], along[known[-1]]
    shares = (np.arange(_MARKERS_AT_MOST) + (place[0] + 0.5) / place[1]) / _MARKERS_AT_MOST
    nearest = np.searchsorted(along[known], begin + shares * (end - begin))
    at = known[np.minimum(nearest, len(known) - 1)]
    ax.lines[-1].set(
        marker=MARKERS[stroke.marker],
        markevery=np.unique(at).tolist(),
        markersize=pt(ax, 5.5),
        markeredgecolor="white",
        markeredgewidth=pt(ax, 0.6),
    )


def stroked(ax: Axes, stroke: Stroke) -> dict[str, Any]:
    """Return a stroke as keyword arguments for Matplotlib's lines."""
    return {
        "color": stroke.colour,
        "linewidth": pt(ax, stroke.width),
        "linestyle": stroke.dash,
        "alpha": stroke.alpha,
    }


def _draw_line(ax: Axes, line: Line) -> None:
    keywords = {"label": _label(line.label), "gid": line.gid, **stroked(ax, line.stroke)}
    if line.behind:
        keywords["zorder"] = 1
    if line.step:
        ax.step(line.t_s, line.values, where=line.step, **keywords)
    else:
        ax.plot(line.t_s, line.values, **keywords)


def _draw_band(ax: Axes, band: Band) -> None:
    keywords: dict[str, Any] = {"color": band.colour, "alpha": band.alpha, "linewidth": 0,
                "label": _label(band.label), "step": band.step or None}  # fmt: skip
    if band.low is None:
        ax.fill_between(band.t_s, band.high, **keywords)
    else:
        ax.fill_between(band.t_s, band.low, band.high, **keywords)


def _draw_missing(ax: Axes, missing: Missing) -> None:
    count = len(missing.t_s)
    heights = np.full(count, 0.97 - MISSING_LANE * missing.lane)
    marker, alpha = ("x", 1.0) if count <= SHAPES_AT_MOST else ("|", _ticks_alpha(count))
    ax.scatter(missing.t_s, heights, s=14, marker=marker, linewidths=0.8, color=missing.colour,
               alpha=alpha, transform=ax.get_xaxis_transform(), label=missing.label,
               gid=missing.gid)  # fmt: skip


def _ticks_alpha(count: int) -> float:
    return float(np.clip(400 / count, 0.25, 0.9))


def _draw_bars(ax: Axes, bars: Bars) -> None:
    shown = bars.counts > 0
    width_s = float(bars.edges_s[1] - bars.edges_s[0])
    # The outline keeps a single narrow bar visible.
    ax.bar(bars.edges_s[:-1][shown], bars.counts[shown], width_s, bars.base[shown], align="edge",
           color=bars.colour, edgecolor=bars.colour, linewidth=0.6, label=bars.label)  # fmt: skip


def _label(label: str) -> str:
    return label or "_nolegend_"


def strip_height_in(strip: EventStrip) -> float:
    """Return the height of a strip, in inches."""
    return _LANE_IN * (max(len(strip.lanes), 1) + bool(strip.down)) + 0.12


def draw_strip(ax: Axes, strip: EventStrip) -> None:
    """Draw one marker per event, in one lane per kind, and the outages in a lane of their own.

    The markers of a kind are one Matplotlib collection, with the kind as its gid.
    """
    lanes = len(strip.lanes) + bool(strip.down)
    for index, lane in enumerate(strip.lanes):
        _draw_lane(ax, lane, lanes - 1 - index)
    if strip.down:
        ax.broken_barh(_widths(strip.down), (-0.3, 0.6), color=_OUTAGE_COLOUR, linewidth=0.8,
                       gid="outage")  # fmt: skip
        _label_lane(ax, 0, strip.down_label, _OUTAGE_COLOUR)
    if lanes == 0:
        ax.text(0.5, 0.5, "no handovers", transform=ax.transAxes, ha="center", va="center",
                color=GREY, fontsize=pt(ax, 8.5))  # fmt: skip
    _hide_frame(ax, -0.6, max(lanes, 1) - 0.4)


def mark_panels(panels: Sequence[Axes], strip: EventStrip) -> None:
    """Shade the outages in each panel and, if events are few, draw a faint line per event."""
    for ax in panels:
        if strip.shaded:
            ax.broken_barh(_widths(strip.shaded), (0, 1), transform=ax.get_xaxis_transform(),
                           color=_OUTAGE_COLOUR, alpha=0.22, linewidth=0, zorder=0,
                           gid="outage")  # fmt: skip
        for kind, at_s in strip.lines:
            ax.axvline(
                at_s, color=_EVENT_STYLES[kind].colour, linewidth=0.7, alpha=0.35, zorder=0.5
            )


def _draw_lane(ax: Axes, lane: Lane, height: int) -> None:
    style, count = _EVENT_STYLES[lane.kind], len(lane.t_s)
    heights = np.full(count, height)
    ax.axhline(height, color="#EEEEEE", linewidth=0.8, zorder=0)
    if count > SHAPES_AT_MOST:
        ax.scatter(lane.t_s, heights, s=55, marker="|", linewidths=0.7, color=style.colour,
                   alpha=_ticks_alpha(count), rasterized=True, gid=lane.kind)  # fmt: skip
    else:
        ax.scatter(lane.t_s, heights, s=pt(ax, 26), marker=style.shape, color=style.colour,
                   linewidths=0, clip_on=False, zorder=3, gid=lane.kind)  # fmt: skip
    _label_lane(ax, height, lane.label, style.colour, style.shape)


def _draw_signal(ax: Axes, strip: SignalStrip) -> None:
    """Draw a tick for each announcement, and a lane of spans for each kind of phase.

    The ticks are a Matplotlib collection with the gid `announcement`. The spans of each kind are a
    collection with the kind as its gid.
    """
    top = len(strip.lanes)
    ax.scatter(strip.announced_s, [top] * len(strip.announced_s), s=55, marker="|", linewidths=0.8,
               color=GREY, gid="announcement")  # fmt: skip
    _label_lane(ax, top, strip.announced_label, GREY)
    for index, lane in enumerate(strip.lanes):
        height, colour = top - 1 - index, _PHASE_COLOURS[lane.kind]
        ax.broken_barh(_widths(lane.spans), (height - 0.3, 0.6), color=colour, linewidth=0.8,
                       gid=lane.kind)  # fmt: skip
        _label_lane(ax, height, lane.label, colour)
    _hide_frame(ax, -0.6, top + 0.6)


def _mark_phases(panels: Sequence[Axes], strip: SignalStrip) -> None:
    """Shade phases of kind hold over a panel's height; mark other phases along its upper edge.

    Phases that are too many to be distinguishable in panels are only in the strip.
    """
    for lane in strip.lanes:
        for ax in panels if lane.in_panels else ():
            _mark_phase(ax, lane)


def _mark_phase(ax: Axes, lane: PhaseLane) -> None:
    holds = lane.kind == "hold"
    height = (0.0, 1.0) if holds else (1.0 - _TICK_HEIGHT, _TICK_HEIGHT)
    ax.broken_barh(_widths(lane.spans), height, transform=ax.get_xaxis_transform(),
                   color=_PHASE_COLOURS[lane.kind], alpha=0.14 if holds else 0.9,
                   linewidth=0 if holds else 0.8, zorder=0, gid=lane.kind)  # fmt: skip


def _widths(spans: Sequence[Span]) -> list[Span]:
    return [(begin, end - begin) for begin, end in spans]


def _label_lane(ax: Axes, height: int, text: str, colour: str, shape: str = "") -> None:
    """Write a lane's name and shape to the right of its strip; if narrow, its name to the left.

    On a narrow figure, the left has room for labels anyway, and a shape would look like an event.
    """
    narrow = sheet_of(ax).laid_out.is_narrow
    text_at, side = (-0.02, "right") if narrow else (1.022, "left")
    if shape and not narrow:
        ax.plot([1.012], [height], marker=shape, color=colour, markersize=pt(ax, 5),
                markeredgewidth=0, transform=ax.get_yaxis_transform(), clip_on=False)  # fmt: skip
    ax.text(text_at, height, text, transform=ax.get_yaxis_transform(), ha=side, va="center",
            fontsize=pt(ax, 8.5), color=colour)  # fmt: skip


def _hide_frame(ax: Axes, low: float, high: float) -> None:
    ax.set_ylim(low, high)
    ax.set_yticks([])
    ax.grid(visible=False)
    ax.tick_params(bottom=False, labelbottom=False)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
