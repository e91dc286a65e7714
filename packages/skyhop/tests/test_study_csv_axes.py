"""Axes whose values are rows of a CSV file, such as the times at which a trigger fired."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skyhop.errors import InputError
from skyhop.study import load_study, run_study
from small_study import content, write

STARTS = """\
how,start,flow.0.start,flow.0.stop,link.loss
triggered,1,1 s,2 s,
triggered,2,1.5 s,2.5 s,0.1 %
random,1,500 ms,1500 ms,
"""


def axes(**keys: Any) -> list[dict[str, Any]]:
    return [
        {"name": "cc", "key": "flow.0.cc", "values": ["cubic", "bbr"]},
        {"name": "start", "csv": "starts.csv", **keys},
        {"name": "how", "points": {"triggered": {}, "random": {}, "never": {}}},
    ]


def write_study(place: Path, starts: str | None, axis: list[dict[str, Any]]) -> Path:
    if starts is not None:
        (place / "starts.csv").write_text(starts, "utf-8")
    return write(place / "study.toml", axis=axis, repeats=1)


def test_rows_belong_to_the_values_that_they_name(tmp_path: Path) -> None:
    study = load_study(write_study(tmp_path, STARTS, axes()))
    assert [tuple(point.labels.values()) for point in study.points] == [
        (cc, start, how)
        for cc in ("cubic", "bbr")
        for start, how in ((1, "triggered"), (2, "triggered"), (1, "random"))
    ]
    # Values without a row are not run, and an empty cell sets nothing.
    first, second, third, *_ = study.runs()
    assert [run.resolved["flow"][0]["start"] for run in (first, second, third)] == [
        "1 s", "1.5 s", "500 ms",
    ]  # fmt: skip
    assert first.resolved["link"]["loss"] == "0 %"
    assert second.resolved["link"]["loss"] == "0.1 %"
    assert first.resolved["flow"][0]["cc"] == "cubic"


def test_the_dataset_has_the_rows_values_as_an_axis(tmp_path: Path) -> None:
    claim = [{"text": "…", "check": 'goodput(how="triggered") > 0 and goodput(start=1) > 0'}]
    axis = axes()[1:]
    write_study(tmp_path, STARTS, axis)
    file = write(tmp_path / "study.toml", axis=axis, repeats=1, claim=claim)
    done = run_study(load_study(file), tmp_path / "out", jobs=1)
    assert not done.failures
    rows = done.results.frame.select("start", "how").rows()
    assert rows == [(1.0, "triggered"), (2.0, "triggered"), (1.0, "random")]
    assert done.results.frame["goodput_bps"].min() > 0


WRONG: dict[str, tuple[str | None, dict[str, Any], str]] = {
    "no file": (None, {}, "cannot read"),
    "no column": ("how,at\ntriggered,1\n", {}, "the column `start` is missing"),
    "no row": ("how,start\n", {}, "has no rows"),
    "another value": ("how,start\nlate,1\n", {}, "row 2: how has no value 'late'"),
    "twice": ("how,start\nrandom,1\nrandom,1\n", {}, "row 3: `start` has the same value twice"),
    "a key twice": ("start,flow.0.cc\n1,reno\n", {}, "set by the axis `cc` already"),
    "no key of a scenario": ("start,flow.0.colour\n1,red\n", {}, "colour"),
    "a seed": ("start,run.seed\n1,2\n", {}, "seeds come from `repeats`"),
    "values too": (STARTS, {"values": [1]}, "expected one of `values`"),
    "a key too": (STARTS, {"key": "flow.0.start"}, "`points` and `csv` have none"),
    "in step": (STARTS, {"zip": "a"}, "`csv` takes no `zip`"),
    "changes": (STARTS, {"changes": {"csv": "a.csv"}}, "not with `points` or `csv`"),
}


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.replace(" ", "-"))
def test_wrong_rows_are_named(tmp_path: Path, case: str) -> None:
    starts, keys, expected = WRONG[case]
    file = write_study(tmp_path, starts, axes(**keys))
    with pytest.raises(InputError) as caught:
        list(load_study(file).runs())
    assert expected in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_the_file_is_found_in_the_studys_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    write_study(tmp_path / "there", STARTS, axes())
    monkeypatch.chdir(tmp_path)
    assert load_study("there/study.toml").run_count == 6
    with pytest.raises(InputError, match="cannot read"):
        load_study(content(axis=axes()))
