"""Figures over several flows at a time: what their shares of each bin amount to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from skyhop.analysis.binning import binned
from skyhop.analysis.statistics import jain
from skyhop.data.arrays import BoolArray, FloatArray, IntArray


def bins_of_flows(
    samples: Sequence[tuple[FloatArray, FloatArray]], width_s: float
) -> tuple[FloatArray, FloatArray]:
    """Return the ends (s) of bins (k,), and each flow's mean in each (n, k), NaN where it has none.

    Args:
        samples: of each flow, when they end (s) and their values.
        width_s: of the bins, the first of which begins at 0.
    """
    means = [binned(t_s, values, width_s)[1] for t_s, values in samples]
    count = max(map(len, means), default=0)
    padded = [np.pad(row, (0, count - len(row)), constant_values=np.nan) for row in means]
    ends_s = np.arange(1, count + 1, dtype=np.float64) * width_s
    return ends_s, np.array(padded, dtype=np.float64).reshape(len(means), count)


def means_of_flows(samples: Sequence[FloatArray]) -> FloatArray:
    """Return each flow's mean as the one bin that there is, shape (n, 1), NaN where it has none."""
    known = [values[np.isfinite(values)] for values in samples]
    return np.array([[values.mean() if len(values) else np.nan] for values in known])


def cut_off(shares: FloatArray, least: float | None, *, truncate: bool) -> FloatArray:
    """Return shares that are at least `least`, and cut to whole numbers where that is asked for."""
    bounded = shares if least is None else np.maximum(shares, least)
    return np.trunc(bounded) if truncate else bounded


def least_to_greatest(shares: FloatArray, _flow: int) -> FloatArray:
    """Return the least share of each bin over the greatest, shape (k,)."""
    return _ratio(shares.min(axis=0), shares.max(axis=0))


def one_to_others(shares: FloatArray, flow: int) -> FloatArray:
    """Return one flow's share of each bin over the greatest of the others', shape (k,)."""
    return _ratio(shares[flow], np.delete(shares, flow, axis=0).max(axis=0))


def sums(shares: FloatArray, first: int) -> FloatArray:
    """Return the sum of the shares before `first` over that of the others, shape (k,)."""
    return _ratio(shares[:first].sum(axis=0), shares[first:].sum(axis=0))


def total(shares: FloatArray, _flow: int) -> FloatArray:
    """Return the sum of each bin, shape (k,), over the flows that there are in it."""
    return _where(_there(shares) > 0, np.nansum(shares, axis=0))


def average(shares: FloatArray, _flow: int) -> FloatArray:
    """Return the mean of each bin, shape (k,), over the flows that there are in it."""
    counts = _there(shares)
    return _where(counts > 0, np.nansum(shares, axis=0) / np.maximum(counts, 1))


def fairness(shares: FloatArray, _flow: int) -> FloatArray:
    """Return Jain's index of each bin, shape (k,)."""
    found = (jain(column) for column in shares.T)
    indices = np.array([np.nan if index is None else index for index in found], dtype=np.float64)
    return _where(_there(shares) == len(shares), indices)


OVER: Mapping[str, Callable[[FloatArray, int], FloatArray]] = {
    "min/max": least_to_greatest,
    "one/others": one_to_others,
    "sum/sum": sums,
    "sum": total,
    "mean": average,
    "jain": fairness,
}
"""By the names of study files: of shares (n, k) and the place of one of them, a figure per bin.

The place is of the one that is compared; of sums, of the first that is below the line.

NaN where a bin has none. Ratios and fairness need all flows, and that one of them has a share.
"""


def _there(shares: FloatArray) -> IntArray:
    """Return how many flows there are in each bin, shape (k,)."""
    return np.asarray(np.isfinite(shares).sum(axis=0), dtype=np.int64)


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return _where(below > 0, above / below)


def _where(known: BoolArray, values: FloatArray) -> FloatArray:
    return np.where(known, values, np.nan)
