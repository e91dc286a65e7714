"""The statistics of studies: from values of runs to what can be said about them.

Definitions follow the field: Jain's index (Jain, Chiu, Hawe 1984), power as throughput over delay
(Kleinrock 1979), Welch's t with Bonferroni's correction and Cohen's d with the pooled standard
deviation, as in comparisons of congestion controls over satellites (Claypool et al., PAM 2021).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from skyhop.data.arrays import BoolArray, FloatArray

_RESAMPLES = 9999
_SEED = 20191201


@dataclass(frozen=True)
class Interval:
    """A confidence interval; both ends None where there are too few values."""

    low: float | None
    high: float | None


@dataclass(frozen=True)
class Difference:
    """How the mean of one sample differs from a reference's."""

    name: str
    count: int
    mean: float
    difference: float
    """Mean minus the reference's mean."""
    t: float | None
    degrees: float | None
    """Welch and Satterthwaite's degrees of freedom."""
    p: float | None
    """Two-sided, times the number of comparisons (Bonferroni), at most 1."""
    cohens_d: float | None

    def significant(self, alpha: float = 0.05) -> bool:
        """Return whether the means differ at this level."""
        return self.p is not None and self.p < alpha


def mean(values: FloatArray) -> float | None:
    """Return the mean of the known values, None without any."""
    known = _known(values)
    return float(known.mean()) if len(known) else None


def deviation(values: FloatArray) -> float | None:
    """Return the standard deviation (n - 1), None for fewer than two values."""
    known = _known(values)
    return float(known.std(ddof=1)) if len(known) > 1 else None


def quantile(values: FloatArray, share: float) -> float | None:
    """Return the value that `share` of the values do not exceed, interpolated linearly."""
    known = _known(values)
    return float(np.quantile(known, share)) if len(known) else None


def bootstrap_interval(values: FloatArray, level: float = 0.95) -> Interval:
    """Return the mean's confidence interval by bias-corrected, accelerated bootstrap.

    The resamples are seeded: the same values give the same interval.
    """
    known = _known(values)
    if len(known) < 2:  # noqa: PLR2004
        return Interval(None, None)
    if np.ptp(known) == 0:
        return Interval(float(known[0]), float(known[0]))
    # Imported here: it takes a second, and processes that only run scenarios need none of it.
    from scipy import stats

    found = stats.bootstrap(
        (known,),
        np.mean,
        confidence_level=level,
        n_resamples=_RESAMPLES,
        rng=np.random.default_rng(_SEED),
        method="BCa",
    ).confidence_interval
    return Interval(float(found.low), float(found.high))


def statistic(values: FloatArray, name: str) -> float | None:
    """Return a statistic by the name that study files use, such as median or p10."""
    known = _known(values)
    if name == "mean":
        return mean(known)
    if name == "sd":
        return deviation(known)
    shares = {"min": 0.0, "median": 0.5, "max": 1.0}
    return quantile(known, shares[name] if name in shares else int(name[1:]) / 100)


def is_statistic(name: str) -> bool:
    """Return whether `statistic` knows the name."""
    return re.fullmatch(r"mean|median|sd|min|max|p[0-9]{1,2}", name) is not None


def jain(shares: FloatArray) -> float | None:
    """Return Jain's fairness index of what each flow got: 1 is fair, 1/n is one takes all."""
    known = _known(shares)
    squares = float(np.square(known).sum())
    return float(known.sum()) ** 2 / (len(known) * squares) if squares > 0 else None


def power(throughput: float | None, delay: float | None) -> float | None:
    """Return throughput over delay."""
    return throughput / delay if throughput is not None and delay else None


def delay_inflation(delay: float | None, base: float | None) -> float | None:
    """Return how many times the delay without queueing the delay is."""
    return delay / base if delay is not None and base else None


def in_windows(t_s: FloatArray, begins_s: FloatArray, window_s: float) -> BoolArray:
    """Return which samples (n,) lie in (begin, begin + window_s] of any beginning.

    Samples stand at the end of the interval that they describe: one at the very beginning is of
    the time before.
    """
    if not len(begins_s):
        return np.zeros(len(t_s), dtype=bool)
    begins = np.sort(begins_s)
    index = np.searchsorted(begins, t_s, side="left") - 1
    since_s = t_s - begins[np.maximum(index, 0)]
    return np.asarray((index >= 0) & (since_s <= window_s), dtype=bool)


def jackknife_interval(
    whole: float, without: Sequence[FloatArray], level: float = 0.95
) -> Interval:
    """Return the interval of a figure that is worked out from several independent samples.

    By the jackknife and Student's t; for a difference of two means it is Welch's interval.

    Args:
        whole: the figure.
        without: per sample the figure with each of its n values left out, shape (n,).
        level: how much the interval holds.
    """
    counts = [len(figures) for figures in without]
    if not counts or min(counts) < 2:  # noqa: PLR2004
        return Interval(None, None)
    shares = [
        (n - 1) ** 2 / n * float(np.var(f, ddof=1)) for n, f in zip(counts, without, strict=True)
    ]
    if sum(shares) == 0:
        return Interval(whole, whole)
    from scipy.special import stdtrit

    # Welch and Satterthwaite's.
    freedom = sum(shares) ** 2 / sum(v**2 / (n - 1) for n, v in zip(counts, shares, strict=True))
    reach = float(stdtrit(freedom, (1 + level) / 2)) * sum(shares) ** 0.5
    return Interval(whole - reach, whole + reach)


def differences(samples: Mapping[str, FloatArray], against: str) -> list[Difference]:
    """Compare every sample's mean with that of `against`, itself left out.

    Welch's t-test, two-sided; p is multiplied by the number of comparisons.
    """
    reference = _known(samples[against])
    others = {name: _known(values) for name, values in samples.items() if name != against}
    return [_difference(name, values, reference, len(others)) for name, values in others.items()]


def _difference(
    name: str, values: FloatArray, reference: FloatArray, comparisons: int
) -> Difference:
    from scipy import stats

    gap = (mean(values) or 0.0) - (mean(reference) or 0.0)
    t = degrees = p = None
    if min(len(values), len(reference)) > 1 and (np.ptp(values) > 0 or np.ptp(reference) > 0):
        test = stats.ttest_ind(values, reference, equal_var=False)
        t, degrees = float(test.statistic), float(test.df)
        p = min(1.0, float(test.pvalue) * comparisons)
    return Difference(
        name=name,
        count=len(values),
        mean=mean(values) or 0.0,
        difference=gap,
        t=t,
        degrees=degrees,
        p=p,
        cohens_d=cohens_d(values, reference),
    )


def cohens_d(values: FloatArray, reference: FloatArray) -> float | None:
    """Return the difference of the means in pooled standard deviations, None without spread."""
    a, b = _known(values), _known(reference)
    if min(len(a), len(b)) < 2:  # noqa: PLR2004
        return None
    freedom = len(a) + len(b) - 2
    pooled = float(((len(a) - 1) * a.var(ddof=1) + (len(b) - 1) * b.var(ddof=1)) / freedom)
    return float(a.mean() - b.mean()) / pooled**0.5 if pooled > 0 else None


def effect_size(d: float | None) -> str:
    """Name an effect size: below 0.2 small, to 0.5 medium, to 0.8 large, then very large."""
    if d is None:
        return ""
    bounds: Sequence[tuple[float, str]] = ((0.2, "small"), (0.5, "medium"), (0.8, "large"))
    return next((name for bound, name in bounds if abs(d) < bound), "very large")


def _known(values: FloatArray) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    known: FloatArray = array[np.isfinite(array)]
    return known
