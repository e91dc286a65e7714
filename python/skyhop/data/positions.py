"""Where what a path goes over is: its satellites, gateways and ends, in earth-fixed metres."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
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
