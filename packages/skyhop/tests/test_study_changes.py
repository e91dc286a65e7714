"""Changes that are drawn from seeds, compared with published draws, or read from a file."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skyhop.data.runs import Run
from skyhop.errors import InputError
from skyhop.study import load_study, run_study
from small_study import content, write

RATE = {"law": "randint", "low": 50, "high": 100, "key": "rate", "unit": "Mbit/s"}
RTT = {"law": "randint", "low": 5, "high": 100, "key": "rtt", "unit": "ms", "link": "delay"}
LOSS = {"law": "uniform", "low": 0, "high": 1, "digits": 2, "key": "loss", "unit": "%",
        "link": "delay"}  # fmt: skip
DISCARDED = {key: value for key, value in LOSS.items() if key not in ("key", "link", "unit")}
EVERY_15_S = {"every": "15 s", "count": 20}

# Rate (Mbit/s), base RTT (ms) and loss (%) every 15 s of run 1 (the first four) and run 2; Mazilu,
# Valentine and Parisis, 2025, Figures 3 and 4.
RUN_1 = [(58, 77, 0.85), (98, 13, 0.26), (81, 62, 0.47), (74, 31, 0.09)]
RUN_2 = [
    (53, 16, 0.08), (60, 99, 0.81), (69, 37, 0.61), (88, 9, 0.58), (60, 60, 0.64), (96, 70, 0.95),
    (84, 61, 0.50), (52, 8, 0.36), (70, 53, 0.42), (83, 26, 0.56), (65, 34, 0.02), (70, 27, 0.14),
    (82, 51, 1.0), (93, 76, 0.18), (78, 58, 0.73), (98, 51, 0.79), (72, 51, 0.98), (78, 25, 0.95),
    (75, 96, 0.74), (91, 72, 0.25),
]  # fmt: skip


def study_content(*draws: dict[str, Any], count: int = 20, **changes: Any) -> dict[str, Any]:
    scenario = content()["scenario"]
    scenario["links"] = {"delay": {"rate": "1 Gbit/s", "rtt": "20 ms"}}
    scenario["flow"] = [{"cc": "cubic", "via": ["delay", "path"]}]
    scenario["run"]["duration"] = "300 s"
    drawn = {"every": "15 s", "count": count, "draw": list(draws)}
    axis = [{"name": "draw", "range": {"from": 1, "to": 50, "step": 1}, "changes": drawn}]
    return content(**{"scenario": scenario, "axis": axis, "repeats": 1, **changes})


def drawn_changes(*draws: dict[str, Any]) -> dict[int, list[dict[str, Any]]]:
    """Return the changes of a study's resolved scenarios by the axis's value."""
    runs = load_study(study_content(*draws)).runs()
    return {int(run.labels["draw"]): run.resolved["change"] for run in runs}


def values_of_link(changes: list[dict[str, Any]], link: str | None, key: str) -> list[float]:
    mine = [change for change in changes if change.get("link") == link]
    return [float(change[key].split()[0]) for change in mine]


def test_draws_equal_published_ones() -> None:
    found = drawn_changes(RATE, RTT, LOSS)
    assert list(found) == list(range(1, 51))
    for seed, expected in ((1, RUN_1), (2, RUN_2)):
        rates = values_of_link(found[seed], None, "rate")
        rtts, losses = (values_of_link(found[seed], "delay", key) for key in ("rtt", "loss"))
        triples = list(zip(rates, rtts, losses, strict=True))
        assert len(triples) == 20
        assert triples[: len(expected)] == expected
    # The mean rate of each run is the optimum that the paper draws.
    means = [statistics.mean(values_of_link(changes, None, "rate")) for changes in found.values()]
    assert min(means) == 67.95
    assert max(means) == 80.35
    assert statistics.mean(means) == pytest.approx(75.17, abs=0.005)
    assert np.quantile(means, [0.25, 0.5]) == pytest.approx([73.7, 75.6], abs=0.05)
    assert np.quantile(means, 0.75, method="higher") == pytest.approx(77.45)


def test_links_change_at_regular_times() -> None:
    changes = drawn_changes(RATE, RTT, LOSS)[2]
    assert changes[:4] == [
        {"at": "0 s", "rate": "53 Mbit/s"},
        {"at": "0 s", "link": "delay", "rtt": "16 ms", "loss": "0.08 %"},
        {"at": "15 s", "rate": "60 Mbit/s"},
        {"at": "15 s", "link": "delay", "rtt": "99 ms", "loss": "0.81 %"},
    ]
    assert changes[-1]["at"] == "285 s"


def test_values_without_a_key_are_drawn_too() -> None:
    """Draw the same rates and RTTs with and without loss, as the paper's two experiments do."""
    lossy, lossless = drawn_changes(RATE, RTT, LOSS), drawn_changes(RATE, RTT, DISCARDED)
    for seed, changes in lossless.items():
        assert all("loss" not in change for change in changes)
        for link, key in ((None, "rate"), ("delay", "rtt")):
            assert values_of_link(changes, link, key) == values_of_link(lossy[seed], link, key)
    assert values_of_link(drawn_changes(RATE, RTT)[2], None, "rate") != values_of_link(
        lossless[2], None, "rate"
    )


def test_drawn_changes_happen_in_runs(tmp_path: Path) -> None:
    made = study_content({**RTT, "low": 30, "high": 90}, count=2)
    made["scenario"]["run"]["duration"] = "20 s"
    made["axis"][0] = {**made["axis"][0], "range": None, "values": [7, 8]}
    del made["axis"][0]["range"]
    study = load_study(made)
    done = run_study(study, tmp_path / "out", jobs=2)
    assert not done.failures
    rows = done.results.frame.rows(named=True)
    assert [row["draw"] for row in rows] == [7, 8]
    for run, row in zip(study.runs(), rows, strict=True):
        first_ms, second_ms = values_of_link(run.resolved["change"], "delay", "rtt")
        # The path adds 20 ms; the first RTT of the link holds for 15 s, the second for 5 s.
        expected_ms = 20 + (15 * first_ms + 5 * second_ms) / 20
        assert row["base_rtt_mean_us"] / 1e3 == pytest.approx(expected_ms, abs=0.01)
        scenario = Run(tmp_path / "out" / "runs" / row["run"]).info["scenario"]
        assert scenario["change"] == run.resolved["change"]


def test_changes_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "changes.csv").write_text(
        "draw,at,link,rtt,rate\na,1 s,,50 ms,\na,2 s,more,,5 Mbit/s\nb,1500 ms,,,20 Mbit/s\n"
    )
    scenario = content()["scenario"]
    scenario["links"] = {"more": {"rate": "1 Gbit/s"}}
    axis = [{"name": "draw", "values": ["a", "b"], "changes": {"csv": "changes.csv"}}]
    file = write(tmp_path / "study.toml", scenario=scenario, axis=axis, repeats=1)
    found = [run.resolved["change"] for run in load_study(file).runs()]
    assert found == [
        [{"at": "1 s", "rtt": "50 ms"}, {"at": "2 s", "link": "more", "rate": "5 Mbit/s"}],
        [{"at": "1.5 s", "rate": "20 Mbit/s"}],
    ]


WRONG_FILES = {
    "missing": (None, "cannot read"),
    "another column": ("draw,at,colour\na,1 s,red\n", "unknown column `colour`"),
    "no moment": ("draw,rtt\na,1 s\n", "the column `at` is missing"),
    "no axis": ("at,rtt\n1 s,2 ms\n", "the column `draw` is missing"),
    "another value": ("draw,at,rtt\nb,1 s,2 ms\n", "no row with draw = a"),
    "a long row": ("draw,at,rtt\na,1 s,2 ms,3 ms\n", "row 2 has more or fewer cells"),
    "a short row": ("draw,at,rtt\na,1 s\n", "row 2 has more or fewer cells"),
}


@pytest.mark.parametrize("case", WRONG_FILES, ids=lambda case: case.replace(" ", "-"))
def test_a_wrong_file_is_named(tmp_path: Path, case: str) -> None:
    text, expected = WRONG_FILES[case]
    if text is not None:
        (tmp_path / "changes.csv").write_text(text)
    axis = [{"name": "draw", "values": ["a"], "changes": {"csv": "changes.csv"}}]
    file = write(tmp_path / "study.toml", axis=axis)
    with pytest.raises(InputError) as caught:
        load_study(file)
    assert expected in str(caught.value)
    assert "changes.csv" in str(caught.value)


AXIS = {"name": "draw", "values": [1, 2], "changes": {**EVERY_15_S, "draw": [RATE]}}
WRONG = [
    ({**AXIS, "key": "link.loss"}, "need a `key` or `changes`"),
    ({**AXIS, "values": ["a"]}, "whole numbers as values, which are seeds, not 'a'"),
    ({**AXIS, "values": [True]}, "whole numbers as values, which are seeds, not True"),
    ({**AXIS, "changes": {"draw": [RATE]}}, "`every` and `count` go with `draw`"),
    ({**AXIS, "changes": {**EVERY_15_S, "csv": "a.csv"}}, "`every` and `count` go with `draw`"),
    ({**AXIS, "changes": {**EVERY_15_S, "draw": [RATE], "every": "1.2.3 s"}}, "not a duration"),
    ({**AXIS, "changes": EVERY_15_S}, "either `draw` or `csv`"),
    ({**AXIS, "changes": {**EVERY_15_S, "draw": [{**RATE, "low": 1.5}]}}, "whole numbers"),
    ({**AXIS, "changes": {**EVERY_15_S, "draw": [{**RATE, "high": 1}]}}, "`high` not below `low`"),
    ({**AXIS, "changes": {**EVERY_15_S, "draw": [{**RATE, "law": "dice"}]}}, "'randint' or"),
    ({**AXIS, "changes": {**EVERY_15_S, "draw": [RATE], "count": 10**6}}, "draws 2,000,000"),
    ({"name": "a", "points": {"b": {}}, "changes": AXIS["changes"]}, "not with `points`"),
]


@pytest.mark.parametrize(("axis", "expected"), WRONG)
def test_wrong_changes_are_named(axis: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError) as caught:
        load_study(content(axis=[axis]))
    assert expected in str(caught.value)
    assert "axis 1" in str(caught.value)


def test_points_of_an_axis_set_lists_of_changes() -> None:
    slump = [{"at": "1 s", "rate": "5 Mbit/s"}, {"at": "2 s", "rate": "10 Mbit/s"}]
    points = {"none": {"change": []}, "slump": {"change": slump, "link.queue": "15 ms"}}
    scenario = {**content()["scenario"], "change": [{"at": "2.5 s", "rate": "1 Mbit/s"}]}
    study = load_study(content(scenario=scenario, axis=[{"name": "way", "points": points}]))
    found = {run.labels["way"]: run.resolved.get("change", []) for run in study.runs()}
    assert found["none"] == [], "the list replaces that of the scenario"
    assert [(change["at"], change["rate"]) for change in found["slump"]] == [
        ("1 s", "5 Mbit/s"), ("2 s", "10 Mbit/s"),
    ]  # fmt: skip
