"""Figures of the validation page: small panels of windows over time, one above the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from matplotlib import rc_context
from matplotlib.axes import Axes

from skyhop.figures.style import Sheet, dress


@contextmanager
def sheet(
    count: int, *, columns: int = 1, height: float, share: float, share_x: bool = False
) -> Iterator[tuple[Sheet, list[Axes]]]:
    """Provide a figure with panels to draw into; then add its labels and the first legend.

    Args:
        count: number of panels.
        columns: number of panels next to each other.
        height: height of a row of panels in inches.
        share: share of the page's width.
        share_x: whether all panels have one axis of time.
    """
    lines = -(-count // columns)
    with rc_context({"font.size": 7}):
        figure = Sheet(height * lines, "page", share)
        axes = list(figure.subplots(lines, columns, squeeze=False, sharex=share_x).flat)
        for ax in axes[:count]:
            dress(ax)
            ax.tick_params(labelsize=7)
        yield figure, axes
        figure.supxlabel("time (s)")
        figure.supylabel("cwnd (packets)")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=2, frameon=False)
