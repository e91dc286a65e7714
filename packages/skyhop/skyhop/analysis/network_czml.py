"""CZML of a network's loads: satellites, sites and links over time, coloured by utilisation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from skyhop.analysis.network_loads import (
    Loads,
    busiest_of_satellites,
    busiest_of_sites,
    loads_of,
)
from skyhop.analysis.network_map import load_rgb, most_of
from skyhop.analysis.tables import short_number
from skyhop.data.arrays import FloatArray
from skyhop.data.czml import document, interval, text_of, track
from skyhop.data.networks import Network
from skyhop.data.records import RunRecord

_OPAQUE = 255
_UNUSED_RGBA = [160, 160, 160, _OPAQUE]
"""Colour of a node in an interval in which its link to the ground carried nothing."""

_LEVELS = 40
"""Number of levels to which loads are rounded up."""

_LEAST_POSITIONS = 6
"""Number of positions that Cesium needs for an interpolation of degree 5."""


def network_czml(
    run: RunRecord, network: Network, edges_s: Sequence[float], position_step_s: float
) -> str:
    """Return the CZML of a run's loads in intervals that end at `edges_s`.

    A laser is shown in the intervals in which it carried something, with the colour of its busier
    direction. A satellite has the colour of its downlink, and a site that of its own
    busiest link.

    Args:
        run: a run over a network.
        network: the run's network.
        edges_s: ends of the intervals in s, ascending, from 0 to the run's end.
        position_step_s: time between two successive positions of a satellite in s.
    """
    loads = loads_of(run, edges_s)
    duration_s = float(edges_s[-1])
    # A short run is shown within about a minute.
    multiplier = float(np.clip(duration_s / 60, 0.1, 10))
    most = most_of(loads.utilisation)
    name = f"{run.name}: utilisation, 0 to {short_number(100 * most)} %"
    return text_of(
        [
            document(name, network.start, duration_s, multiplier),
            *_satellites(loads, network, most, position_step_s),
            *_sites(loads, network, most),
            *_lasers(loads, network, most),
        ]
    )


def _satellites(
    loads: Loads, network: Network, most: float, position_step_s: float
) -> Iterator[dict[str, Any]]:
    """Yield a packet (object) for each satellite with a link that carried something."""
    used = sorted({node for channel in loads.channels for node in channel.satellites})
    duration_s = float(loads.edges_s[-1])
    count = max(int(np.ceil(duration_s / position_step_s)) + 1, _LEAST_POSITIONS)
    times_s = [0.0] if network.stands_still else np.linspace(0.0, duration_s, count).tolist()
    tracks: dict[int, list[float]] = {node: [] for node in used}
    for at_s in times_s:
        positions_m = network.satellites_m(at_s)
        for node in used:
            if np.isfinite(positions_m[node]).all():
                tracks[node] += [round(at_s, 3), *np.round(positions_m[node], 1).tolist()]
    downlinks = busiest_of_satellites(loads)
    for node, cartesian in tracks.items():
        if not cartesian:
            continue
        place = {"cartesian": cartesian[1:]} if network.stands_still else track(
            network.start, cartesian
        )  # fmt: skip
        colours = _colours(loads, network, downlinks.get(node), most)
        yield _point(_id(node), _id(node), place, 6, colours)


def _sites(loads: Loads, network: Network, most: float) -> Iterator[dict[str, Any]]:
    rows = busiest_of_sites(loads)
    for site in network.sites_in_use(rows):
        place = {"cartesian": np.round(site.position_m, 1).tolist()}
        colours = _colours(loads, network, rows.get(site.name), most)
        packet = _point(f"site {site.name}", site.name, place, 9, colours)
        packet["label"] = {
            "text": site.name,
            "font": "11px sans-serif",
            "pixelOffset": {"cartesian2": [0, -14]},
        }
        yield packet


def _lasers(loads: Loads, network: Network, most: float) -> Iterator[dict[str, Any]]:
    rows: dict[str, list[int]] = {}
    for row, channel in enumerate(loads.channels):
        if channel.kind == "laser":
            rows.setdefault(channel.link, []).append(row)
    for link, directions in rows.items():
        busier = loads.utilisation[directions].max(axis=0)
        shown = [
            interval(network.start, span) for span, load in _spans(loads.edges_s, busier) if load
        ]
        if not shown:
            continue
        ends = [_id(node) for node in loads.channels[directions[0]].satellites]
        yield {
            "id": f"link {link}",
            "name": link,
            "availability": shown,
            "polyline": {
                "positions": {"references": [f"{end}#position" for end in ends]},
                "arcType": "NONE",
                "width": 3,
                "material": {"solidColor": {"color": _timed(loads, network, busier, most)}},
            },
        }


def _point(
    packet: str, name: str, place: Mapping[str, Any], size: int, colours: object
) -> dict[str, Any]:
    return {
        "id": packet,
        "name": name,
        "position": place,
        "point": {"pixelSize": size, "color": colours, "outlineWidth": 1},
    }


def _colours(loads: Loads, network: Network, row: int | None, most: float) -> object:
    """Return the `color` property of a node: that of its link to the other nodes of the ground."""
    if row is None:
        return {"rgba": _UNUSED_RGBA}
    return _timed(loads, network, loads.utilisation[row], most)


def _timed(
    loads: Loads, network: Network, utilisation: FloatArray, most: float
) -> list[dict[str, Any]]:
    """Return a `color` property with an entry per span of equal load."""
    return [
        {
            "interval": interval(network.start, span),
            "rgba": [*load_rgb(load, most), _OPAQUE] if load else _UNUSED_RGBA,
        }
        for span, load in _spans(loads.edges_s, utilisation)
    ]


def _spans(
    edges_s: FloatArray, utilisation: FloatArray
) -> Iterator[tuple[tuple[float, float], float]]:
    """Yield spans (begin, end) in s with their load; neighbours with the same load are one span."""
    begin_s = float(edges_s[0])
    # Few levels make long spans, and a file a third as large.
    utilisation = np.ceil(utilisation * _LEVELS) / _LEVELS
    for place, load in enumerate(utilisation.tolist()):
        is_last = place == len(utilisation) - 1
        if is_last or utilisation[place + 1] != load:
            end_s = float(edges_s[place + 1])
            yield (begin_s, end_s), load
            begin_s = end_s


def _id(node: int) -> str:
    return f"satellite {node}"
