"""Announced handovers in a figure, and what congestion controls did about them.

A strip has a lane for the announcements and one per kind of phase; the panels that show a window
or what comes of it are shaded while a flow holds its window, and ticked while it drains.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from skyhop._core import PHASE_KINDS
from skyhop.plot.events import LANE_IN, SPANS_AT_MOST, label_lane
from skyhop.plot.records import RunRecord

_ANNOUNCED_COLOUR = "#555555"
_PHASE_COLOURS = {"hold": "#117733", "drain": "#CC6677", "probe-rtt": "#6699CC"}
_TICK_HEIGHT = 0.06
"""Drains are marked this high along the upper edge of a panel, as a part of it."""


def has_signal(run: RunRecord) -> bool:
    """Return whether anything was announced or done about it."""
    return bool(len(run.announced_s) or run.phases.kinds)


def signal_strip_height_in(run: RunRecord) -> float:
    """Return how high the strip is, in inches."""
    return LANE_IN * (1 + len(_kinds_shown(run))) + 0.12


def draw_signal_strip(ax: Axes, run: RunRecord, end_s: float) -> None:
    """Draw a tick per announcement, and a lane of spans per kind of phase.

    The ticks are a collection with the gid `announcement`, the spans of a kind one with the kind.
    """
    kinds = _kinds_shown(run)
    ax.scatter(run.announced_s, [len(kinds)] * len(run.announced_s), s=55, marker="|",
               linewidths=0.8, color=_ANNOUNCED_COLOUR, gid="announcement")  # fmt: skip
    label_lane(ax, len(kinds), f"announced ({len(run.announced_s):,})", _ANNOUNCED_COLOUR)
    for place, kind in enumerate(kinds):
        lane = len(kinds) - 1 - place
        widths = [(begin, end - begin) for begin, end in run.phases.spans(kind, end_s)]
        ax.broken_barh(
            widths, (lane - 0.3, 0.6), color=_PHASE_COLOURS[kind], linewidth=0.8, gid=kind
        )
        label_lane(ax, lane, f"{kind} ({run.phases.kinds.count(kind):,})", _PHASE_COLOURS[kind])
    ax.set_ylim(-0.6, len(kinds) + 0.6)
    ax.set_yticks([])
    ax.grid(visible=False)
    ax.tick_params(bottom=False, labelbottom=False)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)


def mark_phases(panels: Sequence[Axes], run: RunRecord, end_s: float) -> None:
    """Shade holds over the whole height and mark drains along the upper edge.

    Where there are too many to be told apart only the strip shows them.
    """
    for kind in _kinds_shown(run):
        spans = run.phases.spans(kind, end_s)
        if len(spans) > SPANS_AT_MOST:
            continue
        widths = [(begin, end - begin) for begin, end in spans]
        height = (0.0, 1.0) if kind == "hold" else (1.0 - _TICK_HEIGHT, _TICK_HEIGHT)
        for ax in panels:
            ax.broken_barh(widths, height, transform=ax.get_xaxis_transform(),
                           color=_PHASE_COLOURS[kind], alpha=0.14 if kind == "hold" else 0.9,
                           linewidth=0 if kind == "hold" else 0.8, zorder=0, gid=kind)  # fmt: skip


def _kinds_shown(run: RunRecord) -> list[str]:
    return [kind for kind in PHASE_KINDS if kind in run.phases.kinds]
