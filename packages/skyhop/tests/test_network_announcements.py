"""Announcements of handovers over a network, held against those of a path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import skyhop as sh
from skyhop.analysis.run_timeline import run_timeline
from skyhop.data.reading import run_record
from skyhop.report import write_report

RATE = {"rate": "2 Mbit/s", "queue": "100 packets"}
OWN_KINDS = {
    "source": "path", "lead": "0.5 s", "error": "report-timing", "latency": "10 ms",
    "end": {"lead": "0.8 s", "error": "none"},
}  # fmt: skip
HANDOVERS = ("end", "intermediate", "reroute", "lost", "restored")


def _sim(scenario: dict[str, Any], directory: Path) -> sh.Run:
    sh.sim(scenario, directory)
    return sh.Run(directory)


def _rows(run: sh.Run, *kinds: str, flow: int | None = None) -> list[tuple[Any, ...]]:
    rows = run.events.filter(pl.col("kind").is_in(kinds))
    if flow is not None:
        rows = rows.filter(pl.col("flow") == flow)
    return rows.select("t_ns", "kind", "hop", "outage_ns", "at_ns").rows()


SHELL = {"constellation": "starlink-shell1"}
SITES = [{"name": "A", "lat": 51.5, "lon": -0.1}, {"name": "B", "lat": 35.7, "lon": 139.7}]
OVER_LASERS: dict[str, Any] = {"relay": "isl", "from": "51.5,-0.1", "to": "35.7,139.7"}


@pytest.mark.parametrize("cc", ["satcp", "satpipe"])
@pytest.mark.parametrize("handover", ["immediate", "nearest-grid"])
def test_one_pair_hears_the_announcements_of_its_path(
    cc: str, handover: str, tmp_path: Path
) -> None:
    common: dict[str, Any] = {"run": {"duration": "60 s"}, "signal": OWN_KINDS}
    path = SHELL | OVER_LASERS | {"handover": handover, "outage": "none", "step": "1 s"}
    flow = {"cc": cc, "app": {"kind": "constant-rate", "rate": "100 kbit/s"}}
    of_path = _sim({"path": path, "flow": [flow], **common}, tmp_path / "path")
    network = SHELL | {"sites": SITES, "handover": handover, "interval": "1 s"}
    flow["between"] = ["A", "B"]
    of_network = _sim({"network": network, "flow": [flow], **common}, tmp_path / "network")
    handovers = _rows(of_path, *HANDOVERS)
    assert len(handovers) >= 3
    if handover == "immediate":
        assert {kind for _, kind, *_ in handovers} == {"end", "reroute"}
    assert _rows(of_network, *HANDOVERS, flow=0) == handovers
    announcements = _rows(of_path, "announcement")
    leads = {round((row[4] - row[0]) / 1e9, 3) for row in announcements if row[0] > 1e7}
    assert 0.79 in leads, "that of ends; latency makes announcements later"
    assert _rows(of_network, "announcement", flow=0) == announcements


def test_a_pair_over_gateways_hears_the_announcements_of_its_access_path(tmp_path: Path) -> None:
    common: dict[str, Any] = {"run": {"duration": "60 s"}, "signal": OWN_KINDS}
    path = SHELL | {
        "from": "Munich", "to": "50.1109,8.6821", "relay": "access", "handover": "immediate",
        "outage": "none", "step": "1 s",
    }  # fmt: skip
    flow = {"cc": "satcp", "app": {"kind": "constant-rate", "rate": "100 kbit/s"}}
    of_path = _sim({"path": path, "flow": [flow], **common}, tmp_path / "path")
    network = SHELL | {
        "sites": ["Munich"], "relay": "bent-pipe", "interval": "1 s",
        "gateways": "starlink-gateways", "pops": "starlink-pops",
        "traffic": {"kind": "internet", **flow},
    }  # fmt: skip
    of_network = _sim({"network": network, **common}, tmp_path / "network")
    handovers = _rows(of_path, *HANDOVERS)
    assert {kind for _, kind, *_ in handovers} >= {"end", "intermediate"}
    assert _rows(of_network, *HANDOVERS) == handovers
    assert _rows(of_network, "announcement") == _rows(of_path, "announcement")


def test_holes_of_an_access_profile_are_announced(tmp_path: Path) -> None:
    network = SHELL | {
        "sites": ["Munich", "Madrid"], "gateways": ["Frankfurt"], "interval": "1 s",
        "handover": "nearest-grid", "user_links": {"per": "site", "access": "starlink"},
    }  # fmt: skip
    flow = {"between": ["Munich", "Madrid"], "cc": "satcp"}
    signal = {"source": "path", "lead": "0.5 s"}
    scenario = {"network": network, "flow": [flow], "signal": signal, "run": {"duration": "40 s"}}
    run = _sim(scenario, tmp_path / "run")
    outages = run.events.filter((pl.col("kind") == "announcement") & (pl.col("outage_ns") > 0))
    assert 3 <= len(outages) <= 8, "of both sites, every 15 s"
    lost = run.events.filter((pl.col("kind") == "loss") & (pl.col("reason") == "outage"))
    assert len(lost) > 0
    for at_ns, lasts_ns in outages.select("at_ns", "outage_ns").rows():
        assert 10e6 < lasts_ns < 1e9, "a hole lasts some tens of milliseconds"
        hole = lost.filter(pl.col("t_ns").is_between(at_ns, at_ns + lasts_ns))
        assert len(hole) > 0, "the hole is where the announcement says"


def test_blind_estimates_find_the_grid_of_a_senders_site(tmp_path: Path) -> None:
    network = SHELL | {
        "sites": ["Munich"], "gateways": "starlink-gateways", "pops": "starlink-pops",
        "interval": "1 s", "handover": "nearest-grid",
        "user_links": {"per": "site", "access": "starlink", "up": RATE, "down": RATE},
        "traffic": {"kind": "internet", "cc": "satcp", "upload": True},
    }  # fmt: skip
    signal = {"source": "blind", "lead": "0.5 s"}
    run = _sim({"network": network, "signal": signal, "run": {"duration": "180 s"}}, tmp_path / "r")
    assert run.summary["blind"]["grid"]
    assert run.summary["blind"]["offset_s"] == pytest.approx(12.0, abs=0.3)
    announced = run.events.filter(pl.col("kind") == "announcement")
    assert 3 <= len(announced) <= 6, "after 105 s, every 15 s"
    assert announced["flow"].to_list() == [0] * len(announced)
    assert (run.events["kind"] == "hold").sum() == len(announced)


def test_the_report_shows_announcements_of_several_pairs(tmp_path: Path) -> None:
    far = {"name": "C", "lat": 6.5, "lon": 3.4}
    network = SHELL | {"sites": [*SITES, far], "interval": "1 s"}
    flows = [
        {"cc": cc, "between": list(pair), "stop": stop}
        for cc, pair, stop in (
            ("satcp", "AB", "20 s"), ("satcp", "AC", "40 s"), ("cubic", "AB", "40 s"),
        )
    ]  # fmt: skip
    links = {"user_links": {"up": RATE, "down": RATE}}
    signal = {"source": "path", "lead": "0.5 s"}
    scenario = {
        "network": network | links, "flow": flows, "signal": signal, "run": {"duration": "40 s"},
    }  # fmt: skip
    run = _sim(scenario, tmp_path / "run")
    heard = run.events.filter(pl.col("kind") == "announcement").group_by("flow").len()
    assert set(heard["flow"]) == {0, 1}
    of_first = run.events.filter((pl.col("kind") == "announcement") & (pl.col("flow") == 0))
    assert of_first["at_ns"].to_list() == [6_000_000_000, 20_000_000_000], "until the flow stops"
    assert set(run.events.filter(pl.col("kind") != "loss")["link"]) == {""}
    write_report([run.directory], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "handovers of routes were announced 500 ms ahead" in page
    signal_strip = run_timeline(run_record(run)).signal
    assert signal_strip is not None
    assert signal_strip.announced_label == f"announced ({int(heard['len'].sum())})"
    assert [lane.kind for lane in signal_strip.lanes] == ["hold"]
