"""Fit of access profiles to round trips: floors, waits, and holes at the marks of the grid.

Times are in seconds, round trips and delays in milliseconds, shares from 0 to 1.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from skyhop import _core
from skyhop.analysis.access_process import RANKS, by_steps, process, quantile_table
from skyhop.analysis.portrait_grid import Grid
from skyhop.data.arrays import BoolArray, FloatArray, IntArray
from skyhop.telemetry.measured_link import RoundTrips

SETTLED_S = 0.5
"""Time after a mark from which on waits count as those of the rest of the slot."""
STALL_MS = 100.0
"""Excess that counts as an outage rather than as a wait."""
HOLE_MS = 40.0
"""Excess at a mark that counts as a hole: above the 99th percentile of waits on measured links."""
BEFORE_S, AFTER_S = -0.2, 0.6
"""Time around a mark in which a hole is looked for, which begins before half of the time after."""
LEAST_PROBES, LEAST_COVERED = 10, 0.75
"""Probes around a mark, and share of that time which they cover, for the mark to count."""
SETTLING_MS = 250.0
"""Time after a hole in which waits are longer."""
LONGEST_STEP_S = 0.02
"""Longest time for which a wait holds."""
SLOW_INTERVALS = (5, 10, 20, 40, 80)
"""Time constants of the slow part of waits among which the fit chooses, in probes."""
FLOOR_SLOTS = 1000
"""Number of slots from which the steps of the floor are drawn."""
ROUNDS = 12
"""Number of corrections of the drawn waits."""
LAGS = (1, 2, 5, 10, 50)
"""Lags of the autocorrelation that the fit compares, in probes."""


@dataclass(frozen=True)
class Probes:
    """Answered probes in the order of sending, with their excess over the slot's floor.

    Attributes:
        sent_s: times of sending.
        excess_ms: round trip minus the slot's floor.
        floors_ms: floor of each slot, its 2nd percentile, in the order of slots.
        phases_s: time of sending since the last mark.
    """

    sent_s: FloatArray
    excess_ms: FloatArray
    floors_ms: FloatArray
    phases_s: FloatArray
    slots: IntArray
    """Number of the slot of each probe, counted from the first."""

    @classmethod
    def of(cls, trips: RoundTrips, start_ns: int, grid: Grid) -> Probes:
        """Excess of each probe; slots that the log covers in part only are included."""
        sent_s = trips.answered_s - trips.rtt_ms / 1e3
        order = np.argsort(sent_s, kind="stable")
        sent_s, rtt_ms = sent_s[order], trips.rtt_ms[order]
        slots, phases_s = grid.phases(start_ns, sent_s)
        _, begins, index = np.unique(slots, return_index=True, return_inverse=True)
        floors = np.array([np.percentile(part, 2) for part in np.split(rtt_ms, begins[1:])])
        return cls(sent_s, rtt_ms - floors[index], floors, phases_s, index)

    @property
    def interval_s(self) -> float:
        """Median time between two probes."""
        return float(np.median(np.diff(self.sent_s)))

    @cached_property
    def settled(self) -> BoolArray:
        """Whether each probe is sent far from the marks."""
        settled = (self.phases_s > SETTLED_S) & (self.phases_s < self.phases_s.max() - 0.1)
        return np.asarray(settled)

    @cached_property
    def stalls(self) -> list[slice]:
        """Probes of each stall: from an excess of `STALL_MS` until it is back at the median."""
        ends = np.flatnonzero(self.excess_ms <= np.median(self.excess_ms))
        found, end = [], 0
        for begin in np.flatnonzero(self.settled & (self.excess_ms >= STALL_MS)).tolist():
            if begin >= end:
                later = ends[np.searchsorted(ends, begin) :]
                end = int(later[0]) if len(later) else len(self.excess_ms)
                found.append(slice(begin, end))
        return found

    @cached_property
    def is_wait(self) -> BoolArray:
        """Whether each probe shows a wait: it is neither near a mark nor in a stall."""
        waits = self.settled.copy()
        for stall in self.stalls:
            waits[stall] = False
        return waits


def round_trip_parts(
    logs: list[Probes], period_s: float, *, has_grid: bool = True
) -> dict[str, Any]:
    """Return the tables `round_trip`, `reconfiguration` and `outages`, fitted to `logs`."""
    waits = np.concatenate([log.excess_ms[log.is_wait] for log in logs])
    target = np.quantile(waits, RANKS)
    # The floor is the 2nd percentile of a slot, so that some waits are negative.
    shift = float(min(0.0, target[0]))
    floors = [log.floors_ms + shift for log in logs]
    wait = fitted_wait(target - shift, logs, period_s)
    return {
        "round_trip": {
            "floor_ms": by_steps(floors, period_s, _lowest_by_slot(wait, period_s)),
            "wait_ms": wait,
        },
        **(reconfiguration(logs) if has_grid else {}),
        **outages(logs),
    }


def fitted_wait(target: FloatArray, logs: list[Probes], period_s: float) -> dict[str, Any]:
    """Return the process of waits whose probes have the quantiles `target` and the logs' memory.

    A packet cannot overtake those before it, so that the waits that probes see are longer than the
    drawn ones after a fall; the quantiles of the draw are corrected until the probes' match. Waits
    last 10 ms or so even where a log probes seldom: held for its interval, they would be delays to
    which senders adapt.
    """
    interval_s = float(np.median([log.interval_s for log in logs]))
    steps = max(1, round(interval_s / LONGEST_STEP_S))
    step_s = interval_s / steps
    wanted = np.mean([memory(log.excess_ms, log.is_wait, log.slots) for log in logs], axis=0)
    best: tuple[float, dict[str, Any]] | None = None
    for slot in (0.0, 0.1, 0.2, 0.3, 0.4):
        for slow in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5):
            for intervals in SLOW_INTERVALS if slow else (0,):
                slow_s = intervals * interval_s
                found = process(target, step_s, slot=slot, slow=slow, slow_s=slow_s)
                seen = probed(found, period_s, seed=1, slots=40)[::steps]
                slots = np.arange(len(seen)) * 40 // len(seen)
                drawn = memory(seen, np.full(len(seen), True), slots)
                miss = float(np.sum((drawn - wanted) ** 2))
                if best is None or miss < best[0]:
                    best = (miss, found)
    assert best is not None
    return _corrected(best[1], target, period_s)


def _lowest_by_slot(wait: dict[str, Any], period_s: float) -> FloatArray:
    """Deviations of the slots' 2nd percentiles of waits in ms, which add to the floor's steps."""
    seen = np.array_split(probed(wait, period_s, seed=2, slots=FLOOR_SLOTS), FLOOR_SLOTS)
    lowest = np.array([np.percentile(slot, 2) for slot in seen])
    return np.asarray(lowest - np.median(lowest))


def _corrected(wait: dict[str, Any], target: FloatArray, period_s: float) -> dict[str, Any]:
    """Change the quantiles of a process until those of its probes are `target`."""
    quantiles = target.copy()
    for seed in range(ROUNDS):
        seen = np.quantile(probed({**wait, "quantiles": list(quantiles)}, period_s, seed), RANKS)
        quantiles = np.maximum.accumulate(np.maximum(0.0, quantiles + 0.5 * (target - seen)))
    return {**wait, "quantiles": [float(f"{value:.4g}") for value in quantiles]}


def probed(wait: dict[str, Any], period_s: float, seed: int, slots: int = 200) -> FloatArray:
    """Return the waits in ms that probes see over a process, one probe per step."""
    every_ms = float(wait["every"].removesuffix(" ms"))
    of_a_slot = max(1, round(period_s * 1e3 / every_ms))
    drawn = np.array(_core.draw_process(json.dumps(wait), of_a_slot * slots, of_a_slot, seed))
    sent_ms = np.arange(len(drawn)) * every_ms
    return np.asarray(np.maximum.accumulate(sent_ms + drawn) - sent_ms)


def memory(values: FloatArray, counts: BoolArray, slots: IntArray) -> FloatArray:
    """Memory of the values that count: in a slot, and from slot to slot.

    Returns:
        Autocorrelation of the deviations from the slots' means at `LAGS`, and the share of the
        variance that the slots' means have.
    """
    known = np.where(counts, values, np.nan)
    sums = np.bincount(slots, np.where(counts, values, 0.0))
    means = sums / np.maximum(np.bincount(slots, counts), 1)
    inside = known - means[slots]
    variance = np.nanmean(inside**2)
    correlations = [np.nanmean(inside[lag:] * inside[:-lag]) / variance for lag in LAGS]
    between = 1 - variance / np.nanvar(known)
    return np.array([*correlations, between], dtype=np.float64)


def reconfiguration(logs: list[Probes]) -> dict[str, Any]:
    """Return the table `reconfiguration`: holes at the marks, and the waits that follow them."""
    found = [_holes(log) for log in logs]
    usual = float(np.mean(np.concatenate([log.excess_ms[log.is_wait] for log in logs])))
    settling = [wait_ms / usual for _, _, after in found for wait_ms in after]
    holes = [hole for ours, _, _ in found for hole in ours]
    return holes_table((holes, sum(marks for _, marks, _ in found), settling))


def holes_table(found: tuple[list[tuple[float, float]], int, list[float]]) -> dict[str, Any]:
    """Return the table `reconfiguration` for holes, the number of marks, and waits after holes."""
    holes, marks, settling = found
    if not holes:
        return {}
    begins_ms, lasts_ms = np.array(holes).T
    table = {
        "share": round(min(1.0, len(holes) / marks), 3),
        "hole_ms": quantile_table(lasts_ms),
        "begin_ms": quantile_table(begins_ms),
    }
    if settling:
        table |= {
            "settling_ms": SETTLING_MS,
            "settling_factor": round(max(1.0, float(np.mean(settling))), 2),
        }
    return {"reconfiguration": table}


def outages(logs: list[Probes]) -> dict[str, Any]:
    """Return the table `outages`: stalls outside the marks, in which packets wait."""
    lasts_ms = [float(log.excess_ms[stall].max()) for log in logs for stall in log.stalls]
    hours = sum(float(np.ptp(log.sent_s)) for log in logs) / 3600
    if not lasts_ms:
        return {}
    return {
        "outages": {
            "per_hour": float(f"{len(lasts_ms) / hours:.3g}"),
            "lasts_ms": quantile_table(np.array(lasts_ms)),
        }
    }


def _holes(log: Probes) -> tuple[list[tuple[float, float]], int, list[float]]:
    """Return the holes of a log, the number of its marks, and the waits in ms after holes.

    Holes are given as (begin after the mark, duration) in ms.
    """
    holes, settling, marks = [], [], 0
    half_ms = log.interval_s * 500
    period_s = float(log.phases_s.max())
    since_s = np.where(log.phases_s > period_s / 2, log.phases_s - period_s, log.phases_s)
    mark = log.slots + (log.phases_s > period_s / 2)
    for number in np.unique(mark):
        near = np.flatnonzero((mark == number) & (since_s > BEFORE_S) & (since_s < AFTER_S))
        if len(near) < LEAST_PROBES or np.ptp(since_s[near]) < LEAST_COVERED * (AFTER_S - BEFORE_S):
            continue
        marks += 1
        early = near[since_s[near] < AFTER_S / 2]
        first = early[np.argmax(log.excess_ms[early])]
        excess = float(log.excess_ms[first])
        if excess < HOLE_MS:
            continue
        usual = float(np.median(log.excess_ms[near]))
        begin_ms, lasts_ms = since_s[first] * 1e3 - half_ms, excess - usual + half_ms
        holes.append((begin_ms, lasts_ms))
        end_s = (begin_ms + lasts_ms) / 1e3
        after = near[(since_s[near] > end_s) & (since_s[near] < end_s + SETTLING_MS / 1e3)]
        settling += list(log.excess_ms[after])
    return holes, marks, settling
