"""GeoJSON (RFC 7946) of a network's loads: sites, satellites and links, with their values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from skyhop.analysis.map_window import cut_at_date_line, unrolled
from skyhop.analysis.network_loads import (
    Loads,
    busiest_of_satellites,
    busiest_of_sites,
    loads_of,
)
from skyhop.analysis.network_map import load_rgb, most_of
from skyhop.data.arrays import FloatArray
from skyhop.data.geometry import geodetic
from skyhop.data.networks import Network
from skyhop.data.records import RunRecord

_POINTS = 17
"""Points of the line of a laser link."""


def network_geojson(run: RunRecord, network: Network, edges_s: tuple[float, float]) -> str:
    """Return the GeoJSON of a run's loads between two times (s), with positions in the middle.

    Lines that cross the date line are cut there. Properties have units in their names; colours are
    those of simplestyle (`stroke`, `marker-color`).
    """
    loads = loads_of(run, edges_s)
    middle_s = sum(edges_s) / 2
    satellites_m = network.satellites_m(middle_s)
    collection = {
        "type": "FeatureCollection",
        "features": [
            *_sites(loads, network),
            *_satellites(loads, satellites_m),
            *_lasers(loads, satellites_m),
        ],
        # Foreign members (RFC 7946, 6.1).
        "name": run.name,
        "from_s": edges_s[0],
        "until_s": edges_s[1],
        "positions_utc": network.utc(0.0 if network.stands_still else middle_s).isoformat(),
    }
    return json.dumps(collection, ensure_ascii=False, indent=1) + "\n"


def _sites(loads: Loads, network: Network) -> Iterator[dict[str, Any]]:
    rows = busiest_of_sites(loads)
    for site in network.sites_in_use(rows):
        at = [round(site.longitude_deg, 5), round(site.latitude_deg, 5)]
        row = rows.get(site.name)
        yield _feature(
            {"type": "Point", "coordinates": at},
            {"kind": "site", "name": site.name, **_values(loads, row)},
            {"marker-color": _colour(loads, _load(loads, row)), "marker-size": "medium"},
        )


def _satellites(loads: Loads, satellites_m: FloatArray) -> Iterator[dict[str, Any]]:
    used = sorted({node for channel in loads.channels for node in channel.satellites})
    rows = busiest_of_satellites(loads)
    places = geodetic(satellites_m)
    for node in used:
        if not np.isfinite(places[node]).all():
            continue
        latitude, longitude, altitude_m = places[node].tolist()
        row = rows.get(node)
        yield _feature(
            {"type": "Point", "coordinates": _position(latitude, longitude, altitude_m)},
            {"kind": "satellite", "name": f"satellite {node}", **_values(loads, row)},
            {"marker-color": _colour(loads, _load(loads, row)), "marker-size": "small"},
        )


def _lasers(loads: Loads, satellites_m: FloatArray) -> Iterator[dict[str, Any]]:
    pairs: dict[str, dict[str, int]] = {}
    for row, channel in enumerate(loads.channels):
        if channel.kind == "laser":
            pairs.setdefault(channel.link, {})[channel.direction] = row
    for link, rows in pairs.items():
        ends = sorted(loads.channels[next(iter(rows.values()))].satellites)
        shares = np.linspace(0.0, 1.0, _POINTS)[:, None]
        line_m = satellites_m[ends[0]] * (1 - shares) + satellites_m[ends[1]] * shares
        if not np.isfinite(line_m).all():
            continue
        line_deg = unrolled(geodetic(line_m)[:, :2])
        parts = [[_position(*at) for at in part.tolist()] for part in cut_at_date_line(line_deg)]
        values = {
            f"{key}_{direction}": value
            for direction in ("forward", "back")
            for key, value in _values(loads, rows.get(direction)).items()
        }
        yield _feature(
            _line(parts),
            {"kind": "laser", "name": link, **values},
            {"stroke": _colour(loads, max(_load(loads, row) for row in rows.values())),
             "stroke-width": 2},
        )  # fmt: skip


def _line(parts: Sequence[Sequence[Sequence[float]]]) -> dict[str, Any]:
    if len(parts) == 1:
        return {"type": "LineString", "coordinates": parts[0]}
    return {"type": "MultiLineString", "coordinates": parts}


def _feature(
    geometry: Mapping[str, Any], properties: Mapping[str, Any], style: Mapping[str, Any]
) -> dict[str, Any]:
    return {"type": "Feature", "geometry": geometry, "properties": {**properties, **style}}


def _position(latitude: float, longitude: float, altitude_m: float | None = None) -> list[float]:
    place = [round(longitude, 5), round(latitude, 5)]
    return place if altitude_m is None else [*place, round(altitude_m)]


def _values(loads: Loads, row: int | None) -> dict[str, float]:
    """Return the values of a direction of a link, in the units of their keys; 0 without traffic."""
    arrays: dict[str, tuple[FloatArray, Callable[[float], float]]] = {
        "utilisation": (loads.utilisation, lambda share: round(share, 6)),
        "carried_bps": (loads.carried_mbps, lambda mbps: round(mbps * 1e6)),
        "backlog_mean_bytes": (loads.backlog_bytes, round),
        "drops_packets": (loads.drops, round),
        "marks_packets": (loads.marks, round),
    }
    return {
        key: rounded(0.0 if row is None else float(values[row, 0]))
        for key, (values, rounded) in arrays.items()
    }


def _load(loads: Loads, row: int | None) -> float:
    return 0.0 if row is None else float(loads.utilisation[row, 0])


def _colour(loads: Loads, load: float) -> str:
    red, green, blue = load_rgb(load, most_of(loads.utilisation))
    return f"#{red:02x}{green:02x}{blue:02x}"
