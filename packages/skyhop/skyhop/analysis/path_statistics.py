"""Statistics of a path: round trips, handovers, outages, stretch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from skyhop._core import HANDOVER_KINDS
from skyhop.data.arrays import FloatArray
from skyhop.data.geometry import LIGHT_M_PER_S, great_circle_m
from skyhop.data.records import PathRecord

FIBRE_M_PER_S = LIGHT_M_PER_S * 2 / 3
"""Speed of light in glass fibre, in m/s."""

FIBRE_DETOUR = 1.4
"""Assumed ratio of a cable's length to the great-circle distance."""


def path_statistics(path: PathRecord) -> dict[str, Any]:
    """Return the statistics of a path; their names end in their units.

    All statistics are weighted by time. RTTs are without queueing, and only times with a path
    count. `stretch_great_circle` is the ratio of the mean RTT to the RTT of light along the great
    circle. `stretch_fibre` is its ratio to the RTT of a fibre of `FIBRE_DETOUR` times that length,
    with `FIBRE_M_PER_S`. Both are None if the positions of the ends are not known.
    """
    rtt_ms, held_s = round_trips(path)
    up = np.isfinite(rtt_ms) & (held_s > 0)
    mean_ms = float(np.average(rtt_ms[up], weights=held_s[up])) if up.any() else None
    outages = _outages(path, held_s)
    outage_s = float(sum(end - begin for begin, end in outages))
    hours = path.duration_s / 3600
    counts = {kind: path.events.kinds.count(kind) for kind in HANDOVER_KINDS}
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


def round_trips(path: PathRecord) -> tuple[FloatArray, FloatArray]:
    """Return each frame's RTT (ms, NaN while down) and its duration (s), shape (n,) each."""
    held_s = np.diff(path.t_s, append=max(path.duration_s, float(path.t_s[-1])))
    # A packet sent in the middle of a frame stands for the whole frame.
    return _rtt_ms(path, path.t_s + held_s / 2), held_s


def _rtt_ms(path: PathRecord, sent_s: FloatArray) -> FloatArray:
    """Return the RTTs (ms) of packets sent at `sent_s`, NaN while the path is down.

    The return delay is that at the time when the packet arrives at the other end; packets do not
    overtake each other.
    """
    there_s = _delay_at(path, path.delay_ms, sent_s) / 1e3
    turns_s = np.maximum.accumulate(np.nan_to_num(sent_s + there_s))
    back_s = _delay_at(path, path.delay_back_ms, turns_s) / 1e3
    arrives_s = np.maximum.accumulate(np.nan_to_num(turns_s + back_s))
    answered = np.isfinite(there_s) & np.isfinite(back_s)
    return np.where(answered, (arrives_s - sent_s) * 1e3, np.nan)


def _delay_at(path: PathRecord, delay_ms: FloatArray, at_s: FloatArray) -> FloatArray:
    """Return the one-way delay at times; between frames, by the path's rule `between_frames`."""
    frame = np.clip(np.searchsorted(path.t_s, at_s, side="right") - 1, 0, None)
    if path.header.get("between_frames", "linear") != "linear":
        return delay_ms[frame]
    following = np.minimum(frame + 1, len(delay_ms) - 1)
    slopes = path.same_nodes[following] & np.isfinite(delay_ms[following]) & (following > frame)
    length_s = np.where(slopes, path.t_s[following] - path.t_s[frame], 1.0)
    share = np.where(slopes, (at_s - path.t_s[frame]) / length_s, 0.0)
    change_ms = np.where(slopes, delay_ms[following] - delay_ms[frame], 0.0)
    return np.asarray(delay_ms[frame] + share * change_ms)


def _outages(path: PathRecord, held_s: FloatArray) -> list[tuple[float, float]]:
    """Return disjoint (begin, end) in s in which the path is down, by an event or without route."""
    down = np.isnan(path.delay_ms)
    begins_s, ends_s = path.t_s[down], path.t_s[down] + held_s[down]
    without = list(zip(begins_s.tolist(), ends_s.tolist(), strict=True))
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
    """Return minimum, quantiles, maximum and mean; values are weighted by their durations."""
    if mean is None:
        return {}
    order = np.argsort(values)
    shares = np.cumsum(weights[order]) / weights.sum()
    wanted = {"min": 0.0, "p5": 0.05, "p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    last = len(order) - 1
    found = {
        name: float(values[order][min(int(np.searchsorted(shares, share)), last)])
        for name, share in wanted.items()
    }
    return {**found, "mean": mean}


def _stretch(header: Mapping[str, Any], mean_rtt_ms: float | None) -> dict[str, float | None]:
    ends = [header.get(end) or {} for end in ("from", "to")]
    places: list[Any] = [(end.get("latitude_deg"), end.get("longitude_deg")) for end in ends]
    names = ("great_circle_km", "great_circle_rtt_ms", "fibre_rtt_ms", "stretch_great_circle",
             "stretch_fibre")  # fmt: skip
    if any(value is None for place in places for value in place):
        return dict.fromkeys(names)
    distance_m = great_circle_m(places[0], places[1])
    straight_ms = 2e3 * distance_m / LIGHT_M_PER_S
    fibre_ms = 2e3 * distance_m * FIBRE_DETOUR / FIBRE_M_PER_S
    stretches = (
        [None, None]
        if mean_rtt_ms is None or distance_m == 0
        else [mean_rtt_ms / straight_ms, mean_rtt_ms / fibre_ms]
    )
    return dict(zip(names, [distance_m / 1e3, straight_ms, fibre_ms, *stretches], strict=True))
