"""Region of a map: its ranges of latitude and longitude, the land in it, and the date line."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.data.land import land_deg

Window: TypeAlias = tuple[tuple[float, float], tuple[float, float]]
"""Ranges of a map in degrees: (least, greatest) latitude, (least, greatest) longitude."""

_TURN_DEG = 360.0
_EMPTY_DEG = 150.0
"""Least range of longitudes without a point for which a map shows a part of the Earth."""


def land_within(
    latitudes_deg: tuple[float, float], longitudes_deg: tuple[float, float]
) -> list[FloatArray]:
    """Return the rings that reach into the map, shifted by multiples of 360 degrees if needed."""
    (south, north), (west, east) = latitudes_deg, longitudes_deg
    turns = [np.array((0.0, turn)) for turn in (-_TURN_DEG, 0.0, _TURN_DEG)]
    turned = [ring + turn for turn in turns for ring in land_deg()]
    return [
        ring
        for ring in turned
        if ring[:, 0].max() > south and ring[:, 0].min() < north
        and ring[:, 1].max() > west and ring[:, 1].min() < east
    ]  # fmt: skip


def middle_longitude(points_deg: FloatArray) -> float:
    """Return the mean direction of the points' longitudes in degrees; 0 without points."""
    if not len(points_deg):
        return 0.0
    towards = np.exp(1j * np.radians(points_deg[:, 1])).mean()
    return float(np.degrees(np.angle(towards)))


def around(points_deg: FloatArray, middle_deg: float) -> FloatArray:
    """Return the points with longitudes within 180 degrees of `middle_deg`."""
    latitudes, longitudes = points_deg.T
    return np.column_stack((latitudes, (longitudes - middle_deg + 180) % 360 - 180 + middle_deg))


def window_of(points_deg: FloatArray, margin_deg: tuple[float, float]) -> Window:
    """Return the region of a map with all points (n, 2), n > 0, and margins around them.

    If the points leave out a large range of longitudes, the map shows the rest of the Earth, which
    may extend over the date line; otherwise it shows all longitudes from -180 to 180.
    """
    low, high = points_deg[:, 0].min() - margin_deg[0], points_deg[:, 0].max() + margin_deg[0]
    latitudes = (max(float(low), -90.0), min(float(high), 90.0))
    ordered = np.sort((points_deg[:, 1] + 180) % _TURN_DEG - 180)
    gaps = np.diff(ordered, append=ordered[0] + _TURN_DEG)
    widest = int(gaps.argmax())
    if gaps[widest] < _EMPTY_DEG:
        return latitudes, (-180.0, 180.0)
    west = float(ordered[(widest + 1) % len(ordered)])
    width = _TURN_DEG - float(gaps[widest])
    # A map that begins west of the date line and ends east of it has longitudes above 180.
    return latitudes, (west - margin_deg[1], west + width + margin_deg[1])


def unrolled(line_deg: FloatArray) -> FloatArray:
    """Return a line (n, 2) whose longitudes do not jump by 360 degrees at the date line."""
    return np.column_stack((line_deg[:, 0], np.unwrap(line_deg[:, 1], period=_TURN_DEG)))


def within_window(line_deg: FloatArray, window: Window) -> list[FloatArray]:
    """Return an unrolled line once for each turn by 360 degrees at which it reaches into a map."""
    west, east = window[1]
    return [
        line_deg + np.array((0.0, turn))
        for turn in np.arange(-2, 3) * _TURN_DEG
        if line_deg[:, 1].max() + turn >= west and line_deg[:, 1].min() + turn <= east
    ]


def cut_at_date_line(line_deg: FloatArray) -> list[FloatArray]:
    """Return an unrolled line as parts with longitudes from -180 to 180, cut where it crosses them.

    Both parts of a cut have a point at the date line (RFC 7946, 3.1.9).
    """
    parts: list[list[tuple[float, float]]] = [[]]
    turns = np.floor((line_deg[:, 1] + 180) / _TURN_DEG)
    for place, ((lat, lon), turn) in enumerate(zip(line_deg.tolist(), turns.tolist(), strict=True)):
        if place and turn != turns[place - 1]:
            before_lat, before_lon = line_deg[place - 1].tolist()
            edge = _TURN_DEG * max(turn, turns[place - 1]) - 180
            share = (edge - before_lon) / (lon - before_lon)
            at = before_lat + share * (lat - before_lat)
            side = 180.0 if turn > turns[place - 1] else -180.0
            parts[-1].append((at, side))
            parts.append([(at, -side)])
        parts[-1].append((lat, lon - _TURN_DEG * turn))
    return [np.array(part) for part in parts if len(set(part)) > 1]
