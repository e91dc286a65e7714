"""Rows and curves of a portrait from round trips: quantiles, excess, its memory, holes at marks."""

from __future__ import annotations

import numpy as np

from skyhop.analysis.portrait_curves import (
    Curve,
    around_marks,
    quantiles,
    share_above,
    share_below,
)
from skyhop.analysis.portrait_grid import Grid
from skyhop.analysis.portrait_rows import (
    EXCESS_QUANTILES,
    MEMORY_MS,
    RTT_QUANTILES,
    excess_key,
    rtt_key,
)
from skyhop.data.arrays import BoolArray, FloatArray, IntArray
from skyhop.telemetry.measured_link import RoundTrips

_FLOOR_PER_CENT = 2
"""Quantile of a slot's round trips that is its floor."""
_LEAST_IN_SLOT = 5
"""Least number of answers from which a slot has a floor."""
HOLE_MS = 60.0
"""Least length in ms of a hole in the answers."""
_BEFORE_S = 0.25
"""Time in seconds before a mark in which its hole begins."""
_AFTER_S = 0.05
"""Time in seconds after an estimated mark in which its hole may begin, too."""
_FINE = 3
"""Least number of probes in the length of a hole, so that it shows."""
_FIRST_S = 0.25
_USUAL_S = 0.012
"""Interval of the probes in seconds from which lags are counted in probes."""
_SAME = 0.2
"""Largest relative difference of the probes' interval from 12 ms for lags by number of probes."""
_CLOSE = 0.25
"""Largest relative difference of a number of intervals from the lag, for lags by time."""
_LEAST_PAIRS = 30
_LAGS_S = (0.012, 0.024, 0.036, 0.048, 0.06, 0.084, 0.12, 0.18, 0.24, 0.36, 0.6, 0.96)
"""Lags of the curve of the memory, in seconds."""
_BIN_S = 0.05
_AROUND_S = (-1.0, 1.5)
"""Reach of the curve around the marks in seconds."""


def round_trip_rows(trips: RoundTrips, start_ns: int, grid: Grid) -> dict[str, float]:
    """Return the values of a portrait's rows that round trips tell, by key."""
    slots, phases_s = grid.phases(start_ns, trips.answered_s)
    excess_ms, steps_ms = _over_floor(trips.rtt_ms, slots)
    values = {
        **quantiles(trips.rtt_ms, RTT_QUANTILES, rtt_key),
        **quantiles(excess_ms, EXCESS_QUANTILES, excess_key),
    }
    if len(steps_ms):
        values["floor_step_p50_ms"], values["floor_step_p90_ms"] = np.percentile(
            steps_ms, [50, 90]
        ).tolist()
    for lag_ms in MEMORY_MS:
        found = _memory(trips, excess_ms, slots, lag_ms / 1e3)
        if found is not None:
            values[f"excess_correlation_{lag_ms}ms"] = found
    gaps_ms = np.diff(trips.answered_s) * 1e3
    values["gap_longest_ms"] = float(gaps_ms.max())
    if grid.mark_s is not None:
        values |= _at_marks(trips, slots, phases_s)
        if trips.interval_s * _FINE * 1e3 <= HOLE_MS:
            values |= _holes(gaps_ms, slots, phases_s, grid)
    return values


def round_trip_curves(trips: RoundTrips, start_ns: int, grid: Grid) -> dict[str, Curve]:
    """Return the curves of a portrait that round trips tell, by panel."""
    slots, phases_s = grid.phases(start_ns, trips.answered_s)
    excess_ms, _ = _over_floor(trips.rtt_ms, slots)
    curves = {"rtt": share_below(trips.rtt_ms), "excess": share_above(excess_ms)}
    lags_s = np.array(_LAGS_S)
    memory = [_memory(trips, excess_ms, slots, lag_s) for lag_s in lags_s]
    known = np.array([np.nan if found is None else found for found in memory])
    if np.isfinite(known).any():
        curves["memory"] = Curve(lags_s * 1e3, known)
    if grid.mark_s is not None:
        curves["rtt_around"] = around_marks(
            phases_s, trips.rtt_ms, grid.period_s, _BIN_S, _AROUND_S
        )
    return curves


def _over_floor(rtt_ms: FloatArray, slots: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the excess over the floor of each slot, and the steps of the floor between slots.

    The excess is NaN in slots with too few answers; steps are those of slots next to each other.
    """
    excess_ms = np.full(len(rtt_ms), np.nan)
    floors: dict[int, float] = {}
    for slot, begin, end in _parts(slots):
        if end - begin >= _LEAST_IN_SLOT:
            floors[slot] = float(np.percentile(rtt_ms[begin:end], _FLOOR_PER_CENT))
            excess_ms[begin:end] = rtt_ms[begin:end] - floors[slot]
    steps = [abs(floors[slot] - floors[slot - 1]) for slot in floors if slot - 1 in floors]
    return excess_ms, np.array(steps)


def _parts(slots: IntArray) -> list[tuple[int, int, int]]:
    """Return slot, begin and end of each part of values in ascending slots."""
    begins = np.flatnonzero(np.diff(slots, prepend=slots[0] - 1))
    ends = np.append(begins[1:], len(slots))
    return list(zip(slots[begins].tolist(), begins.tolist(), ends.tolist(), strict=True))


def _memory(
    trips: RoundTrips, excess_ms: FloatArray, slots: IntArray, lag_s: float
) -> float | None:
    """Return the autocorrelation of the excess within slots at a lag; None if it is not known.

    The deviations are those from the mean of each slot. With probes every 12 ms a lag is a number
    of probes; otherwise it is a time between their sending times.
    """
    deviations = np.full(len(excess_ms), np.nan)
    for _, begin, end in _parts(slots):
        deviations[begin:end] = excess_ms[begin:end] - excess_ms[begin:end].mean()
    first, second = _pairs(trips, lag_s)
    kept = (slots[first] == slots[second]) & np.isfinite(deviations[first])
    first, second = first[kept], second[kept]
    variance = float(np.nanvar(deviations)) if np.isfinite(deviations).any() else 0.0
    if len(first) < _LEAST_PAIRS or variance == 0:
        return None
    return float((deviations[first] * deviations[second]).mean()) / variance


def _pairs(trips: RoundTrips, lag_s: float) -> tuple[IntArray, IntArray]:
    """Return the indices of pairs of answers whose probes are a lag apart.

    None are if no number of intervals is close to the lag.
    """
    count, interval_s = len(trips.rtt_ms), trips.interval_s
    every = np.arange(count)
    if abs(interval_s / _USUAL_S - 1) <= _SAME:
        apart = min(round(lag_s / _USUAL_S), count)
        return every[: count - apart], every[apart:]
    if not abs(max(round(lag_s / interval_s), 1) * interval_s / lag_s - 1) <= _CLOSE:
        return every[:0], every[:0]
    sent_s = trips.answered_s - trips.rtt_ms / 1e3
    order = np.argsort(sent_s, kind="stable")
    wanted = sent_s[order] + lag_s
    after = np.clip(np.searchsorted(sent_s[order], wanted), 1, count - 1)
    near = after - (wanted - sent_s[order][after - 1] < sent_s[order][after] - wanted)
    # A pair over a pause is none; which pairs count must not hang on the round trips.
    close = np.abs(sent_s[order][near] - wanted) <= max(interval_s, _CLOSE * lag_s)
    return order[close], order[near][close]


def _at_marks(trips: RoundTrips, slots: IntArray, phases_s: FloatArray) -> dict[str, float]:
    """Return the mean round trips of the answers in the first parts of slots, and in the rest."""
    if len(np.unique(slots)) < 2:  # noqa: PLR2004
        return {}
    first, second = phases_s < _FIRST_S, phases_s < 2 * _FIRST_S
    parts: dict[str, BoolArray] = {
        "rtt_first_ms": first,
        "rtt_second_ms": second & ~first,
        "rtt_rest_ms": ~second,
    }
    return {key: float(trips.rtt_ms[part].mean()) for key, part in parts.items() if part.any()}


def _holes(
    gaps_ms: FloatArray, slots: IntArray, phases_s: FloatArray, grid: Grid
) -> dict[str, float]:
    """Return how many marks show as a hole in the answers, and how long the holes are."""
    # Estimated marks are those at which the holes begin.
    reach_s = _AFTER_S if grid.origin == "estimated" else 0.0
    begins_s = (phases_s[:-1] + _BEFORE_S) % grid.period_s
    at_mark = (begins_s < _BEFORE_S + reach_s) & (gaps_ms > HOLE_MS)
    holes: dict[int, float] = {}
    before = slots[:-1] - (phases_s[:-1] < reach_s)
    for slot, gap_ms in zip(before[at_mark].tolist(), gaps_ms[at_mark].tolist(), strict=True):
        holes[slot] = max(holes.get(slot, 0.0), gap_ms)
    # The log has to reach from before a mark's hole to after it.
    first = int(slots[0] + (phases_s[0] > grid.period_s - _BEFORE_S))
    marks = int(slots[-1] - (phases_s[-1] < _BEFORE_S)) - first
    if marks < 1:
        return {}
    holes = {slot: hole_ms for slot, hole_ms in holes.items() if first <= slot < first + marks}
    values = {"marks": float(marks), "hole_percent": 100 * len(holes) / marks}
    if holes:
        lengths_ms = np.array(list(holes.values()))
        values["hole_p50_ms"] = float(np.median(lengths_ms))
        values["hole_longest_ms"] = float(lengths_ms.max())
    return values
