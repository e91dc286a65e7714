"""Where what a path goes over is: its satellites, gateways and ends, in earth-fixed metres."""

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
"""The list of gateways that paths use unless told otherwise."""


def satellites_at(header: Mapping[str, Any], at_s: float) -> tuple[FloatArray, float]:
    """Return every satellite's position (n, 3) in m, and the elevation from which they serve.

    Raises:
        InputError: the satellites that the path was computed over are not known any more: their
            file has gone or changed.
    """
    satellites = _satellites(json.dumps(header, sort_keys=True))
    since_1970 = start_of(header) - datetime.fromisoformat("1970-01-01T00:00:00Z")
    unix_ns = round(since_1970 / timedelta(microseconds=1)) * 1000 + round(at_s * 1e9)
    positions_m = np.array(satellites.at(unix_ns)).reshape(-1, 3)
    return positions_m, satellites.minimum_elevation_deg


@lru_cache(maxsize=4)
def _satellites(header: str) -> _core.Satellites:
    """Return the satellites of a path's header, as JSON: reading a fleet takes a while."""
    return _core.Satellites.of(header)


@lru_cache(maxsize=4)
def _satellite_names(header: str) -> Sequence[str]:
    return _satellites(header).names()


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
        name = _satellite_names(json.dumps(header, sort_keys=True))[node]
        return name or f"satellite {node}", satellites_m[node]
    for site in header.get("sites", ()):
        if site["node"] == node:
            place = (site["latitude_deg"], site["longitude_deg"], site["altitude_m"])
            return str(site["name"]), earth_fixed_m(*place)
    # Files of before the sites stood in them, and those of other tools.
    rows = _core.sites(gateways)
    row = node - len(satellites_m)
    if row >= len(rows):
        raise InputError(f"--gateways: {gateways} has no row {row}: the path used another list")
    name, latitude_deg, longitude_deg, altitude_m = rows[row]
    return name, earth_fixed_m(latitude_deg, longitude_deg, altitude_m)
