"""Aggregates over several flows: sum, mean, ratios and fairness in each time bin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from skyhop.analysis.binning import binned
from skyhop.analysis.statistics import jain
from skyhop.data.arrays import BoolArray, FloatArray, IntArray


def bins_of_flows(
    samples: Sequence[tuple[FloatArray, FloatArray]], width_s: float
) -> tuple[FloatArray, FloatArray]:
    """Return the ends (s) of bins (k,), and each flow's mean in each bin (n, k).

    The mean is NaN if a flow has no sample in a bin.

    Args:
        samples: for each flow, the ends of its samples (s) and their values.
        width_s: width of the bins (s); the first begins at 0.
    """
    means = [binned(t_s, values, width_s)[1] for t_s, values in samples]
    count = max(map(len, means), default=0)
    padded = [np.pad(row, (0, count - len(row)), constant_values=np.nan) for row in means]
    ends_s = np.arange(1, count + 1, dtype=np.float64) * width_s
    return ends_s, np.array(padded, dtype=np.float64).reshape(len(means), count)


def means_of_flows(samples: Sequence[FloatArray]) -> FloatArray:
    """Return each flow's mean over all its samples, shape (n, 1); NaN without samples."""
    known = [values[np.isfinite(values)] for values in samples]
    return np.array([[values.mean() if len(values) else np.nan] for values in known])


def cut_off(shares: FloatArray, least: float | None, *, truncate: bool) -> FloatArray:
    """Replace shares below `least` by `least`; with `truncate`, drop the fractions of shares."""
    bounded = shares if least is None else np.maximum(shares, least)
    return np.trunc(bounded) if truncate else bounded


def least_to_greatest(shares: FloatArray, _flow: int) -> FloatArray:
    """Return the ratio of the least to the greatest share in each bin, shape (k,)."""
    return _ratio(shares.min(axis=0), shares.max(axis=0))


def one_to_others(shares: FloatArray, flow: int) -> FloatArray:
    """Return the ratio of one flow's share to the greatest other share in each bin, shape (k,)."""
    return _ratio(shares[flow], np.delete(shares, flow, axis=0).max(axis=0))


def sums(shares: FloatArray, first: int) -> FloatArray:
    """Return the ratio of the sum of shares before index `first` to the sum of the rest, (k,)."""
    return _ratio(shares[:first].sum(axis=0), shares[first:].sum(axis=0))


def total(shares: FloatArray, _flow: int) -> FloatArray:
    """Return the sum in each bin over those flows with a sample in the bin, shape (k,)."""
    return _where(_flow_counts(shares) > 0, np.nansum(shares, axis=0))


def average(shares: FloatArray, _flow: int) -> FloatArray:
    """Return the mean in each bin over those flows with a sample in the bin, shape (k,)."""
    counts = _flow_counts(shares)
    return _where(counts > 0, np.nansum(shares, axis=0) / np.maximum(counts, 1))


def fairness(shares: FloatArray, _flow: int) -> FloatArray:
    """Return Jain's fairness index in each bin, shape (k,)."""
    found = (jain(column) for column in shares.T)
    indices = np.array([np.nan if index is None else index for index in found], dtype=np.float64)
    return _where(_flow_counts(shares) == len(shares), indices)


AGGREGATES: Mapping[str, Callable[[FloatArray, int], FloatArray]] = {
    "min/max": least_to_greatest,
    "one/others": one_to_others,
    "sum/sum": sums,
    "sum": total,
    "mean": average,
    "jain": fairness,
}
"""Functions by their names in study files; they compute one value per bin (k,) from shares (n, k).

The second argument is the index of the flow that is compared; for `sum/sum`, that of the first flow
of the denominator. A bin without samples gives NaN. Ratios and fairness also give NaN unless every
flow has a sample in the bin, and one sample is above 0.
"""


def _flow_counts(shares: FloatArray) -> IntArray:
    """Return the number of flows with a sample in each bin, shape (k,)."""
    return np.asarray(np.isfinite(shares).sum(axis=0), dtype=np.int64)


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return _where(below > 0, above / below)


def _where(known: BoolArray, values: FloatArray) -> FloatArray:
    return np.where(known, values, np.nan)
