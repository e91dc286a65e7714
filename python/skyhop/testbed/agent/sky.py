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
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.data.geometry import earth_fixed_m, seen_from
from skyhop.data.paths import Path, read_path
from skyhop.data.paths import path as compute_path
from skyhop.errors import InputError, RunError
from skyhop.testbed.agent.position import Position, position

_S = 1_000_000_000
_GRID_PERIOD_S, _GRID_OFFSET_S = 15, 12
_AHEAD_S = 300
"""How much later than the last row a handover is still looked for."""
_DOWNLOADED_EVERY_S = 6 * 3600.0
_TERMINALS_OWN = ("end", "lost", "restored")
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
    begin_s = seconds[0] // _S
    begin_s -= (begin_s - _GRID_OFFSET_S) % _GRID_PERIOD_S
    lasts_s = seconds[-1] // _S - begin_s + 1 + _AHEAD_S
    name, start = _file(order["elements"], notes), _utc(begin_s * _S)
    fleet = _Fleet(name, start)
    fleet.check_age(begin_s * _S, order["old_after_days"])

    def at(t_ns: int) -> FloatArray:
        return fleet.positions(begin_s * _S + t_ns)

    sky = _Sky(at, where, fleet.minimum_elevation_deg, fleet.names)
    try:
        path = _forecast(name, start, where, order["handover"], lasts_s)
    except InputError:
        # There is no path from where no satellite is ever seen.
        rows = [sky.row(each_ns - begin_s * _S, None, None) for each_ns in seconds]
        if any(row.sat_count for row in rows):
            raise
        return rows
    source = _Source(path, begin_s * _S, is_round=False)
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


class _Fleet:
    """The satellites, by numbers."""

    def __init__(self, name: str, start: str) -> None:
        from skyhop.data.constellations import constellation

        self._constellation = constellation(name, start=start)
        self._name = name
        self.minimum_elevation_deg = self._constellation.minimum_elevation_deg
        satellites = self._constellation.satellites
        self.names = [
            name or f"satellite {number}"
            for number, name in enumerate(satellites["name"].to_pylist())
        ]

    def check_age(self, at_ns: int, old_after_days: float) -> None:
        """Refuse element sets half of which are older; patterns have no age.

        Raises:
            InputError: they are.
        """
        epochs_ns = self._constellation.element_epochs_ns
        if not epochs_ns:
            return
        days = float(np.median(np.abs(np.array(epochs_ns) - at_ns))) / (86_400 * _S)
        if days > old_after_days:
            raise InputError(
                f"{self._name}: half of the element sets are {days:.1f} days off or more, and not "
                f"used after {old_after_days:g}; get newer ones"
            )

    def positions(self, at_ns: int) -> FloatArray:
        """Return earth-fixed positions (n, 3) in m."""
        return self._constellation.positions(_utc(at_ns))


def _forecast(name: str, start: str, where: Position, handover: str, lasts_s: int) -> Path:
    """Return the path from the terminal to itself, as the forecast of `skyhop signal` takes it."""
    from skyhop import _core
    from skyhop.data.scenarios import load_scenario

    found = (where.text, where.latitude_deg, where.longitude_deg, where.altitude_m)
    keys = {
        "from": where.text, "to": where.text, "relay": "bent-pipe", "handover": handover,
        "constellation": name, "start": start, "step": "1 s",
    }  # fmt: skip
    content = {"path": keys, "run": {"duration": f"{lasts_s} s"}}
    scenario = load_scenario(content, origin="the node's sky")
    return Path(_core.PathTrace.compute(scenario, lambda _name: found, lambda _done, _all: None))


def _utc(at_ns: int) -> str:
    """Return a whole second of UTC as the core reads it."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at_ns // _S)
    return moment.isoformat().replace("+00:00", "Z")


# --- over the path of an emulated link ---


def _path(name: str) -> Path:
    """Return the path of a file, or of the scenario that a link is emulated by."""
    if not name.endswith(".toml"):
        return read_path(name)
    return compute_path(scenario=name, progress=lambda _done, _all: None)


def _of_path(path: Path, begins_ns: int, seconds: Sequence[int]) -> list[Row]:
    source = _Source(path, begins_ns, is_round=True)
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


class _Source:
    """Who serves the terminal when, and when that changes: of a path.

    Args:
        path: its end `from` is the terminal.
        begins_ns: when it begins, in UTC.
        is_round: whether it begins again when it is over, as `skyhop dish emulate --path` has it;
            else nothing is known then.
    """

    def __init__(self, path: Path, begins_ns: int, *, is_round: bool) -> None:
        frames = path.frames
        self._begins_ns, self._is_round = begins_ns, is_round
        self._frames_ns = frames["t_ns"].to_pylist()
        self._first_hops = [
            nodes[1] if len(nodes) > 1 and nodes[1] >= 0 else None
            for nodes in frames["nodes"].to_pylist()
        ]
        lasts_ns = path.header.get("duration_ns") or self._frames_ns[-1] + _S
        self._lasts_ns = max(int(lasts_ns), 1)
        self._changes_ns = sorted(set(_changes_ns(frames["events"].to_pylist())))
        if is_round and self._first_hops[0] != self._first_hops[-1]:
            self._changes_ns.append(self._lasts_ns)

    def at(self, at_ns: int) -> tuple[int, int | None, float | None] | None:
        """Return the path's time (ns), who serves, and how long until that changes (s).

        Returns:
            None where the path is not.
        """
        since_ns = at_ns - self._begins_ns
        if since_ns < 0 or (since_ns >= self._lasts_ns and not self._is_round):
            return None
        t_ns = since_ns % self._lasts_ns
        frame = max(bisect_right(self._frames_ns, t_ns) - 1, 0)
        return t_ns, self._first_hops[frame], self._until_change_s(t_ns)

    def _until_change_s(self, t_ns: int) -> float | None:
        place = bisect_right(self._changes_ns, t_ns)
        if place < len(self._changes_ns):
            return (self._changes_ns[place] - t_ns) / _S
        if self._is_round and self._changes_ns:
            return (self._changes_ns[0] + self._lasts_ns - t_ns) / _S
        return None


def _changes_ns(events: Sequence[Sequence[dict[str, Any]]]) -> Iterator[int]:
    """Yield when the terminal's own link changes; what happens further on is not its handover."""
    for each in events:
        for event in each:
            if event["kind"] in _TERMINALS_OWN and not event["hop"]:
                yield int(event["t_ns"])


def _row(source: _Source, sky: _Sky | None, at_ns: int) -> Row:
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
