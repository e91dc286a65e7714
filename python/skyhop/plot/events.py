"""Events of a path in a figure: a strip with one lane per kind, and marks in the panels below it.

A kind is told apart by colour, by shape and by its lane. Where events are too dense for shapes
they become thin ticks in the same lane, so that a strip stays readable with a thousand of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from skyhop.plot.records import SHOWN_EVENT_KINDS, Events, FloatArray
from skyhop.plot.style import GREY, OUTAGE_COLOUR

LANE_IN = 0.2
"""Height of a lane in inches."""

SHAPES_AT_MOST = 90
"""A lane with more events than this shows ticks in place of shapes."""

LINES_AT_MOST = 24
"""Panels get a line for each event up to this many events."""

SPANS_AT_MOST = 120
"""Panels shade short outages up to this many; long ones always."""


@dataclass(frozen=True)
class Mark:
    """How a kind of event is drawn."""

    colour: str
    shape: str


MARKS = {
    "end": Mark("#882255", "v"),
    "intermediate": Mark("#44AA99", "o"),
    "reroute": Mark("#999933", "s"),
    "lost": Mark("#000000", "X"),
    "restored": Mark("#117733", "^"),
    "change": Mark("#332288", "D"),
}


def kinds_shown(events: Events) -> list[str]:
    """List the kinds that happened, in their order."""
    return [kind for kind in SHOWN_EVENT_KINDS if kind in events.kinds]


def strip_height_in(events: Events, end_s: float) -> float:
    """Return how high the strip of these events is, in inches."""
    return LANE_IN * (max(len(kinds_shown(events)), 1) + bool(events.down_spans(end_s))) + 0.12


def draw_strip(ax: Axes, events: Events, end_s: float) -> None:
    """Draw one marker per event, in one lane per kind, and the outages in a lane of their own.

    The markers of a kind are one collection with the kind as its gid.
    """
    kinds, spans = kinds_shown(events), events.down_spans(end_s)
    lanes = len(kinds) + bool(spans)
    for place, kind in enumerate(kinds):
        _draw_lane(ax, kind, events.times(kind), lanes - 1 - place)
    if spans:
        widths = [(begin, end - begin) for begin, end in spans]
        ax.broken_barh(widths, (-0.3, 0.6), color=OUTAGE_COLOUR, linewidth=0.8, gid="outage")
        down_s = sum(width for _, width in widths)
        label_lane(ax, 0, f"down, {_duration(down_s)} in all", OUTAGE_COLOUR)
    if lanes == 0:
        ax.text(0.5, 0.5, "no handovers", transform=ax.transAxes, ha="center", va="center",
                color=GREY, fontsize=8.5)  # fmt: skip
    ax.set_ylim(-0.6, max(lanes, 1) - 0.4)
    ax.set_yticks([])
    ax.grid(visible=False)
    ax.tick_params(bottom=False, labelbottom=False)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)


def mark_panels(panels: Sequence[Axes], events: Events, end_s: float) -> None:
    """Shade the outages in each panel and, where they are few, draw a faint line per event."""
    spans = events.down_spans(end_s)
    if len(spans) > SPANS_AT_MOST:
        spans = [(begin, end) for begin, end in spans if end - begin >= 0.005 * end_s]
    lines = _kinds_with_lines(events)
    for ax in panels:
        if spans:
            ax.broken_barh(
                [(begin, end - begin) for begin, end in spans],
                (0, 1),
                transform=ax.get_xaxis_transform(),
                color=OUTAGE_COLOUR,
                alpha=0.22,
                linewidth=0,
                zorder=0,
                gid="outage",
            )
        for kind in lines:
            for at in events.times(kind):
                ax.axvline(at, color=MARKS[kind].colour, linewidth=0.7, alpha=0.35, zorder=0.5)


def _draw_lane(ax: Axes, kind: str, times_s: FloatArray, lane: int) -> None:
    mark = MARKS[kind]
    heights = np.full(len(times_s), lane)
    ax.axhline(lane, color="#EEEEEE", linewidth=0.8, zorder=0)
    if len(times_s) > SHAPES_AT_MOST:
        alpha = float(np.clip(400 / len(times_s), 0.25, 0.9))
        ax.scatter(times_s, heights, s=55, marker="|", linewidths=0.7, color=mark.colour,
                   alpha=alpha, rasterized=True, gid=kind)  # fmt: skip
    else:
        ax.scatter(times_s, heights, s=26, marker=mark.shape, color=mark.colour, linewidths=0,
                   clip_on=False, zorder=3, gid=kind)  # fmt: skip
    ax.plot([1.012], [lane], marker=mark.shape, color=mark.colour, markersize=5,
            markeredgewidth=0, transform=ax.get_yaxis_transform(), clip_on=False)  # fmt: skip
    label_lane(ax, lane, f"{kind} ({len(times_s):,})", mark.colour)


def label_lane(ax: Axes, lane: int, text: str, colour: str) -> None:
    """Write a lane's name to the right of its strip."""
    ax.text(1.022, lane, text, transform=ax.get_yaxis_transform(), ha="left", va="center",
            fontsize=8.5, color=colour)  # fmt: skip


def _kinds_with_lines(events: Events) -> list[str]:
    """List all kinds where events are few, else the graver ones where those are few."""
    for kinds in (SHOWN_EVENT_KINDS, ("end", "lost", "restored", "change"), ("lost", "restored")):
        if sum(kind in kinds for kind in events.kinds) <= LINES_AT_MOST:
            return [kind for kind in kinds if kind in events.kinds]
    return []


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:,.1f} s"
