"""Statistics of studies, compared with scipy, published examples and definitions."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from skyhop.analysis import statistics as ours

VALUES = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30)


def array(values: object) -> ours.FloatArray:
    return np.asarray(values, dtype=np.float64)


STEADY = {
    "cubic": (123.3, 17.0),
    "bbr": (112.9, 12.2),
    "hybla": (130.1, 17.2),
    "pcc": (112.6, 17.9),
}
"""Mean and standard deviation of steady goodput in Mbit/s: Claypool et al., PAM 2021, Table 1."""
START_UP = {"cubic": (16.6, 0.3), "bbr": (23.1, 1.8), "hybla": (40.8, 2.9), "pcc": (20.3, 1.6)}
"""Mean and standard deviation of goodput at start-up in Mbit/s: Table 5 of the same paper."""


@pytest.mark.parametrize(
    ("published", "expected", "off_by"),
    [
        # Table 2 gives t, p and d of each against CUBIC, with 80 downloads each.
        (STEADY, {"bbr": (4.44, 0, 0.7), "hybla": (2.51, 0.0129, 0.4), "pcc": (3.88, 0.0002, 0.6)},
         0.02),
        # Table 6, whose rounded means and deviations allow less precision.
        (START_UP, {"bbr": (31.9, 0, 5.0), "hybla": (74.2, 0, 11.7), "pcc": (20.3, 0, 3.2)}, 0.1),
    ],
)  # fmt: skip
def test_both_tests_match_a_published_comparison(
    published: dict[str, tuple[float, float]],
    expected: dict[str, tuple[float, float, float]],
    off_by: float,
) -> None:
    samples = {name: sample(mean, sd) for name, (mean, sd) in published.items()}
    found = {d.name: d for d in ours.differences(samples, "cubic")}
    for name, (t, p, d) in expected.items():
        welch, student = found[name].welch, found[name].student
        assert welch is not None
        assert student is not None
        assert abs(student.t) == pytest.approx(t, abs=off_by)
        assert student.degrees == 158
        # The paper divides the level by three; skyhop multiplies p by three.
        assert student.p == pytest.approx(3 * p, abs=3e-4)
        assert abs(found[name].cohens_d or 0) == pytest.approx(d, abs=0.05)
        # With equal sample sizes both tests have the same t, but other degrees of freedom.
        assert welch.t == pytest.approx(student.t)
        assert welch.degrees < 158
        assert welch.p >= student.p
        assert found[name].significant()
        sds = published[name][1], published["cubic"][1]
        by_published = ours.standardised(found[name].difference, sds)
        assert by_published == pytest.approx(found[name].cohens_d)


def test_a_tiny_spread_inflates_cohens_d_and_published_ones_do_not() -> None:
    """Use the means of Table 1 with a tiny spread, which makes Cohen's d meaningless."""
    samples = {"cubic": sample(123.3, 0.1), "bbr": sample(112.9, 0.1)}
    (found,) = ours.differences(samples, "cubic")
    assert found.cohens_d == pytest.approx(-104)
    assert ours.standardised(found.difference, (12.2, 17.0)) == pytest.approx(-0.70, abs=0.005)
    assert ours.standardised(found.difference, (0.0, 0.0)) is None


def sample(mean: float, deviation: float, count: int = 80) -> ours.FloatArray:
    """Return values with exactly this mean and standard deviation."""
    shape = stats.norm.ppf((np.arange(count) + 0.5) / count)
    return array(mean + deviation * (shape - shape.mean()) / shape.std(ddof=1))


@given(VALUES, VALUES)
def test_welchs_test_equals_scipys(a: list[float], b: list[float]) -> None:
    assume(np.ptp(a) > 1e-6 and np.ptp(b) > 1e-6)
    (found,) = ours.differences({"a": array(a), "b": array(b)}, "a")
    expected = stats.ttest_ind(b, a, equal_var=False)
    assert found.welch is not None
    assert found.welch.t == pytest.approx(expected.statistic)
    assert found.welch.p == pytest.approx(expected.pvalue)
    assert found.welch.degrees == pytest.approx(expected.df)


@pytest.mark.parametrize("seed", range(50))
def test_both_tests_equal_scipys_to_twelve_digits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.normal(0, 10 ** rng.uniform(-3, 3), rng.integers(2, 80)) for _ in range(2))
    (found,) = ours.differences({"a": a, "b": b}, "a")
    for test, alike in ((found.welch, False), (found.student, True)):
        expected = stats.ttest_ind(b, a, equal_var=alike)
        assert test is not None
        assert (test.t, test.degrees, test.p) == pytest.approx(
            (expected.statistic, expected.df, expected.pvalue), rel=1e-12, abs=0
        )


def test_samples_whose_variances_vanish_have_no_test() -> None:
    (found,) = ours.differences({"a": array([5, 5]), "b": array([0, 1e-200])}, "a")
    assert (found.welch, found.student) == (None, None)


@given(VALUES, VALUES)
def test_students_test_equals_its_definition(a: list[float], b: list[float]) -> None:
    assume(np.ptp(a) > 1e-3 and np.ptp(b) > 1e-3)
    (found,) = ours.differences({"a": array(a), "b": array(b)}, "a")
    assert found.student is not None
    freedom = len(a) + len(b) - 2
    squares = sum((x - np.mean(a)) ** 2 for x in a) + sum((x - np.mean(b)) ** 2 for x in b)
    error = (squares / freedom * (1 / len(a) + 1 / len(b))) ** 0.5
    t = (np.mean(b) - np.mean(a)) / error
    assert found.student.t == pytest.approx(t, rel=1e-6, abs=1e-9)
    assert found.student.degrees == freedom
    assert found.student.p == pytest.approx(2 * stats.t.sf(abs(t), freedom), rel=1e-6, abs=1e-9)


@given(VALUES, VALUES)
def test_the_jackknife_of_a_difference_of_means_is_welchs_interval(
    a: list[float], b: list[float]
) -> None:
    assume(np.ptp(a) > 1e-3 and np.ptp(b) > 1e-3)
    x, y = array(a), array(b)
    without = [
        array([np.delete(x, i).mean() - y.mean() for i in range(len(x))]),
        array([x.mean() - np.delete(y, i).mean() for i in range(len(y))]),
    ]
    found = ours.jackknife_interval(float(x.mean() - y.mean()), without)
    expected = stats.ttest_ind(x, y, equal_var=False).confidence_interval()
    assert (found.low, found.high) == pytest.approx(tuple(expected), rel=1e-6, abs=1e-6)


def test_the_jackknife_needs_two_values_of_each_sample() -> None:
    unknown = ours.Interval(None, None)
    assert ours.jackknife_interval(1.0, []) == unknown
    assert ours.jackknife_interval(1.0, [array([1, 2]), array([3])]) == unknown
    assert ours.jackknife_interval(1.0, [array([1, 1])]) == ours.Interval(1.0, 1.0)


def test_bonferroni_counts_comparisons_and_stops_at_one() -> None:
    rng = np.random.default_rng(1)
    samples = {name: rng.normal(size=20) for name in "abcd"}
    first = ours.differences(samples, "a")[0]
    for found, alike in ((first.welch, False), (first.student, True)):
        alone = stats.ttest_ind(samples["b"], samples["a"], equal_var=alike).pvalue
        assert found is not None
        assert found.p == pytest.approx(min(1.0, 3 * alone))
    samples["b"] = samples["a"] + 1e-9
    assert ours.differences(samples, "a")[0].welch == ours.Test(
        pytest.approx(0, abs=1e-6), pytest.approx(38), 1.0
    )


def test_a_sample_without_spread_is_compared_without_a_warning() -> None:
    """Compare times in whole seconds, which may be equal in all downloads."""
    samples = {"a": np.full(80, 4000 / 28), "b": np.array([4000 / 28, 4000 / 29] * 40)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (found,) = ours.differences(samples, "b")
    assert found.welch is not None
    assert found.welch.degrees == pytest.approx(79)
    assert found.student is not None
    assert found.welch.t == pytest.approx(found.student.t)


def test_equal_values_have_no_difference() -> None:
    (found,) = ours.differences({"a": array([5, 5]), "b": array([5, 5])}, "a")
    assert (found.difference, found.welch, found.student, found.cohens_d) == (0, None, None, None)
    assert not found.significant()


@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=20))
def test_jain_lies_between_one_nth_and_one(shares: list[float]) -> None:
    found = ours.jain(array(shares))
    assert found is not None
    assert 1 / len(shares) - 1e-9 <= found <= 1 + 1e-9
    assert ours.jain(array([7.0] * len(shares))) == pytest.approx(1)


def test_jain_of_known_shares() -> None:
    assert ours.jain(array([1, 0, 0, 0])) == 0.25
    assert ours.jain(array([1, 2])) == pytest.approx(0.9)
    assert ours.jain(array([0, 0])) is None


def test_power_and_delay_inflation() -> None:
    """Check the power of CUBIC, 123.3 Mbit/s over 0.821 s: Claypool et al., PAM 2021, Table 7."""
    assert ours.power(123.3, 0.821) == pytest.approx(150, abs=0.5)
    assert ours.delay_inflation(80.0, 40.0) == 2
    assert ours.power(1.0, None) is None
    assert ours.delay_inflation(1.0, 0.0) is None


def test_bootstrap_interval_is_repeatable_and_covers() -> None:
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(60):
        values = rng.normal(10, 2, size=30)
        interval = ours.bootstrap_interval(values)
        assert interval == ours.bootstrap_interval(values)
        assert interval.low is not None
        assert interval.high is not None
        assert interval.low < values.mean() < interval.high
        covered += interval.low <= 10 <= interval.high
    # 57 of 60 are expected at 95 %; fewer than 49 have a probability of one in ten thousand.
    assert covered >= 49


def bootstrap_samples() -> Iterator[ours.FloatArray]:
    rng = np.random.default_rng(3)
    for count in (2, 3, 5, 10, 30, 200):
        yield rng.normal(10, 2, count)
        yield np.exp(rng.normal(0, 3, count))
        yield 1e6 + rng.normal(0, 1e-6, count)
        # A few distinct values, many of which tie with the mean.
        yield np.arange(count) % 3.0
        yield np.arange(count) // (count - 1) * 100.0


@pytest.mark.parametrize("values", list(bootstrap_samples()), ids=len)
@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
def test_bootstrap_interval_equals_scipys(values: ours.FloatArray, level: float) -> None:
    found = ours.bootstrap_interval(values, level)
    expected = scipys_interval(values, level, "BCa")
    assert (found.low, found.high) == pytest.approx(
        expected, rel=0, abs=1e-12 * np.abs(values).max()
    )


def test_bootstrap_interval_without_acceleration_is_of_percentiles() -> None:
    """Use values whose deviations underflow, so that the corrections cannot be computed."""
    values = array([0, 1e-120, 3e-120])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isnan(scipys_interval(values, 0.95, "BCa")).all()
    found = ours.bootstrap_interval(values)
    assert (found.low, found.high) == scipys_interval(values, 0.95, "percentile")


def scipys_interval(values: ours.FloatArray, level: float, method: str) -> tuple[float, float]:
    """Return scipy's bootstrap interval of the mean, with the resamples of skyhop."""
    interval = stats.bootstrap(
        (values,),
        np.mean,
        confidence_level=level,
        n_resamples=9999,
        rng=np.random.default_rng(20191201),
        method=method,
    ).confidence_interval
    return float(interval.low), float(interval.high)


def test_one_value_has_no_interval() -> None:
    assert ours.bootstrap_interval(array([3])) == ours.Interval(None, None)
    assert ours.bootstrap_interval(array([3, 3])) == ours.Interval(3, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nearly = ours.bootstrap_interval(array([0.3, 0.3, 0.3, 0.1 + 0.2]))
    assert nearly.low == pytest.approx(0.3)
    assert nearly.high == pytest.approx(0.3)


@given(VALUES)
def test_quantiles_equal_numpys(values: list[float]) -> None:
    assert ours.statistic(array(values), "p10") == pytest.approx(np.quantile(values, 0.1))
    assert ours.statistic(array(values), "median") == pytest.approx(np.median(values))
    assert ours.statistic(array([*values, np.nan]), "max") == max(values)
    assert ours.statistic(array(values), "sd") == pytest.approx(np.std(values, ddof=1))


@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=40),
    st.lists(st.floats(0, 100), max_size=8),
    st.floats(0.01, 20),
)
def test_windows_after_events(times: list[float], begins: list[float], window: float) -> None:
    found = ours.in_windows(array(times), array(begins), window)
    for t_s, inside in zip(times, found, strict=True):
        assert inside == any(begin < t_s and t_s - begin <= window for begin in begins)


SAMPLES = st.lists(st.lists(st.floats(-1e3, 1e3), max_size=12), min_size=1, max_size=6)


@given(SAMPLES, st.sampled_from([0, 1]))
def test_pooled_moments_equal_those_of_one_sample(samples: list[list[float]], ddof: int) -> None:
    found = np.array([ours.moments(array([*values, np.nan])) for values in samples])
    values = [value for values in samples for value in values]
    if not values:
        assert ours.pooled_mean(found) is None
        return
    assert ours.pooled_mean(found) == pytest.approx(np.mean(values), abs=1e-6)
    if len(values) > ddof:
        expected = np.std(values, ddof=ddof)
        assert ours.pooled_deviation(found, ddof) == pytest.approx(expected, rel=1e-6, abs=1e-5)
    else:
        assert ours.pooled_deviation(found, ddof) is None


def test_a_deviation_divides_by_n_minus_ddof() -> None:
    values = array([1, 2, 4])
    assert ours.deviation(values) == pytest.approx((14 / 9 * 3 / 2) ** 0.5)
    assert ours.deviation(values, ddof=0) == pytest.approx((14 / 9) ** 0.5)
    assert ours.statistic(values, "sd", ddof=0) == ours.deviation(values, ddof=0)
    assert ours.deviation(array([3]), ddof=0) == 0


@given(st.lists(st.tuples(st.floats(-50, 50), st.floats(-50, 50)), min_size=3, max_size=20))
def test_an_ellipse_is_one_standard_deviation_in_every_direction(
    points: list[tuple[float, float]],
) -> None:
    xs, ys = array([x for x, _ in points]), array([y for _, y in points])
    found = ours.ellipse(xs, ys)
    assert found is not None
    assert (found.x, found.y) == pytest.approx((xs.mean(), ys.mean()))
    assert -90 < found.angle_deg <= 90
    for turn in np.linspace(0, np.pi, 9):
        along = xs * np.cos(turn) + ys * np.sin(turn)
        # The half-width of the ellipse in a direction equals the standard deviation along it.
        against = turn - np.radians(found.angle_deg)
        reach = np.hypot(found.major * np.cos(against), found.minor * np.sin(against))
        assert reach == pytest.approx(along.std(ddof=1), rel=1e-6, abs=1e-5)
    assert found.top == pytest.approx(ys.mean() + ys.std(ddof=1), rel=1e-6, abs=1e-5)


def test_one_point_has_no_ellipse() -> None:
    assert ours.ellipse(array([1]), array([2])) is None
    flat = ours.ellipse(array([0, 2]), array([1, 1]))
    assert flat is not None
    assert (flat.major, flat.minor, flat.angle_deg) == pytest.approx((2**0.5, 0, 0))


def test_effect_sizes_have_names() -> None:
    named = [ours.effect_size(d) for d in (0.1, -0.3, 0.7, -2.0, None)]
    assert named == ["small", "medium", "large", "very large", ""]
