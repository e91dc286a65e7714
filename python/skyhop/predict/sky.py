"""Satellites above a terminal as columns of the frame: where each second finds them.

Orbits are known ahead: these are of the second that is predicted, at its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from skyhop.data.arrays import FloatArray
from skyhop.data.geometry import earth_fixed_m, seen_from
from skyhop.data.overhead import AHEAD_S, Fleet, Source, forecast, grid_before_s, utc_text
from skyhop.errors import InputError
from skyhop.predict.frame import NEAREST, SATELLITES, SECOND_NS, SERVING
from skyhop.telemetry.fields import TIME

if TYPE_CHECKING:
    from skyhop.data.paths import Path

LEAST_ELEVATION_DEG = 25.0
"""The field of view that is assumed of a terminal."""
Place = tuple[float, float, float]
At = Callable[[int], FloatArray]
"""Returns all satellites' earth-fixed positions (n, 3) in m, by the second's end in ns of UTC."""


def with_satellites(frame: pl.DataFrame, elements: str, handover: str) -> pl.DataFrame:
    """Return a frame with the satellites of element sets above each node.

    Args:
        frame: the frame, which says where its nodes are.
        elements: a file of element sets, or a constellation's name.
        handover: the policy by which the serving satellite is guessed.

    Raises:
        InputError: a place is not known, or the element sets do not hold then.
    """
    made = [
        rows.drop(*SATELLITES, *SERVING).hstack(_of_node(rows, elements, handover))
        for rows in frame.partition_by("node", maintain_order=True)
    ]
    return pl.concat([rows.select(frame.columns) for rows in made])


def _of_node(rows: pl.DataFrame, elements: str, handover: str) -> pl.DataFrame:
    where = _place_of(rows)
    times_ns = rows[TIME].to_list()
    found: list[pl.DataFrame] = []
    for stretch in _stretches(times_ns):
        begin_s = grid_before_s(stretch[0] // SECOND_NS - 1)
        start = utc_text(begin_s * SECOND_NS)
        fleet = Fleet(elements, start)
        lasts_s = stretch[-1] // SECOND_NS - begin_s + AHEAD_S
        path = forecast(elements, start, where, handover, lasts_s)
        source = Source(path, begin_s * SECOND_NS, is_round=False)

        def at(end_ns: int, fleet: Fleet = fleet) -> FloatArray:
            return fleet.positions(end_ns - SECOND_NS)

        found.append(_table(where, at, source, stretch))
    return pl.concat(found)


def _place_of(rows: pl.DataFrame) -> Place:
    lat, lon, alt = (rows[name].drop_nulls() for name in ("lat", "lon", "alt"))
    if lat.is_empty() or lon.is_empty():
        raise InputError(
            f"{rows['node'][0]}: where it is is not known: give --place for its satellites"
        )
    return float(lat[0]), float(lon[0]), float(alt[0]) if len(alt) else 0.0


_LONGEST_GAP_NS = 600 * SECOND_NS


def _stretches(times_ns: Sequence[int]) -> list[list[int]]:
    """Part times where nothing is known for long: each part has a forecast of its own."""
    parts: list[list[int]] = []
    for at_ns in times_ns:
        if not parts or at_ns - parts[-1][-1] > _LONGEST_GAP_NS:
            parts.append([])
        parts[-1].append(at_ns)
    return parts


def path_satellites(path: Path, start_ns: int, times_ns: Sequence[int]) -> pl.DataFrame:
    """Return the satellites that a path was computed over, above its end `from`.

    Raises:
        InputError: they are not known any more.
    """
    from skyhop.data.positions import end_deg, satellites_at

    where = (*end_deg(path.header, "from"), 0.0)
    source = Source(path, start_ns, is_round=False)

    def at(end_ns: int) -> FloatArray:
        return satellites_at(path.header, (end_ns - SECOND_NS - start_ns) / SECOND_NS)[0]

    table = _table(where, at, source, times_ns)
    located = dict(zip(("lat", "lon", "alt"), where, strict=True))
    return table.with_columns(**{name: pl.lit(value) for name, value in located.items()})


def _table(where: Place, at: At, source: Source, times_ns: Sequence[int]) -> pl.DataFrame:
    """Return a row per second: the nearest satellites, how many, and who serves."""
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
        serving = source.at(end_ns - SECOND_NS)
        if serving is not None:
            _, satellite, changes_in_s = serving
            is_known = satellite is not None and 0 <= satellite < len(elevation_deg)
            rows[place, -2] = elevation_deg[satellite] if is_known else np.nan
            rows[place, -1] = np.nan if changes_in_s is None else changes_in_s
    return pl.DataFrame(rows, schema=[*SATELLITES, *SERVING]).fill_nan(None)
