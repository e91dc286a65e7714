"""Map of the nodes as SVG: coastlines and node locations, of the world or of one region.

The projection is equirectangular, true to scale at the middle latitude of the region.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

REGIONS: dict[str, tuple[str, tuple[float, float, float, float]]] = {
    "world": ("World", (-170.0, 190.0, -58.0, 78.0)),
    "europe": ("Europe", (-12.0, 34.0, 35.0, 62.0)),
    "north-america": ("North America", (-130.0, -62.0, 22.0, 58.0)),
    "south-america": ("South America", (-86.0, -32.0, -56.0, 14.0)),
    "africa": ("Africa", (-20.0, 54.0, -36.0, 38.0)),
    "asia": ("Asia", (58.0, 150.0, -2.0, 56.0)),
    "oceania": ("Oceania", (108.0, 182.0, -48.0, 2.0)),
}
"""Regions by their query parameter: name, and bounds west, east, south, north in degrees."""
WIDTH = 720
_FEWEST_PX = 0.7
"""Shortest distance in pixels between successive points of a coastline; closer points are dropped.
"""
_ROOM_DEG = 2.0
_LETTER_PX = 9.5
"""Assumed width of a letter of a label in pixels, nearly an upper bound."""

_Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Pin:
    """Position of a node on the map and of its label, in pixels."""

    x: float
    y: float
    name: str
    text_x: float
    text_y: float
    anchor: str
    node: dict[str, Any]


@dataclass(frozen=True)
class MapDrawing:
    """Map drawn for one screen width. Text in an SVG scales with it, so each width has its own."""

    size: str
    """CSS class of the size: "wide" or "narrow"."""
    width: int
    height: int
    scale: float
    pins: Sequence[Pin]


@dataclass(frozen=True)
class Map:
    """Content of the map for the template: region, land and drawings per width."""

    region: str
    land: str
    sizes: Sequence[MapDrawing]
    without_place: Sequence[str]
    elsewhere: Sequence[str]
    """Names of the nodes outside this region."""


def node_map(nodes: Sequence[dict[str, Any]], wanted: str = "") -> Map:
    """Return the map of nodes in a region; default: the first region that contains all of them."""
    placed = [n for n in nodes if n["latitude_deg"] is not None and n["longitude_deg"] is not None]
    region = wanted if wanted in REGIONS else _smallest(placed)
    inside = [node for node in placed if _is_in(region, node)]
    return Map(
        region,
        _land(region),
        [_drawing("wide", 1.0, region, inside), _drawing("narrow", 0.5, region, inside)],
        [n["name"] for n in nodes if n not in placed],
        [n["name"] for n in placed if n not in inside],
    )


def _drawing(size: str, scale: float, region: str, nodes: Sequence[dict[str, Any]]) -> MapDrawing:
    """Place the pins; place each label so that it overlaps no pin and no other label."""
    height, to_px = _frame(region)
    at = {}
    for node in nodes:
        x, y = to_px(_shifted(region, node["longitude_deg"]), node["latitude_deg"])
        at[node["name"]] = (round(x * scale, 1), round(y * scale, 1))
    taken = [(x - 8, y - 8, x + 8, y + 8) for x, y in at.values()]
    pins = []
    for node in sorted(nodes, key=lambda each: (-each["latitude_deg"], each["name"])):
        x, y = at[node["name"]]
        wide = _LETTER_PX * len(node["name"])
        places = [
            (side, drop, (x + 10 if side > 0 else x - 10 - wide, y + drop - 9))
            for drop in (0, -9, 9, -18, 18, -28, 28, 40)
            for side in (1, -1)
        ]
        boxes = [(side, drop, (px, py, px + wide, py + 18)) for side, drop, (px, py) in places]
        free = [
            each
            for each in boxes
            if each[2][0] >= 0
            and each[2][2] <= WIDTH * scale
            and not any(_overlap(each[2], other) for other in taken)
        ]
        side, drop, box = (free or boxes)[0]
        taken.append(box)
        anchor = "start" if side > 0 else "end"
        pins.append(Pin(x, y, node["name"], x + 11 * side, y + drop + 5, anchor, node))
    return MapDrawing(size, round(WIDTH * scale), round(height * scale), scale, pins)


def _overlap(one: _Box, other: _Box) -> bool:
    across = one[0] < other[2] and other[0] < one[2]
    return across and one[1] < other[3] and other[1] < one[3]


def _smallest(placed: Sequence[dict[str, Any]]) -> str:
    if placed:
        for region in REGIONS:
            if region != "world" and all(_is_in(region, node) for node in placed):
                return region
    return "world"


def _stretch(region: str) -> float:
    """Return the ratio of a degree of latitude to a degree of longitude in the drawing."""
    _, _, south, north = REGIONS[region][1]
    return 1.15 if region == "world" else 1 / math.cos(math.radians((south + north) / 2))


def _bounds(region: str) -> tuple[float, float, float, float]:
    """Return a region's bounds, widened so that the map is at most half as high as wide."""
    west, east, south, north = REGIONS[region][1]
    lacking = max(0.0, 2 * _stretch(region) * (north - south) - (east - west))
    return west - lacking / 2, east + lacking / 2, south, north


def _shifted(region: str, longitude_deg: float) -> float:
    """Return the longitude shifted by multiples of 360 degrees to lie east of the western edge."""
    west = _bounds(region)[0]
    return (longitude_deg - west) % 360 + west


def _is_in(region: str, node: dict[str, Any]) -> bool:
    _, east, south, north = _bounds(region)
    inside = _shifted(region, node["longitude_deg"]) <= east
    return inside and south <= node["latitude_deg"] <= north


def _frame(region: str) -> tuple[int, Callable[[float, float], tuple[float, float]]]:
    """Return a region's height in pixels, and the projection to pixels.

    The projection takes longitude and latitude in degrees.
    """
    west, east, south, north = _bounds(region)
    stretch = _stretch(region)
    per_deg = WIDTH / (east - west)
    height = round(per_deg * stretch * (north - south))

    def to_px(longitude_deg: float, latitude_deg: float) -> tuple[float, float]:
        return (longitude_deg - west) * per_deg, (north - latitude_deg) * per_deg * stretch

    return height, to_px


@lru_cache(maxsize=len(REGIONS))
def _land(region: str) -> str:
    """Return the land of a region as SVG path data; lakes are holes in it."""
    from skyhop.data.land import land_deg

    west, east, south, north = _bounds(region)
    _, to_px = _frame(region)
    words = []
    for ring in land_deg():
        points = [(float(lon), float(lat)) for lat, lon in ring]
        for turn in (0.0, 360.0):
            turned = [(lon + turn, lat) for lon, lat in points]
            if (
                max(lon for lon, _ in turned) < west - _ROOM_DEG
                or min(lon for lon, _ in turned) > east + _ROOM_DEG
                or max(lat for _, lat in turned) < south - _ROOM_DEG
                or min(lat for _, lat in turned) > north + _ROOM_DEG
            ):
                continue
            words.append(_thinned([to_px(*point) for point in turned]))
    return "".join(words)


def _thinned(points: Sequence[tuple[float, float]]) -> str:
    kept = [points[0]]
    for x, y in points[1:]:
        if abs(x - kept[-1][0]) + abs(y - kept[-1][1]) >= _FEWEST_PX:
            kept.append((x, y))
    if len(kept) < 3:  # noqa: PLR2004
        return ""
    return "M" + "L".join(f"{x:.0f} {y:.0f}" for x, y in kept) + "Z"
