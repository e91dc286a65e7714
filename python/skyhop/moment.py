"""A path at one moment: where its satellites, gateways and ends are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from skyhop import _core
from skyhop.errors import InputError
from skyhop.geometry import FloatArray, earth_fixed_m
from skyhop.paths import Path

GATEWAYS = "starlink-gateways"
"""The list of gateways that paths use unless told otherwise."""


TRACK_S = 120
"""How far a satellite's track reaches before and after a moment."""

_TRACK_STEP_S = 10


@dataclass(frozen=True)
class Moment:
    """A path at one moment, in earth-fixed metres."""

    at_s: float
    """Since the path's begin."""
    utc: datetime
    satellites_m: FloatArray
    """Every satellite of the constellation by number, shape (n, 3)."""
    minimum_elevation_deg: float
    nodes: list[int]
    """The path's nodes from -1 to -2; empty without a path."""
    route_m: FloatArray
    """Where these nodes are, shape (len(nodes), 3)."""
    names: list[str]
    """What they are called."""
    tracks_m: dict[int, FloatArray]
    """Where each of the path's satellites is from `TRACK_S` before to `TRACK_S` after, (k, 3)."""

    @property
    def chosen(self) -> list[int]:
        """The satellites of the path, in its order."""
        return [node for node in self.nodes if 0 <= node < len(self.satellites_m)]


def moment_of(path: Path, at_s: float, *, gateways: str = GATEWAYS) -> Moment:
    """Return what a computed path is like `at_s` seconds after its begin.

    Raises:
        InputError: the path is a measured one, does not last that long, or numbers its satellites
            otherwise than the constellation that it names.
    """
    header = path.header
    if not header.get("constellation") or not header.get("start"):
        raise InputError("the path does not come from a constellation: its satellites are unknown")
    duration_s = header["duration_ns"] / 1e9
    if not 0 <= at_s <= duration_s:
        raise InputError(f"--at: {at_s:g} s is not within the path, which lasts {duration_s:g} s")
    satellites_m, minimum_elevation_deg = satellites_at(header, at_s)
    begins_s = path.frames["t_ns"].to_numpy() / 1e9
    frame = int(np.searchsorted(begins_s, at_s, side="right")) - 1
    nodes: list[int] = path.frames["nodes"][frame].as_py()
    places = [located(node, header, satellites_m, gateways) for node in nodes]
    return Moment(
        at_s=at_s,
        utc=start_of(header) + timedelta(seconds=at_s),
        satellites_m=satellites_m,
        minimum_elevation_deg=minimum_elevation_deg,
        nodes=nodes,
        route_m=np.array([position_m for _, position_m in places]).reshape(-1, 3),
        names=[name for name, _ in places],
        tracks_m=_tracks_m(header, at_s, [node for node in nodes if 0 <= node < len(satellites_m)]),
    )


def _tracks_m(
    header: Mapping[str, Any], at_s: float, satellites: list[int]
) -> dict[int, FloatArray]:
    offsets_s = range(-TRACK_S, TRACK_S + 1, _TRACK_STEP_S)
    positions_m = np.array([satellites_at(header, at_s + offset)[0] for offset in offsets_s])
    return {satellite: positions_m[:, satellite] for satellite in satellites}


def satellites_at(header: Mapping[str, Any], at_s: float) -> tuple[FloatArray, float]:
    """Return every satellite's position (n, 3) in m, and the elevation from which they serve.

    Raises:
        InputError: the path was computed over other satellites than the constellation that it
            names has: some of them, or those of a file of the same name.
    """
    since_1970 = start_of(header) - datetime.fromisoformat("1970-01-01T00:00:00Z")
    unix_ns = round(since_1970 / timedelta(microseconds=1)) * 1000 + round(at_s * 1e9)
    compat = str(header.get("compat") or "none")
    positions, elevation_deg = _core.satellites_at(header["constellation"], compat, unix_ns)
    if len(positions) != header["satellites"]:
        raise InputError(
            f"the path was computed over {header['satellites']} satellites, but "
            f"{header['constellation']} has {len(positions)}: where its own are is unknown; "
            "compute it over the whole constellation, one that comes with skyhop or a TOML file"
        )
    return np.array(positions).reshape(-1, 3), elevation_deg


def end_deg(header: Mapping[str, Any], end: str) -> tuple[float, float]:
    """Return latitude and longitude of the end `from` or `to`.

    Raises:
        InputError: the path does not say where it is.
    """
    place = header[end]
    if place["latitude_deg"] is None or place["longitude_deg"] is None:
        raise InputError(f"the path does not say where {place['name']} is")
    return place["latitude_deg"], place["longitude_deg"]


def start_of(header: Mapping[str, Any]) -> datetime:
    """Return when a path begins, in UTC."""
    return datetime.fromisoformat(header["start"])


def located(
    node: int, header: Mapping[str, Any], satellites_m: FloatArray, gateways: str
) -> tuple[str, FloatArray]:
    """Return what a node is called and where it is, with the satellites' positions at hand."""
    if node < 0:
        end = "from" if node == -1 else "to"
        return str(header[end]["name"]), earth_fixed_m(*end_deg(header, end))
    if node < len(satellites_m):
        return f"satellite {node}", satellites_m[node]
    rows = _core.sites(gateways)
    row = node - len(satellites_m)
    if row >= len(rows):
        raise InputError(f"--gateways: {gateways} has no row {row}: the path used another list")
    name, latitude_deg, longitude_deg, altitude_m = rows[row]
    return name, earth_fixed_m(latitude_deg, longitude_deg, altitude_m)
