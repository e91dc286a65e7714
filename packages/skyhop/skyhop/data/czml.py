"""Export of a computed path to CZML, for Cesium's globe: nodes and links over time.

The document has positions in earth-fixed axes, between which Cesium interpolates. Cesium draws a
link while the path uses it, and labels a node while the path goes over it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import numpy as np

from skyhop.data.paths import Path
from skyhop.data.positions import name_and_position, path_start, satellites_at
from skyhop.errors import InputError

_SATELLITE_RGBA, _LINK_RGBA = [0, 114, 178, 255], [213, 94, 0, 255]
_END_RGBA, _GATEWAY_RGBA = [136, 34, 85, 255], [17, 119, 51, 255]

STEP = "30 s"
"""Default time between two successive positions of a satellite."""

MOST_POSITIONS = 5000
"""Largest number of positions per satellite; a long path needs a longer step."""

Span = tuple[float, float]
T = TypeVar("T")


def czml_text(path: Path, step_s: float, gateways: str) -> str:
    """Return the CZML of a path, with positions of the satellites every `step_s` seconds.

    Raises:
        InputError: the path was not computed over a constellation, has too many steps, or its
            satellites are numbered differently from the constellation that it names.
    """
    header = path.header
    if not header.get("constellation") or not header.get("start"):
        raise InputError("the path does not come from a constellation: a globe cannot show it")
    duration_s = header["duration_ns"] / 1e9
    if step_s <= 0 or duration_s / step_s > MOST_POSITIONS:
        least_s = duration_s / MOST_POSITIONS
        raise InputError(f"--step: {step_s:g} s is too short; expected at least {least_s:.3g} s")
    ends = f"{header['from']['name']} - {header['to']['name']}"
    packets = [
        document(ends, path_start(header), duration_s),
        *_nodes(path, step_s, gateways),
        *_links(path),
    ]
    return text_of(packets)


def text_of(packets: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a CZML document, which is a list of packets (objects), one per line."""
    lines = (json.dumps(packet, ensure_ascii=False) for packet in packets)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def document(
    name: str, start: datetime, duration_s: float, multiplier: float = 10
) -> dict[str, Any]:
    """Return the first packet of a CZML document: its name, and a clock `multiplier` times as fast.

    Its times are from `start` to `duration_s` later.
    """
    return {
        "id": "document",
        "name": name,
        "version": "1.0",
        "clock": {
            "interval": interval(start, (0.0, duration_s)),
            "currentTime": utc(start),
            "multiplier": multiplier,
            "range": "LOOP_STOP",
        },
    }


def track(start: datetime, cartesian: Sequence[float]) -> dict[str, Any]:
    """Return a `position` property: times (s after `start`) and earth-fixed x, y, z (m) in turn."""
    return {
        "epoch": utc(start),
        "referenceFrame": "FIXED",
        "interpolationAlgorithm": "LAGRANGE",
        "interpolationDegree": 5,
        "cartesian": cartesian,
    }


def _nodes(path: Path, step_s: float, gateways: str) -> Iterator[dict[str, Any]]:
    """Yield a CZML packet (object) for each node that the path uses at any time."""
    spans = _spans(path, lambda nodes: nodes)
    used, header = sorted(spans), path.header
    satellites = [node for node in used if 0 <= node < header["satellites"]]
    at_s = np.append(np.arange(0, header["duration_ns"] / 1e9, step_s), header["duration_ns"] / 1e9)
    tracks: dict[int, list[float]] = {node: [] for node in satellites}
    positions_m = np.empty((0, 3))
    for moment_s in at_s.tolist():
        positions_m, _ = satellites_at(header, moment_s)
        for node in satellites:
            tracks[node] += [round(moment_s, 3), *np.round(positions_m[node], 1).tolist()]
    for node in used:
        if node in tracks:
            position = track(path_start(header), tracks[node])
            name, _ = name_and_position(node, header, positions_m, gateways)
            colour = _SATELLITE_RGBA
        else:
            name, place_m = name_and_position(node, header, positions_m, gateways)
            colour = _END_RGBA if node < 0 else _GATEWAY_RGBA
            position = {"cartesian": np.round(place_m, 1).tolist()}
        yield _point(node, name, position, colour, _shown(path, spans[node]))


def _shown(path: Path, spans: Sequence[Span]) -> list[dict[str, Any]]:
    """Return the `show` property of a label: true while the node is in use.

    If intervals overlap, the one later in the list applies (CZML).
    """
    whole = (0.0, path.header["duration_ns"] / 1e9)
    return [
        {"interval": _interval(path, whole), "boolean": False},
        *({"interval": _interval(path, span), "boolean": True} for span in spans),
    ]


def _point(
    node: int, name: str, position: dict[str, Any], rgba: list[int], shown: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "id": _id(node),
        "name": name,
        "position": position,
        "point": {"pixelSize": 8, "color": {"rgba": rgba}},
        "label": {
            "text": name,
            "show": shown,
            "font": "11px sans-serif",
            "pixelOffset": {"cartesian2": [0, -14]},
        },
    }


def _links(path: Path) -> Iterator[dict[str, Any]]:
    """Yield a CZML packet for each link that the path uses at any time, shown while in use."""
    for (a, b), spans in sorted(_spans(path, itertools.pairwise).items()):
        yield {
            "id": f"link {a} {b}",
            "availability": [_interval(path, span) for span in spans],
            "polyline": {
                "positions": {"references": [f"{_id(a)}#position", f"{_id(b)}#position"]},
                "arcType": "NONE",
                "width": 2,
                "material": {"solidColor": {"color": {"rgba": _LINK_RGBA}}},
            },
        }


def _spans(path: Path, parts: Callable[[list[int]], Iterable[T]]) -> dict[T, list[Span]]:
    """Return for each part (node or link) the (begin, end) spans in s in which the path has it."""
    begins_s = path.frames["t_ns"].to_numpy() / 1e9
    ends_s = np.append(begins_s[1:], path.header["duration_ns"] / 1e9)
    spans: dict[T, list[Span]] = {}
    rows = path.frames["nodes"].to_list()
    for nodes, begin_s, end_s in zip(rows, begins_s.tolist(), ends_s.tolist(), strict=True):
        for part in parts(nodes):
            in_use = spans.setdefault(part, [])
            if in_use and in_use[-1][1] == begin_s:
                in_use[-1] = (in_use[-1][0], end_s)
            else:
                in_use.append((begin_s, end_s))
    return spans


def _id(node: int) -> str:
    return {-1: "from", -2: "to"}.get(node, f"node {node}")


def _interval(path: Path, span: Span) -> str:
    return interval(path_start(path.header), span)


def interval(start: datetime, span: Span) -> str:
    """Return the time interval between two times, in s after `start`, as ISO 8601."""
    return "/".join(utc(start + timedelta(seconds=at_s)) for at_s in span)


def utc(moment: datetime) -> str:
    """Return a time in UTC as ISO 8601."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
