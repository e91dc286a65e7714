"""The statistics of studies against scipy, published examples and their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from skyhop.analysis import statistics as ours

VALUES = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30)


def array(values: object) -> ours.FloatArray:
    return np.asarray(values, dtype=np.float64)


def test_welchs_t_matches_a_published_comparison() -> None:
    """Claypool et al., PAM 2021, Tables 1 and 2: BBR against CUBIC, 80 downloads each."""
    published = {"bbr": (112.9, 12.2), "hybla": (130.1, 17.2), "pcc": (112.6, 17.9)}
    samples = {"cubic": sample(123.3, 17.0)}
    samples |= {name: sample(mean, sd) for name, (mean, sd) in published.items()}
    found = {d.name: d for d in ours.differences(samples, "cubic")}
    expected = {"bbr": (4.44, 0.7), "hybla": (2.51, 0.4), "pcc": (3.88, 0.6)}
    for name, (t, d) in expected.items():
        assert abs(found[name].t or 0) == pytest.approx(t, abs=0.02)
        assert abs(found[name].cohens_d or 0) == pytest.approx(d, abs=0.05)
    # They tested at a level divided by three; we multiply p by three.
    assert found["hybla"].p == pytest.approx(3 * 0.0129, abs=0.002)
    assert found["bbr"].significant()


def sample(mean: float, deviation: float, count: int = 80) -> ours.FloatArray:
    """Return values with exactly this mean and standard deviation."""
    shape = stats.norm.ppf((np.arange(count) + 0.5) / count)
    return array(mean + deviation * (shape - shape.mean()) / shape.std(ddof=1))


@given(VALUES, VALUES)
def test_welch_is_scipys(a: list[float], b: list[float]) -> None:
    assume(np.ptp(a) > 1e-6 and np.ptp(b) > 1e-6)
    (found,) = ours.differences({"a": array(a), "b": array(b)}, "a")
    expected = stats.ttest_ind(b, a, equal_var=False)
    assert found.t == pytest.approx(expected.statistic)
    assert found.p == pytest.approx(expected.pvalue)
    assert found.degrees == pytest.approx(expected.df)


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
    alone = stats.ttest_ind(samples["b"], samples["a"], equal_var=False).pvalue
    first = ours.differences(samples, "a")[0]
    assert first.p == pytest.approx(min(1.0, 3 * alone))


def test_the_same_values_differ_by_nothing() -> None:
    (found,) = ours.differences({"a": array([5, 5]), "b": array([5, 5])}, "a")
    assert (found.difference, found.t, found.p, found.cohens_d) == (0, None, None, None)
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
    """Claypool et al., PAM 2021, Table 7: CUBIC has 123.3 Mbit/s over 0.821 s."""
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
    # 95 % of 60 is 57; fewer than 49 would be one in ten thousand.
    assert covered >= 49


def test_one_value_has_no_interval() -> None:
    assert ours.bootstrap_interval(array([3])) == ours.Interval(None, None)
    assert ours.bootstrap_interval(array([3, 3])) == ours.Interval(3, 3)


@given(VALUES)
def test_quantiles_are_numpys(values: list[float]) -> None:
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


def test_effect_sizes_have_names() -> None:
    named = [ours.effect_size(d) for d in (0.1, -0.3, 0.7, -2.0, None)]
    assert named == ["small", "medium", "large", "very large", ""]
