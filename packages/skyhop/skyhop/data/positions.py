"""Earth-fixed positions of a path's satellites, gateways and ends, in metres."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np

from skyhop import _core
from skyhop.data.arrays import FloatArray
from skyhop.data.geometry import earth_fixed_m
from skyhop.errors import InputError

GATEWAYS = "starlink-gateways"
"""Default list of gateways of paths."""


def satellites_at(header: Mapping[str, Any], at_s: float) -> tuple[FloatArray, float]:
    """Return all satellites' positions (n, 3) in m, and their minimum elevation in degrees.

    Args:
        header: the path's header.
        at_s: time in s since the path's start.

    Raises:
        InputError: the file of the satellites that the path was computed over is missing or has
            changed.
    """
    satellites = _satellites(json.dumps(header, sort_keys=True))
    since_1970 = path_start(header) - datetime.fromisoformat("1970-01-01T00:00:00Z")
    unix_ns = round(since_1970 / timedelta(microseconds=1)) * 1000 + round(at_s * 1e9)
    positions_m = np.array(satellites.at(unix_ns)).reshape(-1, 3)
    return positions_m, satellites.minimum_elevation_deg


@lru_cache(maxsize=4)
def _satellites(header: str) -> _core.Satellites:
    """Return the satellites that a path's header (JSON text) names; cached, as reading is slow."""
    return _core.Satellites.of(header)


def satellite_names(header: Mapping[str, Any]) -> Sequence[str]:
    """Return the name of each satellite of a path's constellation; without one, its id."""
    return _satellite_names(json.dumps(header, sort_keys=True))


@lru_cache(maxsize=4)
def _satellite_names(header: str) -> Sequence[str]:
    return [name or str(node) for node, name in enumerate(_satellites(header).names())]


def end_deg(header: Mapping[str, Any], end: str) -> tuple[float, float]:
    """Return latitude and longitude in degrees of the end `from` or `to`.

    Raises:
        InputError: the path's header has no position of that end.
    """
    place = header[end]
    if place["latitude_deg"] is None or place["longitude_deg"] is None:
        raise InputError(f"the path does not say where {place['name']} is")
    return place["latitude_deg"], place["longitude_deg"]


def path_start(header: Mapping[str, Any]) -> datetime:
    """Return the start time of a path, in UTC."""
    return datetime.fromisoformat(header["start"])


def name_and_position(
    node: int, header: Mapping[str, Any], satellites_m: FloatArray, gateways: str
) -> tuple[str, FloatArray]:
    """Return a node's name and earth-fixed position in m.

    Args:
        node: the node's id.
        header: the path's header.
        satellites_m: positions of all satellites at the time of interest.
        gateways: name of a list of gateways, for headers that do not contain their sites.
    """
    if node < 0:
        end = "from" if node == -1 else "to"
        return str(header[end]["name"]), earth_fixed_m(*end_deg(header, end))
    if node < len(satellites_m):
        name = satellite_names(header)[node]
        return f"satellite {name}" if name == str(node) else name, satellites_m[node]
    for site in header.get("sites", ()):
        if site["node"] == node:
            place = (site["latitude_deg"], site["longitude_deg"], site["altitude_m"])
            return str(site["name"]), earth_fixed_m(*place)
    # Path files of older versions and of other tools do not contain their sites.
    rows = _core.sites(gateways)
    row = node - len(satellites_m)
    if row >= len(rows):
        raise InputError(f"--gateways: {gateways} has no row {row}: the path used another list")
    name, latitude_deg, longitude_deg, altitude_m = rows[row]
    return name, earth_fixed_m(latitude_deg, longitude_deg, altitude_m)
