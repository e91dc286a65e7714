"""Maps of a constellation's coverage: latency, availability and handovers per hour of each cell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize

from skyhop.analysis.coverage import Coverage
from skyhop.analysis.map_window import land_within
from skyhop.data.arrays import FloatArray
from skyhop.data.figure_files import FigureWidth
from skyhop.data.places import Place
from skyhop.figures.map_axes import draw_land, frame_map, map_aspect
from skyhop.figures.style import Sheet, new_figure, pt, title_axes, title_figure

_END, _MOST_MARKED = "#000000", 200
"""Colour of the places at which routes end, and their largest number on a map."""


def draw_coverage(
    coverage: Coverage, title: str, ends: Sequence[Place], width: FigureWidth = "page"
) -> Sheet:
    """Draw three maps, one below the other, each with a colour bar.

    Args:
        coverage: the values of the cells.
        title: title of the figure.
        ends: places at which the routes end; they are marked unless they are very many.
        width: target of the figure.
    """
    grid = coverage.grid
    latitudes = (grid.south_deg, min(grid.south_deg + grid.rows * grid.cell_deg, 90.0))
    longitudes = (grid.west_deg, grid.west_deg + grid.columns * grid.cell_deg)
    known = np.isfinite(coverage.rtt_median_ms).reshape(grid.rows, grid.columns).any(axis=1)
    if known.any():
        # Rows near the poles that never have a route are left out.
        rows = np.flatnonzero(known)
        south = grid.south_deg + (int(rows[0]) - 1) * grid.cell_deg
        north = grid.south_deg + (int(rows[-1]) + 2) * grid.cell_deg
        latitudes = (max(latitudes[0], south), min(latitudes[1], north))
    ratio = map_aspect(latitudes) * (latitudes[1] - latitudes[0]) / (longitudes[1] - longitudes[0])
    wide_in = {"page": 8.6, "two-column": 5.6, "one-column": 2.55}[width]
    scale = {"page": 1.0, "two-column": 1 / 0.75, "one-column": 1 / 0.62}[width]
    each_in = wide_in * float(np.clip(ratio, 0.2, 1.0)) * scale + 0.35
    figure, axes = new_figure(3 * each_in + 0.8, [1, 1, 1], width)
    title_figure(figure, title)
    panels = (
        ("median RTT (ms)", coverage.rtt_median_ms, "viridis_r", None),
        ("availability (%)", _with_none(100 * coverage.availability), "cividis", (0.0, 100.0)),
        ("handovers per hour", coverage.handovers_per_hour, "magma_r", None),
    )
    for ax, (name, values, colours, span) in zip(axes, panels, strict=True):
        _draw_cells(ax, coverage, values, colours, span)
        draw_land(ax, land_within(latitudes, longitudes), outline=True)
        _mark(ax, ends, longitudes)
        frame_map(ax, latitudes, longitudes)
        title_axes(ax, name)
        if ax is not axes[-1]:
            ax.set_xlabel("")
    return figure


def _with_none(percent: FloatArray) -> FloatArray:
    """Return availabilities with NaN where there is never a route."""
    return np.where(percent > 0, percent, np.nan)


def _draw_cells(
    ax: Axes, coverage: Coverage, values: FloatArray, colours: str, span: tuple[float, float] | None
) -> None:
    grid = coverage.grid
    known = values[np.isfinite(values)]
    low, high = span or (float(known.min(initial=np.inf)), float(known.max(initial=-np.inf)))
    if not low < high:
        # All cells have the same value, or none has any.
        low, high = (low - 0.5, low + 0.5) if np.isfinite(low) else (0.0, 1.0)
    east = grid.west_deg + grid.columns * grid.cell_deg
    north = grid.south_deg + grid.rows * grid.cell_deg
    drawn = ax.imshow(
        np.ma.masked_invalid(values.reshape(grid.rows, grid.columns)),
        extent=(grid.west_deg, east, grid.south_deg, north),
        origin="lower", cmap=colours, norm=Normalize(low, high), interpolation="nearest",
        zorder=0.4, gid="cells",
    )  # fmt: skip
    assert ax.figure is not None
    bar = ax.figure.colorbar(drawn, ax=ax, pad=0.015, fraction=0.03, aspect=14)
    bar.ax.tick_params(labelsize=pt(ax, 8.5))


def _mark(ax: Axes, ends: Sequence[Place], longitudes: tuple[float, float]) -> None:
    if len(ends) > _MOST_MARKED:
        return
    at = np.array([(place.latitude_deg, place.longitude_deg) for place in ends])
    east = (at[:, 1] - longitudes[0]) % 360 + longitudes[0]
    is_few = len(ends) == 1
    ax.scatter(east, at[:, 0], s=pt(ax, 60 if is_few else 10), marker="*" if is_few else ".",
               color=_END, edgecolors="white", linewidths=pt(ax, 0.6), zorder=3,
               gid="ends")  # fmt: skip
