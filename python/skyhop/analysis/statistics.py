"""The statistics of studies: from values of runs to what can be said about them.

Definitions follow the field: Jain's index (Jain, Chiu, Hawe 1984), power as throughput over delay
(Kleinrock 1979), Student's and Welch's t with Bonferroni's correction and Cohen's d with the pooled
standard deviation, as in comparisons of congestion controls over satellites (Claypool et al., PAM
2021).
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

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
class Test:
    """What a t-test came to."""

    t: float
    degrees: float
    """Of freedom: Welch and Satterthwaite's, or Student's n1 + n2 - 2."""
    p: float
    """Two-sided, times the number of comparisons (Bonferroni), at most 1."""


@dataclass(frozen=True)
class Difference:
    """How the mean of one sample differs from a reference's."""

    name: str
    count: int
    mean: float | None
    difference: float | None
    """Mean minus the reference's mean; None where one of them has no known value."""
    welch: Test | None
    """None for single values, and where no value differs from its sample's others."""
    student: Test | None
    """As if both samples varied alike."""
    cohens_d: float | None

    def significant(self, alpha: float = 0.05) -> bool:
        """Return whether the means differ at this level, by Welch's test."""
        return self.welch is not None and self.welch.p < alpha


def mean(values: FloatArray) -> float | None:
    """Return the mean of the known values, None without any."""
    known = _known(values)
    return float(known.mean()) if len(known) else None


def deviation(values: FloatArray, ddof: int = 1) -> float | None:
    """Return the standard deviation, None for too few values.

    Args:
        values: those that are not known are left out.
        ddof: what is taken from their number: 1 estimates that of what they were drawn from, 0 is
            theirs alone.
    """
    known = _known(values)
    return float(known.std(ddof=ddof)) if len(known) > ddof else None


def moments(values: FloatArray) -> FloatArray:
    """Return what can be pooled with other samples, shape (3,): number, mean, squared deviations.

    The last is the sum of the squares of what values differ from their mean by.
    """
    known = _known(values)
    if not len(known):
        return np.array([0.0, 0.0, 0.0])
    return np.array([len(known), known.mean(), np.square(known - known.mean()).sum()])


def pooled_mean(samples: FloatArray) -> float | None:
    """Return the mean of all values of samples whose moments these are, shape (n, 3)."""
    count = float(samples[:, 0].sum())
    return float(samples[:, 0] @ samples[:, 1]) / count if count else None


def pooled_deviation(samples: FloatArray, ddof: int = 1) -> float | None:
    """Return the standard deviation of all values of samples, from their moments (n, 3)."""
    count, middle = float(samples[:, 0].sum()), pooled_mean(samples)
    if middle is None or count <= ddof:
        return None
    # What values differ from their sample's mean by, and what these differ from the common one by.
    squares = float(samples[:, 2].sum() + samples[:, 0] @ np.square(samples[:, 1] - middle))
    return float(np.sqrt(squares / (count - ddof)))


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

    def found(method: Literal["BCa", "percentile"]) -> Interval:
        with warnings.catch_warnings():
            # Of values that hardly differ, for which there is no acceleration.
            warnings.simplefilter("ignore")
            interval = stats.bootstrap(
                (known,),
                np.mean,
                confidence_level=level,
                n_resamples=_RESAMPLES,
                rng=np.random.default_rng(_SEED),
                method=method,
            ).confidence_interval
        return Interval(float(interval.low), float(interval.high))

    corrected = found("BCa")
    is_known = corrected.low is not None and not math.isnan(corrected.low)
    return corrected if is_known else found("percentile")


def stratified_interval(strata: Sequence[FloatArray], level: float = 0.95) -> Interval:
    """Return the confidence interval of the mean of several strata's means, by bootstrap.

    Each stratum's values are drawn anew among themselves, with repetition: what strata differ from
    each other by is no uncertainty of their common mean. Seeded, as `bootstrap_interval` is.
    """
    known = [values for stratum in strata if len(values := _known(stratum))]
    if not known or min(map(len, known)) < 2:  # noqa: PLR2004
        return Interval(None, None)
    rng = np.random.default_rng(_SEED)
    drawn = [rng.choice(values, (_RESAMPLES, len(values))).mean(axis=1) for values in known]
    low, high = np.quantile(np.mean(drawn, axis=0), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def stratified_effect(
    strata: Sequence[FloatArray], references: Sequence[FloatArray]
) -> float | None:
    """Return by how much the strata's means differ from their references', in standard deviations.

    The mean difference over the standard deviation within strata, pooled over all of both; None
    where nothing varies.
    """
    pairs = [(_known(a), _known(b)) for a, b in zip(strata, references, strict=True)]
    pairs = [(a, b) for a, b in pairs if min(len(a), len(b)) > 1]
    if not pairs:
        return None
    squares = sum(len(v) * float(v.var()) for pair in pairs for v in pair)
    freedom = sum(len(v) - 1 for pair in pairs for v in pair)
    difference = float(np.mean([a.mean() - b.mean() for a, b in pairs]))
    return difference / (squares / freedom) ** 0.5 if squares > 0 else None


def statistic(values: FloatArray, name: str, ddof: int = 1) -> float | None:
    """Return a statistic by the name that study files use, such as median or p10."""
    known = _known(values)
    if name == "mean":
        return mean(known)
    if name == "sd":
        return deviation(known, ddof)
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

    By two-sided t-tests; p is multiplied by the number of comparisons.
    """
    reference = _known(samples[against])
    others = {name: _known(values) for name, values in samples.items() if name != against}
    return [_difference(name, values, reference, len(others)) for name, values in others.items()]


def _difference(
    name: str, values: FloatArray, reference: FloatArray, comparisons: int
) -> Difference:
    own, other = mean(values), mean(reference)
    return Difference(
        name=name,
        count=len(values),
        mean=own,
        difference=None if own is None or other is None else own - other,
        welch=_t_test(values, reference, comparisons, alike=False),
        student=_t_test(values, reference, comparisons, alike=True),
        cohens_d=cohens_d(values, reference),
    )


def _t_test(
    values: FloatArray, reference: FloatArray, comparisons: int, *, alike: bool
) -> Test | None:
    """Return Student's test where both are taken to vary alike, Welch's where not."""
    vary = min(len(values), len(reference)) > 1 and (np.ptp(values) > 0 or np.ptp(reference) > 0)
    if not vary:
        return None
    from scipy import stats

    with warnings.catch_warnings():
        # One of them may have no variance, of which scipy warns: nothing is lost by that.
        warnings.simplefilter("ignore", RuntimeWarning)
        test = stats.ttest_ind(values, reference, equal_var=alike)
    return Test(float(test.statistic), float(test.df), min(1.0, float(test.pvalue) * comparisons))


def cohens_d(values: FloatArray, reference: FloatArray) -> float | None:
    """Return the difference of the means in pooled standard deviations, None without spread."""
    a, b = _known(values), _known(reference)
    if min(len(a), len(b)) < 2:  # noqa: PLR2004
        return None
    freedom = len(a) + len(b) - 2
    pooled = float(((len(a) - 1) * a.var(ddof=1) + (len(b) - 1) * b.var(ddof=1)) / freedom)
    return float(a.mean() - b.mean()) / pooled**0.5 if pooled > 0 else None


def standardised(difference: float, deviations: tuple[float, float]) -> float | None:
    """Return a difference of means in given standard deviations of two samples of one size.

    For effects measured by a spread that was found elsewhere; None where there is no spread.
    """
    pooled = (deviations[0] ** 2 + deviations[1] ** 2) / 2
    return difference / pooled**0.5 if pooled > 0 else None


@dataclass(frozen=True)
class Ellipse:
    """Where points lie within one standard deviation of their mean, in every direction."""

    x: float
    y: float
    """The means."""
    major: float
    minor: float
    """Half its axes: the standard deviations along the longest and the shortest direction."""
    angle_deg: float
    """Of the major axis, from the x axis, anticlockwise; above -90, at most 90."""

    @property
    def top(self) -> float:
        """The greatest y on it."""
        angle = np.radians(self.angle_deg)
        return self.y + float(np.hypot(self.major * np.sin(angle), self.minor * np.cos(angle)))


def ellipse(xs: FloatArray, ys: FloatArray, ddof: int = 1) -> Ellipse | None:
    """Return the ellipse of one standard deviation of points; None for too few of them.

    Its axes are the eigenvectors of their covariance.
    """
    known = np.isfinite(xs) & np.isfinite(ys)
    if known.sum() < 2:  # noqa: PLR2004
        return None
    points = np.stack([xs[known], ys[known]])
    # Ascending, so that the last is the longest.
    squares, directions = np.linalg.eigh(np.cov(points, ddof=ddof))
    minor, major = np.sqrt(np.maximum(squares, 0.0)).tolist()
    angle_deg = float(np.degrees(np.arctan2(directions[1, 1], directions[0, 1])))
    turned = angle_deg - 180.0 * round(angle_deg / 180.0)
    x, y = points.mean(axis=1).tolist()
    return Ellipse(x, y, major, minor, turned if turned > -90 else turned + 180.0)  # noqa: PLR2004


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
