"""`python -m skyhop_testbed.agent.sky < ORDER`: compute the satellites above a node, ahead of time.

It is a separate process, started every ten minutes, so that the agent loads neither element sets
nor numpy: it reads an order, prints a table with a row per second, and ends. skyhop's core
propagates the satellites. The serving satellite is the one that `skyhop path` and the forecast of
`skyhop signal` choose: the handover policy's choice among those above the minimum elevation. For an
emulated link it is the satellite that serves the link's own path.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.data.geometry import earth_fixed_m, seen_from
from skyhop.data.paths import Path, read_path
from skyhop.data.paths import path as compute_path
from skyhop.data.serving_satellites import (
    AHEAD_S,
    Fleet,
    ServingTimeline,
    forecast,
    grid_before_s,
    utc_text,
)
from skyhop.errors import InputError, RunError
from skyhop_testbed.agent.position import Position, position
from skyhop_testbed.agent.surroundings import SkyOrder, SkyTable

_S = 1_000_000_000
_DOWNLOADED_EVERY_S = 6 * 3600.0
_NICE = 15

At = Callable[[int], FloatArray]
"""Function that returns the earth-fixed positions of all satellites in m, shape (n, 3), given the
time in ns since the path's beginning."""


class Row(NamedTuple):
    """Satellite fields of telemetry in one second: distances in m, elevation in degrees."""

    sat_count: int | None = None
    sat_dist_min: float | None = None
    sat_dist_mean: float | None = None
    sat_dist_max: float | None = None
    serving_satellite: str | None = None
    serving_elevation: float | None = None
    handover_in_s: float | None = None


def table(order: SkyOrder) -> SkyTable:
    """Compute the table that an order asks for.

    Raises:
        InputError: a file or a place is wrong, or the element sets are too old.
        RunError: the terminal does not report its position.
    """
    seconds = [order["from_ns"] + number * _S for number in range(order["seconds"])]
    notes: list[str] = []
    path = order.get("path")
    if path:
        rows = _of_path(_path(path), order["begins_ns"], seconds)
    else:
        where = position(order["place"] or "", order.get("dish"), order["precision_deg"])
        rows = _of_elements(order, where, seconds, notes)
    return {"fields": Row._fields, "rows": rows, "notes": notes}


# --- rows from element sets, or from a constellation that comes with skyhop ---


def _of_elements(
    order: SkyOrder, where: Position, seconds: Sequence[int], notes: list[str]
) -> list[Row]:
    # Begin at a handover of the grid, so that each forecast makes the same choices as an older one.
    begin_s = grid_before_s(seconds[0] // _S)
    lasts_s = seconds[-1] // _S - begin_s + 1 + AHEAD_S
    name, start = _file(order["elements"] or "", notes), utc_text(begin_s * _S)
    fleet = Fleet(name, start)
    fleet.check_age(begin_s * _S, order["old_after_days"])

    def at(t_ns: int) -> FloatArray:
        return fleet.positions(begin_s * _S + t_ns)

    sky = _Sky(at, where, fleet.minimum_elevation_deg, fleet.names)
    try:
        path = forecast(
            name,
            start,
            (where.latitude_deg, where.longitude_deg, where.altitude_m),
            order["handover"],
            lasts_s,
        )
    except InputError:
        # The path engine refuses places from which no satellite is ever visible.
        rows = [sky.row(each_ns - begin_s * _S, None, None) for each_ns in seconds]
        if any(row.sat_count for row in rows):
            raise
        return rows
    source = ServingTimeline(path, begin_s * _S, repeats=False)
    return [_row(source, sky, each_ns) for each_ns in seconds]


def _file(elements: str, notes: list[str]) -> str:
    """Return the file or constellation name of element sets.

    A URL is downloaded to a local copy.
    """
    from skyhop.data.downloads import download, is_address

    if not is_address(elements):
        return elements

    def on_old_copy(reason: str) -> None:
        # It serves until its element sets are too old.
        notes.append(f"{reason}; the older copy is used")

    return str(download(elements, _DOWNLOADED_EVERY_S, on_old_copy))


# --- rows from the path of an emulated link ---


def _path(name: str) -> Path:
    """Read a path file; for a scenario that emulates a link, compute its path."""
    if not name.endswith(".toml"):
        return read_path(name)
    return compute_path(scenario=name, progress=lambda _done, _all: None)


def _of_path(path: Path, begins_ns: int, seconds: Sequence[int]) -> list[Row]:
    source = ServingTimeline(path, begins_ns, repeats=True)
    sky = _sky_of(path)
    return [_row(source, sky, each_ns) for each_ns in seconds]


def _sky_of(path: Path) -> _Sky | None:
    """Return the satellites above the path's end `from`; `None` for a measured path."""
    from skyhop.data.positions import end_deg, satellites_at

    header = path.header
    if not (header.get("constellation") and header.get("start") and header.get("satellites")):
        return None
    where = Position(*end_deg(header, "from"), 0.0)
    minimum_deg = satellites_at(header, 0.0)[1]
    return _Sky(lambda t_ns: satellites_at(header, t_ns / _S)[0], where, minimum_deg, None)


# --- row of one second ---


@dataclass(frozen=True)
class _Sky:
    """Satellites above a position, at any time."""

    at: At
    where: Position
    minimum_deg: float
    names: Sequence[str] | None

    def row(self, t_ns: int, serving: int | None, handover_in_s: float | None) -> Row:
        """Return the row at a time in ns since the path's beginning.

        `serving` is the serving satellite's index; `handover_in_s` the time to the next handover.
        """
        where, positions_m = self.where, self.at(t_ns)
        elevation_deg, _ = seen_from(
            where.latitude_deg, where.longitude_deg, positions_m, where.altitude_m
        )
        in_view = elevation_deg >= self.minimum_deg
        site_m = earth_fixed_m(where.latitude_deg, where.longitude_deg, where.altitude_m)
        distances_m = np.linalg.norm(positions_m[in_view] - site_m, axis=1)
        row = Row(sat_count=len(distances_m), handover_in_s=handover_in_s)
        if len(distances_m) > 0:
            row = row._replace(
                sat_dist_min=round(float(np.min(distances_m)), 1),
                sat_dist_mean=round(float(np.mean(distances_m)), 1),
                sat_dist_max=round(float(np.max(distances_m)), 1),
            )
        if serving is None or not 0 <= serving < len(positions_m):
            return row
        return row._replace(
            serving_satellite=self._name(serving),
            serving_elevation=round(float(elevation_deg[serving]), 3),
        )

    def _name(self, satellite: int) -> str:
        return f"satellite {satellite}" if self.names is None else self.names[satellite]


def _row(source: ServingTimeline, sky: _Sky | None, at_ns: int) -> Row:
    found = source.at(at_ns)
    if found is None:
        return Row()
    t_ns, serving, handover_in_s = found
    if sky is None:
        return Row(handover_in_s=handover_in_s)
    return sky.row(t_ns, serving, handover_in_s)


def main() -> None:
    """Read the order from standard input and print the table as JSON."""
    os.nice(_NICE)
    print(json.dumps(table(json.load(sys.stdin)), allow_nan=False))


if __name__ == "__main__":
    try:
        main()
    except (InputError, RunError) as error:
        sys.exit(str(error))
