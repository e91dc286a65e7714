"""What a path is like in figures: round trips, handovers, outages, stretch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from skyhop.geometry import LIGHT_M_PER_S, FloatArray, great_circle_m
from skyhop.plot.records import PATH_EVENT_KINDS, PathRecord

FIBRE_M_PER_S = LIGHT_M_PER_S * 2 / 3
"""How fast light goes through glass."""

FIBRE_DETOUR = 1.4
"""How much longer a cable is than the great circle."""

_HANDOVERS = tuple(kind for kind in PATH_EVENT_KINDS if kind not in ("lost", "restored", "change"))


def path_statistics(path: PathRecord) -> dict[str, Any]:
    """Return the figures of a path, each with its unit in its name.

    Everything is weighted by time; round trips are without queueing and count while there is a
    path. `stretch_great_circle` is the mean round trip in units of light's along the great circle
    and back, `stretch_fibre` in units of `FIBRE_DETOUR` times that way at `FIBRE_M_PER_S`; None
    where the ends' positions are not known.
    """
    held_s = np.diff(path.t_s, append=max(path.duration_s, float(path.t_s[-1])))
    rtt_ms = _rtt_while_held_ms(path)
    up = np.isfinite(rtt_ms) & (held_s > 0)
    mean_ms = float(np.average(rtt_ms[up], weights=held_s[up])) if up.any() else None
    outages = _outages(path, held_s)
    outage_s = float(sum(end - begin for begin, end in outages))
    hours = path.duration_s / 3600
    counts = {kind: path.events.kinds.count(kind) for kind in _HANDOVERS}
    return {
        "from": path.endpoint("from"),
        "to": path.endpoint("to"),
        "duration_s": path.duration_s,
        "frames": len(path.t_s),
        "rtt_ms": _quantiles(rtt_ms[up], held_s[up], mean_ms),
        "rate_mbps": _known_quantiles(path.rate_mbps, held_s),
        "handovers": counts,
        "handovers_per_hour": {
            kind: count / hours if hours else None for kind, count in counts.items()
        },
        "outages": len(outages),
        "outage_s": outage_s,
        "outage_share": outage_s / path.duration_s if path.duration_s else None,
        **_stretch(path.header, mean_ms),
    }


def _rtt_while_held_ms(path: PathRecord) -> FloatArray:
    """Return each frame's mean RTT until the next frame, NaN without a path."""
    rtt_ms = path.delay_ms + path.delay_back_ms
    if path.header.get("between_frames", "linear") != "linear":
        return rtt_ms
    mean_ms = rtt_ms.copy()
    goes_on = path.same_nodes[1:] & np.isfinite(rtt_ms[1:])
    mean_ms[:-1][goes_on] = ((rtt_ms[:-1] + rtt_ms[1:]) / 2)[goes_on]
    return mean_ms


def _outages(path: PathRecord, held_s: FloatArray) -> list[tuple[float, float]]:
    """Return disjoint (begin, end) in s when the path is down, by events or without a route."""
    down = np.isnan(path.delay_ms)
    begins = path.t_s[down].tolist()
    without = list(zip(begins, (path.t_s[down] + held_s[down]).tolist(), strict=True))
    merged: list[tuple[float, float]] = []
    for begin, end in sorted([*without, *path.events.down_spans(path.duration_s)]):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif end > begin:
            merged.append((begin, end))
    return merged


def _known_quantiles(values: FloatArray, held_s: FloatArray) -> dict[str, float] | None:
    known = np.isfinite(values) & (held_s > 0)
    if not known.any():
        return None
    mean = float(np.average(values[known], weights=held_s[known]))
    return _quantiles(values[known], held_s[known], mean)


def _quantiles(values: FloatArray, weights: FloatArray, mean: float | None) -> dict[str, float]:
    """Return least, quantiles, greatest and mean; a value counts as long as it holds."""
    if mean is None:
        return {}
    order = np.argsort(values)
    shares = np.cumsum(weights[order]) / weights.sum()
    places = {"min": 0.0, "p5": 0.05, "p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    found = {
        name: float(values[order][min(np.searchsorted(shares, share), len(order) - 1)])
        for name, share in places.items()
    }
    return {**found, "mean": mean}


def _stretch(header: Mapping[str, Any], mean_rtt_ms: float | None) -> dict[str, float | None]:
    ends = [header.get(end) or {} for end in ("from", "to")]
    places = [(end.get("latitude_deg"), end.get("longitude_deg")) for end in ends]
    names = ("great_circle_km", "great_circle_rtt_ms", "fibre_rtt_ms", "stretch_great_circle",
             "stretch_fibre")  # fmt: skip
    if any(value is None for place in places for value in place):
        return dict.fromkeys(names)
    distance_m = great_circle_m(*places)
    straight_ms = 2e3 * distance_m / LIGHT_M_PER_S
    fibre_ms = 2e3 * distance_m * FIBRE_DETOUR / FIBRE_M_PER_S
    stretches = (
        [None, None]
        if mean_rtt_ms is None or distance_m == 0
        else [mean_rtt_ms / straight_ms, mean_rtt_ms / fibre_ms]
    )
    return dict(zip(names, [distance_m / 1e3, straight_ms, fibre_ms, *stretches], strict=True))
