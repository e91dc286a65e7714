"""Access profiles fitted to logs: each part from the logs that tell it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from skyhop.analysis.access_fit import Probes, holes_table, round_trip_parts
from skyhop.analysis.access_packets_fit import rate_parts
from skyhop.analysis.access_series_fit import Steps, holes_of_series, way_parts
from skyhop.analysis.portrait_grid import Grid
from skyhop.telemetry.measured_link import DIRECTIONS, MeasuredLink

UTC_PERIOD_S = 15.0


def fitted_profile(links: Sequence[tuple[MeasuredLink, Grid]]) -> dict[str, Any]:
    """Return the parts of a profile that is fitted to measured links.

    Logs of round trips are fitted together. Each other part comes from the first link that tells
    it; packet times refine the rate of their direction.

    Args:
        links: measured links, each with its grid.
    """
    grids = [grid for _, grid in links if grid.mark_s is not None]
    profile: dict[str, Any] = {}
    if grids:
        profile["grid"] = _grid_table(links)
    probed = [
        Probes.of(link.round_trips, link.start_ns, grid)
        for link, grid in links
        if link.round_trips is not None and link.what == "round trips"
    ]
    if probed:
        period_s = grids[0].period_s if grids else UTC_PERIOD_S
        profile |= round_trip_parts(probed, period_s, has_grid=bool(grids))
    for way in DIRECTIONS:
        parts = _way(links, way, with_delays=not probed)
        if parts:
            profile[way] = parts
    if grids and "reconfiguration" not in profile:
        profile |= holes_table(_holes_of_series(links))
    return profile


def _grid_table(links: Sequence[tuple[MeasuredLink, Grid]]) -> dict[str, str]:
    """Return the table `grid`: marks in UTC if a log has them there, otherwise on its own clock."""
    marked = [(link.is_utc, grid) for link, grid in links if grid.mark_s is not None]
    grid = max(marked, key=lambda pair: pair[0])[1]
    return {"period": f"{grid.period_s:g} s", "offset": f"{grid.mark_s:.6g} s"}


def _way(
    links: Sequence[tuple[MeasuredLink, Grid]], way: str, *, with_delays: bool
) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for link, grid in links:
        series = next((found for name, found in link.series.items() if name == way), None)
        if series is None or link.packets_per_ms is not None:
            continue
        for name, table in way_parts(series, Steps.of(series, link.start_ns, grid)).items():
            if with_delays or not name.endswith("_ms"):
                parts.setdefault(name, table)
    for link, grid in links:
        if link.packets_per_ms is not None and way in link.series:
            series = link.series["up" if way == "up" else "down"]
            whole = way_parts(series, Steps.of(series, link.start_ns, grid))
            rate = parts.setdefault("rate", whole["rate"])
            rate |= rate_parts(link.packets_per_ms, round(grid.period_s * 1e3))
    return parts


def _holes_of_series(
    links: Sequence[tuple[MeasuredLink, Grid]],
) -> tuple[list[tuple[float, float]], int, list[float]]:
    holes: list[tuple[float, float]] = []
    marks = 0
    for link, grid in links:
        delays = [
            (series.delay_ms, Steps.of(series, link.start_ns, grid))
            for series in link.series.values()
            if series.delay_ms is not None
        ]
        if delays:
            both = np.mean([values for values, _ in delays], axis=0)
            found = holes_of_series(both, delays[0][1])
            holes += found
            marks += len(np.unique(delays[0][1].slots))
    return holes, max(marks, 1), []
