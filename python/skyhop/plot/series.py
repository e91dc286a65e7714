"""The figure of a study's time series: a few runs over the same time, and their handovers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from skyhop.plot.events import draw_strip, mark_panels, strip_height_in
from skyhop.plot.records import Events, FloatArray, RunRecord
from skyhop.plot.style import binned, from_zero, label_time, label_y, new_figure, side_legend
from skyhop.quantities import seconds

if TYPE_CHECKING:
    from skyhop.study.file import SeriesPanel

Shown: TypeAlias = tuple[str, str, RunRecord, int | None]
"""A line: its name, its colour, its run, and the flow where there is one."""

_TITLES = {
    "goodput": ("goodput", "Mbit/s"),
    "cwnd": ("cwnd", "packets"),
    "srtt": ("srtt", "ms"),
    "base_rtt": ("base RTT", "ms"),
}


def draw_series(panel: SeriesPanel, shown: Sequence[Shown]) -> tuple[Figure, pl.DataFrame]:
    """Draw one panel per series, below the handovers of each path; return the numbers too."""
    begin_s = seconds(panel.from_) if panel.from_ else 0.0
    end_s = max(run.duration_s for _, _, run, _ in shown)
    end_s = min(end_s, seconds(panel.until)) if panel.until else end_s
    strips = _distinct_events(shown, begin_s, end_s)
    heights = [strip_height_in(events, end_s) + 0.22 * (len(strips) > 1) for _, events in strips]
    ratios = [*heights, *([1.9] * len(panel.series))]
    figure, axes = new_figure(sum(ratios) + 0.6, ratios)
    for ax, (names, events) in zip(axes, strips, strict=False):
        draw_strip(ax, events, end_s)
        if len(strips) > 1:
            ax.set_title(names, fontsize=8.5, loc="left", pad=2)
    drawn = axes[len(strips) :]
    frames = []
    for ax, series in zip(drawn, panel.series, strict=True):
        frames += _draw_lines(ax, series, panel, shown, (begin_s, end_s))
        label_y(ax, *_TITLES[series])
        ax.tick_params(labelbottom=False)
    if len(strips) == 1:
        mark_panels(drawn, strips[0][1], end_s)
    side_legend(drawn[0])
    label_time(drawn[-1], end_s)
    drawn[-1].tick_params(labelbottom=True)
    drawn[-1].set_xlim(begin_s, end_s)
    figure.align_ylabels(drawn)
    return figure, pl.concat(frames)


def _draw_lines(
    ax: Axes,
    series: str,
    panel: SeriesPanel,
    shown: Sequence[Shown],
    within_s: tuple[float, float],
) -> list[pl.DataFrame]:
    highest, frames = 0.0, []
    for name, colour, run, flow in shown:
        t_s, values = _curve(series, panel, run, flow)
        kept = (t_s >= within_s[0]) & (t_s <= within_s[1])
        t_s, values = t_s[kept], values[kept]
        ax.plot(t_s, values, color=colour, linewidth=1.2, label=name, alpha=0.95)
        highest = max(highest, float(np.nanmax(values, initial=0.0)))
        frames.append(pl.DataFrame({"name": name, "series": series, "t_s": t_s, "value": values}))
    from_zero(ax, highest)
    return frames


def _curve(
    series: str, panel: SeriesPanel, run: RunRecord, flow: int | None
) -> tuple[FloatArray, FloatArray]:
    if series == "base_rtt":
        if run.path is None:
            return np.array([]), np.array([])
        return run.path.curve(run.path.delay_ms + run.path.delay_back_ms)
    from skyhop.study.metrics import series_of

    if flow is None or flow not in run.flows:
        return np.array([]), np.array([])
    samples = run.flows[flow]
    values = series_of(samples, series)
    return binned(samples.t_s, values, seconds(panel.bin)) if panel.bin else (samples.t_s, values)


def _distinct_events(
    shown: Sequence[Shown], begin_s: float, end_s: float
) -> list[tuple[str, Events]]:
    """Return the events of each path once, with the names of the lines that go over it."""
    found: dict[bytes, tuple[list[str], Events]] = {}
    for name, _, run, _ in shown:
        events = _within(run.events, begin_s, end_s)
        key = events.t_s.tobytes() + "".join(events.kinds).encode()
        found.setdefault(key, ([], events))[0].append(name)
    return [(", ".join(names), events) for names, events in found.values()]


def _within(events: Events, begin_s: float, end_s: float) -> Events:
    kept = (events.t_s >= begin_s) & (events.t_s < end_s)
    kinds = tuple(kind for kind, keep in zip(events.kinds, kept, strict=True) if keep)
    return Events(events.t_s[kept], kinds, events.outage_s[kept])
