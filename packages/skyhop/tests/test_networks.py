"""Runs over a whole network of satellites and sites."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from conftest import Skyhop

import skyhop as skyhop_package
from skyhop.report import write_report

SCENARIO = """
[network]
constellation = "kuiper-630-hypatia"
compat = "hypatia"
sites = ["Tokyo", "Delhi", "London", "New York"]
lasers = { rate = "10 Mbit/s", queue = "100 packets" }

[network.user_links]
up = { rate = "10 Mbit/s", queue = "50 packets" }

[[flow]]
between = ["London", "New York"]
cc = "cubic"

[[flow]]
between = ["London", "Delhi"]
cc = "reno"

[[flow]]
kind = "probe"
between = ["Tokyo", "New York"]

[run]
duration = "3 s"
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """Return the file of a small network."""
    file = tmp_path / "network.toml"
    file.write_text(SCENARIO)
    return file


def test_flows_of_a_site_share_its_uplink(skyhop: Skyhop, scenario: Path, tmp_path: Path) -> None:
    done = skyhop("sim", scenario, "-o", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    run = skyhop_package.Run(tmp_path / "run")
    assert [flow["id"] for flow in run.summary["flows"]] == [0, 1]
    # Two flows start at London, whose uplink has 10 Mbit/s.
    goodput_bps = sum(flow["goodput_bps"] for flow in run.summary["flows"])
    assert 5e6 < goodput_bps < 10e6
    link = pl.read_parquet(tmp_path / "run" / "link.parquet")
    assert "London, GB - satellites" in set(link["link"])
    # Only links that carried something have rows.
    assert link["link"].n_unique() < 100
    lost = int(link.select(pl.sum_horizontal(pl.col("^drops_.*$")).sum()).item())
    events = pl.read_parquet(tmp_path / "run" / "events.parquet")
    assert lost == events.filter(pl.col("kind") == "loss").height > 0
    assert run.summary["probes"][0]["lost"] == 0
    queues = json.loads((tmp_path / "run" / "run.json").read_text())["queues"]
    assert {name: sizes[0]["packets"] for name, sizes in queues.items()} == {
        "lasers": 100, "user_links.down": 1000, "user_links.up": 50,
    }  # fmt: skip


def test_the_line_about_links_names_the_most_used(
    skyhop: Skyhop, scenario: Path, tmp_path: Path
) -> None:
    out = skyhop("sim", scenario, "-o", tmp_path / "run").stdout
    words = " ".join(out.split())
    assert "links used, most of all London, GB - satellites" in words
    assert "of the link used" not in words


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("live",), "a network of satellites runs in the simulator alone"),
        (("path",), "expected a scenario with [path]"),
    ],
)
def test_what_needs_a_path_says_so(
    skyhop: Skyhop, scenario: Path, tmp_path: Path, command: tuple[str, ...], said: str
) -> None:
    done = skyhop(*command, scenario, "-o", tmp_path / "out")
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert said in done.stderr


def test_the_report_describes_the_network(skyhop: Skyhop, scenario: Path, tmp_path: Path) -> None:
    assert skyhop("sim", scenario, "-o", tmp_path / "run").returncode == 0
    page = write_report([tmp_path / "run"], tmp_path / "report.html").read_text()
    assert "kuiper-630-hypatia, 4 sites" in page
    assert "directions of links carried packets" in page
    assert "Fixed path" not in page
    # Of the links with rows, ten are in the table.
    assert page.count("run: satellite") + page.count(" - satellites</t") <= 10


STUDY = """
title = "Two congestion controls between four cities"
question = "Which fills a network better?"
source = ""
notes = []
repeats = 1

[scenario.network]
constellation = "kuiper-630-hypatia"
compat = "hypatia"
sites = ["Tokyo", "Delhi", "London", "New York"]
lasers = { rate = "10 Mbit/s", queue = "100 packets" }

[scenario.network.traffic]
kind = "permutation"
cc = "reno"

[scenario.run]
duration = "1 s"

[[axis]]
name = "cc"
key = "network.traffic.cc"
values = ["reno", "cubic"]
"""


def test_a_study_varies_a_network(skyhop: Skyhop, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(STUDY)
    done = skyhop("study", "run", study, "-o", tmp_path / "study")
    assert done.returncode == 0, done.stderr
    assert "kuiper-630-hypatia, 4 sites, permutation" in done.stdout
    rows = pl.read_parquet(tmp_path / "study" / "results.parquet")
    assert set(rows["cc"]) == {"reno", "cubic"}
