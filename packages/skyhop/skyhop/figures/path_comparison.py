"""Comparison figure of paths: round trips over time, and their ECDFs weighted by time."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from skyhop.analysis.path_comparison import PathComparison
from skyhop.data.figure_files import FigureWidth
from skyhop.figures.style import (
    SHARES,
    Sheet,
    add_legend,
    label_time,
    label_x,
    new_figure,
    note_figure,
    pt,
    title_figure,
)
from skyhop.figures.timeline import draw_panel, place_markers, stroked


def draw_path_comparison(shown: PathComparison, width: FigureWidth = "page") -> Sheet:
    """Draw the round trips of paths over time, and their ECDFs weighted by time."""
    figure, (over_time, shares) = new_figure(5.6, [2.6, 2.2], width, shared=1)
    title_figure(figure, shown.title)
    draw_panel(over_time, shown.panel)
    label_time(over_time, shown.end_s)
    add_legend(over_time)
    _draw_shares(shares, shown)
    note_figure(figure, shown.note)
    return figure


def _draw_shares(ax: Axes, shown: PathComparison) -> None:
    for place, (_, curve) in enumerate(shown.shares):
        ax.step(curve.values, curve.shares, where="post", **stroked(ax, curve.stroke))
        place_markers(ax, curve.shares, curve.values, curve.stroke, (place, len(shown.shares)))
    if shown.panel.is_log:
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=7))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
        ax.xaxis.set_minor_locator(NullLocator())
    else:
        ax.set_xlim(left=0)
    label_x(ax, f"{shown.panel.what} ({shown.unit})")
    ax.set_ylim(0, 1.02)
    ax.set_yticks(*SHARES)
    ax.set_ylabel("share of the time", fontsize=pt(ax, 9))
