"""The figure that sets all flows of all runs side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from skyhop.analysis.comparison import Comparison, Group, Shares
from skyhop.analysis.timeline import FAR_DASH, GREY
from skyhop.figures.style import SHARES, dress, label_time, new_figure, side_legend
from skyhop.figures.timeline import draw_panel, draw_strip, mark_panels, strip_height_in, stroked


def draw_comparison(shown: Comparison) -> Figure:
    """Draw goodput over time, mean goodput, and the spread of goodput and srtt of every flow."""
    strip_in = 0.01 if shown.strip is None else strip_height_in(shown.strip)
    figure, (strip, goodput, below) = new_figure(5.4 + strip_in, [strip_in, 2.3, 2.2])
    if shown.strip is not None:
        draw_strip(strip, shown.strip)
        mark_panels([goodput], shown.strip)
    else:
        strip.set_axis_off()
    # The lower row has axes of its own in place of the shared one.
    grid = below.get_subplotspec()
    below.remove()
    assert grid is not None
    means, spread, rtt = figure.add_subfigure(grid).subplots(1, 3)
    for ax in (means, spread, rtt):
        dress(ax)
    goodput.tick_params(labelbottom=True)
    draw_panel(goodput, shown.goodput)
    goodput.set_title(shown.title, fontsize=9.5, loc="left")
    label_time(goodput, shown.end_s)
    side_legend(goodput)
    _draw_means(means, shown.groups)
    _draw_shares(spread, shown.goodput_shares)
    _dress_shares(spread, "goodput: share at or below", "Mbit/s")
    _draw_shares(rtt, shown.srtt_shares)
    if shown.base_rtt_ms is not None:
        _draw_base_rtt(rtt, shown.base_rtt_ms)
    _dress_shares(rtt, "srtt: share at or below", "ms")
    return figure


def _draw_means(ax: Axes, groups: Sequence[Group]) -> None:
    """Draw a bar per flow, or per group of flows with a dot for each."""
    for row, group in enumerate(reversed(groups)):
        values = group.goodputs_mbps
        mean = float(np.mean(values))
        ax.barh(row, mean, height=0.6, color=group.colour, alpha=0.85)
        ax.text(mean, row, f"  {mean:.3g}", va="center", fontsize=9)
        if len(values) > 1:
            ax.scatter(values, np.full(len(values), row), s=9, color="white",
                       edgecolors="black", linewidths=0.5, zorder=3)  # fmt: skip
    ax.set_yticks(range(len(groups)), [group.name for group in reversed(groups)], fontsize=8.5)
    highest = max((max(group.goodputs_mbps) for group in groups), default=1.0)
    ax.set_xlim(0, 1.22 * highest or 1)
    ax.grid(visible=False, axis="y")
    ax.set_title("mean goodput", fontsize=9.5, loc="left")
    ax.set_xlabel("Mbit/s", fontsize=9)


def _draw_shares(ax: Axes, curves: Sequence[Shares]) -> None:
    for curve in curves:
        ax.step(curve.values, curve.shares, where="post", **stroked(curve.stroke))


def _draw_base_rtt(ax: Axes, base_rtt_ms: float) -> None:
    ax.axvline(base_rtt_ms, color=GREY, linewidth=0.9, linestyle=FAR_DASH)
    ax.text(base_rtt_ms, 0.99, "base RTT \nmean ", fontsize=8, color=GREY, ha="right", va="top")


def _dress_shares(ax: Axes, what: str, unit: str) -> None:
    ax.set_title(what, fontsize=9.5, loc="left")
    ax.set_xlabel(unit, fontsize=9)
    ax.set_ylim(0, 1.02)
    ax.set_xlim(left=0)
    ax.set_yticks(*SHARES)
