"""State of a path at one moment: positions of its satellites, gateways and ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Any

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.data.paths import Path
from skyhop.data.positions import (
    GATEWAYS,
    name_and_position,
    path_start,
    satellite_names,
    satellites_at,
)
from skyhop.errors import InputError

TRACK_S = 120
"""Length in s of a satellite's track before the moment, and after it."""

_TRACK_STEP_S = 10


@dataclass(frozen=True)
class Moment:
    """State of a path at one moment; positions are earth-fixed, in m."""

    constellation: str
    """Name of the constellation, or name of its file without the directory."""
    at_s: float
    """Time in s since the path's start."""
    utc: datetime
    satellites_m: FloatArray
    """Positions of all satellites of the constellation, by satellite id, shape (n, 3)."""
    satellite_names: Sequence[str]
    """Names of all satellites, by satellite id; the ids of satellites without names."""
    minimum_elevation_deg: float
    nodes: list[int]
    """Node ids of the path, from -1 (`from`) to -2 (`to`); empty without a path."""
    route_m: FloatArray
    """Positions of these nodes, shape (len(nodes), 3)."""
    names: list[str]
    """Names of these nodes, in their order."""
    tracks_m: dict[int, FloatArray]
    """Track of each satellite of the path, from `TRACK_S` before to `TRACK_S` after, (k, 3)."""

    @property
    def chosen(self) -> list[int]:
        """Ids of the path's satellites, in the order of the path."""
        return [node for node in self.nodes if 0 <= node < len(self.satellites_m)]


def moment_of(path: Path, at_s: float, *, gateways: str = GATEWAYS) -> Moment:
    """Return the state of a computed path `at_s` seconds after its start.

    Raises:
        InputError: the path was measured, or is shorter than `at_s`, or its satellite ids are not
            those of the constellation that it names.
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
    nodes: list[int] = path.frames["nodes"][frame].to_list()
    places = [name_and_position(node, header, satellites_m, gateways) for node in nodes]
    return Moment(
        constellation=PurePath(header["constellation"]).name,
        at_s=at_s,
        utc=path_start(header) + timedelta(seconds=at_s),
        satellites_m=satellites_m,
        satellite_names=satellite_names(header),
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
