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
from skyhop.analysis.timeline import FAR_DASH, GREY, no_panel
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
    sheet_of,
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

_SHARES_IN = 3.4
"""Height in inches of a figure with one distribution."""

_LEAST_IN, _LINE_IN = 2.2, 0.19
"""Least height of the axes with bars, and height of one line of a name, in inches."""


COMPARISON_PANELS = ("goodput", "mean goodput", "goodput CDF", "srtt CDF")
"""Names of the panels of a comparison."""


def draw_comparison(
    shown: Comparison, width: FigureWidth = "page", panel: str | None = None
) -> Sheet:
    """Draw goodput over time, mean goodput, and the ECDFs of goodput and srtt of every flow.

    Args:
        shown: the comparison.
        width: target of the figure: a page, or one or two columns of a paper.
        panel: one of `COMPARISON_PANELS` to draw alone; by default all.

    Raises:
        InputError: there is no such panel.
    """
    if panel is not None:
        return _draw_one(shown, width, panel)
    strip_in = 0.01 if shown.strip is None else strip_height_in(shown.strip)
    figure, (strip, goodput), (means, spread, rtt) = _axes(strip_in, _means_in(shown), width)
    _draw_goodput(strip, goodput, shown)
    _draw_means(means, shown.groups)
    _draw_goodput_shares(spread, shown)
    _draw_srtt_shares(rtt, shown)
    note_figure(figure, "; ".join(note for note in (shown.pooled, shown.bursts) if note))
    return figure


def _draw_one(shown: Comparison, width: FigureWidth, panel: str) -> Sheet:
    """Draw one panel, with a legend and the notes that concern it."""
    if panel not in COMPARISON_PANELS:
        raise no_panel(panel, COMPARISON_PANELS)
    notes: list[str] = []
    if panel == "goodput":
        heights = [0.01 if shown.strip is None else strip_height_in(shown.strip), 2.3]
        figure, (strip, goodput) = new_figure(sum(heights) + 0.6, heights, width)
        _draw_goodput(strip, goodput, shown)
        notes = [shown.bursts]
    elif panel == "mean goodput":
        figure, (ax,) = new_figure(_means_in(shown) + 0.6, [1], width)
        _draw_means(ax, shown.groups)
    else:
        figure, (ax,) = new_figure(_SHARES_IN, [1], width)
        draw = _draw_goodput_shares if panel == "goodput CDF" else _draw_srtt_shares
        draw(ax, shown)
        # The labels of the axes replace the title, which a legend above the axes would cover.
        title, unit = ax.get_title(loc="left"), ax.get_xlabel()
        ax.set_title("", loc="left")
        label_x(ax, f"{title.partition(':')[0]} ({unit})")
        ax.set_ylabel("CDF", fontsize=pt(ax, 9))
        add_legend(ax)
        notes = [shown.pooled, shown.bursts if panel == "goodput CDF" else ""]
    note_figure(figure, "; ".join(note for note in notes if note))
    return figure


def _means_in(shown: Comparison) -> float:
    """Return the height in inches of the axes with bars."""
    lines = max((name.count("\n") + 1 for name in _bar_names(shown.groups)), default=1)
    return max(_LEAST_IN, _LINE_IN * lines * len(shown.groups))


def _bar_names(groups: Sequence[Group]) -> list[str]:
    return [textwrap.fill(group.name, _NAME_LETTERS) for group in groups]


def _draw_goodput(strip: Axes, goodput: Axes, shown: Comparison) -> None:
    if shown.strip is not None:
        draw_strip(strip, shown.strip)
        mark_panels([goodput], shown.strip)
    else:
        strip.set_axis_off()
    strip.tick_params(labelbottom=False)
    draw_panel(goodput, shown.goodput)
    figure = sheet_of(goodput)
    if figure.laid_out.is_narrow:
        title_figure(figure, shown.title)
    else:
        title_axes(goodput, shown.title)
    label_time(goodput, shown.end_s)
    add_legend(goodput)


def _draw_goodput_shares(ax: Axes, shown: Comparison) -> None:
    _draw_shares(ax, shown.goodput_shares)
    _dress_shares(ax, "goodput: CDF", "Mbit/s")


def _draw_srtt_shares(ax: Axes, shown: Comparison) -> None:
    _draw_shares(ax, shown.srtt_shares)
    if shown.base_rtt_ms is not None:
        _draw_base_rtt(ax, shown.base_rtt_ms)
    _dress_shares(ax, "srtt: CDF", "ms")


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


def _draw_means(ax: Axes, groups: Sequence[Group]) -> None:
    """Draw a bar per group of flows, with a dot for each flow."""
    names = _bar_names(groups)
    for row, group in enumerate(reversed(groups)):
        values = group.goodputs_mbps
        mean = float(np.mean(values))
        ax.barh(row, mean, height=0.6, color=group.colour, alpha=0.85)
        # The number stands beyond the dots, so that they do not cover it.
        ax.text(max(values), row, f"  {three_digits(mean)}", va="center", fontsize=pt(ax, 9))
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
        ax.step(curve.values, curve.shares, where="post", label=curve.label or "_nolegend_",
                **stroked(ax, curve.stroke))  # fmt: skip
        if len(curves) <= MANY_FLOWS:
            place_markers(ax, curve.shares, curve.values, curve.stroke, (place, len(curves)))


def _draw_base_rtt(ax: Axes, base_rtt_ms: float) -> None:
    ax.axvline(base_rtt_ms, color=GREY, linewidth=0.9, linestyle=FAR_DASH)
    ax.text(base_rtt_ms, 0.99, "base RTT mean ", fontsize=pt(ax, 8), color=GREY, ha="right",
            va="top", rotation=90)  # fmt: skip


def _dress_shares(ax: Axes, what: str, unit: str) -> None:
    title_axes(ax, what)
    label_x(ax, unit)
    ax.set_ylim(0, 1.02)
    ax.set_xlim(left=0)
    ax.set_yticks(*SHARES)
