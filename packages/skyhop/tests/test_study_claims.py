"""Expressions and claims: values, refusals, and verdicts on made-up data."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyhop.data.shipped import shipped_files
from skyhop.errors import InputError
from skyhop.study import Results, load_study
from skyhop.study.axes import expand, numeric_axes
from skyhop.study.catalogue import find_study
from skyhop.study.claims import judge
from skyhop.study.expression import UnknownValueError, parse_expression
from skyhop.study.page import claim_rows, verdict_text
from skyhop.study.plan import Study
from skyhop.study.results import dataset
from small_study import content

NUMBERS = st.floats(0.1, 1e3)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_arithmetic_is_pythons(a: float, b: float, c: float) -> None:
    text = "a + b * (c - a) / b - -c + min(a, b, c) * max(1, abs(-2)) + mean(a, b)"
    expected = a + b * (c - a) / b + c + min(a, b, c) * 2 + (a + b) / 2
    value = parse_expression(text, "here").number({"a": a, "b": b, "c": c})
    assert value == pytest.approx(expected)


def test_brackets_do_not_exhaust_the_stack() -> None:
    assert parse_expression("(" * 500 + "1" + ")" * 500, "here").number({}) == 1


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "().__class__", "goodput.real", "[1][0]", "lambda: 1",
        "(1 for x in ())", "9**9**9", "f'{1}'", "'text'", "goodput('cubic')", "goodput(**{})",
        "goodput(cc={[]: 1})", "goodput(cc={[1]})",
        "goodput(cc=print)", "x if y else z", "1 < 'a'", "(1 < 2) + 1", "not 1", "a and b", "True",
        "1 if", "", "abs(1, 2)", "min()", "1 in 2", "-" * 500 + "1", "1" * 400,
    ],
)  # fmt: skip
def test_other_syntax_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="here"):
        parse_expression(text, "here")


def test_a_missing_value_raises_an_error() -> None:
    for text in ("a / 0", "b", "a / (1 - 1)", "1e300 * 1e300"):
        with pytest.raises(UnknownValueError):
            parse_expression(text, "here").number({"a": 1.0, "b": None})


def made_up(study: Study, goodput_mbps: dict[str, list[float]]) -> Results:
    """Return made-up results: a goodput in Mbit/s per congestion control and seed."""
    rows = [
        {"cc": cc, "loss": loss, "seed": seed, "run": f"{cc}{loss}{seed}", "flow": 0,
         "goodput_bps": mbps * 1e6}
        for cc, values in goodput_mbps.items()
        for loss in ("0.1 %", "1 %")
        for seed, mbps in enumerate(values, start=1)
    ]  # fmt: skip
    return Results(dataset(rows, numeric_axes(study.file)), study.metrics)


def verdicts(check: str, data: dict[str, list[float]], **claim: Any) -> str:
    study = load_study(content(claim=[{"text": "…", "check": check, **claim}]))
    (result,) = judge(study.claims, made_up(study, data))
    return result.verdict


DATA = {"cubic": [10.0, 14.0], "bbr": [36.0, 37.0]}


@pytest.mark.parametrize(
    ("check", "verdict"),
    [
        ('goodput(cc="bbr") / goodput(cc="cubic") > 3', "holds"),
        ('goodput(cc="bbr") / goodput(cc="cubic") > 3.1', "cannot be told"),
        ('goodput(cc="bbr") / goodput(cc="cubic") > 9', "does not hold"),
        ('goodput(cc="cubic") == 12', "holds"),
        ('goodput(cc="cubic", seed=2) == 14', "holds"),
        ('goodput(cc="cubic", stat="max") == 14', "holds"),
        ('10 <= goodput(cc="cubic", stat="min") < 10', "does not hold"),
        ('goodput(cc=["cubic", "bbr"]) == 24.25', "holds"),
        ('goodput(cc="bbr") > 36 and goodput(cc="cubic") > 20', "does not hold"),
        ('goodput(cc="bbr") > 99 or not goodput(cc="cubic") > 13', "holds"),
        ('srtt(cc="bbr") > 1', "cannot be told"),
    ],
)
def test_made_up_data_gets_the_expected_verdict(check: str, verdict: str) -> None:
    assert verdicts(check, DATA) == verdict


NEAR = {"cubic": [12.0, 13.0, 12.5], "bbr": [12.2, 13.1, 12.4]}
FAR = {"cubic": [12.0, 13.0, 12.5], "bbr": [22.2, 23.1, 22.4]}


@pytest.mark.parametrize(
    ("check", "data", "said"),
    [
        ('goodput(cc="bbr") > goodput(cc="cubic")', FAR, "holds"),
        (
            'goodput(cc="bbr") > goodput(cc="cubic")',
            NEAR,
            "holds, but within chance: 12.6 against 12.5",
        ),
        (
            'goodput(cc="cubic") > goodput(cc="bbr")',
            NEAR,
            "cannot be told, the difference is within chance: 12.5 against 12.6",
        ),
        (
            'goodput(cc="bbr") > 1.002 * goodput(cc="cubic")',
            NEAR,
            "holds, but within chance: 1.01 times, at least 1.00 was asked for",
        ),
        (
            'goodput(cc="bbr") / 1.01 < goodput(cc="cubic")',
            NEAR,
            "holds, but within chance: 0.995 times, at least 0.990 was asked for",
        ),
        (
            'goodput(cc="bbr") > goodput(cc="cubic") - 0.2',
            NEAR,
            "holds, but within chance: a difference of 0.067, more than -0.200 was asked for",
        ),
        (
            'goodput(cc="bbr") > goodput(cc="cubic") and goodput(cc="bbr") < goodput(cc="cubic")',
            NEAR,
            "cannot be told, the difference is within chance: 12.6 against 12.5",
        ),
        ('goodput(cc="bbr") / goodput(cc="cubic") < 1.5', NEAR, "holds"),
        (
            'goodput(cc="bbr") / goodput(cc="cubic") > 1',
            NEAR,
            "holds, but within chance: 1.01, more than 1.00 was asked for",
        ),
        # A certain part of an expression decides it, even if another is within chance.
        ('goodput(cc="bbr") > goodput(cc="cubic") or goodput(cc="bbr") > 5', NEAR, "holds"),
        (
            'goodput(cc="bbr") > goodput(cc="cubic") and goodput(cc="bbr") > 90',
            NEAR,
            "does not hold",
        ),
        # Single runs and exact values have no intervals.
        ('goodput(cc="bbr") > 12', {"bbr": [12.1]}, "holds"),
        ('goodput(cc="bbr", stat="max") > 13', NEAR, "holds"),
        ('goodput(cc="bbr") != 12', NEAR, "holds"),
        ('goodput(cc="bbr") >= 12', {"bbr": [12.0, 12.0]}, "holds"),
    ],
)
def test_verdicts_within_chance_say_so(check: str, data: dict[str, list[float]], said: str) -> None:
    study = load_study(content(claim=[{"text": "…", "check": check}]))
    (result,) = judge(study.claims, made_up(study, data))
    assert verdict_text(result) == said
    assert result.within_chance == ("within chance" in said)


def with_failures(results: Results, *failed: dict[str, object]) -> Results:
    """Return the results without the runs that have these axis values and seeds."""
    frame = results.frame
    for run in failed:
        frame = frame.filter(~pl.all_horizontal(*(pl.col(n) == v for n, v in run.items())))
    return Results(frame, results.metrics, failed)


FAILED = {"cc": "bbr", "loss": "1 %", "seed": 2}


@pytest.mark.parametrize(
    ("selected", "said"),
    [
        ("", "holds, of those that ran (1 run failed: cc = bbr; loss = 1 %)"),
        ('cc="bbr"', "holds, of those that ran (1 run failed: cc = bbr; loss = 1 %)"),
        ('cc="bbr", loss="1 %", seed=2', "cannot be told"),
        ('cc="bbr", seed=1', "holds"),
        ('cc="cubic"', "holds"),
    ],
)
def test_a_verdict_is_about_the_runs_that_did_not_fail(selected: str, said: str) -> None:
    study = load_study(content(claim=[{"text": "…", "check": f"goodput({selected}) > 1"}]))
    (result,) = judge(study.claims, with_failures(made_up(study, NEAR), FAILED))
    assert verdict_text(result).startswith(said)
    assert (FAILED in result.failed) == (said != "holds")
    if said == "cannot be told":
        assert "1 run failed" in result.findings[0].why


def test_a_failed_run_leaves_no_partner_in_a_comparison() -> None:
    """BBR lacks its slowest run, so CUBIC's run of the same loss and seed does not count either."""
    data = {"cubic": [10.0, 20.0], "bbr": [9.0, 19.0]}
    check = 'goodput(cc="bbr", loss="1 %") > goodput(cc="cubic", loss="1 %")'
    study = load_study(content(claim=[{"text": "…", "check": check}]))
    failed = {"cc": "bbr", "loss": "1 %", "seed": 1}
    (result,) = judge(study.claims, with_failures(made_up(study, data), failed))
    (comparison,) = result.findings[0].comparisons
    assert (comparison.left, comparison.right, result.verdict) == (19.0, 20.0, "does not hold")


def test_a_point_without_runs_does_not_void_the_other_points() -> None:
    each = {"loss": ["0.1 %", "1 %"]}
    claim = {"text": "…", "check": 'goodput(cc="bbr") > goodput(cc="cubic")', "each": each}
    study = load_study(content(claim=[claim]))
    failed = [{"cc": "bbr", "loss": "1 %", "seed": seed} for seed in (1, 2, 3)]
    (result,) = judge(study.claims, with_failures(made_up(study, FAR), *failed))
    assert [finding.verdict for finding in result.findings] == ["holds", "cannot be told"]
    said = "holds, of those that ran (3 runs failed: cc = bbr; loss = 1 %)"
    assert claim_rows(result)[0] == ("…", said)
    assert claim_rows(result)[1] == ("- loss = 0.1 %", "22.6 against 12.5 (holds)")
    assert claim_rows(result)[2][1].startswith("3 runs failed: ")


def test_flows_of_a_run_are_not_independent_samples() -> None:
    """Compare the flows of each run in pairs: one's larger share is the other's smaller one."""
    from scipy import stats

    source = np.random.default_rng(3)
    shares = 50 + source.normal(2, 3, 10)
    study = load_study(
        content(claim=[{"text": "…", "check": "goodput(flow=0) > goodput(flow=1)"}], axis=[])
    )
    rows = [
        {"seed": seed, "run": f"{seed}", "flow": flow, "goodput_bps": 1e6 * mbps}
        for seed, share in enumerate(shares, start=1)
        for flow, mbps in enumerate((share, 100 - share))
    ]
    results = Results(dataset(rows, numeric_axes(study.file)), study.metrics)
    (result,) = judge(study.claims, results)
    (comparison,) = result.findings[0].comparisons
    pairs = stats.ttest_rel(shares, 100 - shares).confidence_interval()
    found = (comparison.interval.low, comparison.interval.high)
    assert found == pytest.approx((pairs.low, pairs.high))


@pytest.mark.parametrize(
    ("low", "high", "chance"),
    [(10.0, 20.0, False), (14.9, 15.1, True), (15.1, 14.9, True)],
)
def test_medians_are_compared_by_resampling_runs(low: float, high: float, chance: bool) -> None:
    source = random.Random(1)
    data = {
        "cubic": [source.gauss(low, 3) for _ in range(25)],
        "bbr": [source.gauss(high, 3) for _ in range(20)],
    }
    chosen = 'loss="1 %", stat="median"'
    check = f'goodput(cc="cubic", {chosen}) < goodput(cc="bbr", {chosen})'
    study = load_study(content(claim=[{"text": "…", "check": check}]))
    results = made_up(study, data)
    (result,), (again,) = judge(study.claims, results), judge(study.claims, results)
    (comparison,) = result.findings[0].comparisons
    assert comparison.interval == again.findings[0].comparisons[0].interval
    assert result.within_chance == chance
    assert comparison.interval.low is not None
    assert comparison.interval.high is not None
    # A median's standard error is about 1.25 sd / sqrt(n); that of the difference is 1.1 Mbit/s.
    assert 2 < comparison.interval.high - comparison.interval.low < 7
    assert comparison.interval.low < low - high + 2.5
    assert comparison.interval.high > low - high - 2.5


def test_single_runs_have_medians_without_an_interval() -> None:
    check = 'goodput(cc="cubic", stat="median") < goodput(cc="bbr", stat="median")'
    study = load_study(content(claim=[{"text": "…", "check": check}]))
    (result,) = judge(study.claims, made_up(study, {"cubic": [10.0, 12.0], "bbr": []}))
    assert result.verdict == "cannot be told"
    rows = made_up(study, {"cubic": [10.0], "bbr": [12.0]})
    (result,) = judge(study.claims, Results(rows.frame.filter(loss="1 %"), study.metrics))
    assert result.findings[0].comparisons[0].interval.low is None
    assert not result.within_chance


def test_a_claim_is_within_chance_if_its_deciding_findings_are() -> None:
    each = {"cc": ["cubic", "bbr"]}
    data = {"cubic": [12.0, 13.0, 12.5], "bbr": [36.0, 37.0, 36.5]}
    for check, said in [
        (
            "goodput() > 12.4",
            "holds, but within chance: 12.5, more than 12.4 was asked for (cc = cubic)",
        ),
        ("goodput() < 12.6", "does not hold"),
        (
            "goodput() > 12.6",
            "cannot be told, the difference is within chance: "
            "12.5, more than 12.6 was asked for (cc = cubic)",
        ),
        ("goodput() > 1", "holds"),
    ]:
        study = load_study(content(claim=[{"text": "…", "check": check, "each": each}]))
        (result,) = judge(study.claims, made_up(study, data))
        assert verdict_text(result) == said


def test_a_claim_that_fails_at_one_value_fails() -> None:
    each = {"cc": ["cubic", "bbr"]}
    assert verdicts("goodput() > 11", DATA, each=each) == "holds"
    assert verdicts("goodput() > 20", DATA, each=each) == "does not hold"
    assert verdicts("goodput() > 12.5", DATA, each=each) == "cannot be told"
    assert verdicts("goodput() > 11", {"cubic": [12.0]}, each=each) == "cannot be told"
    assert verdicts("goodput() > 20", {"cubic": [12.0]}, each=each) == "does not hold"


def test_failed_runs_do_not_hide_what_chance_leaves_open() -> None:
    each = {"loss": ["0.1 %", "1 %"]}
    claim = {"text": "…", "check": 'goodput(cc="cubic") > goodput(cc="bbr")', "each": each}
    study = load_study(content(claim=[claim]))
    data = {"cubic": [12.0, 13.0, 12.5, 9.0], "bbr": [12.2, 13.1, 12.4, 9.1]}
    results = made_up(study, data)
    (result,) = judge(study.claims, with_failures(results, {"loss": "1 %", "seed": 4}))
    assert [finding.verdict for finding in result.findings] == ["cannot be told"] * 2
    assert [finding.why for finding in result.findings] == ["the difference is within chance"] * 2
    assert result.within_chance
    assert claim_rows(result)[1][1] == "11.6 against 11.7 (within chance) (cannot be told)"


def test_comparisons_keep_both_sides() -> None:
    study = load_study(content(claim=[{"text": "…", "check": 'goodput(cc="bbr") > 40'}]))
    ((finding,),) = [r.findings for r in judge(study.claims, made_up(study, DATA))]
    (comparison,) = finding.comparisons
    assert (comparison.left, comparison.right, comparison.holds) == (36.5, 40.0, False)


UNTOLD = {"text": "Sage is slowest", "cannot_be_told": "its weights are not to be had"}


def test_a_claim_can_say_that_it_cannot_be_told() -> None:
    study = load_study(content(claim=[UNTOLD, {"text": "…", "check": "goodput() > 1"}]))
    untold, told = judge(study.claims, made_up(study, DATA))
    assert (untold.verdict, told.verdict) == ("cannot be told", "holds")
    assert not untold.within_chance
    assert verdict_text(untold) == "cannot be told: its weights are not to be had"
    (finding,) = untold.findings
    assert (finding.why, finding.comparisons) == ("its weights are not to be had", ())


def test_a_claim_that_fails_shows_its_cause_and_one_that_holds_does_not() -> None:
    cause = {"cause": "model", "why": "losses are independent.", "shown_by": "axis loss"}
    checks = ("goodput() > 1000", "goodput() > 1")
    study = load_study(content(claim=[{"text": "…", "check": c, **cause} for c in checks]))
    fails, holds = judge(study.claims, made_up(study, DATA))
    text = "Cause: skyhop's model. losses are independent (shown by axis loss)."
    assert (fails.cause_text, holds.cause_text) == (text, "")
    assert claim_rows(fails)[-1] == ("", text)
    assert all(text not in row for row in claim_rows(holds))


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ({**UNTOLD, "check": "goodput() > 1"}, "either `check`, or the reason `cannot_be_told`"),
        ({"text": "…"}, "either `check`, or the reason `cannot_be_told`"),
        ({"text": "…", "cannot_be_told": " "}, "either `check`, or the reason `cannot_be_told`"),
        ({**UNTOLD, "each": {"cc": ["bbr"]}}, "`each` goes with `check`"),
        ({**UNTOLD, "cause": "data"}, "`cause` and `why`, its sentence, go together"),
        ({**UNTOLD, "why": "it is closed"}, "`cause` and `why`, its sentence, go together"),
        ({**UNTOLD, "shown_by": "loss"}, "`shown_by` goes with `cause`"),
        ({**UNTOLD, "cause": "moon", "why": "…"}, "cause"),
    ],
)
def test_a_claim_needs_a_check_or_a_reason(claim: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError) as caught:
        load_study(content(claim=[claim]))
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        ("goodput(cc='reno') > 1", "cc has no value 'reno'"),
        ("goodput(hold='1 s') > 1", "no axis `hold`"),
        ("speed(cc='bbr') > 1", "no metric `speed`"),
        ("goodput(cc='bbr')", "expected a comparison"),
        ("goodput > 1", "a metric needs parentheses"),
        ("goodput(stat='best') > 1", "stat: expected mean"),
    ],
)
def test_a_claim_with_a_wrong_expression_is_refused(check: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        load_study(content(claim=[{"text": "…", "check": check}]))
    assert expected in str(caught.value)
    assert "claim 1.check" in str(caught.value)


def test_a_run_counts_its_flows_as_one() -> None:
    """Check that two flows of a run do not count as two repeats."""
    study = load_study(content())
    rows = [
        {"cc": "cubic", "loss": "1 %", "seed": seed, "run": str(seed), "flow": flow,
         "goodput_bps": 1e6 * (10 * seed + flow)}
        for seed in (1, 2) for flow in (0, 1)
    ]  # fmt: skip
    results = Results(dataset(rows, numeric_axes(study.file)), study.metrics)
    goodput = study.metrics.infos["goodput"]
    assert results.values(goodput, {"cc": "cubic"}).tolist() == [10.5, 20.5]
    assert results.values(goodput, {"cc": "cubic", "flow": 1}).tolist() == [11.0, 21.0]
    assert np.isnan(results.values(goodput, {"cc": "bbr"})).all()


@pytest.mark.parametrize("name", sorted(shipped_files("studies")))
def test_every_shipped_claim_can_be_judged(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Fewer resamples are enough: they affect intervals, not verdicts.
    monkeypatch.setattr("skyhop.study.claims._DRAWS", 20)
    study = load_study(find_study(name))
    rng = random.Random(1)
    columns = study.metrics.columns - {"run", "seed", "flow", "flow_cc"}
    rows = [
        {column: rng.uniform(1, 2) for column in sorted(columns)}
        | {**point.labels, "seed": seed, "run": f"{place} {seed}", "flow": flow}
        for place, point in enumerate(expand(study.file, name))
        for seed in (1, 2)
        for flow in range(10)
    ]
    results = Results(dataset(rows, numeric_axes(study.file)), study.metrics)
    for result in judge(study.claims, results):
        is_checked = not result.claim.cannot_be_told
        assert all(bool(f.comparisons) == is_checked for f in result.findings), result
