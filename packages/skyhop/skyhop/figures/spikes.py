"""Latency over time with its spikes, drawn as the T3P paper's figure 3a."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from skyhop.analysis.spikes import TIMES_MEDIAN, Spikes
from skyhop.analysis.styles import COLOURS
from skyhop.analysis.timeline import GREY
from skyhop.data.figure_files import FigureWidth
from skyhop.figures.style import (
    Sheet,
    add_legend,
    label_x,
    label_y,
    new_figure,
    note_figure,
    pt,
    title_figure,
)

_HOUR_S, _MINUTE_S = 3600.0, 60.0
_LONG_H, _SHORT_S = 3.0, 1200.0
_BREAK_S = 3.0


def spikes_figure(found: Spikes, width: FigureWidth = "page") -> Sheet:
    """Draw latency over time, and mark its spikes.

    Args:
        found: the spikes and their series.
        width: target of the figure: a page, or one or two columns of a paper.
    """
    figure, (ax,) = new_figure(3.6, [1], width)
    series = found.series
    begin_ns = int(series.time_ns[0]) - round(series.each_s * 1e9)
    at_s = (series.time_ns - begin_ns) / 1e9
    unit, unit_s = _unit(float(at_s[-1]))
    latency_ms, running_ms = series.latency_ms.copy(), found.running_ms.copy()
    for broken in np.flatnonzero(np.diff(at_s) > _BREAK_S):
        # Break lines at gaps: a line across a gap would look like measurements.
        latency_ms[broken] = running_ms[broken] = np.nan
    if series.each_s == 0:
        ax.plot(at_s / unit_s, latency_ms, ".", markersize=pt(ax, 1.2), color="#BBBBBB",
                label="probes", rasterized=True)  # fmt: skip
    ax.plot(at_s / unit_s, running_ms, color=COLOURS[0], linewidth=pt(ax, 0.9),
            label="running median, 1 s" if series.each_s == 0 else "latency")  # fmt: skip
    ax.plot(at_s / unit_s, found.limit_ms, color=GREY, linewidth=pt(ax, 1), linestyle="--",
            label=f"{TIMES_MEDIAN:g} x median of the window")  # fmt: skip
    for place, spike in enumerate(found.spikes):
        first_s = (spike.start_ns - begin_ns) / 1e9
        ax.axvspan(first_s / unit_s, (first_s + spike.length_s) / unit_s, color=COLOURS[1],
                   alpha=0.3, linewidth=0, label="_" if place else "spike")  # fmt: skip
    label_y(ax, "round trip", "ms")
    ax.set_ylim(bottom=0)
    ax.set_xlim(0, float(at_s[-1]) / unit_s)
    label_x(ax, f"time since {_written(begin_ns)} ({unit})")
    add_legend(ax)
    title_figure(figure, found.title)
    note_figure(figure, f"{100 * found.share_above:.2f} % of the time above")
    return figure


def _unit(end_s: float) -> tuple[str, float]:
    if end_s > _LONG_H * _HOUR_S:
        return "h", _HOUR_S
    return ("min", _MINUTE_S) if end_s > _SHORT_S else ("s", 1.0)


def _written(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
