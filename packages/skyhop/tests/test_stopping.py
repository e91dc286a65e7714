"""Stopped simulations keep their measurements; the mock engine makes runs at once."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from conftest import Skyhop, skyhop_command

import skyhop as sh
from skyhop.errors import InputError
from synthetic_run import APP_KINDS, APP_SCHEMA
from waiting import wait_for

SCENARIO = """
[path]
kind = "fixed"
rtt = "40 ms"
[link]
rate = "100 Mbit/s"
[run]
duration = "20 h"
sample = "10 ms"
[[flow]]
[[flow]]
kind = "probe"
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "long.toml"
    file.write_text(SCENARIO, "utf-8")
    return file


def written(directory: Path) -> list[Path]:
    """Return the segments of a run that is being written."""
    return sorted(directory.glob(".run.partial-*/flows.*.parquet"))


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, marks=pytest.mark.integration),
        pytest.param(signal.SIGTERM, marks=pytest.mark.soak),
    ],
)
def test_a_stopped_simulation_keeps_what_it_measured(
    scenario: Path, tmp_path: Path, number: signal.Signals
) -> None:
    process = subprocess.Popen(
        [*skyhop_command(), "sim", str(scenario), "-o", "run"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: len(written(tmp_path / "run")) >= 2, 120)
    # Written segments can be read during the run.
    with pq.ParquetFile(written(tmp_path / "run")[0]) as part:
        assert part.metadata.num_rows > 1000
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "interrupted after" in errors
    run = sh.read_run(tmp_path / "run")
    lasted_s = run.summary["virtual_s"]
    assert run.info["interrupted"] is True
    assert 60 < lasted_s < 72_000
    assert run.flows.height == pytest.approx(100 * lasted_s, abs=2)
    assert run.flows["t_ns"][-1] == pytest.approx(lasted_s * 1e9)
    assert run.summary["flows"][0]["stop_s"] == lasted_s
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == [
        *("events.parquet", "flows.parquet", "link.parquet", "path.parquet", "probes.parquet"),
        *("run.json", "summary.json"),
    ]


@pytest.mark.soak
def test_a_killed_simulation_does_not_block_the_next(scenario: Path, tmp_path: Path) -> None:
    process = subprocess.Popen([*skyhop_command(), "sim", str(scenario), "-o", "run"], cwd=tmp_path)
    wait_for(lambda: written(tmp_path / "run"), 120)
    process.kill()
    process.wait(timeout=120)
    assert written(tmp_path / "run")
    again = sh.sim(scenario, tmp_path / "run", sets=["run.duration=1 s"])
    assert again.summary["virtual_s"] == 1
    assert not written(tmp_path / "run")


@pytest.mark.soak
def test_an_interrupted_repeat_stops_at_once_and_can_continue(
    tmp_path: Path, skyhop: Skyhop
) -> None:
    (tmp_path / "x.toml").write_text(SCENARIO.replace("20 h", "10 min"), "utf-8")
    command = ["sim", "x.toml", "-o", "out", "--repeat", "12", "--jobs", "2"]
    process = subprocess.Popen(
        [*skyhop_command(), *command], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: list(tmp_path.glob("out/*/summary.json")), 120)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    done = [summary.parent for summary in tmp_path.glob("out/*/summary.json")]
    assert 1 <= len(done) < 12
    assert (
        f"interrupted: {len(done)} of 12 seeds are done; repeat the command to continue" in errors
    )
    written_at = [(place / "summary.json").stat().st_mtime_ns for place in done]
    again = skyhop(*command, timeout_s=1200)
    assert again.returncode == 0, again.stderr
    assert f"{len(done)} of 12 seeds are done already" in again.stderr
    assert [(place / "summary.json").stat().st_mtime_ns for place in done] == written_at
    summaries = [sh.read_run(tmp_path / "out" / f"seed-{seed}").summary for seed in range(1, 13)]
    assert [summary["virtual_s"] for summary in summaries] == [600.0] * 12
    assert not (tmp_path / "out" / ".repeat").exists()
    assert skyhop(*command).returncode == 2, "what is whole is not overwritten unasked"


@pytest.mark.usefixtures("pictures")
def test_the_mock_engine_writes_readable_runs(
    scenario: Path, skyhop: Skyhop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKYHOP_MOCK", "1")
    done = skyhop("sim", scenario, "-o", "run", "--set", "run.duration=5 s", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["warnings"] == ["these numbers are made up"]
    assert skyhop("report", "run", "-o", "report.html").returncode == 0


def test_tables_of_applications_are_read_as_they_are_written(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKYHOP_MOCK", "1")
    keys = {
        "requests": "response = '10 kB'",
        "bursts": "on = '1 s', off = '1 s'",
        "messages": "rate = '1 Mbit/s'",
    }
    for table, kind in APP_KINDS.items():
        app = f"flow.0.app={{ kind = '{kind}', {keys[table]} }}"
        run = sh.sim(scenario, tmp_path / "run", sets=["run.duration=6 s", app], force=True)
        # One directory for all runs: tables of an earlier run are gone.
        assert list(run.apps) == [table]
        rows = run.apps[table]
        assert rows.schema == pl.DataFrame(APP_SCHEMA.empty_table()).schema
        (summary,) = run.summary["apps"]
        assert (summary["kind"], summary["failed"]) == (kind, rows["latency_ns"].null_count())
        assert summary["completed"] + summary["failed"] == rows.height > 50


def test_runs_of_all_versions_but_future_ones_are_read(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKYHOP_MOCK", "1")
    run = sh.sim(scenario, tmp_path / "run", sets=["run.duration=1 s"])
    assert run.summary["schema"] == run.info["schema"] == 1
    for name in ("summary.json", "run.json"):
        file = tmp_path / "run" / name
        content = json.loads(file.read_text("utf-8"))
        del content["schema"]
        file.write_text(json.dumps(content), "utf-8")
    assert sh.read_run(tmp_path / "run").info["engine"] == "mock"
    summary = tmp_path / "run" / "summary.json"
    summary.write_text(json.dumps({**run.summary, "schema": 99}), "utf-8")
    with pytest.raises(InputError, match="version 99, but this skyhop reads up to 1"):
        _ = sh.read_run(tmp_path / "run").summary
