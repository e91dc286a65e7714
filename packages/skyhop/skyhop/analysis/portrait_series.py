"""Rows and curves of a portrait from a direction's series: rates, slots, losses, one-way delays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from skyhop.analysis.portrait_curves import Curve, around_marks, quantiles, share_below
from skyhop.analysis.portrait_grid import Grid
from skyhop.analysis.portrait_rows import (
    RATE_QUANTILES,
    RUN_QUANTILES,
    SLOT_LAGS,
    SLOT_QUANTILES,
    STEP_LAGS_MS,
    quantile_name,
)
from skyhop.data.arrays import FloatArray, IntArray
from skyhop.telemetry.measured_link import Direction, Series

_WHOLE = 0.9
"""Least share of a slot's steps that are known, so that the slot has a mean."""
_LEAST_SLOTS = 8
"""Least number of pairs of slots for a correlation."""
_PART_S = 0.5
"""Length of the first and the last part of a slot in seconds."""
_COARSEST_S = 0.25
"""Longest step in seconds for rows by phase."""
_DIP_S = (1.5, 1.0)
"""Begin and end of the dip before a mark, in seconds before it."""
_MIDDLE_S = (3.0, 2.0)
"""Time in seconds after a mark, and before the next one, that is not mid-slot."""
_AROUND_S = (-3.0, 3.0)
_LAGS = 16
"""Largest lag of the curve of the slots' correlation, in slots."""
_PER_MS = 1e3


def series_rows(way: Direction, series: Series, start_ns: int, grid: Grid) -> dict[str, float]:
    """Return the values of a portrait's rows that a direction's series tells, by key."""
    slots, phases_s = _phases(series, start_ns, grid)
    values: dict[str, float] = {}
    if series.rate_mbps is not None:
        values |= quantiles(series.rate_mbps, RATE_QUANTILES, lambda q: f"rate_{_name(q)}_mbps")
        values |= dict(_of_slots(series.rate_mbps, slots, series.step_s, grid.period_s))
    if series.loss is not None:
        values |= _of_losses(series.loss)
    if grid.mark_s is not None and series.step_s <= _COARSEST_S:
        values |= dict(_by_phase(series, phases_s, grid.period_s))
    return {f"{way}_{key}": value for key, value in values.items() if np.isfinite(value)}


def series_curves(way: Direction, series: Series, start_ns: int, grid: Grid) -> dict[str, Curve]:
    """Return the curves of a portrait that a direction's series tells, by panel."""
    slots, phases_s = _phases(series, start_ns, grid)
    curves: dict[str, Curve] = {}
    if series.rate_mbps is not None:
        curves["rate"] = share_below(series.rate_mbps)
        means = _slot_means(series.rate_mbps, slots, series.step_s, grid.period_s)
        lags = np.arange(1, _LAGS + 1)
        known = np.array([_correlation(means, lag) for lag in lags.tolist()])
        if np.isfinite(known).any():
            curves["slots"] = Curve(lags.astype(np.float64), known)
    if grid.mark_s is not None and series.step_s <= _COARSEST_S:
        around = {
            "rate_around": series.rate_mbps,
            "loss_around": None if series.loss is None else 100 * series.loss,
            "delay_around": series.delay_ms,
        }
        for name, values in around.items():
            if values is not None:
                curves[name] = around_marks(
                    phases_s, values, grid.period_s, series.step_s, _AROUND_S
                )
    return {f"{way}_{name}": curve for name, curve in curves.items()}


def _name(per_cent: float) -> str:
    return quantile_name(per_cent)


def _phases(series: Series, start_ns: int, grid: Grid) -> tuple[IntArray, FloatArray]:
    """Return the slot and the phase (s) of the beginning of each step."""
    lengths = [len(v) for v in (series.rate_mbps, series.delay_ms, series.loss) if v is not None]
    steps = np.arange(max(lengths, default=0), dtype=np.float64)
    begins_s: FloatArray = series.begin_s + steps * series.step_s
    return grid.phases(start_ns, begins_s)


def _of_slots(
    rate_mbps: FloatArray, slots: IntArray, step_s: float, period_s: float
) -> Iterator[tuple[str, float]]:
    """Yield the rows of slot means, and of the fluctuation within slots."""
    means = _slot_means(rate_mbps, slots, step_s, period_s)
    yield from quantiles(means, SLOT_QUANTILES, lambda q: f"slot_{_name(q)}_mbps").items()
    for lag in SLOT_LAGS:
        yield f"slot_correlation_{lag}", _correlation(means, lag)
    whole = [
        rate_mbps[slots == slot] for slot in np.arange(len(means))[np.isfinite(means)] + slots[0]
    ]
    spreads = [float(np.nanstd(part) / np.nanmean(part)) for part in whole if np.nanmean(part) > 0]
    if step_s > 1 or not spreads:
        return
    yield "within_spread", float(np.median(spreads))
    for lag_ms in STEP_LAGS_MS:
        apart = lag_ms / _PER_MS / step_s
        if apart > 0.9 and abs(apart - round(apart)) < 0.1:  # noqa: PLR2004
            yield f"within_correlation_{lag_ms}ms", _within(whole, round(apart))


def _slot_means(
    rate_mbps: FloatArray, slots: IntArray, step_s: float, period_s: float
) -> FloatArray:
    """Return the mean of each slot, from the first to the last; NaN if most of it is missing."""
    place, known = slots - slots[0], np.isfinite(rate_mbps)
    counts = np.bincount(place, known)
    sums = np.bincount(place, np.where(known, rate_mbps, 0))
    is_whole = counts >= _WHOLE * period_s / step_s
    return np.asarray(np.where(is_whole, sums / np.maximum(counts, 1), np.nan))


def _correlation(values: FloatArray, lag: int) -> float:
    """Return the correlation of values with those `lag` places later; NaN for too few pairs."""
    first, later = values[:-lag], values[lag:]
    known = np.isfinite(first) & np.isfinite(later)
    first, later = first[known], later[known]
    if len(first) < _LEAST_SLOTS or first.std() == 0 or later.std() == 0:
        return np.nan
    return float(np.corrcoef(first, later)[0, 1])


def _within(slots: list[FloatArray], apart: int) -> float:
    """Return the autocorrelation of deviations from the slot's mean, over all slots."""
    deviations = [part - np.nanmean(part) for part in slots]
    products = np.concatenate([part[:-apart] * part[apart:] for part in deviations])
    variance = float(np.nanmean(np.concatenate(deviations) ** 2))
    if variance == 0 or not np.isfinite(products).any():
        return np.nan
    return float(np.nanmean(products)) / variance


def _of_losses(loss: FloatArray) -> dict[str, float]:
    """Return the rows of losses without their phases."""
    known = loss[np.isfinite(loss)]
    if not len(known):
        return {}
    changes = np.flatnonzero(
        np.diff((np.nan_to_num(loss) > 0).astype(np.int8), prepend=0, append=0)
    )
    runs = (changes[1::2] - changes[::2]).astype(np.float64)
    return {
        "loss_percent": 100 * float(known.mean()),
        "loss_steps_percent": 100 * float((known > 0).mean()),
        **quantiles(runs, RUN_QUANTILES, lambda q: f"loss_run_{_name(q)}"),
    }


def _by_phase(series: Series, phases_s: FloatArray, period_s: float) -> Iterator[tuple[str, float]]:
    """Yield the rows by the time from the mark: losses, rates and one-way delays."""
    phases_s = phases_s + 1e-6 * series.step_s
    first = phases_s < _PART_S
    last = phases_s >= period_s - _PART_S
    before = (phases_s >= period_s - _DIP_S[0]) & (phases_s < period_s - _DIP_S[1])
    middle = (phases_s >= _MIDDLE_S[0]) & (phases_s < period_s - _MIDDLE_S[1])
    if series.loss is not None:
        for name, part in (("first", first), ("last", last), ("elsewhere", ~first & ~last)):
            yield f"loss_{name}_percent", 100 * _mean(series.loss[part])
    if series.rate_mbps is not None:
        yield "rate_before_mbps", _mean(series.rate_mbps[before])
        yield "rate_middle_mbps", _mean(series.rate_mbps[middle])
    if series.delay_ms is not None:
        for name, part in (("first", first), ("last", last), ("middle", middle)):
            yield f"delay_{name}_ms", _mean(series.delay_ms[part])


def _mean(values: FloatArray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else np.nan
