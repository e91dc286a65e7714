"""Figure of the ECDF of report timing errors."""

from __future__ import annotations

from skyhop.analysis.report_timing import TimingView
from skyhop.analysis.styles import COLOURS
from skyhop.analysis.timeline import GREY
from skyhop.data.figure_files import FigureWidth
from skyhop.figures.style import SHARES, Sheet, new_figure, pt

_OFFSETS = (((9, -11), "left"), ((-7, 7), "right"))
"""Offset in points, and alignment, of the label of each marked point."""


def draw_timing(view: TimingView, width: FigureWidth = "page") -> Sheet:
    """Draw the share of satellites at or below each error, with the median and T_err marked."""
    figure, (ax,) = new_figure(4.6, [1], width)
    ax.step(view.errors_s, view.shares, where="post", color=COLOURS[0], linewidth=1.6)
    for (label, point), (offset, align) in zip(view.marked.items(), _OFFSETS, strict=True):
        ax.plot(*point, "o", color=COLOURS[1], markersize=5, zorder=3)
        ax.annotate(
            label, point, xytext=offset, ha=align, textcoords="offset points", fontsize=pt(ax, 10)
        )
    ax.axvline(view.t_err_s, color=GREY, linestyle="--", linewidth=1)
    ax.text(
        view.t_err_s,
        0.04,
        f" T_err = {view.t_err_s:g} s",
        color=GREY,
        fontsize=pt(ax, 10),
        ha="left",
    )
    ax.set_xlim(0, view.right_s)
    ax.set_ylim(0, 1.02)
    ax.set_yticks(*SHARES)
    ax.set_xlabel("report timing error (s)", fontsize=pt(ax, 10))
    ax.set_ylabel("CDF of satellites", fontsize=pt(ax, 10))
    ax.set_title(view.title, fontsize=pt(ax, 10), loc="left", color=GREY)
    return figure
