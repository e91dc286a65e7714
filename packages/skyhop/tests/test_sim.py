"""Simulated runs through the command line and from Python."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from conftest import ROOT, Skyhop

import skyhop as sh
from skyhop.analysis.run_timeline import run_timeline
from skyhop.analysis.summary import summary_rows
from skyhop.cli.repeat_mark import Mark
from skyhop.data.reading import read_runs
from skyhop.errors import InputError

SCENARIO = ROOT / "examples" / "handover.toml"
TABLES = ("flows", "link", "events", "probes", "path")


@pytest.mark.usefixtures("pictures")
def test_a_run_has_the_files_of_a_live_one(skyhop: Skyhop, tmp_path: Path) -> None:
    done = skyhop("sim", SCENARIO, "-o", "run", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["engine"] == "sim"
    assert summary["lateness_us"] is None
    assert summary["flows"][0]["goodput_bps"] > 40e6
    assert summary["probes"][0]["lost"] > 0, "the outages take some"
    run = sh.read_run(tmp_path / "run")
    assert run.info["scenario"]["run"]["duration"] == "45 s"
    assert run.flows.height == 450
    assert skyhop("report", "run", "-o", "report.html").returncode == 0


@pytest.mark.usefixtures("pictures")
def test_announcements_and_holds_are_recorded_and_drawn(skyhop: Skyhop, tmp_path: Path) -> None:
    sets = {"flow.0.cc": "satcp", "signal.source": "path", "signal.lead": "0.5 s"}
    arguments = [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]
    done = skyhop("sim", SCENARIO, "-o", "run", *arguments)
    assert done.returncode == 0, done.stderr
    rows = sh.read_run(tmp_path / "run").events.to_dicts()
    said = [(row["t_ns"], row["at_ns"]) for row in rows if row["kind"] == "announcement"]
    assert said == [(14_500_000_000, 15_000_000_000), (29_500_000_000, 30_000_000_000)]
    holds = [row for row in rows if row["kind"] == "hold"]
    assert [(row["flow"], row["length_ns"]) for row in holds] == [(0, 1_300_000_000)] * 2
    assert skyhop("report", "run", "-o", "report.html").returncode == 0


@pytest.mark.usefixtures("pictures")
def test_marks_are_counted_per_flow_and_link_and_drawn(skyhop: Skyhop, tmp_path: Path) -> None:
    done = skyhop("sim", ROOT / "examples" / "marks.toml", "-o", "run")
    assert done.returncode == 0, done.stderr
    run = sh.read_run(tmp_path / "run")
    speaks, silent = run.summary["flows"]
    assert speaks["marks"] >= 5
    assert speaks["retransmits"] == 0
    assert silent["marks"] == 0
    assert silent["retransmits"] >= 5
    assert run.summary["link"]["marks"] == speaks["marks"]
    for table in (run.flows, run.link):
        assert sum(table["marks"].to_list()) == speaks["marks"]
    rows = summary_rows([tmp_path / "run"])
    assert [row["marks"] for row in rows] == [speaks["marks"], 0]
    assert skyhop("report", "run", "-o", "report.html").returncode == 0
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "codel (interval 100 ms, target 5 ms, ecn)" in page
    panels = [panel.what for panel in run_timeline(read_runs([tmp_path / "run"])[0]).panels]
    assert panels[-2:] == ["drops", "marks"]


def test_the_same_seed_gives_the_same_bytes(skyhop: Skyhop, tmp_path: Path) -> None:
    lossy = ("--set", "link.loss=0.1 %")
    for place, seed in (("a", 3), ("b", 3), ("c", 4)):
        done = skyhop("sim", SCENARIO, "-o", place, "--seed", seed, *lossy)
        assert done.returncode == 0, done.stderr

    def content(place: str, name: str) -> bytes:
        return (tmp_path / place / f"{name}.parquet").read_bytes()

    for name in TABLES:
        assert content("a", name) == content("b", name), name
    assert content("a", "flows") != content("c", "flows")
    one, other = (json.loads((tmp_path / p / "summary.json").read_text("utf-8")) for p in "ab")
    del one["wall_s"], other["wall_s"]
    assert one == other


@pytest.mark.integration
def test_repeats_run_side_by_side(skyhop: Skyhop, tmp_path: Path) -> None:
    scenario = """\
[path]
from = "Portland"
to = "Seattle"
[link]
rate = "5 Mbit/s"
[[flow]]
cc = "satcp"
[run]
duration = "1 s"
"""
    (tmp_path / "s.toml").write_text(scenario, "utf-8")
    done = skyhop("sim", "s.toml", "-o", "runs", "--repeat", 3, "--jobs", 2, "--seed", 5)
    assert done.returncode == 0, done.stderr
    # A message about all runs is printed once.
    assert done.stderr.count('"Portland" is taken as Portland, US') == 1
    assert done.stderr.count("warning: satcp: gets no handover announcements") == 1
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        "seed-5",
        "seed-6",
        "seed-7",
    ]


FIXED = """\
[path]
kind = "fixed"
rtt = "20 ms"
[link]
rate = "10 Mbit/s"
[[flow]]
cc = "cubic"
[run]
duration = "2 s"
"""


@pytest.mark.integration
@pytest.mark.parametrize(("loss", "is_warned"), [("0 %", True), ("2 %", False)])
def test_repeats_of_one_result_are_told_of(
    skyhop: Skyhop, tmp_path: Path, loss: str, is_warned: bool
) -> None:
    (tmp_path / "s.toml").write_text(FIXED, "utf-8")
    done = skyhop("sim", "s.toml", "-o", "runs", "--repeat", 2, "--set", f"link.loss={loss}")
    assert done.returncode == 0, done.stderr
    assert ("warning: all seeds give the same result" in done.stderr) == is_warned


def scenario_file(tmp_path: Path) -> Path:
    """Write a scenario of a quarter of a second over a path of two seconds."""
    sh.path("1,2", "3,4", duration="2 s").write(tmp_path / "trace.parquet")
    text = """[path]
kind = "trace"
file = "trace.parquet"
[link]
rate = "5 Mbit/s"
[[flow]]
cc = "cubic"
[run]
duration = "250 ms"
"""
    (tmp_path / "s.toml").write_text(text, "utf-8")
    return tmp_path / "s.toml"


def repeated_once(mark: Mark, scenario: Path, output: Path, *, force: bool = False) -> None:
    """Finish seed 1 of a repeat, as a worker of the command does."""
    sh.sim(scenario, output / "seed-1", seed=1, force=force)
    assert mark.is_done(1, output / "seed-1")


def test_a_repeat_knows_its_runs_by_what_was_run(tmp_path: Path) -> None:
    scenario, output = scenario_file(tmp_path), tmp_path / "out"
    seed = output / "seed-1"
    mark = Mark(output, scenario, [])
    assert not mark.is_done(1, seed)
    repeated_once(mark, scenario, output)
    assert Mark(output, scenario, []).is_done(1, seed), "an interrupted repeat continues"
    assert not mark.is_done(2, seed)
    # The files look younger than any mark.
    future = 2**33
    os.utime(seed / "summary.json", (future, future))
    for sets in (["flow.0.cc=bbr"], ["link.rate=1 Mbit/s"], ["run.duration=300 ms"]):
        assert not Mark(output, scenario, sets).is_done(1, seed), sets
        # A run of the first scenario does not become one of this one by being newer.
        sh.sim(scenario, seed, seed=1, force=True)
        assert not Mark(output, scenario, sets).is_done(1, seed), sets
    again = Mark(output, scenario, [])
    assert not again.is_done(1, seed), "the directory held this run before the repeat began"
    repeated_once(again, scenario, output, force=True)
    os.utime(seed / "summary.json", (1, 1))
    assert Mark(output, scenario, []).is_done(1, seed)
    sh.path("1,2", "5,6", duration="2 s").write(tmp_path / "trace.parquet")
    changed = Mark(output, scenario, [])
    assert not changed.is_done(1, seed), "the path has changed"
    repeated_once(changed, scenario, output, force=True)
    assert not Mark(output, scenario, ["path.loop=true"]).is_done(1, seed), "another path"


def test_a_repeat_keeps_a_users_file(tmp_path: Path) -> None:
    scenario, output = scenario_file(tmp_path), tmp_path / "out"
    for text in ("my notes", "{}", '{"format": "mine"}', "[]"):
        output.mkdir(exist_ok=True)
        (output / ".repeat").write_text(text, "utf-8")
        with pytest.raises(InputError, match="is not skyhop's mark of a repeat"):
            Mark(output, scenario, [])
        assert (output / ".repeat").read_text("utf-8") == text


def test_python_simulates_a_dictionary() -> None:
    scenario = {
        "path": {"kind": "fixed", "rtt": "20 ms"},
        "flow": [{"cc": "bbr", "bytes": "1 MB"}],
        "run": {"duration": "5 s"},
    }
    run = sh.sim(scenario)
    assert run.summary["flows"][0]["completion_s"] < 1


def test_an_unknown_congestion_control_is_named(skyhop: Skyhop, tmp_path: Path) -> None:
    done = skyhop("sim", SCENARIO, "-o", "run", "--set", "flow.0.cc=psychic")
    assert done.returncode == 2
    assert "flow.0.cc" in done.stderr
    assert "cubic" in done.stderr
    assert not (tmp_path / "run").exists()


def test_run_json_has_packet_hops_and_the_time_of_the_engine() -> None:
    scenario = {
        "path": {"kind": "fixed", "rtt": "10 ms"},
        "links": {"second": {"rtt": "10 ms", "rate": "10 Mbit/s"}},
        "flow": [{"kind": "probe", "interval": "50 ms", "via": ["path", "second"]}],
        "run": {"duration": "2 s"},
    }
    run = sh.sim(scenario)
    (probe,) = run.summary["probes"]
    timing = run.info["timing"]
    # Two links in each direction; the last packet may be in flight.
    assert 4 * (probe["sent"] - 1) <= timing["packet_hops"] <= 4 * probe["sent"]
    assert probe["sent"] >= 39
    assert 0 < timing["engine_s"] < run.info["wall_s"]
