"""Loads and base RTTs of the routes of a network's flows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import Skyhop

import skyhop as skyhop_package
from skyhop.analysis.base_rtt import base_rtt_by_second
from skyhop.analysis.network_routes import laser_load_pct
from skyhop.data.reading import run_record
from skyhop.data.runs import Run

DURATION_S, SAMPLE_S, RATE_BPS = 5, 0.1, 10e6
CHANGE_S = 3.2
"""Time at which the route from Rio de Janeiro to Saint Petersburg becomes shorter."""
SITES = [
    {"name": "Rio de Janeiro", "lat": -22.90278, "lon": -43.2075},
    {"name": "Saint Petersburg", "lat": 59.929858, "lon": 30.326228},
]
NETWORK = {
    "constellation": "kuiper-630-hypatia",
    "compat": "hypatia",
    "sites": SITES,
    "lasers": {"rate": "10 Mbit/s", "queue": "100 packets"},
}
FLOW = {"between": ["Rio de Janeiro", "Saint Petersburg"], "cc": "reno"}


def simulate(
    output: Path, flows: Sequence[Mapping[str, object]], duration_s: int, **more: object
) -> Run:
    """Return a run of flows over Kuiper's first shell; `more` has further tables of its scenario.

    A table `network` replaces keys of the table NETWORK.
    """
    scenario: dict[str, Any] = {
        **more,
        "network": {**NETWORK, **more.get("network", {})},  # type: ignore[dict-item]
        "flow": list(flows),
        "run": {"duration": f"{duration_s} s", "sample": "100 ms"},
    }
    return skyhop_package.sim(scenario, output)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run of two flows over a route that becomes shorter."""
    later = {**FLOW, "start": "1 s", "extra_rtt": "20 ms"}
    return simulate(tmp_path_factory.mktemp("routes") / "run", [FLOW, later], DURATION_S)


def expected_loads_pct(run: Run) -> dict[int, float]:
    """Return the load of the busiest laser of the route in each interval, by its end (ns)."""
    carried = {
        (t_ns, link, direction): size
        for t_ns, link, direction, size in run.link.select(
            "t_ns", "link", "direction", "delivered_bytes"
        ).iter_rows()
    }
    routes = run.routes.filter(pl.col("from") == "Rio de Janeiro").sort("t_ns")
    loads = {}
    for number in range(DURATION_S * 10):
        begin_ns, end_ns = number * 10**8, (number + 1) * 10**8
        (satellites,) = routes.filter(pl.col("t_ns") <= begin_ns)["satellites"].tail(1)
        nodes = list(map(int, satellites.split("-")))
        sizes = [
            carried.get(
                (end_ns, f"satellite {min(a, b)} - {max(a, b)}", "forward" if a < b else "back"), 0
            )
            for a, b in pairwise(nodes)
        ]
        loads[end_ns] = min(100 * 8 * max(sizes) / (RATE_BPS * SAMPLE_S), 100)
    return loads


def test_the_load_is_that_of_the_busiest_laser_on_the_route(run: Run) -> None:
    expected, record = expected_loads_pct(run), run_record(run)
    route = record.routes["Rio de Janeiro", "Saint Petersburg"]
    assert route.t_s.tolist() == [0.0, CHANGE_S]
    for flow in (0, 1):
        found = laser_load_pct(record, flow)
        at_ns = np.round(record.flows[flow].t_s * 1e9).astype(int).tolist()
        assert found == pytest.approx(np.array([expected[t_ns] for t_ns in at_ns]), abs=0.3)
    assert max(expected.values()) > 90
    assert expected[10**8] < 10


def test_base_rtts_are_those_of_the_routes(run: Run) -> None:
    first, second = (base_rtt_by_second(run_record(run), flow) for flow in (0, 1))
    assert first is not None
    assert second is not None
    assert first.mean() == pytest.approx(
        run.summary["flows"][0]["base_rtt_mean_us"] / 1e3, rel=1e-5
    )
    assert second == pytest.approx(first + 20)
    # Hypatia's paper has 96 ms on the shorter route.
    before, changes, after = first[2:].tolist()
    assert after == pytest.approx(96, abs=0.5)
    assert before == pytest.approx(113, abs=0.5)
    assert changes == pytest.approx(0.2 * before + 0.8 * after, rel=1e-3)


def test_without_a_route_there_is_neither(tmp_path: Path) -> None:
    failure = {"site": "Saint Petersburg", "from": "1 s", "until": "2 s"}
    record = run_record(simulate(tmp_path / "run", [FLOW], 3, failure=[failure]))
    t_s = record.flows[0].t_s
    lacks = np.isnan(laser_load_pct(record, 0))
    assert lacks.tolist() == ((t_s > 1.05) & (t_s < 2.05)).tolist()
    base_ms = base_rtt_by_second(record, 0)
    assert base_ms is not None
    assert np.isnan(base_ms).tolist() == [False, True, False]


def test_spread_flows_have_no_known_route(tmp_path: Path) -> None:
    network = {"routing": {"kind": "equal-cost", "slack": "1 ms"}}
    record = run_record(simulate(tmp_path / "run", [FLOW], 1, network=network))
    assert base_rtt_by_second(record, 0) is None
    assert np.isnan(laser_load_pct(record, 0)).all()


def test_the_base_rtt_to_a_gateway_is_not_known(tmp_path: Path) -> None:
    network = {"gateways": [{"name": "Hub", "lat": 40.0, "lon": 0.0}]}
    flow = {**FLOW, "between": ["Rio de Janeiro", "Hub"]}
    record = run_record(simulate(tmp_path / "run", [flow], 1, network=network))
    assert base_rtt_by_second(record, 0) is None
    assert np.nanmax(laser_load_pct(record, 0)) > 0


STUDY = """
title = "Load of a route"
question = "How much of a route's rate is used?"
source = ""
notes = []
repeats = 1

[scenario.network]
constellation = "kuiper-630-hypatia"
compat = "hypatia"
sites = ["London", "New York"]
lasers = { rate = "10 Mbit/s", queue = "100 packets" }

[[scenario.flow]]
between = ["London", "New York"]

[scenario.run]
duration = "2 s"

[[axis]]
name = "cc"
key = "flow.0.cc"
values = ["reno", "cubic"]

[[metric]]
name = "load"
kind = "samples"
series = "laser_load"
from = "1 s"
unit = "%"

[[metric]]
name = "base"
kind = "samples"
series = "base_rtt"
unit = "ms"

[[metric]]
name = "inflation"
kind = "samples"
series = "srtt_over_base"
from = "1 s"

[[claim]]
text = "The route is full"
check = 'load(cc="cubic") > 80'

[[panel]]
kind = "series"
title = "Load"
series = ["laser_load", "base_rtt"]
hue = "cc"
"""


def test_studies_measure_routes(skyhop: Skyhop, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(STUDY)
    done = skyhop("study", "run", study, "-o", tmp_path / "study")
    assert done.returncode == 0, done.stderr
    assert "holds" in done.stdout
    rows = pl.read_parquet(tmp_path / "study" / "results.parquet")
    assert rows["load_pct"].is_between(80, 100).all()
    # London and New York are 5,570 km apart.
    assert rows["base_ms"].is_between(37, 60).all()
    assert rows["inflation"].is_between(1.2, 10).all()
    figures = tmp_path / "study" / "report-figures"
    texts = (figures / "1-load.svg").read_text("utf-8")
    assert "<!-- busiest laser on the route -->" in texts
    # A network has no path, whose handovers the figure could show.
    assert "no handovers" not in texts
    lines = pl.read_csv(figures / "1-load.csv")
    loads = lines.filter(pl.col("series") == "laser_load")["value"]
    assert loads.max() == 100
    bases = lines.filter(pl.col("series") == "base_rtt")["value"]
    assert bases.len() == 2 * 2
    assert bases.to_numpy() == pytest.approx(rows["base_ms"][0], rel=0.02)
