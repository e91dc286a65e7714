"""Start times of uploads in studies of triggers: triggered and random ones."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import polars as pl
import pytest

import skyhop as sh
from skyhop.data.shipped import shipped_files
from skyhop.study import load_study
from skyhop.telemetry.fields import TIME
from validation import triggered_starts

STUDIES = shipped_files("studies")


def latency(values_ms: list[float | None]) -> pl.DataFrame:
    times = [second * 10**9 for second in range(1, len(values_ms) + 1)]
    return pl.DataFrame(
        {TIME: times, triggered_starts.LATENCY: values_ms},
        schema={TIME: pl.Int64, triggered_starts.LATENCY: pl.Float64},
    )


def test_uploads_start_a_second_after_the_latency_has_doubled() -> None:
    usual = [20.0] * 300
    for second in (9, 40, 150, 151, 290):
        usual[second] = 40.0
    found = list(triggered_starts.starts_s(triggered_starts.TRIGGER, latency(usual), 1))
    # 40 is within a minute of the previous start, 151 continues 150, and 290 would not end in time.
    assert found == [11, 152]


def test_random_starts_have_the_given_rate() -> None:
    quiet = latency([20.0] * 10_000)
    (first, again, other) = (
        list(triggered_starts.starts_s("random(60 /h)", quiet, seed)) for seed in (1, 1, 2)
    )
    assert first == again != other
    # At one per minute, and none in the minute after each start, half as many remain.
    assert len(first) == pytest.approx(10_000 / 120, rel=0.15)
    apart = [late - early for early, late in itertools.pairwise(first)]
    assert min(apart) >= triggered_starts.LENGTH_S
    assert not list(triggered_starts.starts_s(triggered_starts.TRIGGER, quiet, 1))


def test_telemetry_of_a_terminal_follows_its_path(tmp_path: Path) -> None:
    path = sh.path(kind="fixed", rtt="30 ms", duration="20 s")
    path.write(tmp_path / "fixed.parquet")
    telemetry = triggered_starts.telemetry_of(path)
    assert telemetry.height == 20
    assert telemetry[triggered_starts.LATENCY].to_list() == pytest.approx([30.0] * 20)
    assert telemetry[triggered_starts.DROP].sum() == 0


@pytest.mark.parametrize("name", triggered_starts.STUDIES)
def test_shipped_starts_match_the_studies(name: str) -> None:
    with STUDIES[name].with_suffix(".csv").open(encoding="utf-8") as source:
        rows = list(csv.DictReader(source))
    study = load_study(STUDIES[name])
    losses = {point.labels.get("loss") for point in study.points}
    assert study.run_count == len(rows) * len(losses)
    for row in rows:
        assert row["flow.0.start"] == f"{row['start']} s"
        assert row["flow.0.stop"] == f"{int(row['start']) + triggered_starts.LENGTH_S} s"
    for run in study.runs():
        stop_s, end_s = (
            float(text.split()[0])
            for text in (run.resolved["flow"][0]["stop"], run.resolved["run"]["duration"])
        )
        assert stop_s <= end_s


def test_times_of_a_terminal_are_those_in_which_a_flow_fills_its_downlink() -> None:
    values_ms = [90.0 if second in (50, 150, 195) else 30.0 for second in range(200)]
    seconds = pl.DataFrame(
        {
            TIME: [(1_000 + second) * 10**9 for second in range(200)],
            "latency_ms": values_ms,
            "rx_bps": [100e6 if second < 100 else 0.0 for second in range(200)],
        }
    )
    times = list(triggered_starts.times_loaded_s(triggered_starts.TRIGGER, seconds))
    assert times == [51], "idle at 150 s, and the end of the telemetry is near at 195 s"


def test_shipped_times_of_the_terminal_match_the_study() -> None:
    name = triggered_starts.TERMINAL_STUDY
    with STUDIES[name].with_suffix(".csv").open(encoding="utf-8") as source:
        rows = list(csv.DictReader(source))
    assert load_study(STUDIES[name]).run_count == len(rows)
    assert all(row["at"] == f"{row['start']} s" for row in rows)
