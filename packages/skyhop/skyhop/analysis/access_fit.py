"""Fit of access profiles to round trips: floors, waits, and holes at the marks of the grid.

Times are in seconds, round trips and delays in milliseconds, shares from 0 to 1.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from skyhop import _core
from skyhop.data.arrays import FloatArray, IntArray

SETTLED_S = 0.5
"""Time after a mark from which on waits count as those of the rest of the slot."""
STALL_MS = 100.0
"""Excess that counts as an outage rather than as a wait."""
HOLE_MS = 40.0
"""Excess at a mark that counts as a hole: above the 99th percentile of waits on measured links."""
LAGS = (1, 2, 5, 10, 20, 50)
"""Lags of the autocorrelation that the fit compares, in probes."""


@dataclass(frozen=True)
class Grid:
    """Marks of the grid on the clock of the probes: `period_s`, and the time `mark_s` of one mark."""

    period_s: float
    mark_s: float

    def slots(self, times_s: FloatArray) -> IntArray:
        """Number of the slot of each time."""
        return np.floor((times_s - self.mark_s) / self.period_s).astype(int)

    def phases_s(self, times_s: FloatArray) -> FloatArray:
        """Time since the last mark, from 0 to less than the period."""
        return (times_s - self.mark_s) % self.period_s


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

    @classmethod
    def of(cls, sent_s: FloatArray, rtt_ms: FloatArray, grid: Grid) -> Probes:
        """Excess of each probe; slots that the log covers in part only are included."""
        order = np.argsort(sent_s, kind="stable")
        sent_s, rtt_ms = sent_s[order], rtt_ms[order]
        slots = grid.slots(sent_s)
        numbers, index = np.unique(slots, return_inverse=True)
        floors = np.array([np.percentile(rtt_ms[slots == slot], 2) for slot in numbers])
        return cls(sent_s, rtt_ms - floors[index], floors, grid.phases_s(sent_s), index)

    @property
    def interval_s(self) -> float:
        """Median time between two probes."""
        return float(np.median(np.diff(self.sent_s)))

    @property
    def is_wait(self) -> FloatArray:
        """Whether each probe shows a wait: it is neither near a mark nor in an outage."""
        settled = (self.phases_s > SETTLED_S) & (self.phases_s < self.phases_s.max() - 0.1)
        return settled & (self.excess_ms < STALL_MS)


def round_trip_parts(logs: list[Probes], period_s: float) -> dict[str, Any]:
    """Return the tables `round_trip` and `reconfiguration` of a profile, fitted to `logs`."""
    waits = np.concatenate([log.excess_ms[log.is_wait] for log in logs])
    target = np.quantile(waits, _core.access_ranks())
    # The floor is the 2nd percentile of a slot, so that some waits are negative.
    shift = float(min(0.0, target[0]))
    floors = np.concatenate([log.floors_ms for log in logs]) + shift
    wait = fitted_wait(target - shift, logs, period_s)
    return {
        "round_trip": {
            "floor_ms": process(np.quantile(floors, _core.access_ranks()), period_s, slot=1.0),
            "wait_ms": wait,
        },
        **reconfiguration(logs, wait),
    }


def process(
    quantiles: FloatArray, every_s: float, *, slot: float = 0.0, slow: float = 0.0, slow_s: float = 0
) -> dict[str, Any]:
    """Return the table of a process: its quantiles at the core's ranks, and its memory."""
    table: dict[str, Any] = {
        "quantiles": [float(f"{value:.4g}") for value in np.maximum.accumulate(quantiles)],
        "every": f"{round(every_s * 1e6)} us",
    }
    if slot:
        table["slot"] = round(slot, 3)
    if slow:
        table |= {"slow": round(slow, 3), "slow_time": f"{round(slow_s * 1e3)} ms"}
    return table


def fitted_wait(target: FloatArray, logs: list[Probes], period_s: float) -> dict[str, Any]:
    """Return the process of waits whose probes have the quantiles `target` and the logs' memory.

    A packet cannot overtake those before it, so that the waits that probes see are longer than the
    drawn ones after a fall; the quantiles of the draw are corrected until the probes' match.
    """
    interval_s = float(np.median([log.interval_s for log in logs]))
    wanted = np.mean([memory(log.excess_ms, log.is_wait) for log in logs], axis=0)
    best: tuple[float, dict[str, Any]] | None = None
    for slot in (0.0, 0.1, 0.2, 0.3, 0.4):
        for slow in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5):
            for slow_s in (10 * interval_s, 30 * interval_s, 100 * interval_s) if slow else (0.0,):
                found = process(target, interval_s, slot=slot, slow=slow, slow_s=slow_s)
                seen = probed(found, period_s, seed=1, slots=40)
                miss = float(np.sum((memory(seen, np.full(len(seen), True)) - wanted) ** 2))
                if best is None or miss < best[0]:
                    best = (miss, found)
    assert best is not None
    return _corrected(best[1], target, period_s)


def _corrected(wait: dict[str, Any], target: FloatArray, period_s: float) -> dict[str, Any]:
    """Change the quantiles of a process until those of its probes are `target`."""
    quantiles = target.copy()
    for seed in range(8):
        seen = np.quantile(probed({**wait, "quantiles": list(quantiles)}, period_s, seed), RANKS)
        quantiles = np.maximum.accumulate(np.maximum(0.0, quantiles + 0.7 * (target - seen)))
    return {**wait, "quantiles": [float(f"{value:.4g}") for value in quantiles]}


RANKS = np.array(_core.access_ranks())


def probed(wait: dict[str, Any], period_s: float, seed: int, slots: int = 200) -> FloatArray:
    """Waits in ms that probes see over a process, one probe per step in the middle of it."""
    every_ms = float(wait["every"].removesuffix(" us")) / 1e3
    of_a_slot = max(1, round(period_s * 1e3 / every_ms))
    drawn = np.array(_core.draw_process(json.dumps(wait), of_a_slot * slots, of_a_slot, seed))
    sent_ms = np.arange(len(drawn)) * every_ms
    return np.maximum.accumulate(sent_ms + drawn) - sent_ms


def memory(values: FloatArray, counts: FloatArray) -> FloatArray:
    """Autocorrelation at `LAGS` of the values that count."""
    deviation = np.where(counts, values, np.nan)
    deviation = deviation - np.nanmean(deviation)
    variance = np.nanmean(deviation**2)
    return np.array([np.nanmean(deviation[lag:] * deviation[:-lag]) / variance for lag in LAGS])


def reconfiguration(logs: list[Probes], wait: dict[str, Any]) -> dict[str, Any]:
    """Return the table `reconfiguration`: holes at the marks, and the waits that follow them."""
    holes, marks, settling = [], 0, []
    for log in logs:
        found = _holes(log)
        marks += found[1]
        holes += found[0]
        settling += found[2]
    if not holes:
        return {}
    begins_ms, lasts_ms = np.array(holes).T
    usual = float(np.mean(np.concatenate([log.excess_ms[log.is_wait] for log in logs])))
    return {
        "reconfiguration": {
            "share": round(len(holes) / marks, 3),
            "hole_ms": [float(f"{v:.3g}") for v in np.quantile(lasts_ms, RANKS)],
            "begin_ms": [float(f"{v:.3g}") for v in np.quantile(begins_ms, RANKS)],
            "settling_ms": 250.0,
            "settling_factor": round(max(1.0, float(np.mean(settling)) / usual), 2),
        }
    }


def _holes(log: Probes) -> tuple[list[tuple[float, float]], int, list[float]]:
    """Holes of a log as (begin after the mark, duration) in ms, number of marks, waits after holes."""
    holes, settling, marks = [], [], 0
    half_ms = log.interval_s * 500
    period_s = float(log.phases_s.max())
    since_s = np.where(log.phases_s > period_s / 2, log.phases_s - period_s, log.phases_s)
    mark = log.slots + (log.phases_s > period_s / 2)
    for number in np.unique(mark):
        near = np.flatnonzero((mark == number) & (since_s > -0.2) & (since_s < 0.6))
        if len(near) < 10 or since_s[near[0]] > -0.1 or since_s[near[-1]] < 0.4:
            continue
        marks += 1
        first = near[since_s[near] < 0.3][np.argmax(log.excess_ms[near[since_s[near] < 0.3]])]
        excess = float(log.excess_ms[first])
        if excess < HOLE_MS:
            continue
        usual = float(np.median(log.excess_ms[near]))
        begin_ms, lasts_ms = since_s[first] * 1e3 - half_ms, excess - usual + half_ms
        holes.append((begin_ms, lasts_ms))
        end_s = (begin_ms + lasts_ms) / 1e3
        after = near[(since_s[near] > end_s) & (since_s[near] < end_s + 0.25)]
        settling += list(log.excess_ms[after])
    return holes, marks, settling
