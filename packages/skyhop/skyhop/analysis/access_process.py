"""Processes of access profiles: their tables, and the memory that a series shows.

A process has a distribution, by its quantiles at the core's ranks, and a memory, by the shares of
the variance of its normal scores (`crates/access/src/process.rs`).
"""

from __future__ import annotations

import json
from statistics import NormalDist
from typing import Any

import numpy as np

from skyhop import _core
from skyhop.data.arrays import BoolArray, FloatArray, IntArray

RANKS = np.array(_core.access_ranks())
"""Ranks of the values in tables of quantiles."""
NORMAL_SCORES = np.array([NormalDist().inv_cdf(rank) for rank in RANKS])
"""Quantiles of the standard normal distribution at `RANKS`."""
_PAIRS = 20_000
_LEAST_PAIRS = 4
_LAGS = np.array([1, 2, 5, 10, 20, 50])
_SLOT_LAGS = (1, 2, 4, 8)
_NOTABLE = 0.02
"""Autocorrelation below which a process counts as without memory."""
_SIGNIFICANT = 3.0
"""Standard errors from which on counts vary more than those of independent events."""
_NOTABLE_SLOT = 0.1
"""The same for values by slot, of which there are few."""


def quantile_table(values: FloatArray) -> list[float]:
    """Return the quantiles of values at the core's ranks, with four digits."""
    return [float(f"{value:.4g}") for value in np.quantile(values, RANKS)]


def process(
    quantiles: FloatArray,
    every_s: float,
    *,
    slot: float = 0.0,
    slow: float = 0.0,
    slow_s: float = 0.0,
) -> dict[str, Any]:
    """Return the table of a process: its quantiles at the core's ranks, and its memory."""
    table: dict[str, Any] = {
        "quantiles": [float(f"{value:.4g}") for value in np.maximum.accumulate(quantiles)],
        "every": f"{every_s * 1e3:.6g} ms",
    }
    if slot:
        table["slot"] = round(slot, 3)
    if slow:
        table |= {"slow": round(slow, 3), "slow_time": f"{round(slow_s * 1e3)} ms"}
    return table


def of_steps(
    values: FloatArray, counts: BoolArray, step_s: float, *, with_slot: bool = False
) -> dict[str, Any]:
    """Return a process with the distribution and the memory of values in equal steps.

    Args:
        values: values of all steps.
        counts: whether each step counts.
        step_s: duration of a step.
        with_slot: whether what is left of the memory after 50 steps belongs to the slot.
    """
    slot, slow, slow_s = _shares(values, counts, step_s, with_slot=with_slot)
    return process(np.quantile(values[counts], RANKS), step_s, slot=slot, slow=slow, slow_s=slow_s)


def by_steps(series: list[FloatArray], period_s: float, other: FloatArray) -> dict[str, Any]:
    """Return a process with one value for each slot, whose median step is as measured.

    Floors change between a few levels, so that a few large steps would govern their
    autocorrelation.

    Args:
        series: values of consecutive slots, one array for each log.
        period_s: duration of a slot.
        other: what something else adds to the values of slots, independent from slot to slot.
    """
    quantiles = np.quantile(np.concatenate(series), RANKS)
    wanted = float(np.median(np.concatenate([np.abs(np.diff(values)) for values in series])))
    best = (np.inf, 0.0)
    for slow_s in period_s * np.geomspace(0.1, 30, 30):
        table = process(quantiles, period_s, slow=1.0, slow_s=float(slow_s))
        drawn = np.array(_core.draw_process(json.dumps(table), len(other), 1, 1)) + other
        best = min(best, (abs(float(np.median(np.abs(np.diff(drawn)))) - wanted), float(slow_s)))
    return process(quantiles, period_s, slow=1.0, slow_s=best[1])


def by_slot(values: FloatArray, period_s: float) -> dict[str, Any]:
    """Return a process with one value for each slot, whose memory lasts over slots."""
    quantiles = np.quantile(values, RANKS)
    lags = np.array([lag for lag in _SLOT_LAGS if _LEAST_PAIRS * lag < len(values)], dtype=int)
    wanted = score_correlations(quantiles, _correlations(values, lags))
    if not len(wanted) or wanted[0] <= _NOTABLE_SLOT:
        return process(quantiles, period_s)
    slow, slow_s = _exponential(lags * period_s, wanted, period_s)
    return process(quantiles, period_s, slow=slow, slow_s=slow_s)


def events_by_slot(
    counts: FloatArray, period_s: float, rate_scores: FloatArray | None
) -> tuple[dict[str, Any], float] | None:
    """Return the rate of events in each slot as a ratio to its mean, and how it goes with the rate.

    Counts of independent events vary by their mean. What they vary in addition is the ratio's, with
    a lognormal distribution (a Cox process).

    Args:
        counts: number of events in each slot.
        period_s: duration of a slot.
        rate_scores: normal scores of the capacity of each slot.

    Returns:
        The process, and the correlation of its scores with `rate_scores`; `None` if the counts vary
        as those of independent events.
    """
    mean = float(counts.mean())
    index_of_dispersion = float(counts.var()) / mean
    if index_of_dispersion - 1 < _SIGNIFICANT * np.sqrt(2 / len(counts)):
        return None
    variance = float(np.log1p((index_of_dispersion - 1) / mean))
    deviation = counts - mean
    with_rate, of_rate = 0.0, np.zeros(len(_SLOT_LAGS))
    lags = np.array(_SLOT_LAGS, dtype=int)
    if rate_scores is not None:
        shared = deviation * rate_scores
        if abs(shared.mean()) > _SIGNIFICANT * shared.std() / np.sqrt(len(shared)):
            with_rate = float(np.clip(shared.mean() / mean / np.sqrt(variance), -0.95, 0.95))
            of_rate = _correlations(rate_scores, lags)
    together = np.array([np.mean(deviation[lag:] * deviation[:-lag]) for lag in lags]) / mean**2
    correlations = np.log1p(np.maximum(together, -0.5)) / variance
    own = (correlations - with_rate**2 * of_rate) / (1 - with_rate**2)
    slow, slow_s = _exponential(lags * period_s, own, period_s)
    if own[0] <= _NOTABLE_SLOT:
        slow, slow_s = 0.0, 0.0
    return process(_lognormal_table(variance), period_s, slow=slow, slow_s=slow_s), with_rate


def _lognormal_table(variance: float) -> FloatArray:
    """Return the quantiles of a lognormal distribution whose table has the mean 1."""
    quantiles = np.exp(np.sqrt(variance) * NORMAL_SCORES)
    scores = np.random.default_rng(1).standard_normal(_PAIRS)
    return np.asarray(quantiles / np.interp(scores, NORMAL_SCORES, quantiles).mean())


def normal_scores(values: FloatArray) -> FloatArray:
    """Return the normal scores of values by their ranks."""
    ranks = (np.argsort(np.argsort(values)) + 0.5) / len(values)
    return np.array([NormalDist().inv_cdf(rank) for rank in ranks])


def _correlations(values: FloatArray, lags: IntArray) -> FloatArray:
    """Return the autocorrelation at lags; missing values are NaN."""
    deviation = values - np.nanmean(values)
    variance = np.nanmean(deviation**2)
    if variance == 0:
        return np.zeros(len(lags))
    found = [np.nanmean(deviation[lag:] * deviation[:-lag]) / variance for lag in lags]
    return np.asarray(found, dtype=np.float64)


def score_correlations(quantiles: FloatArray, wanted: FloatArray) -> FloatArray:
    """Return the correlations of normal scores that give values the correlations `wanted`.

    Values with a long tail correlate less than their scores.
    """
    first, other = np.random.default_rng(1).standard_normal((2, _PAIRS))
    values = np.interp(first, NORMAL_SCORES, quantiles)
    if values.std() == 0:
        return np.zeros(len(wanted))
    steps = np.linspace(0.0, 1.0, 21)
    seen = [
        np.corrcoef(
            values,
            np.interp(step * first + np.sqrt(1 - step**2) * other, NORMAL_SCORES, quantiles),
        )[0, 1]
        for step in steps
    ]
    return np.asarray(np.interp(wanted, np.maximum.accumulate(seen), steps), dtype=np.float64)


def _shares(
    values: FloatArray, counts: BoolArray, step_s: float, *, with_slot: bool
) -> tuple[float, float, float]:
    """Return the shares of the score's variance (slot, slow), and the slow share's time in s."""
    known = np.where(counts, values, np.nan)
    quantiles = np.quantile(values[counts], RANKS)
    wanted = score_correlations(quantiles, _correlations(known, _LAGS))
    slot = float(np.clip(wanted[-1], 0.0, 0.9)) if with_slot else 0.0
    rest = wanted - slot
    if rest[0] < _NOTABLE:
        return slot, 0.0, 0.0
    slow, slow_s = _exponential(_LAGS * step_s, rest, step_s)
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
