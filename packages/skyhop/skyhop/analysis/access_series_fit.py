"""Fit of access profiles to series in equal steps: rates, one-way delays and loss of one direction.

Times are in seconds, delays in milliseconds, rates in Mbit/s, shares and losses from 0 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import numpy as np

from skyhop.analysis.access_fit import RANKS, Grid, process
from skyhop.data.arrays import BoolArray, FloatArray, IntArray

BEFORE_MARK_S, AFTER_MARK_S = 2.0, 1.0
"""Parts of a slot that the fit looks at by phase; the rest counts as the middle of the slot."""
PHASE_STEP_S = 0.25
PHASE_NOTABLE = 0.07
"""Deviation from the middle of the slot from which on a phase has a factor of its own."""
LOST_PROBE_MS = 10.0
"""Time that a single lost probe of a step stands for, unless the log says how often it probes."""
FIVE_TIMES = 5.0


@dataclass(frozen=True)
class Series:
    """One direction of an access link in equal steps; absent columns are None."""

    times_s: FloatArray
    grid: Grid
    rate_mbps: FloatArray | None = None
    delay_ms: FloatArray | None = None
    loss: FloatArray | None = None
    probes_of_a_step: int = 10

    @cached_property
    def step_s(self) -> float:
        """Median time between two steps."""
        return float(np.median(np.diff(self.times_s)))

    @cached_property
    def slots(self) -> IntArray:
        """Number of the slot of each step, counted from the first."""
        slots = self.grid.slots(self.times_s)
        return slots - slots[0]

    @cached_property
    def since_s(self) -> FloatArray:
        """Time since the last mark."""
        return self.grid.phases_s(self.times_s)

    @cached_property
    def middle(self) -> BoolArray:
        """Whether each step is in the middle of its slot."""
        return (self.since_s > AFTER_MARK_S) & (self.since_s < self.grid.period_s - BEFORE_MARK_S)


def way_parts(series: Series) -> dict[str, Any]:
    """Return the table of one direction of a profile, with the parts that the series can tell."""
    parts: dict[str, Any] = {}
    if series.delay_ms is not None:
        parts |= _delay_parts(series, series.delay_ms)
    if series.rate_mbps is not None:
        parts["rate"] = _rate_parts(series, series.rate_mbps)
    if series.loss is not None and np.any(series.loss > 0):
        parts["loss"] = {"bursts": _bursts(series, series.loss)}
    return parts


def _delay_parts(series: Series, delay_ms: FloatArray) -> dict[str, Any]:
    numbers, index = np.unique(series.slots, return_inverse=True)
    floors = np.array([np.percentile(delay_ms[series.slots == slot], 2) for slot in numbers])
    excess = delay_ms - floors[index]
    target = np.quantile(excess[series.middle], RANKS)
    shift = min(0.0, float(target[0]))
    slot, slow, slow_s = _memory(excess, series.middle, series.step_s, with_slot=True)
    return {
        "floor_ms": _by_slot(floors + shift, series.grid.period_s),
        "wait_ms": process(target - shift, series.step_s, slot=slot, slow=slow, slow_s=slow_s),
    }


def _rate_parts(series: Series, rate_mbps: FloatArray) -> dict[str, Any]:
    numbers, index = np.unique(series.slots, return_inverse=True)
    levels = np.array([
        np.mean(values) if len(values := rate_mbps[(series.slots == slot) & series.middle]) else 0.0
        for slot in numbers
    ])
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = np.where(levels[index] > 0, rate_mbps / levels[index], np.nan)
    counts = series.middle & np.isfinite(ratios)
    quantiles = np.quantile(ratios[counts], RANKS)
    _, slow, slow_s = _memory(ratios, counts, series.step_s, with_slot=False)
    return {
        "level_mbps": _by_slot(levels, series.grid.period_s),
        "fluctuation": process(quantiles, series.step_s, slow=slow, slow_s=slow_s),
        "phases": _phases(series, rate_mbps),
    }


def _by_slot(values: FloatArray, period_s: float) -> dict[str, Any]:
    """Return a process with one value for each slot, whose memory lasts over slots."""
    scores = normal_scores(values)
    lags = [lag for lag in (1, 2, 4, 8) if 4 * lag < len(values)]
    wanted = np.array([float(np.mean(scores[lag:] * scores[:-lag])) for lag in lags])
    slow, slow_s = 0.0, 0.0
    if len(wanted) and wanted[0] > 0.1:
        slow, slow_s = _exponential(np.array(lags) * period_s, wanted, period_s)
    return process(np.quantile(values, RANKS), period_s, slow=slow, slow_s=slow_s)


def _memory(
    values: FloatArray, counts: BoolArray, step_s: float, *, with_slot: bool
) -> tuple[float, float, float]:
    """Shares of the score's variance (slot, slow) and time constant of the slow share in s."""
    scores = np.full(len(values), np.nan)
    scores[counts] = normal_scores(values[counts])
    lags = np.array([1, 2, 5, 10, 20, 50])
    wanted = np.array([float(np.nanmean(scores[lag:] * scores[:-lag])) for lag in lags])
    slot = float(np.clip(wanted[-1], 0.0, 0.9)) if with_slot else 0.0
    rest = wanted - slot
    if rest[0] < 0.02:
        return slot, 0.0, 0.0
    slow, slow_s = _exponential(lags * step_s, rest, step_s)
    return slot, min(slow, 1.0 - slot), slow_s


def _exponential(times_s: FloatArray, wanted: FloatArray, step_s: float) -> tuple[float, float]:
    """Share and time constant of the exponential that is nearest to an autocorrelation."""
    best = (np.inf, 0.0, step_s)
    for slow_s in step_s * np.geomspace(0.5, 100, 40):
        shape = np.exp(-times_s / slow_s)
        share = float(np.clip(shape @ wanted / (shape @ shape), 0.0, 1.0))
        miss = float(np.sum((share * shape - wanted) ** 2))
        best = min(best, (miss, share, float(slow_s)))
    return best[1], best[2]


def normal_scores(values: FloatArray) -> FloatArray:
    """Quantiles of the standard normal distribution at the ranks of the values."""
    ranks = np.empty(len(values))
    ranks[np.argsort(values, kind="stable")] = (np.arange(len(values)) + 0.5) / len(values)
    normal = NormalDist()
    return np.array([normal.inv_cdf(rank) for rank in ranks])


def _phase_parts(series: Series) -> list[tuple[float, float, BoolArray]]:
    """Parts of a slot near its marks: begin and end after the mark, and the steps in each."""
    edges = np.arange(-BEFORE_MARK_S, AFTER_MARK_S + 1e-9, PHASE_STEP_S)
    period_s = series.grid.period_s
    since = np.where(series.since_s > period_s / 2, series.since_s - period_s, series.since_s)
    return [(low, high, (since >= low) & (since < high)) for low, high in pairwise(edges)]


def _phases(series: Series, values: FloatArray) -> list[dict[str, float]]:
    """Factors of the parts near the marks, by the mean in the middle of slots."""
    usual = float(np.mean(values[series.middle]))
    factors = [
        (low, high, float(np.mean(values[inside])) / usual)
        for low, high, inside in _phase_parts(series)
        if np.any(inside)
    ]
    notable = [part for part in factors if abs(part[2] - 1) > PHASE_NOTABLE]
    return [
        {"from_s": float(low), "until_s": float(high), "factor": round(factor, 3)}
        for low, high, factor in notable
    ]


@dataclass(frozen=True)
class _Run:
    """Consecutive steps with losses: first step, duration and loss of the burst they stand for."""

    first: int
    lasts_ms: float
    loss: float
    is_short: bool


def _bursts(series: Series, loss: FloatArray) -> list[dict[str, Any]]:
    """Bursts of two kinds: those within one step, and longer ones."""
    runs = _runs(series, loss)
    kinds = [[run for run in runs if run.is_short is short] for short in (True, False)]
    return [_kind(series, kind) for kind in kinds if len(kind) >= FIVE_TIMES]


def _runs(series: Series, loss: FloatArray) -> list[_Run]:
    lossy = np.diff(np.concatenate([[0], (loss > 0).astype(int), [0]]))
    firsts, ends = np.flatnonzero(lossy == 1), np.flatnonzero(lossy == -1)
    step_ms = series.step_s * 1e3
    runs = []
    for first, end in zip(firsts, ends, strict=True):
        mean = float(np.mean(loss[first:end]))
        if end - first == 1:
            # The lost probes of a step are taken as consecutive: a burst in which all is lost.
            runs.append(_Run(int(first), mean * step_ms, 1.0, is_short=True))
        else:
            runs.append(_Run(int(first), (end - first) * step_ms, mean, is_short=False))
    return runs


def _kind(series: Series, runs: list[_Run]) -> dict[str, Any]:
    begins = np.zeros(len(series.times_s))
    begins[[run.first for run in runs]] = 1
    usual = float(np.mean(begins[series.middle])) / series.step_s
    lasts = np.array([run.lasts_ms for run in runs])
    losses = np.array([run.loss for run in runs])
    return {
        "per_second": float(f"{usual:.4g}"),
        "phases": _phases(series, begins) if usual > 0 else [],
        "lasts_ms": [float(f"{value:.4g}") for value in np.quantile(lasts, RANKS)],
        "loss": [float(f"{value:.4g}") for value in np.quantile(losses, RANKS)],
    }
