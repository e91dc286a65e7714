"""Comparison figure of all flows of several runs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes

from skyhop.analysis.comparison import Comparison, Ecdf, Group
from skyhop.analysis.flows import MANY_FLOWS
from skyhop.analysis.tables import three_digits
from skyhop.analysis.timeline import FAR_DASH, GREY
from skyhop.data.figure_files import FigureWidth
from skyhop.figures.style import (
    FIGURE_STYLE,
    LAYOUTS,
    SHARES,
    Sheet,
    add_legend,
    dress,
    label_time,
    label_x,
    new_figure,
    note_figure,
    pt,
    title_axes,
    title_figure,
)
from skyhop.figures.timeline import (
    draw_panel,
    draw_strip,
    mark_panels,
    place_markers,
    strip_height_in,
    stroked,
)

_NAME_LETTERS = 28
"""Line length in letters to which names at the bars are wrapped."""

_LEAST_IN, _LINE_IN = 2.2, 0.19
"""Least height of the axes with bars, and height of one line of a name, in inches."""


def draw_comparison(shown: Comparison, width: FigureWidth = "page") -> Sheet:
    """Draw goodput over time, mean goodput, and the ECDFs of goodput and srtt of every flow."""
    strip_in = 0.01 if shown.strip is None else strip_height_in(shown.strip)
    names = [textwrap.fill(group.name, _NAME_LETTERS) for group in shown.groups]
    lines = max((name.count("\n") + 1 for name in names), default=1)
    means_in = max(_LEAST_IN, _LINE_IN * lines * len(names))
    figure, (strip, goodput), (means, spread, rtt) = _axes(strip_in, means_in, width)
    if shown.strip is not None:
        draw_strip(strip, shown.strip)
        mark_panels([goodput], shown.strip)
    else:
        strip.set_axis_off()
    strip.tick_params(labelbottom=False)
    draw_panel(goodput, shown.goodput)
    if figure.laid_out.is_narrow:
        title_figure(figure, shown.title)
    else:
        title_axes(goodput, shown.title)
    label_time(goodput, shown.end_s)
    add_legend(goodput)
    _draw_means(means, shown.groups, names)
    _draw_shares(spread, shown.goodput_shares)
    _dress_shares(spread, "goodput: share at or below", "Mbit/s")
    _draw_shares(rtt, shown.srtt_shares)
    if shown.base_rtt_ms is not None:
        _draw_base_rtt(rtt, shown.base_rtt_ms)
    _dress_shares(rtt, "srtt: share at or below", "ms")
    note_figure(figure, shown.pooled)
    return figure


def _axes(
    strip_in: float, means_in: float, width: FigureWidth
) -> tuple[Sheet, list[Axes], list[Axes]]:
    """Return the axes over time, and the axes below them (side by side on a wide figure)."""
    if LAYOUTS[width].is_narrow:
        heights = [strip_in, 2.3, means_in, 2.0, 2.0]
        figure, axes = new_figure(sum(heights) + 2.8, heights, width, shared=2)
        return figure, axes[:2], axes[2:]
    figure, (*above, below) = new_figure(
        3.2 + means_in + strip_in, [strip_in, 2.3, means_in], width, shared=2
    )
    grid = below.get_subplotspec()
    below.remove()
    assert grid is not None
    with rc_context(FIGURE_STYLE):
        others = list(figure.add_subfigure(grid).subplots(1, 3))
    for ax in others:
        dress(ax)
    return figure, above, others


def _draw_means(ax: Axes, groups: Sequence[Group], names: Sequence[str]) -> None:
    """Draw a bar per group of flows, with a dot for each flow."""
    for row, group in enumerate(reversed(groups)):
        values = group.goodputs_mbps
        mean = float(np.mean(values))
        ax.barh(row, mean, height=0.6, color=group.colour, alpha=0.85)
        ax.text(mean, row, f"  {three_digits(mean)}", va="center", fontsize=pt(ax, 9))
        if len(values) > 1:
            ax.scatter(values, np.full(len(values), row), s=9, color="white",
                       edgecolors="black", linewidths=0.5, zorder=3)  # fmt: skip
    ax.set_yticks(range(len(groups)), names[::-1], fontsize=pt(ax, 8.5))
    highest = max((max(group.goodputs_mbps) for group in groups), default=1.0)
    ax.set_xlim(0, 1.22 * highest or 1)
    ax.grid(visible=False, axis="y")
    title_axes(ax, "mean goodput")
    label_x(ax, "Mbit/s")


def _draw_shares(ax: Axes, curves: Sequence[Ecdf]) -> None:
    for place, curve in enumerate(curves):
        ax.step(curve.values, curve.shares, where="post", **stroked(ax, curve.stroke))
        if len(curves) <= MANY_FLOWS:
            place_markers(ax, curve.shares, curve.values, curve.stroke, (place, len(curves)))


def _draw_base_rtt(ax: Axes, base_rtt_ms: float) -> None:
    ax.axvline(base_rtt_ms, color=GREY, linewidth=0.9, linestyle=FAR_DASH)
    ax.text(
        base_rtt_ms, 0.99, "base RTT \nmean ", fontsize=pt(ax, 8), color=GREY, ha="right", va="top"
    )


def _dress_shares(ax: Axes, what: str, unit: str) -> None:
    title_axes(ax, what)
    label_x(ax, unit)
    ax.set_ylim(0, 1.02)
    ax.set_xlim(left=0)
    ax.set_yticks(*SHARES)
