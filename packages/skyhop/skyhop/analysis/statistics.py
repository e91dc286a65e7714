"""Statistics of studies: means, confidence intervals, tests and effect sizes of runs' values.

Definitions follow the field: Jain's index (Jain, Chiu, Hawe 1984), power as throughput over delay
(Kleinrock 1979), Student's and Welch's t with Bonferroni's correction and Cohen's d with the pooled
standard deviation, as in comparisons of congestion controls over satellites (Claypool et al., PAM
2021).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from skyhop.analysis import student
from skyhop.data.arrays import BoolArray, FloatArray

_RESAMPLES = 9999
_SEED = 20191201


@dataclass(frozen=True)
class Interval:
    """Confidence interval; both ends are None if there are too few values."""

    low: float | None
    high: float | None


@dataclass(frozen=True)
class Test:
    """Result of a two-sided t-test."""

    t: float
    degrees: float
    """Degrees of freedom: Welch and Satterthwaite's, or Student's n1 + n2 - 2."""
    p: float
    """Two-sided p value, multiplied by the number of comparisons (Bonferroni), at most 1."""


@dataclass(frozen=True)
class Difference:
    """Difference between the mean of a sample and that of a reference sample."""

    name: str
    count: int
    mean: float | None
    difference: float | None
    """Mean minus the reference's mean; None if one of the samples has no known value."""
    welch: Test | None
    """Welch's test; None if a sample has a single value, or neither sample varies."""
    student: Test | None
    """Student's t-test, which assumes equal variances; None as for `welch`."""
    cohens_d: float | None

    def significant(self, alpha: float = 0.05) -> bool:
        """Return whether the means differ significantly at level `alpha`, by Welch's test."""
        return self.welch is not None and self.welch.p < alpha


def mean(values: FloatArray) -> float | None:
    """Return the mean of the known values; None if there are none."""
    known = _known(values)
    return float(known.mean()) if len(known) else None


def deviation(values: FloatArray, ddof: int = 1) -> float | None:
    """Return the standard deviation; None for too few values.

    Args:
        values: the sample; NaN is left out.
        ddof: delta degrees of freedom, subtracted from the number of values: 1 estimates the
            deviation of the population, 0 gives the deviation of the sample.
    """
    known = _known(values)
    return float(known.std(ddof=ddof)) if len(known) > ddof else None


def moments(values: FloatArray) -> FloatArray:
    """Return number, mean and sum of squared deviations of a sample, shape (3,).

    Deviations are from the sample's own mean. The moments of several samples can be pooled.
    """
    known = _known(values)
    if not len(known):
        return np.array([0.0, 0.0, 0.0])
    return np.array([len(known), known.mean(), np.square(known - known.mean()).sum()])


def pooled_mean(samples: FloatArray) -> float | None:
    """Return the mean of all values of several samples, given the moments of each (n, 3)."""
    count = float(samples[:, 0].sum())
    return float(samples[:, 0] @ samples[:, 1]) / count if count else None


def pooled_deviation(samples: FloatArray, ddof: int = 1) -> float | None:
    """Return the standard deviation of all values of several samples, given the moments (n, 3)."""
    count, middle = float(samples[:, 0].sum()), pooled_mean(samples)
    if middle is None or count <= ddof:
        return None
    # Squared deviations within samples, plus those of the samples' means from the common mean.
    squares = float(samples[:, 2].sum() + samples[:, 0] @ np.square(samples[:, 1] - middle))
    return float(np.sqrt(squares / (count - ddof)))


def quantile(values: FloatArray, share: float) -> float | None:
    """Return the quantile that `share` (0 to 1) of the values do not exceed, interpolated."""
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
    rng = np.random.default_rng(_SEED)
    means = rng.choice(known, (_RESAMPLES, len(known))).mean(axis=1)
    shares = _corrected_shares(known, means, level) or ((1 - level) / 2, (1 + level) / 2)
    low, high = np.quantile(means, shares)
    return Interval(float(low), float(high))


def _corrected_shares(
    values: FloatArray, means: FloatArray, level: float
) -> tuple[float, float] | None:
    """Return the shares of the resampled means that lie below the ends of the BCa interval.

    Formulas are from Efron and Tibshirani, An Introduction to the Bootstrap (1993), section 14.3;
    for a mean of n values, their jackknife gives the skewness over 6 sqrt(n) as acceleration. None
    if the values hardly differ: rounding then moves all resampled means to one side, or hides the
    deviations.
    """
    middle = values.mean()
    deviations = values - middle
    below = (np.count_nonzero(means < middle) + np.count_nonzero(means <= middle)) / 2 / len(means)
    cubed_spread = float(np.square(deviations).sum()) ** 1.5
    if not (0 < below < 1 and cubed_spread > 0):
        return None
    normal = NormalDist()
    bias, reach = normal.inv_cdf(below), normal.inv_cdf((1 + level) / 2)
    acceleration = float((deviations**3).sum()) / (6 * cubed_spread)
    low, high = (
        normal.cdf(bias + end / (1 - acceleration * end)) for end in (bias - reach, bias + reach)
    )
    return low, high


def stratified_interval(strata: Sequence[FloatArray], level: float = 0.95) -> Interval:
    """Return the confidence interval of the mean of several strata's means, by bootstrap.

    Values are resampled within each stratum, because differences between strata are not an
    uncertainty of their common mean. The resamples are seeded, as in `bootstrap_interval`.
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
    """Return the mean difference of strata from their references, in pooled standard deviations.

    This is the mean difference divided by the standard deviation within strata, which is pooled
    over all strata and references; None if no stratum varies.
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
    """Return a statistic, given the name that study files use, such as median or p10."""
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
    """Return Jain's fairness index of flows' shares: 1 is fair, 1/n means one flow takes all."""
    known = _known(shares)
    squares = float(np.square(known).sum())
    return float(known.sum()) ** 2 / (len(known) * squares) if squares > 0 else None


def power(throughput: float | None, delay: float | None) -> float | None:
    """Return the power, the ratio of throughput to delay."""
    return throughput / delay if throughput is not None and delay else None


def delay_inflation(delay: float | None, base: float | None) -> float | None:
    """Return the ratio of a delay to the delay without queueing."""
    return delay / base if delay is not None and base else None


def in_windows(t_s: FloatArray, begins_s: FloatArray, window_s: float) -> BoolArray:
    """Return whether each sample (n,) lies in (begin, begin + window_s] for any of `begins_s`.

    The time of a sample is the end of its interval: a sample at `begin` describes the time before.
    """
    if not len(begins_s):
        return np.zeros(len(t_s), dtype=bool)
    begins = np.sort(begins_s)
    index = np.searchsorted(begins, t_s, side="left") - 1
    since_s = t_s - begins[np.maximum(index, 0)]
    return np.asarray((index >= 0) & (since_s <= window_s), dtype=bool)


def jackknife_interval(
    estimate: float, without: Sequence[FloatArray], level: float = 0.95
) -> Interval:
    """Return the confidence interval of a statistic of several independent samples.

    It uses the jackknife and Student's t; for a difference of two means, it is Welch's interval.

    Args:
        estimate: the statistic of all values.
        without: for each sample, the statistic with each of its n values left out, shape (n,).
        level: confidence level.
    """
    counts = [len(figures) for figures in without]
    if not counts or min(counts) < 2:  # noqa: PLR2004
        return Interval(None, None)
    shares = [
        (n - 1) ** 2 / n * float(np.var(f, ddof=1)) for n, f in zip(counts, without, strict=True)
    ]
    if sum(shares) == 0:
        return Interval(estimate, estimate)
    # Degrees of freedom by Welch and Satterthwaite.
    freedom = sum(shares) ** 2 / sum(v**2 / (n - 1) for n, v in zip(counts, shares, strict=True))
    reach = student.quantile((1 + level) / 2, freedom) * sum(shares) ** 0.5
    return Interval(estimate - reach, estimate + reach)


def differences(samples: Mapping[str, FloatArray], against: str) -> list[Difference]:
    """Compare the mean of each sample with that of the sample `against`.

    It uses two-sided t-tests; p is multiplied by the number of comparisons (Bonferroni).
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
    """Return Student's test if `alike` (samples have equal variances), else Welch's test."""
    n, m = len(values), len(reference)
    if min(n, m) < 2 or not (np.ptp(values) > 0 or np.ptp(reference) > 0):  # noqa: PLR2004
        return None
    degrees = n + m - 2.0
    own, other = float(values.var(ddof=1)) / n, float(reference.var(ddof=1)) / m
    square = own + other
    if square == 0:  # The variances are below the smallest number.
        return None
    if alike:
        square = (n * (n - 1) * own + m * (m - 1) * other) / degrees * (1 / n + 1 / m)
    else:
        # Degrees of freedom by Welch and Satterthwaite.
        share = own / square
        degrees = 1 / (share**2 / (n - 1) + (1 - share) ** 2 / (m - 1))
    t = float(values.mean() - reference.mean()) / square**0.5
    p = 2 * student.upper_tail(abs(t), degrees)
    return Test(t, degrees, min(1.0, p * comparisons))


def cohens_d(values: FloatArray, reference: FloatArray) -> float | None:
    """Return Cohen's d, the difference of means in pooled standard deviations; None without any."""
    a, b = _known(values), _known(reference)
    if min(len(a), len(b)) < 2:  # noqa: PLR2004
        return None
    freedom = len(a) + len(b) - 2
    pooled = float(((len(a) - 1) * a.var(ddof=1) + (len(b) - 1) * b.var(ddof=1)) / freedom)
    return float(a.mean() - b.mean()) / pooled**0.5 if pooled > 0 else None


def standardised(difference: float, deviations: tuple[float, float]) -> float | None:
    """Return a difference of means in units of the given deviations of two samples of equal size.

    It gives effect sizes from published standard deviations; None if these are 0.
    """
    pooled = (deviations[0] ** 2 + deviations[1] ** 2) / 2
    return difference / pooled**0.5 if pooled > 0 else None


@dataclass(frozen=True)
class Ellipse:
    """Ellipse of one standard deviation around the mean of points."""

    x: float
    y: float
    """Mean y of the points; `x` is their mean x."""
    major: float
    minor: float
    """Semi-minor axis: standard deviation in the direction of least spread."""
    angle_deg: float
    """Angle of the major axis from the x axis, anticlockwise; greater than -90, at most 90."""

    @property
    def top(self) -> float:
        """Greatest y of the ellipse."""
        angle = np.radians(self.angle_deg)
        return self.y + float(np.hypot(self.major * np.sin(angle), self.minor * np.cos(angle)))


def ellipse(xs: FloatArray, ys: FloatArray, ddof: int = 1) -> Ellipse | None:
    """Return the ellipse of one standard deviation of points; None for too few points.

    The axes of the ellipse are the eigenvectors of the points' covariance matrix.
    """
    known = np.isfinite(xs) & np.isfinite(ys)
    if known.sum() < 2:  # noqa: PLR2004
        return None
    points = np.stack([xs[known], ys[known]])
    # Eigenvalues ascend, so the last belongs to the major axis.
    squares, directions = np.linalg.eigh(np.cov(points, ddof=ddof))
    minor, major = np.sqrt(np.maximum(squares, 0.0)).tolist()
    angle_deg = float(np.degrees(np.arctan2(directions[1, 1], directions[0, 1])))
    turned = angle_deg - 180.0 * round(angle_deg / 180.0)
    x, y = points.mean(axis=1).tolist()
    return Ellipse(x, y, major, minor, turned if turned > -90 else turned + 180.0)  # noqa: PLR2004


def effect_size(d: float | None) -> str:
    """Return the name of an effect size.

    It is small below 0.2, medium below 0.5, large below 0.8, and very large from there on.
    """
    if d is None:
        return ""
    bounds: Sequence[tuple[float, str]] = ((0.2, "small"), (0.5, "medium"), (0.8, "large"))
    return next((name for bound, name in bounds if abs(d) < bound), "very large")


def _known(values: FloatArray) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    known: FloatArray = array[np.isfinite(array)]
    return known
