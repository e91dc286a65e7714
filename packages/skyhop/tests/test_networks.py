"""Runs over a whole network of satellites and sites."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from conftest import Skyhop

import skyhop as skyhop_package
from skyhop.errors import InputError
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


def test_what_fails_loses_packets_and_routes_lead_around_it(
    skyhop: Skyhop, scenario: Path, tmp_path: Path
) -> None:
    failing = scenario.read_text() + '\n[[failure]]\nsite = "Delhi"\nfrom = "1 s"\n'
    failing += '[[failure]]\nsatellites = "5 %"\nfrom = "1 s"\nseed = 3\n'
    scenario.write_text(failing)
    done = skyhop("sim", scenario, "-o", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert "58 of 1156 satellites fail" in done.stderr
    assert run["scenario"]["failure"][1]["satellites"] == "5 %"
    flows = pl.read_parquet(tmp_path / "run" / "flows.parquet")
    after = (
        flows.filter(pl.col("t_ns") > 1_200_000_000)
        .group_by("flow")
        .agg(pl.col("goodput_bps").sum())
    )
    goodputs_bps = dict(after.iter_rows())
    assert goodputs_bps[0] > 0
    assert goodputs_bps[1] == 0, "Delhi receives nothing"
    events = pl.read_parquet(tmp_path / "run" / "events.parquet")
    lost = events.filter(pl.col("reason").is_in(["outage", "dismantled"]))
    assert lost.height > 0
    assert lost["t_ns"].min() >= 1_000_000_000  # type: ignore[operator]


def test_all_pairs_avoid_what_fails(tmp_path: Path) -> None:
    sites = ["51.5,-0.1", "40.7,-74", "35.7,139.7"]
    keys = {"constellation": "kuiper-630-hypatia", "compat": "hypatia", "step": "500 ms"}
    whole = skyhop_package.all_pairs(sites, tmp_path / "whole.parquet", duration="2 s", **keys)
    first = whole.routes(0, 1)[0][1][0]
    failures: list[dict[str, object]] = [
        {"satellite": first, "from": "1 s"},
        {"site": "35.7,139.7", "from": "1 s", "until": "1500 ms"},
    ]
    failing = skyhop_package.all_pairs(
        sites, tmp_path / "failing.parquet", duration="2 s", failures=failures, **keys
    )
    assert whole.delays_ns.shape == failing.delays_ns.shape == (4, 3)
    assert (whole.delays_ns[:2] == failing.delays_ns[:2]).all()
    assert failing.delays_ns[2, 0] > whole.delays_ns[2, 0]
    assert (failing.delays_ns[2, 1:] == 0).all()
    assert (failing.delays_ns[3] > 0).all()
    assert all(first not in nodes for at, nodes in failing.routes(0, 1) if at >= 1_000_000_000)
    with pytest.raises(InputError, match=r"failure\.0\.satellite: is 1156"):
        skyhop_package.all_pairs(
            sites, tmp_path / "x.parquet", duration="2 s", failures=[{"satellite": 1156}], **keys
        )


def test_the_report_counts_cells_by_their_height(skyhop: Skyhop, tmp_path: Path) -> None:
    file = tmp_path / "cells.toml"
    file.write_text(
        '[network]\nconstellation = "kuiper-630-hypatia"\n'
        'sites = { grid = "20 deg", latitudes = [-40, 40] }\n'
        '[network.traffic]\nkind = "permutation"\ncc = "reno"\n[run]\nduration = "500 ms"\n'
    )
    done = skyhop("sim", file, "-o", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert len(skyhop_package.Run(tmp_path / "run").summary["flows"]) == 68
    page = write_report([tmp_path / "run"], tmp_path / "report.html").read_text()
    assert "kuiper-630-hypatia, cells of 20 deg" in page


def test_equal_cost_spreads_the_flows_of_a_pair(tmp_path: Path) -> None:
    network = {
        "constellation": "kuiper-630-hypatia",
        "compat": "hypatia",
        "sites": ["London", "New York"],
        "interval": "never",
    }
    flow = {"between": ["London", "New York"], "cc": "reno", "bytes": "20 kB", "count": 12}

    def base_rtts_us(routing: object) -> set[int]:
        scenario = {
            "network": {**network, "routing": routing},
            "flow": [flow],
            "run": {"duration": "1 s"},
        }
        run = skyhop_package.sim(scenario, tmp_path / "run", force=True)
        return {flow["base_rtt_mean_us"] for flow in run.summary["flows"]}

    shortest = base_rtts_us("shortest")
    spread = base_rtts_us({"kind": "equal-cost", "slack": "1 ms"})
    assert len(shortest) == 1
    assert len(spread) > 1
    assert min(spread) >= min(shortest)


def test_an_earlier_run_is_the_background(skyhop: Skyhop, scenario: Path, tmp_path: Path) -> None:
    assert skyhop("sim", scenario, "-o", tmp_path / "run").returncode == 0
    later = tmp_path / "later.toml"
    probe = '[[flow]]\nkind = "probe"\nbetween = ["London", "New York"]\n\n'
    text = SCENARIO[: SCENARIO.index("[[flow]]")] + probe + SCENARIO[SCENARIO.index("[run]") :]
    background = '[network.background]\nkind = "run"\ndir = "run"\n\n[[flow]]'
    later.write_text(text.replace("[[flow]]", background, 1).replace("3 s", "4 s"))
    done = skyhop("sim", later, "-o", tmp_path / "again")
    assert done.returncode == 0, done.stderr
    info = json.loads((tmp_path / "again" / "run.json").read_text())
    assert info["scenario"]["network"]["background"]["dir"] == str(tmp_path / "run")
    both = {}
    for name, column in (("run", "delivered_bytes"), ("again", "background_bytes")):
        frame = pl.read_parquet(tmp_path / name / "link.parquet").group_by("link", "direction")
        both[name] = {row[:2]: row[2] for row in frame.agg(pl.col(column).sum()).iter_rows()}
    rate_bytes = 3 * 10e6 / 8
    assert len(both["run"]) > 10
    for link, carried in both["run"].items():
        # Not more than 95 % of the rate; the queues may lose some.
        expected = min(carried, 0.95 * rate_bytes)
        assert 0.9 * expected - 2000 <= both["again"][link] <= expected + 100, link
    rtts = pl.read_parquet(tmp_path / "again" / "probes.parquet")
    busy = rtts.filter(pl.col("t_ns") < 2.5e9)["rtt_ns"].mean()
    idle = rtts.filter(pl.col("t_ns") > 3.2e9)["rtt_ns"].mean()
    assert isinstance(busy, float)
    assert isinstance(idle, float)
    assert busy > idle + 1e6

    later.write_text(later.read_text().replace('"Tokyo", "Delhi"', '"Tokyo", "Lagos"'))
    done = skyhop("sim", later, "-o", tmp_path / "other")
    assert done.returncode == 2
    assert "is a run with another network.sites; expected the same network" in done.stderr
