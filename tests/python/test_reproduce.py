"""The pages that make reproduce writes: study by study, and which sender serves whom."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import reproduce
import which_sender
from small_study import content

from skyhop.analysis.statistics import bootstrap_interval, stratified_interval
from skyhop.study import StudyRun, load_study, run_study
from skyhop.study.claims import judge

QUEUES = {
    "deep": {"link.queue": "1 MB"},
    "shallow": {"link.queue": "10 kB"},
}


def matrix() -> dict[str, object]:
    """Return a study with the axes and the metrics of leo-beyond, of two senders."""
    beside = {"nobody": {"flow.1.count": 0}, "Cubic": {"flow.1.count": 1}}
    samples = {"kind": "samples", "from": "1 s"}
    return content(
        repeats=3,
        scenario={
            "path": {"kind": "fixed", "rtt": "20 ms"},
            "link": {"rate": "10 Mbit/s"},
            "flow": [{"start_spread": "200 ms"}, {"cc": "cubic", "start_spread": "200 ms"}],
            "run": {"duration": "4 s"},
        },
        axis=[
            {"name": "path", "points": {"clean": {}, "lossy": {"link.loss": "2 %"}}},
            {"name": "queue", "points": QUEUES},
            {"name": "beside", "points": beside},
            {
                "name": "sender",
                "points": {"Cubic": {"flow.0.cc": "cubic"}, "BBR": {"flow.0.cc": "bbr"}},
            },
        ],
        metric=[
            {"name": "used", "unit": "Mbit/s", **samples},
            {"name": "inflation", "series": "srtt_over_base", **samples},
            {"name": "inflation_p95", "series": "srtt_over_base", "stat": "p95", **samples},
            {"name": "sum", "kind": "flows", "over": "sum", "from": "1 s"},
            {"name": "share", "kind": "expression", "value": "used / sum * 100", "unit": "%"},
        ],
    )


LINKS = which_sender.Links("here", {"lossy": "there"})


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> StudyRun:
    return run_study(load_study(matrix()), tmp_path_factory.mktemp("matrix"))


def test_the_best_sender_is_named_with_those_that_chance_cannot_tell_from_it(
    done: StudyRun,
) -> None:
    bulk, interactive, neighbour = which_sender.NEEDS
    alone = {"beside": "nobody", "queue": "deep"}
    lossy = which_sender.best(done.results, bulk, {**alone, "path": "lossy"})
    # CUBIC takes loss for congestion.
    assert [name for name, _ in lossy] == ["BBR"]
    assert which_sender.named(bulk, lossy, LINKS).startswith("BBR: [9.")
    clean = which_sender.best(done.results, interactive, {**alone, "path": "clean"})
    assert clean[0][0] == "BBR"
    even = {"beside": "Cubic", "flow": 0, "queue": "deep", "path": "clean"}
    assert which_sender.best(done.results, neighbour, even)[0][0] == "Cubic"


def test_the_page_has_every_path_and_queue(done: StudyRun) -> None:
    page = which_sender.page(done, LINKS)
    assert "reproduced.md#here" in page
    assert "- A bulk transfer, alone (the most goodput): BBR " in page
    assert "how many of the 4 cells below" in page
    for need in which_sender.NEEDS:
        assert f"## {need.who}" in page
    rows = [line for line in page.splitlines() if line.startswith(("| clean", "| [lossy]"))]
    assert len(rows) == 2 * len(which_sender.NEEDS)
    assert all(row.count("|") == 2 + len(QUEUES) and " - " not in row for row in rows)
    # Each cell leads to the study that it is of, and tells how far before the next the best is.
    assert all(row.count("](reproduced.md#here)") == len(QUEUES) for row in rows)
    assert all("[lossy](reproduced.md#there)" in row for row in rows[1::2])
    bulk = next(row for row in rows if "[lossy]" in row)
    assert re.search(
        r"BBR: \[9\.\d+\]\(reproduced.md#here\) \[.*\] Mbit/s, before Cubic \S+, d \d", bulk
    )


def test_what_queues_do_is_as_certain_as_the_runs_and_not_as_senders_are_alike(
    done: StudyRun,
) -> None:
    """Senders and paths differ by far more than seeds do: that is no uncertainty of their mean."""
    where = {"beside": "nobody", "queue": "deep"}
    found = which_sender.runs_of(done.results, "used", where)
    assert set(found) == {(p, s) for p in ("clean", "lossy") for s in ("Cubic", "BBR")}
    own = stratified_interval(list(found.values()))
    spread = bootstrap_interval(np.concatenate(list(found.values())))
    assert None not in (own.low, own.high, spread.low, spread.high)
    assert (own.high or 0) - (own.low or 0) < ((spread.high or 0) - (spread.low or 0)) / 5
    middle = np.mean([values.mean() for values in found.values()])
    assert (own.low or 0) <= middle <= (own.high or 0)


def test_a_study_replaces_what_the_page_has_of_it(
    done: StudyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce, "PAGE", tmp_path / "page.md")
    names = [SimpleNamespace(name=name) for name in ("first", "second")]
    monkeypatch.setattr(reproduce, "list_studies", lambda: names)
    claims = judge(done.study.claims, done.results)
    for name in ("second", "first", "second"):
        reproduce.write_page(reproduce.Reproduced(name, done, claims))
    text = reproduce.PAGE.read_text("utf-8")
    assert list(reproduce.read_sections(text)) == ["first", "second"]
    assert "All of it was made by one build." in text
    assert "| 48 | 0 | 0 | 0 |" in text
    old = text.replace("first: build ", "first: build 0")
    reproduce.PAGE.write_text(old, "utf-8")
    reproduce.write_page(reproduce.Reproduced("second", done, claims))
    assert "Made by 2 builds: 0" in reproduce.PAGE.read_text("utf-8")


def test_times_of_all_goes_count_and_those_that_run_nothing_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce, "RUNS", tmp_path / "studies")
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(reproduce, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    runs = tmp_path / "studies" / "first" / "runs"
    assert reproduce.time_taken("first") is None

    def stopped() -> None:
        with reproduce.timed("first"):
            (runs / "a").mkdir(parents=True)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert reproduce.time_taken("first") == 10
    with reproduce.timed("first"):
        (runs / "b").mkdir()
    assert reproduce.time_taken("first") == 20
    with reproduce.timed("first"):
        pass
    assert reproduce.time_taken("first") == 20
    # One that was begun before times were written down: nobody knows.
    (tmp_path / "studies" / "second").mkdir()
    with reproduce.timed("second"):
        (tmp_path / "studies" / "second" / "runs" / "a").mkdir(parents=True)
    assert reproduce.time_taken("second") is None
    # What a full disk leaves.
    reproduce.took_file("third").touch()
    assert reproduce.time_taken("third") is None


def test_a_build_is_what_decides_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "ROOT", tmp_path)

    def named(file: str, text: str) -> str:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text, "utf-8")
        reproduce.build.cache_clear()
        return reproduce.build()

    try:
        first = named("crates/sim/src/lib.rs", "1")
        assert named("crates/live/src/lib.rs", "1") == first
        assert named("crates/sim/src/tests.rs", "1") == first
        assert named("crates/sim/tests/all/main.rs", "1") == first
        assert named("crates/sim/src/lib.rs", "1") == first
        names = [first]
        for file in ("crates/sim/src/lib.rs", "cc/bbr.c", "Cargo.lock", "data/sites/a.csv"):
            names.append(named(file, "2"))
        assert len(set(names)) == len(names)
    finally:
        reproduce.build.cache_clear()


def test_what_is_left_is_told_from_what_studies_took_before(
    done: StudyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce, "PAGE", tmp_path / "page.md")
    names = [SimpleNamespace(name=name) for name in ("first", "second")]
    monkeypatch.setattr(reproduce, "list_studies", lambda: names)
    reproduce.write_page(reproduce.Reproduced("first", done, [], 600.0))
    reproduce.write_page(reproduce.Reproduced("second", done, []))
    # Where runs were there already, what it took before stands.
    reproduce.write_page(reproduce.Reproduced("first", done, []))
    times = reproduce.times_of(reproduce.read_sections(reproduce.page()))
    assert times == {"first": 600.0}
    left = reproduce.Left({"first": 10.0, "second": 20.0, "third": 30.0}, times)
    assert left.told() == "; about 60 min are left"
    left.done("first", 1200.0)
    assert left.told() == "; about 100 min are left", "this machine is half as fast"
    left.done("second", None)
    assert left.told() == "; about 60 min are left"
    assert reproduce.Left({"second": 20.0}, {}).told() == ""
