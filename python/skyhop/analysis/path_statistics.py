"""What a path is like in figures: round trips, handovers, outages, stretch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from skyhop._core import HANDOVER_KINDS
from skyhop.data.arrays import FloatArray
from skyhop.data.geometry import LIGHT_M_PER_S, great_circle_m
from skyhop.data.records import PathRecord

FIBRE_M_PER_S = LIGHT_M_PER_S * 2 / 3
"""How fast light goes through glass."""

FIBRE_DETOUR = 1.4
"""How much longer a cable is than the great circle."""


def path_statistics(path: PathRecord) -> dict[str, Any]:
    """Return the figures of a path, each with its unit in its name.

    Everything is weighted by time; round trips are without queueing and count while there is a
    path. `stretch_great_circle` is the mean round trip in units of light's along the great circle
    and back, `stretch_fibre` in units of `FIBRE_DETOUR` times that way at `FIBRE_M_PER_S`; None
    where the ends' positions are not known.
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
    """Return each frame's round trip in ms, NaN without one, and for how many s it holds, (n,)."""
    held_s = np.diff(path.t_s, append=max(path.duration_s, float(path.t_s[-1])))
    # What is sent in the middle of a frame stands for all of it.
    return _rtt_ms(path, path.t_s + held_s / 2), held_s


def _rtt_ms(path: PathRecord, sent_s: FloatArray) -> FloatArray:
    """Return the round trips of what is sent at `sent_s`, NaN where the path is down then.

    What comes back meets the delay of the moment at which it turns round, and nothing overtakes.
    """
    there_s = _delay_at(path, path.delay_ms, sent_s) / 1e3
    turns_s = np.maximum.accumulate(np.nan_to_num(sent_s + there_s))
    back_s = _delay_at(path, path.delay_back_ms, turns_s) / 1e3
    arrives_s = np.maximum.accumulate(np.nan_to_num(turns_s + back_s))
    answered = np.isfinite(there_s) & np.isfinite(back_s)
    return np.where(answered, (arrives_s - sent_s) * 1e3, np.nan)


def _delay_at(path: PathRecord, delay_ms: FloatArray, at_s: FloatArray) -> FloatArray:
    """Return the one-way delay at moments, by the path's own rule between frames."""
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
    """Return disjoint (begin, end) in s when the path is down, by events or without a route."""
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
    """Return least, quantiles, greatest and mean; a value counts as long as it holds."""
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
