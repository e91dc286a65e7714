"""Maps of where a claim holds: colours about the value at which it turns, and links as marks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.patheffects import withStroke

from skyhop.analysis.charts import MapCells, MapChart, MapMark
from skyhop.analysis.tables import three_digits
from skyhop.data.arrays import FloatArray
from skyhop.data.figure_files import FigureWidth
from skyhop.figures.style import FIGURE_STYLE, Sheet, dress, label_x, pt, title_axes

_COLOURS = "PuOr_r"
"""Colour map: purple below the value at which the claim turns, white at it, orange above."""

_LEAST_RATIO = 1.2
"""Least ratio of the values at the ends of the colour scale to the value at which claims turn."""

_MARK = "#00695C"
"""Colour of marks: not one of the colour map."""

_BESIDE = 0.33
"""Distance of a mark from the middle of its cell, in cells."""

_PALE = 0.62
"""Largest distance from the middle of the colour scale, of 1, at which text is black."""


def draw_maps(chart: MapChart, width: FigureWidth) -> Sheet:
    """Draw rows of maps with the same axes; the maps of a metric have the same colours."""
    lines, columns = len(chart.maps), len(chart.maps[0])
    height = lines * (0.75 + 0.34 * len(chart.rows.names)) + 0.35
    with rc_context(FIGURE_STYLE):
        figure = Sheet(height, width)
        axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    for column, metric in enumerate(zip(*chart.maps, strict=True)):
        norm = _norm(metric, chart.turn)
        for ax, cells in zip(axes[:, column], metric, strict=True):
            _draw_map(ax, chart, cells, norm)
            if column == 0:
                ax.set_ylabel(chart.rows.title, fontsize=pt(ax, 9))
        first = axes[0, column]
        label_x(axes[-1, column], chart.columns.title)
        bar = figure.colorbar(first.images[0], ax=axes[:, column], pad=0.01, aspect=30)
        ticks = _ticks(norm, chart.turn)
        bar.set_ticks(ticks, labels=[three_digits(tick) for tick in ticks])
        bar.ax.minorticks_off()
        bar.ax.tick_params(labelsize=pt(first, 8.5))
        bar.ax.axhline(chart.turn, color="black", linewidth=pt(first, 2))
    return figure


def _norm(maps: Sequence[MapCells], turn: float) -> Normalize:
    """Return colours that are symmetric about `turn`: by ratio if all values are above 0."""
    every = np.concatenate([cells.grid.ravel() for cells in maps])
    known = every[np.isfinite(every)]
    if turn > 0 and known.min(initial=turn) > 0:
        ratio = max(known.max(initial=turn) / turn, turn / known.min(initial=turn), _LEAST_RATIO)
        return LogNorm(turn / ratio, turn * ratio)
    reach = float(abs(known - turn).max(initial=0.0)) or 1.0
    return Normalize(turn - reach, turn + reach)


def _ticks(norm: Normalize, turn: float) -> list[float]:
    low, high = float(norm.vmin or 0.0), float(norm.vmax or 0.0)
    if isinstance(norm, LogNorm):
        return [low, (low * turn) ** 0.5, turn, (high * turn) ** 0.5, high]
    return [low, (low + turn) / 2, turn, (high + turn) / 2, high]


def _draw_map(ax: Axes, chart: MapChart, cells: MapCells, norm: Normalize) -> None:
    dress(ax)
    ax.grid(visible=False)
    ax.set_facecolor("#F4F4F4")
    alone = _alone(cells.grid, chart.row_breaks)
    shown = cells.grid.copy()
    for row, column in alone.items():
        shown[row] = cells.grid[row, column]
    ax.imshow(np.ma.masked_invalid(shown), aspect="auto", cmap=_COLOURS, norm=norm)
    ax.set_xticks(range(len(chart.columns.names)), chart.columns.names, fontsize=pt(ax, 8.5))
    ax.set_yticks(range(len(chart.rows.names)), chart.rows.names, fontsize=pt(ax, 8.5))
    title_axes(ax, cells.title, 9)
    middle = (len(chart.columns.names) - 1) / 2
    for (row, column), value in np.ndenumerate(cells.grid):
        if np.isfinite(value):
            text = three_digits(float(value)) + ("" if cells.is_sure[row, column] else "?")
            is_pale = abs(float(norm(value)) - 0.5) < _PALE / 2
            ax.text(middle if row in alone else column, row, text, ha="center", va="center",
                    fontsize=pt(ax, 8.5), color="black" if is_pale else "white",
                    zorder=6)  # fmt: skip
    _draw_turn(ax, cells, chart.turn, chart.row_breaks)
    for row in chart.row_breaks:
        ax.axhline(row - 0.5, color="white", linewidth=pt(ax, 7), zorder=5)
    for mark in chart.marks:
        _draw_mark(ax, mark, cells.grid[: min(chart.row_breaks, default=len(cells.grid))].shape)


def _alone(grid: FloatArray, row_breaks: Sequence[int]) -> dict[int, int]:
    """Return the only column with a value of each such row below the first group.

    Such a row is a link without a place along the abscissa; it is drawn as one cell.
    """
    first = min(row_breaks, default=len(grid))
    known = {row: np.flatnonzero(np.isfinite(grid[row])) for row in range(first, len(grid))}
    return {row: int(columns[0]) for row, columns in known.items() if len(columns) == 1}


def _draw_turn(ax: Axes, cells: MapCells, turn: float, row_breaks: Sequence[int]) -> None:
    """Draw the line between cells with and without the claim, within groups of rows."""
    grid = cells.grid
    holds = grid >= turn
    is_known = np.isfinite(grid)
    across = (holds[:, 1:] != holds[:, :-1]) & is_known[:, 1:] & is_known[:, :-1]
    down = (holds[1:] != holds[:-1]) & is_known[1:] & is_known[:-1]
    down[[row - 1 for row in row_breaks if row > 0]] = False
    style: dict[str, Any] = {
        "color": "black",
        "linewidth": pt(ax, 2.2),
        "zorder": 4,
        "solid_capstyle": "round",
    }
    for row, column in np.argwhere(across):
        ax.plot([column + 0.5] * 2, [row - 0.5, row + 0.5], **style)
    for row, column in np.argwhere(down):
        ax.plot([column - 0.5, column + 0.5], [row + 0.5] * 2, **style)


def _draw_mark(ax: Axes, mark: MapMark, shape: tuple[int, ...]) -> None:
    """Draw a diamond with a name; without a column or row, a dashed line over the plane.

    Numbers stand in the middle of cells: marks keep away from there.
    """
    rows, columns = shape
    halo = [withStroke(linewidth=pt(ax, 3), foreground="white")]
    dashed: dict[str, Any] = {
        "color": _MARK, "linewidth": pt(ax, 1.6), "linestyle": (0, (4, 2)), "zorder": 7,
    }  # fmt: skip
    column, row, align = mark.column, mark.row, "left"
    if row is not None:
        row -= _BESIDE if abs(row - round(row)) < _BESIDE else 0.0
    if column is not None and row is not None:
        ax.plot(column, row, marker="D", markersize=pt(ax, 6), color=_MARK, zorder=8,
                markeredgecolor="white", markeredgewidth=pt(ax, 1))  # fmt: skip
        column += 0.01 * columns + 0.02
    elif row is not None:
        ax.plot([-0.5, columns - 0.5], [row, row], **dashed)
        column, align = columns - 0.55, "right"
    elif column is not None:
        column -= _BESIDE if abs(column - round(column)) < _BESIDE else 0.0
        ax.plot([column, column], [-0.5, rows - 0.5], **dashed)
        column, row = column + 0.01 * columns, rows - 0.7
    ax.text(column or 0.0, row or 0.0, mark.name, ha=align, va="center", fontsize=pt(ax, 8),
            color=_MARK, fontweight="bold", path_effects=halo, zorder=9)  # fmt: skip
