"""Means, ranges and sums over time bins, and empirical distributions."""

from __future__ import annotations

import numpy as np

from skyhop.data.arrays import FloatArray, IntArray

_ECDF_POINTS = 2000


def binned(t_s: FloatArray, values: FloatArray, width_s: float) -> tuple[FloatArray, FloatArray]:
    """Return the middles (s) of bins of `width_s` and the means of the values in them, without NaN.

    The time of a sample is the end of the interval that it describes, so a sample at `width_s` is
    in the first bin.
    """
    known = np.isfinite(values)
    bins = _bins(t_s[known], width_s)
    counts = np.bincount(bins)
    sums = np.bincount(bins, weights=values[known], minlength=len(counts))
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums / counts
    middles_s: FloatArray = (np.arange(len(means), dtype=np.float64) + 0.5) * width_s
    return middles_s, np.asarray(means, dtype=np.float64)


def binned_range(
    t_s: FloatArray, values: FloatArray, width_s: float
) -> tuple[FloatArray, FloatArray]:
    """Return the least and the greatest value in each bin of `binned`; NaN if a bin is empty."""
    known = np.isfinite(values)
    bins = _bins(t_s[known], width_s)
    count = int(bins.max()) + 1 if len(bins) else 0
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(low, bins, values[known])
    np.maximum.at(high, bins, values[known])
    low[np.isinf(low)], high[np.isinf(high)] = np.nan, np.nan
    return low, high


def binned_sum(t_s: FloatArray, values: FloatArray, edges_s: FloatArray) -> FloatArray:
    """Return sums (k,) over equal bins between `edges_s` (k + 1,).

    A sample at an edge is in the bin before the edge.
    """
    width_s, count = float(edges_s[1] - edges_s[0]), len(edges_s) - 1
    known = np.isfinite(values)
    # A last sample just after the last edge counts in the last bin, so that sums are complete.
    bins = np.minimum(_bins(t_s[known], width_s), count - 1)
    return np.bincount(bins, weights=values[known], minlength=count).astype(np.float64)


def ecdf(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return sorted values (no NaN) and the share at or below each, at most `_ECDF_POINTS`."""
    ordered = np.sort(values[np.isfinite(values)])
    share = np.arange(1, len(ordered) + 1) / max(len(ordered), 1)
    if len(ordered) > _ECDF_POINTS:
        kept = np.unique(np.linspace(0, len(ordered) - 1, _ECDF_POINTS).astype(np.int64))
        ordered, share = ordered[kept], share[kept]
    return ordered, share


def round_step(least: float) -> float:
    """Return the smallest number at or above `least` that is 1, 2 or 5 times a power of ten."""
    if least <= 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(least))
    return float(next(power * m for m in (1, 2, 5, 10) if power * m >= least * (1 - 1e-9)))


def _bins(t_s: FloatArray, width_s: float) -> IntArray:
    """Return the index of the bin of each sample, shape (n,)."""
    return np.maximum(np.ceil(t_s / width_s - 1e-9).astype(np.int64) - 1, 0)
