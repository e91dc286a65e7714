"""Map of a path at one moment, as a view model: satellites, gateways, links and land."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from skyhop.analysis.map_window import Window, around, land_within, middle_longitude
from skyhop.analysis.moment import TRACK_S, Moment
from skyhop.data.arrays import FloatArray
from skyhop.data.geometry import ground_points_deg

NodeKind: TypeAlias = Literal["chosen satellite", "gateway", "end"]

NODE_KINDS: tuple[NodeKind, ...] = ("chosen satellite", "gateway", "end")

_MARGIN_DEG = (9.0, 14.0)
"""Margins of latitude and longitude around the path, degrees."""

_CROWDED = 0.06
"""Distance, as a share of the path's width, below which names of satellites are stacked."""

_STACKED_AT_MOST = 3
"""Largest number of names in a stack; further satellites of a dense chain have no name."""


@dataclass(frozen=True)
class GroundNode:
    """Node of the path on the map."""

    kind: NodeKind
    text: str
    """Name of the node; empty if it would be too far from the node."""
    at_deg: tuple[float, float]
    """Latitude and longitude, degrees."""
    stacked: int
    """Number of names of other nodes below its own name in a stack."""
    is_west: bool
    """Whether the node lies in the western half of the path."""


@dataclass(frozen=True)
class GroundView:
    """Map of a path; points are latitude and longitude in degrees, shape (n, 2).

    Longitudes are within 180 degrees of the path's middle, so the date line does not split the map.
    """

    title: str
    latitudes_deg: tuple[float, float]
    longitudes_deg: tuple[float, float]
    land_deg: Sequence[FloatArray]
    """Outlines of land as rings; rings of lakes have the opposite orientation."""
    satellites_deg: FloatArray
    tracks_deg: Sequence[tuple[FloatArray, FloatArray]]
    """Track of each of the path's satellites: part before and part after the moment."""
    track_label: str
    route_deg: FloatArray
    nodes: Sequence[GroundNode]
    """Nodes in the order of the path; empty without a path."""


def ground_view(moment: Moment) -> GroundView:
    """Return the map of a path at a moment."""
    return ground_views([moment])[0]


def ground_views(moments: Sequence[Moment]) -> list[GroundView]:
    """Return the maps of a path at several moments, all of the same region."""
    routes_deg = [ground_points_deg(moment.route_m) for moment in moments]
    middle_deg = middle_longitude(np.concatenate(routes_deg))
    routes_deg = [around(route_deg, middle_deg) for route_deg in routes_deg]
    window = _window(np.concatenate(routes_deg), middle_deg)
    land = land_within(*window)
    return [
        _view(moment, route_deg, middle_deg, window, land)
        for moment, route_deg in zip(moments, routes_deg, strict=True)
    ]


def _view(
    moment: Moment,
    route_deg: FloatArray,
    middle_deg: float,
    window: Window,
    land: Sequence[FloatArray],
) -> GroundView:
    tracks = [around(ground_points_deg(m), middle_deg) for m in moment.tracks_m.values()]
    return GroundView(
        title=_title(moment),
        latitudes_deg=window[0],
        longitudes_deg=window[1],
        land_deg=land,
        satellites_deg=around(ground_points_deg(moment.satellites_m), middle_deg),
        tracks_deg=[(deg[: len(deg) // 2 + 1], deg[len(deg) // 2 :]) for deg in tracks],
        track_label=f"track, \N{PLUS-MINUS SIGN}{TRACK_S // 60} min",
        route_deg=route_deg,
        nodes=_nodes(moment, route_deg),
    )


def _nodes(moment: Moment, route_deg: FloatArray) -> list[GroundNode]:
    middle_deg = float(route_deg[:, 1].mean()) if len(route_deg) else 0.0
    stacks = iter(_stacks([at[1] for at, node in zip(route_deg.tolist(), moment.nodes, strict=True)
                           if node in moment.chosen]))  # fmt: skip
    nodes = []
    rows = zip(moment.nodes, moment.names, route_deg.tolist(), strict=True)
    for node, name, (latitude_deg, longitude_deg) in rows:
        kind, text, stacked = _kind(node, len(moment.satellites_m)), name, 0
        if kind == "chosen satellite":
            stacked = next(stacks)
            text = name.removeprefix("satellite ") if stacked < _STACKED_AT_MOST else ""
        at_deg = (latitude_deg, longitude_deg)
        nodes.append(GroundNode(kind, text, at_deg, stacked, longitude_deg < middle_deg))
    return nodes


def _stacks(longitudes_deg: Sequence[float]) -> list[int]:
    """Return for each satellite the number of names below its own in a stack.

    A name starts a new stack at the bottom if the last name there is far enough away.
    """
    crowd_deg = _CROWDED * float(np.ptp(longitudes_deg)) if longitudes_deg else 0.0
    last_deg, bottom_deg, stacks = np.inf, np.inf, list[int]()
    for longitude_deg in longitudes_deg:
        crowded = abs(longitude_deg - last_deg) < crowd_deg
        stacked = stacks[-1] + 1 if crowded else 0
        if stacked >= _STACKED_AT_MOST and abs(longitude_deg - bottom_deg) >= 2 * crowd_deg:
            stacked = 0
        if stacked == 0:
            bottom_deg = longitude_deg
        last_deg = longitude_deg
        stacks.append(stacked)
    return stacks


def _kind(node: int, satellites: int) -> NodeKind:
    if node < 0:
        return "end"
    return "chosen satellite" if node < satellites else "gateway"


def _window(route_deg: FloatArray, middle_deg: float) -> Window:
    """Return the ranges of latitude and longitude of the map."""
    if not len(route_deg):
        return (-90.0, 90.0), (middle_deg - 180, middle_deg + 180)
    low = route_deg.min(axis=0) - _MARGIN_DEG
    high = route_deg.max(axis=0) + _MARGIN_DEG
    return (max(low[0], -90.0), min(high[0], 90.0)), (low[1], high[1])


def _title(moment: Moment) -> str:
    when = moment.utc.strftime("%Y-%m-%d %H:%M:%S UTC")
    about = f"{moment.constellation}, {when}, {moment.at_s:g} s"
    if not moment.nodes:
        return f"no path   ({about})"
    ends = f"{moment.names[0]} \N{RIGHTWARDS ARROW} {moment.names[-1]}"
    return f"{ends}   ({about}, {len(moment.nodes) - 1} hops)"
