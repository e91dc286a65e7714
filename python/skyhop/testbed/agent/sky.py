"""`python -m skyhop.testbed.agent.sky < ORDER`: what stands above a node in the next minutes.

A process of its own, begun every ten minutes, so that an agent needs the memory of neither element
sets nor arrays: it reads an order, prints a table with a row per second, and ends. The satellites
are propagated by skyhop's core, and which of them serves is what `skyhop path` and the forecast of
`skyhop signal` say: the policy's choice at the terminal, among those above the least elevation. In
emulated links it is what the link's own path says.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.data.geometry import earth_fixed_m, seen_from
from skyhop.data.overhead import AHEAD_S, Fleet, Source, forecast, grid_before_s, utc_text
from skyhop.data.paths import Path, read_path
from skyhop.data.paths import path as compute_path
from skyhop.errors import InputError, RunError
from skyhop.testbed.agent.position import Position, position

_S = 1_000_000_000
_DOWNLOADED_EVERY_S = 6 * 3600.0
_NICE = 15

At = Callable[[int], FloatArray]
"""Returns all satellites' earth-fixed positions (n, 3) in m, a time of the path's in ns later."""


class Row(NamedTuple):
    """One second."""

    sat_count: int | None = None
    sat_dist_min: float | None = None
    sat_dist_mean: float | None = None
    sat_dist_max: float | None = None
    serving_satellite: str | None = None
    serving_elevation: float | None = None
    handover_in_s: float | None = None


def table(order: dict[str, Any]) -> dict[str, Any]:
    """Return what an order asks for.

    Args:
        order: `from_ns` and `seconds`, beside what stands in `settings.Orbit` and the position.

    Returns:
        `fields`, and `rows` from `from_ns` on, one per second; what the owner should know, as
        `notes`.

    Raises:
        InputError: a file or a place is wrong, or the element sets are too old.
        RunError: the terminal does not say where it is.
    """
    seconds = [order["from_ns"] + number * _S for number in range(order["seconds"])]
    notes: list[str] = []
    if order.get("path"):
        rows = _of_path(_path(order["path"]), order["begins_ns"], seconds)
    else:
        where = position(order["place"], order.get("dish"), order["precision_deg"])
        rows = _of_elements(order, where, seconds, notes)
    return {"fields": Row._fields, "rows": rows, "notes": notes}


# --- over element sets, or a constellation that comes with skyhop ---


def _of_elements(
    order: dict[str, Any], where: Position, seconds: Sequence[int], notes: list[str]
) -> list[Row]:
    # From a moment of the grid on, as a forecast that began long ago would have it.
    begin_s = grid_before_s(seconds[0] // _S)
    lasts_s = seconds[-1] // _S - begin_s + 1 + AHEAD_S
    name, start = _file(order["elements"], notes), utc_text(begin_s * _S)
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
        # There is no path from where no satellite is ever seen.
        rows = [sky.row(each_ns - begin_s * _S, None, None) for each_ns in seconds]
        if any(row.sat_count for row in rows):
            raise
        return rows
    source = Source(path, begin_s * _S, is_round=False)
    return [_row(source, sky, each_ns) for each_ns in seconds]


def _file(elements: str, notes: list[str]) -> str:
    """Return the name of element sets: of an address, that of the local copy."""
    from skyhop.data.downloads import copy_of, downloaded, is_address

    if not is_address(elements):
        return elements
    try:
        return str(downloaded(elements, _DOWNLOADED_EVERY_S))
    except InputError as error:
        copy = copy_of(elements)
        if not copy.is_file():
            raise
        # What is there serves until it is too old.
        notes.append(f"{error}; the copy from before is used")
        return str(copy)


# --- over the path of an emulated link ---


def _path(name: str) -> Path:
    """Return the path of a file, or of the scenario that a link is emulated by."""
    if not name.endswith(".toml"):
        return read_path(name)
    return compute_path(scenario=name, progress=lambda _done, _all: None)


def _of_path(path: Path, begins_ns: int, seconds: Sequence[int]) -> list[Row]:
    source = Source(path, begins_ns, is_round=True)
    sky = _sky_of(path)
    return [_row(source, sky, each_ns) for each_ns in seconds]


def _sky_of(path: Path) -> _Sky | None:
    """Return the sky over a path's end `from`; None of one that was measured."""
    from skyhop.data.positions import end_deg, satellites_at

    header = path.header
    if not (header.get("constellation") and header.get("start") and header.get("satellites")):
        return None
    where = Position(*end_deg(header, "from"), 0.0)
    minimum_deg = satellites_at(header, 0.0)[1]
    return _Sky(lambda t_ns: satellites_at(header, t_ns / _S)[0], where, minimum_deg, None)


# --- a second's row ---


@dataclass(frozen=True)
class _Sky:
    """Satellites above a place."""

    at: At
    where: Position
    minimum_deg: float
    names: Sequence[str] | None

    def row(self, t_ns: int, serving: int | None, handover_in_s: float | None) -> Row:
        """Return what is above at a time of the path's."""
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


def _row(source: Source, sky: _Sky | None, at_ns: int) -> Row:
    found = source.at(at_ns)
    if found is None:
        return Row()
    t_ns, serving, handover_in_s = found
    if sky is None:
        return Row(handover_in_s=handover_in_s)
    return sky.row(t_ns, serving, handover_in_s)


def main() -> None:
    """Read the order and print the table."""
    os.nice(_NICE)
    print(json.dumps(table(json.load(sys.stdin)), allow_nan=False))


if __name__ == "__main__":
    try:
        main()
    except (InputError, RunError) as error:
        sys.exit(str(error))
