"""Coverage of a constellation over a grid of cells: latency, availability, handovers per hour."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skyhop.data.arrays import BoolArray, FloatArray, IntArray
from skyhop.data.places import Place
from skyhop.data.site_routes import SiteRoutes
from skyhop.errors import InputError

MOST_CELLS = 20_000
"""Largest number of cells of a grid."""

_HOUR_S = 3600.0
_POLE_DEG, _EDGE_DEG, _TURN_DEG = 90.0, 180.0, 360.0


@dataclass(frozen=True)
class Grid:
    """Cells of equal height and width in degrees, from a region's south-west corner."""

    south_deg: float
    west_deg: float
    cell_deg: float
    rows: int
    columns: int

    @property
    def places(self) -> list[Place]:
        """Centres of the cells, row by row from the south, in each row from the west."""
        return [
            Place(f"{latitude:g},{longitude:g}", latitude, longitude)
            for latitude in self._middles(self.south_deg, self.rows)
            for longitude in self._middles(self.west_deg, self.columns)
        ]

    def _middles(self, begin: float, count: int) -> list[float]:
        return [round(begin + (place + 0.5) * self.cell_deg, 9) for place in range(count)]


@dataclass(frozen=True)
class Coverage:
    """Values of each cell of a grid, shape (cells,) each; NaN where no route ever exists."""

    grid: Grid
    rtt_least_ms: FloatArray
    rtt_median_ms: FloatArray
    rtt_most_ms: FloatArray
    availability: FloatArray
    """Share of the times with a route, 0 to 1."""
    handovers_per_hour: FloatArray
    """Changes of the satellite that serves the cell, from one time directly to the next."""


def grid_of(cell_deg: float, region: Sequence[float] = (-90.0, -180.0, 90.0, 180.0)) -> Grid:
    """Return the grid of a region: south, west, north and east in degrees.

    A region whose east is below its west extends over the date line.

    Raises:
        InputError: the cells are too small or too large, or the region is not on Earth.
    """
    south, west, north, east = region
    is_upright = -_POLE_DEG <= south < north <= _POLE_DEG
    if not (is_upright and all(-_EDGE_DEG <= side <= _EDGE_DEG for side in (west, east))):
        raise InputError(
            f"--region: {south:g},{west:g},{north:g},{east:g} is not a region; expected "
            "SOUTH,WEST,NORTH,EAST in degrees"
        )
    width = east - west if east > west else east - west + _TURN_DEG
    if not 0 < cell_deg <= min(north - south, width):
        raise InputError(f"--cell: {cell_deg:g} deg does not fit into the region; give less")
    rows, columns = (math.ceil(length / cell_deg - 1e-9) for length in (north - south, width))
    if rows * columns > MOST_CELLS:
        least = math.sqrt((north - south) * width / MOST_CELLS)
        raise InputError(
            f"--cell: cells of {cell_deg:g} deg are {rows * columns:,} cells; at most "
            f"{MOST_CELLS:,}: give at least {math.ceil(least * 10) / 10:g} deg, or a smaller "
            "--region"
        )
    return Grid(south, west, cell_deg, rows, columns)


def coverage_of(routes: SiteRoutes, grid: Grid) -> Coverage:
    """Return the coverage of each cell of a grid.

    Args:
        routes: routes from the places of the cells to one end.
        grid: the cells.
    """
    rtt_ms = 2e3 * routes.delays_s[:, 0]
    serving, times_s = routes.satellites[:, 0], routes.times_s
    known: BoolArray = np.asarray(np.isfinite(rtt_ms).any(axis=0))
    least, median, most = (np.full(len(known), np.nan) for _ in range(3))
    if known.any():
        least[known] = np.nanmin(rtt_ms[:, known], axis=0)
        median[known] = np.nanmedian(rtt_ms[:, known], axis=0)
        most[known] = np.nanmax(rtt_ms[:, known], axis=0)
    return Coverage(
        grid=grid,
        rtt_least_ms=least,
        rtt_median_ms=median,
        rtt_most_ms=most,
        availability=np.isfinite(rtt_ms).mean(axis=0),
        handovers_per_hour=np.where(known, handovers_per_hour(serving, times_s), np.nan),
    )


def handovers_per_hour(serving: IntArray, times_s: Sequence[float] | FloatArray) -> FloatArray:
    """Return the changes from one satellite to another per hour, of each column of `serving`.

    Args:
        serving: ids of satellites at each time, (times, n); -1 without a route.
        times_s: the times in s, ascending.
    """
    if len(times_s) < 2:  # noqa: PLR2004 - a change is between two times
        return np.full(serving.shape[1], np.nan)
    both: BoolArray = (serving[1:] >= 0) & (serving[:-1] >= 0)
    changes = (both & (serving[1:] != serving[:-1])).sum(axis=0)
    return np.asarray(changes * _HOUR_S / (times_s[-1] - times_s[0]), np.float64)


def coverage_rows(coverage: Coverage) -> list[dict[str, Any]]:
    """Return one row per cell, with units in the names of the keys; unknown values are None."""
    values = {
        "rtt_min_ms": (coverage.rtt_least_ms, 3),
        "rtt_median_ms": (coverage.rtt_median_ms, 3),
        "rtt_max_ms": (coverage.rtt_most_ms, 3),
        "availability": (coverage.availability, 6),
        "handovers_per_hour": (coverage.handovers_per_hour, 3),
    }
    return [
        {
            "latitude_deg": place.latitude_deg,
            "longitude_deg": _wrapped(place.longitude_deg),
            **{key: _known(of[cell], digits) for key, (of, digits) in values.items()},
        }
        for cell, place in enumerate(coverage.grid.places)
    ]


def band_rows(coverage: Coverage, band_deg: float = 15.0) -> list[dict[str, Any]]:
    """Return one row per band of latitudes, from the north: means over its cells."""
    latitudes = np.array([place.latitude_deg for place in coverage.grid.places])
    bands = np.floor(latitudes / band_deg)
    return [
        {
            "latitudes": f"{band * band_deg:g} to {(band + 1) * band_deg:g}",
            "cells": int((bands == band).sum()),
            "availability_percent": 100 * float(coverage.availability[bands == band].mean()),
            "rtt_median_ms": _mean(coverage.rtt_median_ms[bands == band]),
            "handovers_per_hour": _mean(coverage.handovers_per_hour[bands == band]),
        }
        for band in sorted(set(bands.tolist()), reverse=True)
    ]


def coverage_geojson(coverage: Coverage, policy: str) -> dict[str, Any]:
    """Return the cells as GeoJSON polygons (RFC 7946), with the values of `coverage_rows`.

    Args:
        coverage: the values of the cells.
        policy: name of the handover policy, a property of each cell.
    """
    half = coverage.grid.cell_deg / 2
    features = [
        {
            "type": "Feature",
            "geometry": {
                "type": "MultiPolygon",
                "coordinates": [[ring] for ring in _rings(row, half)],
            },
            "properties": {"policy": policy, **row},
        }
        for row in coverage_rows(coverage)
    ]
    return {"type": "FeatureCollection", "features": features}


def _rings(row: dict[str, Any], half_deg: float) -> Iterator[list[list[float]]]:
    """Yield the outlines of a cell, counter-clockwise: two if the date line is in it."""
    latitude, longitude = row["latitude_deg"], row["longitude_deg"]
    south, north = max(latitude - half_deg, -_POLE_DEG), min(latitude + half_deg, _POLE_DEG)
    west, east = longitude - half_deg, longitude + half_deg
    parts = [(max(west, -_EDGE_DEG), min(east, _EDGE_DEG))]
    if west < -_EDGE_DEG:
        parts.append((west + _TURN_DEG, _EDGE_DEG))
    if east > _EDGE_DEG:
        parts.append((-_EDGE_DEG, east - _TURN_DEG))
    for begin, end in parts:
        corners = [(begin, south), (end, south), (end, north), (begin, north), (begin, south)]
        yield [[round(x, 6), round(y, 6)] for x, y in corners]


def _wrapped(longitude_deg: float) -> float:
    return round((longitude_deg + 180) % _TURN_DEG - 180, 9)


def _known(value: float, digits: int) -> float | None:
    return round(float(value), digits) if np.isfinite(value) else None


def _mean(values: FloatArray) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None
