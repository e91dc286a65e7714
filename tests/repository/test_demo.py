"""Question and answer of `make demo`, from the runs of its scenario."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT

import demo
import demo_answer
from skyhop.analysis.timeline import Line, Timeline
from skyhop.data.reading import read_runs
from skyhop.data.records import RunRecord
from skyhop.simulation import sim

SENDERS = {run.cc: run for run in demo.SIMULATED if run.duration == demo.SHORT}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunRecord]:
    """Simulate the senders of the picture."""
    place = tmp_path_factory.mktemp("demo")
    for planned in SENDERS.values():
        sets = [f"flow.0.cc={planned.cc}", f"run.duration={planned.duration}", *planned.sets]
        sim(demo.SCENARIO, place / planned.name, sets=sets)
    return read_runs([place / planned.name for planned in SENDERS.values()])


def as_live(run: RunRecord, late_us: float) -> RunRecord:
    """Return a run as if it had been live on a machine that was late by `late_us`."""
    lateness = {"p50": late_us / 10, "p99": late_us, "max": late_us}
    summary = {**run.summary, "engine": "live", "lateness_us": lateness}
    return replace(run, name=f"{run.name}-live", summary=summary)


def lines(lead: demo_answer.Lead) -> list[str]:
    """Return the labels of the senders in the picture."""
    view = lead.figure.view()
    assert isinstance(view, Timeline)
    return [mark.label for mark in view.panels[0].marks if isinstance(mark, Line)]


def test_the_scenario_separates_the_senders(runs: list[RunRecord]) -> None:
    path = runs[0].path
    assert path is not None
    change = demo_answer.change_of(path)
    assert change.at_s == 15
    assert change.after_ms > 3 * change.before_ms
    of_cc = {cc: demo_answer.outcome(run, change) for cc, run in zip(SENDERS, runs, strict=True)}
    for told, untold in (("satcp", "cubic"), ("satpipe", "bbr")):
        assert of_cc[told].after_mbps > of_cc[untold].after_mbps + 4
        back_s = of_cc[told].back_s, of_cc[untold].back_s
        assert back_s[0] is not None
        assert back_s[1] is not None
        assert back_s[1] >= back_s[0] + 4
    assert of_cc["reno"].back_s is None


def test_the_answer_is_that_of_the_runs(runs: list[RunRecord]) -> None:
    lead = demo_answer.lead(runs)
    assert lead.question == demo_answer.QUESTION
    first, second = lead.answer
    assert first == (
        "In the 10 s after a handover takes the round trip from 43 to 148 ms, Reno carries 19.8, "
        "BBR 27.6 and CUBIC 36.0 of 50 Mbit/s; told 500 ms ahead, SaTCP carries 41.3 and SatPipe "
        "44.8."
    )
    assert second == (
        "SatPipe is back at 90 % of its rate after 1 s, SaTCP after 6 s, BBR after 7 s, CUBIC "
        "after 12 s and Reno not within 15 s."
    )
    assert lines(lead) == ["BBR", "Reno", "CUBIC", "SaTCP, told", "SatPipe, told"]
    # Fewer senders make another sentence: no text is fixed.
    two = demo_answer.lead([run for run in runs if run.name in ("cubic", "reno")])
    assert two.answer[0].endswith("Reno carries 19.8 and CUBIC 36.0 of 50 Mbit/s.")
    (alone,) = [run for run in runs if run.name == "reno"]
    assert demo_answer.lead([alone]).answer[1] == (
        "Reno is back at 90 % of its rate, not within 15 s."
    )


def test_a_late_live_run_is_left_out_with_a_sentence(runs: list[RunRecord]) -> None:
    bbr, cubic = (next(run for run in runs if run.name == cc) for cc in ("bbr", "cubic"))
    late = demo_answer.lead([as_live(bbr, 9_800.0), *runs])
    assert "the machine was late by 9.80 ms or more for 1 % of the packets" in late.figure.caption
    assert "BBR, live" not in lines(late)
    assert late.answer == demo_answer.lead(runs).answer
    punctual = demo_answer.lead([as_live(bbr, 100.0), *runs])
    assert lines(punctual)[0] == "BBR, live"
    assert "carries 27.6 Mbit/s, simulated 27.6 Mbit/s." in punctual.figure.caption
    # Punctual, but with another result: the caption says why.
    other = replace(as_live(cubic, 100.0), flows=bbr.flows)
    caption = demo_answer.lead([other, *runs]).figure.caption
    assert "simulated 36.0 Mbit/s: probes and losses fall at other times in every run" in caption


def test_longer_runs_say_how_often_the_path_becomes_longer(
    runs: list[RunRecord], tmp_path: Path
) -> None:
    sim(demo.SCENARIO, tmp_path / "long", sets=["run.duration=160 s"])
    caption = demo_answer.lead([*runs, *read_runs([tmp_path / "long"])]).figure.caption
    assert "Over 160 s with 2 such changes, means are" in caption


def test_the_readmes_caption_has_the_numbers_of_the_answer(runs: list[RunRecord]) -> None:
    first = demo_answer.lead(runs).answer[0]
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    for shared in ("handover takes the round trip from 43 to 148 ms", "27.6", "44.8"):
        assert shared in first
        assert shared in readme
    assert (ROOT / "docs" / "demo.png").stat().st_size < 300_000
