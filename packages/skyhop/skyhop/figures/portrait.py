"""Portraits of access links, drawn as panels: distributions, memory, and the time around marks."""

from __future__ import annotations

import os

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from skyhop.analysis.portrait import Portraits
from skyhop.analysis.portrait_panels import PortraitFigure, PortraitPanel, portrait_figure
from skyhop.analysis.timeline import GREY
from skyhop.data.figure_files import FigureWidth
from skyhop.figures.style import (
    FIGURE_STYLE,
    LAYOUTS,
    SHARES,
    Sheet,
    dress,
    label_x,
    note_figure,
    pt,
    save,
)

_ROW_IN = 1.9
"""Height of a row of panels on a page, in inches."""
_ACROSS = 4
"""Number of entries of the legend next to each other."""
_DECADES = 2.2
"""Decades of a logarithmic axis up to which it also has ticks at 2 and 5."""


def portraits_figure(shown: Portraits, output: str | os.PathLike[str] | None = None) -> Sheet:
    """Draw portraits, and write the figure to a file if one is given."""
    figure = draw_portraits(shown)
    if output is not None:
        save(figure, os.fspath(output))
    return figure


def draw_portraits(
    shown: Portraits, width: FigureWidth = "page", panel: str | None = None
) -> Sheet:
    """Draw the panels of portraits, two side by side unless the figure is narrow.

    Args:
        shown: the portraits.
        width: target of the figure: a page, or one or two columns of a paper.
        panel: name of a panel to draw alone; by default all.

    Raises:
        InputError: there is no such panel.
    """
    content = portrait_figure(shown, panel)
    across = 1 if LAYOUTS[width].is_narrow or len(content.panels) == 1 else 2
    rows = -(-len(content.panels) // across)
    figure = Sheet(_ROW_IN * max(rows, 1) + 0.8, width)
    with rc_context(FIGURE_STYLE):
        grid = figure.add_gridspec(max(rows, 1), across)
        for place, one in enumerate(content.panels):
            ax = figure.add_subplot(grid[place // across, place % across])
            dress(ax)
            _draw(ax, one)
    _add_legend(figure, content)
    note_figure(figure, content.note)
    return figure


def _draw(ax: Axes, panel: PortraitPanel) -> None:
    if panel.mark_at is not None:
        ax.axvline(panel.mark_at, color=GREY, linewidth=pt(ax, 0.8), linestyle="--")
    for one in panel.curves:
        ax.plot(
            one.curve.x, one.curve.y, label=one.label, color=one.stroke.colour,
            linewidth=pt(ax, one.stroke.width), linestyle=one.stroke.dash,
            alpha=one.stroke.alpha, drawstyle="steps-mid" if panel.is_step else "default",
        )  # fmt: skip
    _scale(ax, panel)
    label_x(ax, panel.x)
    ax.set_ylabel(panel.y, fontsize=pt(ax, 9))


def _scale(ax: Axes, panel: PortraitPanel) -> None:
    if panel.least_x is not None:
        ax.set_xlim(left=panel.least_x)
    number = FuncFormatter(lambda value, _: f"{value:,.12g}")
    for axis, is_log in ((ax.xaxis, panel.is_log_x), (ax.yaxis, panel.is_log_y)):
        if is_log:
            (ax.set_xscale if axis is ax.xaxis else ax.set_yscale)("log")
            low, high = axis.get_view_interval()
            is_short = high < low * 10**_DECADES
            axis.set_major_locator(LogLocator(subs=(1, 2, 5) if is_short else (1,), numticks=9))
            axis.set_major_formatter(number)
            axis.set_minor_locator(NullLocator())
    if panel.is_share:
        ax.set_ylim(0, 1.02)
        ax.set_yticks(*SHARES)
    elif not panel.is_log_y:
        ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))


def _add_legend(figure: Sheet, content: PortraitFigure) -> None:
    """Put the title and one legend of all panels above them."""
    handles = {
        label: handle
        for ax in figure.axes
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    labels = [label for label in dict.fromkeys(content.labels) if label in handles]
    scale = figure.laid_out.scale
    legend = figure.legend(
        [handles[label] for label in labels], labels, loc="outside upper left", frameon=False,
        ncols=_ACROSS // (2 if figure.laid_out.is_narrow else 1), fontsize=8.5 * scale,
        title=content.title, title_fontsize=11 * scale, alignment="left", borderaxespad=0.2,
    )  # fmt: skip
    for line in legend.get_lines():
        line.set_linewidth(2 * scale)
