"""Columns of the frame about the satellites above a terminal.

A row has the satellites at the beginning of its second. Orbits are known in advance, so models may
use the row of the second that they predict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from skyhop.data.arrays import FloatArray
from skyhop.data.geometry import earth_fixed_m, seen_from
from skyhop.data.serving_satellites import (
    AHEAD_S,
    Fleet,
    ServingTimeline,
    forecast,
    grid_before_s,
    utc_text,
)
from skyhop.errors import InputError
from skyhop.predict.frame import NEAREST, SATELLITES, SECOND_NS, SERVING
from skyhop.telemetry.fields import TIME

if TYPE_CHECKING:
    from skyhop.data.paths import Path

LEAST_ELEVATION_DEG = 25.0
"""Lowest elevation at which a terminal is assumed to use satellites."""
Place = tuple[float, float, float]
"""Latitude and longitude in degrees, altitude in m."""
PositionsAt = Callable[[int], FloatArray]
"""Function from a second's end (ns, UTC) to all satellites' earth-fixed positions (n, 3) in m."""


def with_satellites(frame: pl.DataFrame, elements: str, handover: str) -> pl.DataFrame:
    """Return a frame with the satellites of element sets above each node.

    Args:
        frame: the frame, with the positions of its nodes.
        elements: file of element sets, or name of a constellation.
        handover: the handover policy that determines the serving satellite.

    Raises:
        InputError: a node's position is not known, or the element sets are not valid at that time.
    """
    frames = [
        rows.drop(*SATELLITES, *SERVING).hstack(_satellites_of_node(rows, elements, handover))
        for rows in frame.partition_by("node", maintain_order=True)
    ]
    return pl.concat([rows.select(frame.columns) for rows in frames])


def _satellites_of_node(rows: pl.DataFrame, elements: str, handover: str) -> pl.DataFrame:
    where = _place_of(rows)
    times_ns = rows[TIME].to_list()
    found: list[pl.DataFrame] = []
    for stretch in _stretches(times_ns):
        begin_s = grid_before_s(stretch[0] // SECOND_NS - 1)
        start = utc_text(begin_s * SECOND_NS)
        fleet = Fleet(elements, start)
        duration_s = stretch[-1] // SECOND_NS - begin_s + AHEAD_S
        path = forecast(elements, start, where, handover, duration_s)
        timeline = ServingTimeline(path, begin_s * SECOND_NS, repeats=False)

        def at(end_ns: int, fleet: Fleet = fleet) -> FloatArray:
            return fleet.positions(end_ns - SECOND_NS)

        found.append(_table(where, at, timeline, stretch))
    return pl.concat(found)


def _place_of(rows: pl.DataFrame) -> Place:
    lat, lon, alt = (rows[name].drop_nulls() for name in ("lat", "lon", "alt"))
    if lat.is_empty() or lon.is_empty():
        raise InputError(
            f"{rows['node'][0]}: its position is not known: give --place for its satellites"
        )
    return float(lat[0]), float(lon[0]), float(alt[0]) if len(alt) else 0.0


_LONGEST_GAP_NS = 600 * SECOND_NS


def _stretches(times_ns: Sequence[int]) -> list[list[int]]:
    """Split times at gaps of more than 10 minutes; each part gets its own forecast."""
    stretches: list[list[int]] = []
    for at_ns in times_ns:
        if not stretches or at_ns - stretches[-1][-1] > _LONGEST_GAP_NS:
            stretches.append([])
        stretches[-1].append(at_ns)
    return stretches


def path_satellites(path: Path, start_ns: int, times_ns: Sequence[int]) -> pl.DataFrame:
    """Return the satellites above a path's end `from`, from the path's own constellation.

    Raises:
        InputError: the file of the satellites is missing or has changed.
    """
    from skyhop.data.positions import end_deg, satellites_at

    where = (*end_deg(path.header, "from"), 0.0)
    timeline = ServingTimeline(path, start_ns, repeats=False)

    def at(end_ns: int) -> FloatArray:
        return satellites_at(path.header, (end_ns - SECOND_NS - start_ns) / SECOND_NS)[0]

    table = _table(where, at, timeline, times_ns)
    position = dict(zip(("lat", "lon", "alt"), where, strict=True))
    return table.with_columns(**{name: pl.lit(value) for name, value in position.items()})


def _table(
    where: Place, at: PositionsAt, timeline: ServingTimeline, times_ns: Sequence[int]
) -> pl.DataFrame:
    """Return a row per second: the nearest satellites, their number, and the serving satellite."""
    rows = np.full((len(times_ns), len(SATELLITES) + len(SERVING)), np.nan)
    site_m = earth_fixed_m(*where)
    for place, end_ns in enumerate(times_ns):
        positions_m = at(end_ns)
        elevation_deg, azimuth_deg = seen_from(where[0], where[1], positions_m, where[2])
        with np.errstate(invalid="ignore"):
            in_view = np.flatnonzero(elevation_deg >= LEAST_ELEVATION_DEG)
        distance_m = np.linalg.norm(positions_m[in_view] - site_m, axis=1)
        order = np.argsort(distance_m, kind="stable")
        nearest = in_view[order[:NEAREST]]
        azimuth = np.radians(azimuth_deg[nearest])
        each = np.column_stack(
            (np.sin(azimuth), np.cos(azimuth), elevation_deg[nearest],
             distance_m[order[:NEAREST]])
        )  # fmt: skip
        rows[place, : each.size] = each.ravel()
        rows[place, 4 * NEAREST] = len(in_view)
        if len(in_view):
            rows[place, 4 * NEAREST + 1 : 4 * NEAREST + 4] = (
                distance_m.min(), distance_m.mean(), distance_m.max(),
            )  # fmt: skip
        serving = timeline.at(end_ns - SECOND_NS)
        if serving is not None:
            _, satellite, changes_in_s = serving
            is_known = satellite is not None and 0 <= satellite < len(elevation_deg)
            rows[place, -2] = elevation_deg[satellite] if is_known else np.nan
            rows[place, -1] = np.nan if changes_in_s is None else changes_in_s
    return pl.DataFrame(rows, schema=[*SATELLITES, *SERVING]).fill_nan(None)
