"""Fit of access profiles to series in equal steps: rates, one-way delays and loss of one direction.

Times are in seconds, delays in milliseconds, rates in Mbit/s, shares and losses from 0 to 1.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from skyhop.analysis.access_process import (
    by_slot,
    events_by_slot,
    normal_scores,
    of_steps,
    quantile_table,
)
from skyhop.analysis.portrait_grid import Grid
from skyhop.data.arrays import BoolArray, FloatArray, IntArray
from skyhop.telemetry.measured_link import Series

BEFORE_MARK_S, AFTER_MARK_S = 2.0, 1.0
"""Parts of a slot that the fit looks at by phase; the rest counts as the middle of the slot."""
PHASE_STEP_S = 0.1
PHASE_NOTABLE = 0.07
"""Deviation from the middle of the slot from which on a phase has a factor of its own."""
LOWEST = 0.001
"""Rank of the wait that counts as none."""
SIGNIFICANT = 3.0
"""Standard errors by which a part of a slot deviates to have a factor of its own."""
HOLE_FROM_S, HOLE_REACH_S = -0.1, 0.5
"""Time around a mark in which delays may show a hole."""
LEAST_RUNS = 5
"""Number of bursts from which on a kind of them is fitted."""


@dataclass(frozen=True)
class Steps:
    """Steps of one direction, by their slots.

    Attributes:
        period_s: duration of a slot.
        step_s: duration of a step.
        slots: number of each step's slot, counted from the first.
        since_s: time from the last mark to the begin of each step.
    """

    period_s: float
    step_s: float
    slots: IntArray
    since_s: FloatArray

    @classmethod
    def of(cls, series: Series, start_ns: int, grid: Grid) -> Steps:
        """Return the steps of a measured series."""
        count = max(
            len(values)
            for values in (series.rate_mbps, series.delay_ms, series.loss)
            if values is not None
        )
        begins_s = series.begin_s + np.arange(count, dtype=np.float64) * series.step_s
        slots, since_s = grid.phases(start_ns, begins_s)
        return cls(grid.period_s, series.step_s, slots - slots[0], since_s)

    @cached_property
    def middle(self) -> BoolArray:
        """Whether each step is in the middle of its slot."""
        return (self.since_s > AFTER_MARK_S) & (self.since_s < self.period_s - BEFORE_MARK_S)


def way_parts(series: Series, steps: Steps) -> dict[str, Any]:
    """Return the table of one direction of a profile, with the parts that the series can tell."""
    parts: dict[str, Any] = {}
    if series.delay_ms is not None:
        parts |= _delay_parts(steps, series.delay_ms)
    if series.rate_mbps is not None:
        parts["rate"] = _rate_parts(steps, series.rate_mbps)
    if series.loss is not None and np.any(series.loss > 0):
        levels = None if series.rate_mbps is None else _levels(steps, series.rate_mbps)
        parts["loss"] = {"bursts": _bursts(steps, np.nan_to_num(series.loss), levels)}
    return parts


def _delay_parts(steps: Steps, delay_ms: FloatArray) -> dict[str, Any]:
    _, begins, index = np.unique(steps.slots, return_index=True, return_inverse=True)
    with warnings.catch_warnings():
        # Slots without a value have no floor.
        warnings.simplefilter("ignore", RuntimeWarning)
        parts = np.split(delay_ms, begins[1:])
        floors = np.array([np.nanpercentile(values, 2) for values in parts])
    excess = delay_ms - floors[index]
    counts = steps.middle & np.isfinite(excess)
    # The floor is the 2nd percentile of a slot, so that some waits are negative.
    shift = min(0.0, float(np.quantile(excess[counts], LOWEST)))
    return {
        "floor_ms": by_slot(floors[np.isfinite(floors)] + shift, steps.period_s),
        "wait_ms": of_steps(np.maximum(excess - shift, 0.0), counts, steps.step_s, with_slot=True),
    }


def holes_of_series(delay_ms: FloatArray, steps: Steps) -> list[tuple[float, float]]:
    """Holes at the marks as (begin after the mark, duration) in ms, from mean one-way delays.

    In a hole of the duration d a packet waits for what is left of it, so that the excess summed
    over time is d * d / 2.
    """
    holes = []
    half_s = steps.period_s / 2
    marks = steps.slots + (steps.since_s > half_s)
    since = np.where(steps.since_s > half_s, steps.since_s - steps.period_s, steps.since_s)
    begins = np.unique(marks, return_index=True)[1][1:]
    for delays, times_s in zip(np.split(delay_ms, begins), np.split(since, begins), strict=True):
        near = (times_s >= HOLE_FROM_S) & (times_s < HOLE_REACH_S)
        if not np.isfinite(delays[near]).any():
            continue
        excess = np.nan_to_num(delays[near] - np.nanmedian(delays))
        area_ms2 = float(np.sum(np.maximum(excess, 0.0))) * steps.step_s * 1e3
        if area_ms2 > 0:
            lasts_ms = float(np.sqrt(2 * area_ms2))
            peak_ms = float(times_s[near][np.argmax(excess)] + steps.step_s / 2) * 1e3
            holes.append((peak_ms - lasts_ms / 2, lasts_ms))
    return holes


def _levels(steps: Steps, rate_mbps: FloatArray) -> FloatArray:
    """Mean rate in the middle of each slot; NaN where it is not known."""
    index = _slot_indices(steps)
    known = steps.middle & np.isfinite(rate_mbps)
    with np.errstate(invalid="ignore"):
        return np.bincount(index, np.where(known, rate_mbps, 0.0)) / np.bincount(index, known)


def _slot_indices(steps: Steps) -> IntArray:
    """Place of each step's slot among the slots."""
    return np.unique(steps.slots, return_inverse=True)[1]


def _rate_parts(steps: Steps, rate_mbps: FloatArray) -> dict[str, Any]:
    index, levels = _slot_indices(steps), _levels(steps, rate_mbps)
    known = steps.middle & np.isfinite(rate_mbps)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = np.where(levels[index] > 0, rate_mbps / levels[index], np.nan)
    counts = known & np.isfinite(ratios)
    levels = levels[np.isfinite(levels)]
    return {
        "level_mbps": by_slot(levels, steps.period_s),
        "fluctuation": of_steps(ratios, counts, steps.step_s),
        "phases": _phases(steps, rate_mbps),
    }


def _phase_parts(steps: Steps) -> list[tuple[float, float, BoolArray]]:
    """Parts of a slot near its marks: begin and end after the mark, and the steps in each."""
    edges = np.arange(-BEFORE_MARK_S, AFTER_MARK_S + 1e-9, PHASE_STEP_S).round(3)
    period_s = steps.period_s
    since = np.where(steps.since_s > period_s / 2, steps.since_s - period_s, steps.since_s)
    return [(low, high, (since >= low) & (since < high)) for low, high in pairwise(edges)]


def _phases(steps: Steps, values: FloatArray) -> list[dict[str, float]]:
    """Factors of the parts near the marks, by the mean in the middle of slots.

    A part has a factor if it deviates by more than `PHASE_NOTABLE` and by `SIGNIFICANT` standard
    errors.
    """
    middle = values[steps.middle]
    usual, spread = float(np.nanmean(middle)), float(np.nanstd(middle))
    parts = []
    for low, high, inside in _phase_parts(steps):
        if not np.any(inside):
            continue
        factor = float(np.nanmean(values[inside])) / usual
        least = SIGNIFICANT * spread / usual / np.sqrt(np.count_nonzero(inside))
        if abs(factor - 1) > max(PHASE_NOTABLE, least):
            parts.append({"from_s": float(low), "until_s": float(high), "factor": round(factor, 3)})
    return parts


@dataclass(frozen=True)
class _Run:
    """Consecutive steps with losses: first step, duration and loss of the burst they stand for."""

    first: int
    lasts_ms: float
    loss: float
    is_short: bool


def _bursts(steps: Steps, loss: FloatArray, levels: FloatArray | None) -> list[dict[str, Any]]:
    """Bursts of two kinds: those within one step, and longer ones."""
    runs = _runs(steps, loss)
    kinds = [[run for run in runs if run.is_short is short] for short in (True, False)]
    return [
        _kind(steps, kind) | _level(steps, kind, levels)
        for kind in kinds
        if len(kind) >= LEAST_RUNS
    ]


def _level(steps: Steps, runs: list[_Run], levels: FloatArray | None) -> dict[str, Any]:
    """Return how the rate of bursts differs from slot to slot; empty if it does not."""
    index = _slot_indices(steps)
    counts = np.bincount(index[[run.first for run in runs]], minlength=int(index[-1]) + 1)
    # The first and the last slot are not whole.
    whole = slice(1, -1)
    scores = None
    if levels is not None and np.isfinite(levels[whole]).all():
        scores = normal_scores(levels[whole])
    found = events_by_slot(counts[whole].astype(np.float64), steps.period_s, scores)
    if found is None:
        return {}
    level, with_rate = found
    return {"level": level} | ({"with_rate": round(with_rate, 3)} if with_rate else {})


def _runs(steps: Steps, loss: FloatArray) -> list[_Run]:
    lossy = np.diff(np.concatenate([[0], (loss > 0).astype(int), [0]]))
    firsts, ends = np.flatnonzero(lossy == 1), np.flatnonzero(lossy == -1)
    step_ms = steps.step_s * 1e3
    runs = []
    for first, end in zip(firsts, ends, strict=True):
        mean = float(np.mean(loss[first:end]))
        if end - first == 1:
            # The lost probes of a step are taken as consecutive: a burst in which all is lost.
            runs.append(_Run(int(first), mean * step_ms, 1.0, is_short=True))
        else:
            # A burst begins and ends within steps, so that it is shorter than the steps it touches.
            shorter = end - first - 1
            loss_inside = min(1.0, mean * (end - first) / shorter)
            runs.append(_Run(int(first), shorter * step_ms, loss_inside, is_short=False))
    return runs


def _kind(steps: Steps, runs: list[_Run]) -> dict[str, Any]:
    begins = np.zeros(len(steps.since_s))
    for run in runs:
        inside = slice(run.first + 1, run.first + 1 + int(run.lasts_ms / steps.step_s / 1e3))
        begins[inside] = np.nan
        begins[run.first] = 1
    lasts = np.array([run.lasts_ms for run in runs])
    # Durations and losses are drawn independently, so that their product has to keep its mean.
    losses = np.array([run.loss for run in runs])
    losses = np.minimum(losses * (np.mean(lasts * losses) / lasts.mean() / losses.mean()), 1.0)
    usual = float(np.nanmean(begins[steps.middle]))
    phases = _phases(steps, begins) if usual > 0 else []
    for part in phases:
        # The share of steps in which a burst begins, as the rate of a process.
        share = min(0.99, usual * part["factor"])
        part["factor"] = round(float(np.log1p(-share) / np.log1p(-usual)), 2)
    return {
        "per_second": float(f"{-np.log1p(-usual) / steps.step_s:.4g}"),
        "phases": phases,
        "lasts_ms": quantile_table(lasts),
        "loss": quantile_table(losses),
    }
