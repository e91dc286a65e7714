"""Latency by orientation, drawn as in the T3P paper's figure 4: frequency and latency of cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter

from skyhop.analysis.orientation import CELL_DEG, LEAST_SAMPLES, Orientation
from skyhop.data.figure_files import FigureWidth
from skyhop.figures.style import (
    FIGURE_STYLE,
    LAYOUTS,
    Sheet,
    dress,
    label_x,
    note_figure,
    pt,
    sheet_of,
    title_axes,
    title_figure,
)

_FEW = "#D5D5D5"
_MARGIN_CELLS = 2
_LEAST_SPREAD = 2.0
_FEWEST_ACROSS = 8
"""Least number of cells per axis, so that a terminal that never turns is not one large square."""


def orientation_figure(found: Orientation, width: FigureWidth = "page") -> Sheet:
    """Draw how often each orientation occurred, and the 95th percentile of its latency.

    Args:
        found: latency by orientation.
        width: target of the figure: a page, or one or two columns of a paper.
    """
    is_narrow = LAYOUTS[width].is_narrow
    with rc_context(FIGURE_STYLE):
        figure = Sheet(8.0 if is_narrow else 4.4, width)
        grid = figure.add_gridspec(2, 1) if is_narrow else figure.add_gridspec(1, 2)
        axes = [figure.add_subplot(grid[place]) for place in range(2)]
    shown = _shown(found)
    often, bad = axes
    _draw(often, shown, "share", 100.0, "share (%)", is_log=True)
    title_axes(often, "How often")
    _draw(bad, shown.filter(pl.col("p").is_not_null()), "p95_ms", 1.0, "p95 (ms)")
    title_axes(bad, "95th percentile of the latency to the point of presence")
    few = shown.filter(pl.col("p").is_null())
    for x, y in few.select("azimuth_deg", "elevation_deg").rows():
        _square(bad, x, y, facecolor=_FEW)
    for x, y in found.significant().select("azimuth_deg", "elevation_deg").rows():
        _square(bad, x, y, fill=False, edgecolor="#D55E00", linewidth=pt(bad, 2), zorder=5)
    for ax in axes:
        ax.set_xlim(_limits(shown["azimuth_deg"]))
        ax.set_ylim(_limits(shown["elevation_deg"]))
        dress(ax)
        ax.set_facecolor("white")
        label_x(ax, "azimuth (deg)")
        ax.set_ylabel("elevation (deg)", fontsize=pt(ax, 9))
    title_figure(figure, found.title)
    note_figure(figure, "; ".join(found.notes))
    return figure


def _shown(found: Orientation) -> pl.DataFrame:
    """Return the cells in the region of those with enough samples, without outliers elsewhere."""
    cells = found.cells
    enough = cells.filter(pl.col("n") >= LEAST_SAMPLES)
    if enough.is_empty():
        return cells
    margin = _MARGIN_CELLS * CELL_DEG
    return cells.filter(
        *(
            pl.col(name).is_between(
                float(enough[name].to_numpy().min()) - margin,
                float(enough[name].to_numpy().max()) + margin,
            )
            for name in ("azimuth_deg", "elevation_deg")
        )
    )


def _draw(
    ax: Axes, cells: pl.DataFrame, column: str, factor: float, what: str, *, is_log: bool = False
) -> None:
    """Draw cells coloured by a column, with a colour bar."""
    known = cells.filter(pl.col(column).is_not_null())
    if known.is_empty():
        return
    x, y = _places(known["azimuth_deg"]), _places(known["elevation_deg"])
    values = np.full((y.max() - y.min() + 1, x.max() - x.min() + 1), np.nan)
    values[y - y.min(), x - x.min()] = known[column].to_numpy() * factor
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    # If a terminal hardly turned, its values are too similar for a logarithmic scale.
    spreads = high > _LEAST_SPREAD * low
    norm: Normalize = (
        LogNorm(low, high) if is_log and spreads else Normalize(low, max(high, low * 1.01))
    )
    edges = [np.arange(p.min(), p.max() + 2) * CELL_DEG for p in (x, y)]
    image = ax.pcolormesh(*edges, np.ma.masked_invalid(values), cmap="cividis", norm=norm,
                          rasterized=True)  # fmt: skip
    bar = sheet_of(ax).colorbar(image, ax=ax, pad=0.02)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    bar.set_label(what, fontsize=pt(ax, 9))
    bar.ax.tick_params(labelsize=pt(ax, 8.5))


def _places(middles: pl.Series) -> Any:
    return np.floor(middles.to_numpy() / CELL_DEG).astype(int)


def _square(ax: Axes, x: float, y: float, **style: Any) -> None:
    corner = (x - CELL_DEG / 2, y - CELL_DEG / 2)
    ax.add_patch(Rectangle(corner, CELL_DEG, CELL_DEG, **style))


def _limits(middles: pl.Series) -> tuple[float, float]:
    low, high = float(middles.to_numpy().min()), float(middles.to_numpy().max())
    lacking = max(_FEWEST_ACROSS - round((high - low) / CELL_DEG), 0) / 2
    return low - (0.5 + lacking) * CELL_DEG, high + (0.5 + lacking) * CELL_DEG
