"""Curves of a portrait: distributions, and means by the time from a mark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from skyhop.data.arrays import FloatArray

_POINTS = 400
"""Largest number of points of a distribution's curve."""
_SLIP = 1e-6
"""Share of a bin by which rounding may move a time before its bin."""


@dataclass(frozen=True)
class Curve:
    """Points of a curve, shape (n,) each."""

    x: FloatArray
    y: FloatArray


def share_below(values: FloatArray) -> Curve:
    """Return the share of the values up to each value."""
    shares = np.linspace(0, 1, _POINTS)
    return Curve(np.quantile(values[np.isfinite(values)], shares), shares)


def share_above(values: FloatArray) -> Curve:
    """Return the share of the values above each value, dense at the largest values."""
    known = values[np.isfinite(values)]
    above = np.geomspace(1, 1 / max(len(known), 2), _POINTS)
    return Curve(np.quantile(known, 1 - above), above)


def around_marks(
    phases_s: FloatArray,
    values: FloatArray,
    period_s: float,
    bin_s: float,
    reach_s: tuple[float, float],
) -> Curve:
    """Return the mean of values by their time from the nearest mark, in bins; NaN without values.

    Args:
        phases_s: times of the values since the mark before them, shape (n,).
        values: the values, shape (n,).
        period_s: time between two marks.
        bin_s: length of a bin.
        reach_s: time before (negative) and after a mark that the curve covers.
    """
    known = np.isfinite(values)
    phases_s = phases_s + _SLIP * bin_s
    is_before = phases_s >= period_s + reach_s[0]
    from_s = np.where(is_before, phases_s - period_s, phases_s)[known]
    count = round((reach_s[1] - reach_s[0]) / bin_s)
    place = np.floor((from_s - reach_s[0]) / bin_s).astype(np.int64)
    inside = (place >= 0) & (place < count)
    sums = np.bincount(place[inside], values[known][inside], minlength=count)
    counts = np.bincount(place[inside], minlength=count)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    middles: FloatArray = reach_s[0] + (np.arange(count, dtype=np.float64) + 0.5) * bin_s
    return Curve(middles, means)


def quantiles(
    values: FloatArray, per_cents: Sequence[float], key: Callable[[float], str]
) -> dict[str, float]:
    """Return quantiles of the known values by their keys; none if no value is known."""
    known = values[np.isfinite(values)]
    if not len(known):
        return {}
    found = np.percentile(known, per_cents).tolist()
    return {key(share): value for share, value in zip(per_cents, found, strict=True)}
