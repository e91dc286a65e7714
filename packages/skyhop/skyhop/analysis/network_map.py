"""Map of a network's loads, as a view model: links and nodes coloured by utilisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from skyhop.analysis.binning import round_step
from skyhop.analysis.map_window import (
    Window,
    land_within,
    unrolled,
    window_of,
    within_window,
)
from skyhop.analysis.network_loads import Channel, loads_of
from skyhop.analysis.tables import short_number
from skyhop.data.arrays import FloatArray
from skyhop.data.geometry import ground_points_deg
from skyhop.data.networks import Network, NetworkSite
from skyhop.data.records import RunRecord

_MARGIN_DEG = (6.0, 8.0)
"""Margins of latitude and longitude around what the map shows, degrees."""

_POINTS = 9
"""Points of the drawn line of a laser, which is curved on a map."""

_PLACES = 24
"""Number of times at which positions are computed for a map of a whole run."""

LOAD_COLOURS = (
    "#F4E156", "#FCAC11", "#F57B17", "#DE5238", "#BA3655", "#922568", "#67166E", "#3B0964",
    "#10092D",
)  # fmt: skip
"""Colours of loads, the lowest first; higher ones are darker, so that they differ in print."""

MapKind: TypeAlias = Literal["satellite", "site"]


@dataclass(frozen=True)
class MapLink:
    """Laser link on the map, with the load of its busier direction."""

    lines_deg: Sequence[FloatArray]
    """Ground below the link: latitude and longitude in degrees, once per turn into the map."""
    load: float
    """Utilisation, 0 to 1."""


@dataclass(frozen=True)
class MapNode:
    """Site with the load of its own busiest link, or satellite with the load of its downlink."""

    kind: MapKind
    name: str
    at_deg: tuple[float, float]
    """Latitude and longitude in degrees."""
    load: float | None
    """Utilisation, 0 to 1; None for a site that did not send."""


@dataclass(frozen=True)
class NetworkMap:
    """Map of a network's loads; links and nodes are in ascending order of load."""

    title: str
    latitudes_deg: tuple[float, float]
    longitudes_deg: tuple[float, float]
    land_deg: Sequence[FloatArray]
    """Outlines of land as rings; rings of lakes have the opposite orientation."""
    links: Sequence[MapLink]
    nodes: Sequence[MapNode]
    most: float
    """Utilisation at the upper end of the colour scale, above 0 and at most 1."""


def network_map(run: RunRecord, network: Network) -> NetworkMap:
    """Return the map of the loads over a whole run.

    Each link and satellite is where it was when it had carried half of its bytes.
    """
    loads = loads_of(run)
    step_s = max(run.duration_s, 1e-9) / _PLACES
    places = [round(at_s / step_s) * step_s for at_s in loads.busiest_s.tolist()]
    positions = {at_s: network.satellites_m(at_s) for at_s in set(places)}
    shown = _Shown([positions[at_s] for at_s in places], loads.utilisation[:, 0])
    title = f"{run.name}: utilisation of links over {short_number(run.duration_s)} s"
    window = _window(loads.channels, [shown], network)
    return _map(
        title, shown, _Scene(loads.channels, network, window, most_of(loads.utilisation), {})
    )


def network_maps(
    run: RunRecord, network: Network, times_s: Sequence[float], step_s: float
) -> list[NetworkMap]:
    """Return maps of the same region: of the intervals of `step_s` that begin at `times_s`."""
    edges_s = np.array([*times_s, times_s[-1] + step_s])
    loads = loads_of(run, edges_s)
    shown = []
    for column, begin_s in enumerate(times_s):
        satellites_m = network.satellites_m(begin_s + step_s / 2)
        shown.append(_Shown([satellites_m] * len(loads.channels), loads.utilisation[:, column]))
    window = _window(loads.channels, shown, network)
    about = f"{run.name}: utilisation of links"
    # Names of sites stay in their places from map to map.
    ranks = {
        channel.site: float(load)
        for channel, load in zip(loads.channels, loads.utilisation.mean(axis=1), strict=True)
        if channel.kind == "uplink"
    }
    scene = _Scene(loads.channels, network, window, most_of(loads.utilisation), ranks)
    return [
        _map(
            f"{about}   ({network.utc(begin_s):%H:%M:%S} UTC, {_span(begin_s, step_s)})",
            each,
            scene,
        )
        for begin_s, each in zip(times_s, shown, strict=True)
    ]


def link_line_deg(from_m: FloatArray, to_m: FloatArray, points: int = _POINTS) -> FloatArray:
    """Return the unrolled ground below a straight link between two positions (m), (points, 2)."""
    shares = np.linspace(0.0, 1.0, points)[:, None]
    return unrolled(ground_points_deg(from_m * (1 - shares) + to_m * shares))


def load_rgb(load: float, most: float) -> tuple[int, int, int]:
    """Return the colour of a load on a scale that ends at `most`, as three bytes."""
    place = min(max(load / most, 0.0), 1.0) * (len(LOAD_COLOURS) - 1)
    lower = min(int(place), len(LOAD_COLOURS) - 2)
    ends = [[int(text[i : i + 2], 16) for i in (1, 3, 5)] for text in LOAD_COLOURS[lower:][:2]]
    red, green, blue = (
        round(one + (two - one) * (place - lower)) for one, two in zip(*ends, strict=True)
    )
    return red, green, blue


def most_of(utilisation: FloatArray) -> float:
    """Return the upper end of a colour scale for loads: 1, or a round number if all are small."""
    highest = float(utilisation.max(initial=0.0))
    return 1.0 if highest <= 0 or highest > _HALF else min(round_step(highest), 1.0)


_HALF = 0.5
"""Highest load for which a colour scale ends below 100 %."""


@dataclass(frozen=True)
class _Shown:
    """Positions and loads of the directions of links on one map."""

    satellites_m: Sequence[FloatArray]
    """Positions of all satellites (m) when each direction is shown, each of shape (s, 3)."""
    loads: FloatArray
    """Utilisation of each direction, shape (n,)."""


def _span(begin_s: float, step_s: float) -> str:
    return f"{short_number(round(begin_s, 6))} to {short_number(round(begin_s + step_s, 6))} s"


@dataclass(frozen=True)
class _Scene:
    """Common parts of several maps of a run."""

    channels: Sequence[Channel]
    network: Network
    window: Window
    most: float
    ranks: Mapping[str, float]
    """Loads by which the names of sites are ordered; of other nodes, those of the map count."""


def _map(title: str, shown: _Shown, scene: _Scene) -> NetworkMap:
    channels, window = scene.channels, scene.window
    links = _links(channels, shown, window)
    nodes = [*_satellites(channels, shown, window), *_sites(shown, scene)]
    return NetworkMap(
        title=title,
        latitudes_deg=window[0],
        longitudes_deg=window[1],
        land_deg=land_within(*window),
        links=sorted(links, key=lambda link: link.load),
        nodes=sorted(nodes, key=lambda node: (node.kind == "site", _rank(node, scene.ranks))),
        most=scene.most,
    )


def _rank(node: MapNode, ranks: Mapping[str, float]) -> float:
    return ranks.get(node.name, node.load or 0.0)


def _window(channels: Sequence[Channel], shown: Sequence[_Shown], network: Network) -> Window:
    """Return the region with all sites and all satellites that carried something."""
    points = [
        np.array(
            [(site.latitude_deg, site.longitude_deg) for site in _sites_in_use(network, channels)]
        )
    ]
    for each in shown:
        used = [
            positions[satellite]
            for channel, positions, load in zip(
                channels, each.satellites_m, each.loads.tolist(), strict=True
            )
            for satellite in channel.satellites
            if load > 0
        ]
        if used:
            points.append(ground_points_deg(np.array(used)))
    every = np.concatenate(points)
    return window_of(every[np.isfinite(every).all(axis=1)], _MARGIN_DEG)


def _links(channels: Sequence[Channel], shown: _Shown, window: Window) -> list[MapLink]:
    busier: dict[str, tuple[float, FloatArray]] = {}
    for channel, positions, load in zip(
        channels, shown.satellites_m, shown.loads.tolist(), strict=True
    ):
        if channel.kind != "laser" or load <= busier.get(channel.link, (0.0, None))[0]:
            continue
        ends = positions[list(channel.satellites)]
        if np.isfinite(ends).all():
            busier[channel.link] = (load, ends)
    return [
        MapLink(within_window(link_line_deg(ends[0], ends[1]), window), load)
        for load, ends in busier.values()
    ]


def _satellites(channels: Sequence[Channel], shown: _Shown, window: Window) -> list[MapNode]:
    nodes = []
    for channel, positions, load in zip(
        channels, shown.satellites_m, shown.loads.tolist(), strict=True
    ):
        if channel.kind == "downlink" and channel.satellites and load > 0:
            at_deg = ground_points_deg(positions[[channel.satellites[0]]])
            if np.isfinite(at_deg).all():
                at = _into(at_deg[0].tolist(), window)
                nodes.append(MapNode("satellite", channel.sender, at, load))
    return nodes


def _sites_in_use(network: Network, channels: Sequence[Channel]) -> list[NetworkSite]:
    return network.sites_in_use({channel.site for channel in channels})


def _sites(shown: _Shown, scene: _Scene) -> list[MapNode]:
    of_sites: dict[str, float] = {}
    for channel, load in zip(scene.channels, shown.loads.tolist(), strict=True):
        if channel.site:
            of_sites[channel.site] = max(load, of_sites.get(channel.site, 0.0))
    return [
        MapNode(
            "site",
            site.name,
            _into([site.latitude_deg, site.longitude_deg], scene.window),
            of_sites.get(site.name) or None,
        )
        for site in _sites_in_use(scene.network, scene.channels)
    ]


def _into(at_deg: Sequence[float], window: Window) -> tuple[float, float]:
    """Return a point with its longitude turned into the map."""
    latitude, longitude = at_deg
    west = window[1][0]
    return latitude, (longitude - west) % 360 + west
