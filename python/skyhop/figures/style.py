"""How figures look: axes, legends, files.

Figures are made without pyplot, so they keep no global state and need no display.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from skyhop.data.figure_files import FigureKind, figure_kind
from skyhop.data.files import write_files

WIDTH_IN = 11.0
"""Width of every figure in inches."""

DPI = 140
"""Pixels per inch of a PNG."""

_LEAST_IN_LEGEND = 12.0
"""Area of a dot in square points."""

AXIS_COLOUR = "#BBBBBB"
SHARES = ([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
"""Ticks of an axis of shares, and their labels."""


class ShownFigure(Figure):
    """A figure that a notebook shows, without pyplot too."""

    def _repr_png_(self) -> bytes:
        return png_bytes(self)


def new_figure(height_in: float, ratios: Sequence[float]) -> tuple[ShownFigure, list[Axes]]:
    """Make a white figure with one column of axes that share their time axis."""
    with rc_context(FIGURE_STYLE):
        figure = ShownFigure(figsize=(WIDTH_IN, height_in), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(
            len(ratios), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": list(ratios)}
        )
    axes: list[Axes] = list(grid[:, 0])
    for ax in axes:
        dress(ax)
    return figure, axes


def dress(ax: Axes) -> None:
    """Give the axes a light grid and no box."""
    ax.grid(visible=True, color="#E6E6E6", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(length=3, color=AXIS_COLOUR, labelsize=9)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(AXIS_COLOUR)


def label_y(ax: Axes, what: str, unit: str, *, whole: bool = False, is_log: bool = False) -> None:
    """Name a panel and its unit; `whole` for counts, which need no decimals."""
    ax.set_ylabel(f"{what}\n({unit})" if unit else what, fontsize=9)
    if is_log:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=7))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.yaxis.set_minor_locator(NullLocator())
        return
    ax.yaxis.set_major_locator(MaxNLocator(nbins=5, min_n_ticks=3, integer=whole))


def label_time(ax: Axes, end_s: float) -> None:
    """Let time go from 0 to `end_s`, and name it."""
    ax.set_xlim(0, end_s if end_s > 0 else 1)
    ax.set_xlabel("time since the start (s)", fontsize=9)


def side_legend(ax: Axes) -> None:
    """Put a legend right of the axes, where it covers no data."""
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        legend = ax.legend(
            handles,
            labels,
            loc="upper left",
            bbox_to_anchor=(1.005, 1.03),
            frameon=False,
            fontsize=8.5,
            handlelength=1.6,
            borderaxespad=0,
            labelspacing=0.35,
        )
        for handle in legend.legend_handles:
            # The smallest dots are visible only where there are many.
            if isinstance(handle, PathCollection):
                handle.set_sizes(np.maximum(handle.get_sizes(), _LEAST_IN_LEGEND))


def png_bytes(figure: Figure) -> bytes:
    """Return the figure as a PNG."""
    return figure_bytes(figure, "png")


def figure_bytes(figure: Figure, kind: FigureKind) -> bytes:
    """Return the figure as a file of that kind, the same bytes for the same figure."""
    for text in figure.findobj(Text):
        # What users call things is no formula.
        text.set_parse_math(False)
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    buffer = io.BytesIO()
    with rc_context({**FIGURE_STYLE, "svg.hashsalt": "skyhop"}):
        figure.savefig(buffer, format=kind, dpi=DPI, facecolor="white", metadata=undated.get(kind))
    return buffer.getvalue()


def save(figure: Figure, output: Path | str) -> Path:
    """Write a figure as what its name ends in, whole or not at all, and return where.

    Raises:
        InputError: the name does not end in .png, .svg or .pdf, or its directory does not exist.
        RunError: it cannot be written.
    """
    output = Path(output)
    content = figure_bytes(figure, figure_kind(output))
    write_files(output.parent, {output.name: content})
    return output


FIGURE_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "path.simplify": True,
    "agg.path.chunksize": 20000,
    "text.parse_math": False,
}
