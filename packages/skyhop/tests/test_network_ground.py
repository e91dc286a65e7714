"""Networks with gateways, points of presence, and links of single sites, held against paths."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import Skyhop

import skyhop as sh
from skyhop.report import write_report

RATE = {"rate": "10 Mbit/s", "queue": "100 packets"}


def _sim(scenario: dict[str, Any], directory: Path) -> sh.Run:
    sh.sim(scenario, directory)
    return sh.Run(directory)


def _losses(run: sh.Run) -> list[tuple[Any, ...]]:
    events = pl.read_parquet(run.directory / "events.parquet")
    lost = events.filter(pl.col("kind") == "loss")
    return lost.select("t_ns", "reason", "direction", "flow").rows()


@pytest.mark.parametrize("cc", ["reno", "cubic", "vegas"])
def test_one_pair_over_still_satellites_is_its_path_hop_by_hop(cc: str, tmp_path: Path) -> None:
    # Congestion controls without random draws, whose seeds depend on the way of a flow.
    orbits = {"constellation": "kuiper-630-hypatia", "compat": "hypatia"}
    common = {"run": {"duration": "8 s"}}
    path = orbits | {
        "from": "Manila",
        "to": "Dalian",
        "relay": "isl",
        "step": "8 s",
        "outage": "none",
    }
    of_path = {"path": path, "link": {"queues": "per-hop", **RATE}, "flow": [{"cc": cc}], **common}
    network = orbits | {
        "sites": ["Manila", "Dalian"], "interval": "never", "lasers": RATE,
        "user_links": {"up": RATE, "down": RATE},
    }  # fmt: skip
    flow = {"cc": cc, "between": ["Manila", "Dalian"]}
    runs = [
        _sim(of_path, tmp_path / "path"),
        _sim({"network": network, "flow": [flow], **common}, tmp_path / "network"),
    ]
    one, other = (pl.read_parquet(run.directory / "flows.parquet") for run in runs)
    assert one.height == 80
    assert one.equals(other)
    losses = [_losses(run) for run in runs]
    assert losses[0] == losses[1]
    assert bool(losses[0]) == (cc != "vegas"), "the others fill the queue"
    hops = runs[1].summary["links"]
    assert len(hops) == 4 + 2, "lasers in both directions, and each end's uplink and downlink"


def test_the_way_over_gateways_is_as_long_as_an_access_path(tmp_path: Path) -> None:
    common = {"run": {"duration": "20 s"}}
    path = {
        "constellation": "starlink-shell1", "from": "Munich", "to": "50.1109,8.6821",
        "relay": "access", "handover": "immediate", "outage": "none", "step": "100 ms",
    }  # fmt: skip
    flow = {"cc": "reno", "app": {"kind": "constant-rate", "rate": "100 kbit/s"}}
    of_path = _sim({"path": path, "flow": [flow], **common}, tmp_path / "path")
    network = {
        "constellation": "starlink-shell1", "sites": ["Munich"], "relay": "bent-pipe",
        "gateways": "starlink-gateways", "pops": "starlink-pops",
        "traffic": {"kind": "internet", **flow},
    }  # fmt: skip
    of_network = _sim({"network": network, **common}, tmp_path / "network")
    one, other = (run.summary["flows"][0]["base_rtt_mean_us"] for run in (of_path, of_network))
    assert one == pytest.approx(other, abs=20), "steps and lines between the same frames"
    names = set(of_network.summary["links"])
    assert "Munich, DE - satellites" in names
    assert any(name.endswith("- gateways") for name in names)


def _of_gateways(rest: dict[str, Any], directory: Path) -> sh.Run:
    network = {
        "constellation": "starlink-shell1", "interval": "1 s",
        "sites": ["Munich", "Madrid", "Rome"],
        "gateways": ["Frankfurt", "Dublin"], "pops": ["Paris"],
        "gateway_links": {"up": RATE, "down": RATE},
        "traffic": {"kind": "internet", "cc": "cubic", "upload": False},
    }  # fmt: skip
    return _sim({"network": network, "run": {"duration": "6 s"}} | rest, directory)


def test_flows_share_a_gateway_and_change_to_another_when_it_fails(tmp_path: Path) -> None:
    run = _of_gateways({}, tmp_path / "whole")
    links = run.summary["links"]
    # All downloads leave the nearest gateway, whose uplink has 10 Mbit/s.
    assert links["Frankfurt am Main, DE - satellites"]["utilisation"] > 0.9
    assert "Dublin, IE - satellites" not in links
    total_bps = sum(flow["goodput_bps"] for flow in run.summary["flows"])
    assert 7e6 < total_bps < 10e6
    failure = {"gateway": "Frankfurt", "from": "2 s"}
    failed = _of_gateways({"failure": [failure]}, tmp_path / "failed")
    link = pl.read_parquet(failed.directory / "link.parquet")
    arrived = link.filter(pl.col("delivered_bytes") > 0).group_by("link").agg(
        pl.col("t_ns").min().alias("first"), pl.col("t_ns").max().alias("last")
    )  # fmt: skip
    times = {row[0]: row[1:] for row in arrived.rows()}
    assert times["Frankfurt am Main, DE - satellites"][1] <= 2.1e9
    assert 2e9 < times["Dublin, IE - satellites"][0] < 4e9
    assert all(flow["goodput_bps"] > 0 for flow in failed.summary["flows"])


@pytest.mark.parametrize(("per", "expected"), [("satellite", 1), ("site", 2)])
def test_sites_share_a_downlink_or_have_their_own(per: str, expected: int, tmp_path: Path) -> None:
    near = [{"name": name, "lat": 48.1, "lon": lon} for name, lon in (("A", 11.5), ("B", 11.6))]
    network = {
        "constellation": "starlink-shell1", "interval": "never", "sites": [*near, "Frankfurt"],
        "user_links": {"down": RATE, "per": per},
    }  # fmt: skip
    flows = [{"cc": "cubic", "between": ["Frankfurt", name]} for name in "AB"]
    run = _sim({"network": network, "flow": flows, "run": {"duration": "5 s"}}, tmp_path / "run")
    total_bps = sum(flow["goodput_bps"] for flow in run.summary["flows"])
    assert 0.8 < total_bps / 1e7 / expected < 1.0
    own = {"satellites - A", "satellites - B"}
    assert (own <= set(run.summary["links"])) == (per == "site")


def test_an_access_profile_limits_and_loses_as_measured(tmp_path: Path) -> None:
    network = {
        "constellation": "starlink-shell1", "interval": "1 s", "sites": ["Munich", "Madrid"],
        "gateways": "starlink-gateways", "pops": "starlink-pops", "handover": "nearest-grid",
        "user_links": {"per": "site", "access": "starlink"},
        "traffic": {"kind": "internet", "cc": "bbr"},
    }  # fmt: skip
    run = _sim({"network": network, "run": {"duration": "30 s"}}, tmp_path / "run")
    links = run.summary["links"]
    for site in ("Munich, DE", "Madrid, ES"):
        assert links[f"satellites - {site}"]["drops"]["outage"] > 0, (
            "holes at the marks of the grid"
        )
        assert links[f"satellites - {site}"]["utilisation"] > 0.5
    rates = [flow["goodput_bps"] for flow in run.summary["flows"]]
    assert all(2e7 < rate < 4e8 for rate in rates)
    assert rates[0] != rates[1]


def test_routes_over_time_are_those_of_the_path(tmp_path: Path) -> None:
    orbits = {"constellation": "kuiper-630-hypatia", "compat": "hypatia"}
    path = orbits | {"from": "Manila", "to": "Dalian", "relay": "isl", "step": "1 s"}
    frames = sh.path(**path, duration="60 s", outage="none").frames
    network = orbits | {"sites": ["Manila", "Dalian"], "interval": "1 s"}
    flow = {"kind": "probe", "interval": "1 s", "between": ["Manila", "Dalian"]}
    run = _sim({"network": network, "flow": [flow], "run": {"duration": "60 s"}}, tmp_path / "run")
    there = run.routes.filter(pl.col("from") == "Manila, PH").sort("t_ns")
    assert there["t_ns"][0] == 0
    at = dict(zip(there["t_ns"].to_list(), there["satellites"].to_list(), strict=True))
    held = ""
    for frame in frames.rows(named=True):
        held = at.get(frame["t_ns"], held)
        assert held == "-".join(map(str, frame["nodes"][1:-1]))
    back = run.routes.filter(pl.col("to") == "Manila, PH").sort("t_ns")
    assert [row.split("-")[::-1] for row in back["satellites"]] == [
        row.split("-") for row in there["satellites"]
    ]


def test_the_report_names_gateways_and_links_of_single_sites(tmp_path: Path) -> None:
    network = {
        "constellation": "starlink-shell1", "interval": "1 s", "sites": ["Munich", "Madrid"],
        "gateways": ["Frankfurt"], "pops": ["Paris"], "user_links": {"per": "site"},
        "traffic": {"kind": "internet", "cc": "cubic"},
    }  # fmt: skip
    run = _sim({"network": network, "run": {"duration": "2 s"}}, tmp_path / "run")
    write_report([run.directory], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    for link in (
        "satellites \N{RIGHTWARDS ARROW} Munich, DE",
        "Frankfurt am Main, DE \N{RIGHTWARDS ARROW} satellites",
    ):
        assert link in page
    assert re.search("satellite [0-9]+ \N{RIGHTWARDS ARROW} gateways", page)


def test_maps_leave_out_gateways_that_take_no_part(
    skyhop: Skyhop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = _of_gateways({}, tmp_path / "run")
    done = skyhop("network", "export", run.directory, "--format", "geojson", "-o", "x.geojson")
    assert done.returncode == 0, done.stderr
    features = json.loads((tmp_path / "x.geojson").read_text("utf-8"))["features"]
    names = {f["properties"]["name"] for f in features if f["properties"]["kind"] == "site"}
    sites = {"Munich, DE", "Madrid, ES", "Rome, IT"}
    assert names == sites | {"Frankfurt am Main, DE", "Paris, FR"}
