"""Metrics of samples, compared with plain loops over the rows of a run."""

from __future__ import annotations

import math
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from pydantic import TypeAdapter

import skyhop
from skyhop.analysis.base_rtt import base_rtt_by_second, rises_of_base_rtt
from skyhop.analysis.flow_aggregates import AGGREGATES
from skyhop.analysis.summary import bulk_flows
from skyhop.analysis.transfer import rounded_down, seconds_to
from skyhop.data.reading import run_record
from skyhop.data.runs import Run
from skyhop.errors import InputError
from skyhop.study import load_study, metric_digest, run_study
from skyhop.study.catalogue import find_study
from skyhop.study.metric_kinds import FlowsMetric, Metric, RelativeMetric
from skyhop.study.metrics import MetricSet
from skyhop.study.series import samples_of
from small_study import content

DURATION_S = 8
STARTS_S = (0.0, 1.0, 2.5)
LATE = {"cc": "cubic", "start": "2.5 s", "extra_rtt": "20 ms", "stop": "7 s"}
SCENARIO: dict[str, Any] = {
    "path": {"kind": "fixed", "rtt": "20 ms"},
    "link": {"rate": "10 Mbit/s"},
    "links": {"a": {"rate": "20 Mbit/s", "rtt": "10 ms"}},
    "flow": [
        {"cc": "cubic", "bytes": "2400 kB"},
        {"cc": "bbr", "start": "1 s", "via": ["a", "path"]},
        LATE,
    ],
    "change": [
        {"at": "3 s", "rtt": "50 ms"},
        {"at": "4.25 s", "link": "a", "rtt": "30 ms", "outage": "250 ms"},
        {"at": "6.5 s", "flow": 1, "via": ["path"]},
    ],
    "run": {"duration": f"{DURATION_S} s"},
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Simulate three flows that start late, stop early and change routes; return the run."""
    place = tmp_path_factory.mktemp("measured") / "run"
    skyhop.sim(SCENARIO, output=place)
    return place


def rows_of(directory: Path, flow: int) -> list[dict[str, Any]]:
    frame = pl.read_parquet(directory / "flows.parquet").filter(pl.col("flow") == flow)
    return frame.sort("t_ns").rows(named=True)


def bins_of(directory: Path, flow: int, width_ms: int = 1000) -> dict[int, float]:
    """Return a flow's mean goodput in Mbit/s after its start, by the end of the bin in ms."""
    found: dict[int, list[float]] = {}
    for row in rows_of(directory, flow):
        at_ms = row["t_ns"] // 10**6
        if at_ms > STARTS_S[flow] * 1000:
            found.setdefault(-(-at_ms // width_ms) * width_ms, []).append(row["goodput_bps"] / 1e6)
    return {end: math.fsum(values) / len(values) for end, values in found.items()}


def measure(directory: Path, **keys: Any) -> list[float | None]:
    """Return the value of a metric for each flow of a run."""
    metric = TypeAdapter(Metric).validate_python({"name": "own", **keys})
    rows = MetricSet.build([metric], "here").rows(directory)
    return [row["own"] for row in sorted(rows, key=lambda row: row["flow"])]


def over(directory: Path, what: str, **keys: Any) -> float | None:
    """Return the value of a metric that joins flows, after checking that all rows have it."""
    found = measure(directory, kind="flows", over=what, **keys)
    assert found == [found[0]] * len(found)
    return found[0]


def test_flows_are_compared_in_each_bin(directory: Path) -> None:
    shares = [bins_of(directory, flow, 500) for flow in range(3)]
    window = [end for end in range(500, 8001, 500) if 3000 < end <= 6000]
    columns = [[share[end] for share in shares] for end in window]
    least = [min(column) / max(column) for column in columns]
    one = [c[1] / max(c[0], c[2]) for c in columns]
    fair = [sum(c) ** 2 / (3 * sum(x * x for x in c)) for c in columns]
    inside = {"bin": "500 ms", "from": "3 s", "until": "6 s"}
    assert over(directory, "min/max", **inside) == pytest.approx(np.mean(least))
    assert over(directory, "one/others", flow=1, **inside) == pytest.approx(np.mean(one))
    assert over(directory, "jain", **inside) == pytest.approx(np.mean(fair))
    assert over(directory, "sum", **inside) == pytest.approx(np.mean([sum(c) for c in columns]))
    assert over(directory, "mean", **inside) == pytest.approx(np.mean(columns))
    assert over(directory, "min/max", stat="sd", **inside) == pytest.approx(np.std(least, ddof=1))
    assert over(directory, "min/max", stat="sd", ddof=0, **inside) == pytest.approx(np.std(least))
    assert over(directory, "min/max", stat="p25", **inside) == pytest.approx(
        np.quantile(least, 0.25)
    )
    pair = [min(c[0], c[2]) / max(c[0], c[2]) for c in columns]
    assert over(directory, "min/max", flows=[0, 2], **inside) == pytest.approx(np.mean(pair))
    two = [(c[0] + c[2]) / c[1] for c in columns]
    found = over(directory, "sum/sum", flows=[0, 2], against=[1], **inside)
    assert found == pytest.approx(np.mean(two))
    # Values are at least 1 Mbit/s, and truncated to whole numbers.
    cut = [[math.trunc(max(value, 1)) for value in column] for column in columns]
    found = over(directory, "one/others", flow=1, least=1, truncate=True, **inside)
    assert found == pytest.approx(np.mean([c[1] / max(c[0], c[2]) for c in cut]))


def test_study_files_accept_all_aggregates() -> None:
    words = FlowsMetric.model_json_schema()["properties"]["over"]["enum"]
    assert words == list(AGGREGATES)


def test_without_bins_the_means_over_the_window_are_compared(directory: Path) -> None:
    means = []
    for flow in range(3):
        inside = [r["goodput_bps"] for r in rows_of(directory, flow) if 3e9 < r["t_ns"] <= 6e9]
        means.append(sum(inside) / len(inside))
    found = over(directory, "jain", **{"from": "3 s", "until": "6 s"})
    assert found == pytest.approx(sum(means) ** 2 / (3 * sum(x * x for x in means)))


def test_a_bin_without_a_flow_has_a_sum_but_no_ratio(directory: Path) -> None:
    shares = [bins_of(directory, flow) for flow in range(3)]
    for until_ms in (1000, 3000):
        until = {"bin": "1 s", "until": f"{until_ms} ms"}
        alone = [sum(s.get(end, 0.0) for s in shares) for end in range(1000, until_ms + 1, 1000)]
        assert over(directory, "sum", **until) == pytest.approx(np.mean(alone))
    assert over(directory, "min/max", bin="1 s", until="2 s") is None
    assert over(directory, "jain", bin="1 s", until="2 s") is None
    assert over(directory, "min/max", flows=[0, 7], bin="1 s") is None
    assert over(directory, "sum/sum", flows=[0], against=[7], bin="1 s") is None
    whole_run = over(directory, "min/max", flows=[0, 1], bin="1 s", until="3 s")
    both = [shares[0][end] / shares[1][end] for end in (2000, 3000)]
    assert whole_run == pytest.approx(np.mean([min(r, 1 / r) for r in both]))


@pytest.mark.parametrize(
    ("keys", "from_s", "until_s"),
    [
        ({"from": "25 %", "until": "75 %"}, 2, 6),
        ({"from": "-5 s", "until": "-1 s"}, 3, 7),
        ({"from": "50 %"}, 4, 8),
        ({"from": "3 s", "until": "90 %"}, 3, 7.2),
    ],
)
def test_windows_are_moments_of_the_run(
    directory: Path, keys: dict[str, str], from_s: float, until_s: float
) -> None:
    found = measure(directory, kind="samples", **keys)[1]
    inside = [
        row["goodput_bps"] / 1e6
        for row in rows_of(directory, 1)
        if from_s * 1e9 < row["t_ns"] <= until_s * 1e9
    ]
    assert found == pytest.approx(np.mean(inside))


def test_windows_are_moments_of_the_flow(directory: Path) -> None:
    """Check the third flow, which lives from 2.5 s to 7 s, and the first, which completes."""
    keys = {"from": "500 ms", "until": "-1 s", "within": "flow"}
    found = measure(directory, kind="samples", **keys)
    inside = [r["goodput_bps"] / 1e6 for r in rows_of(directory, 2) if 3e9 < r["t_ns"] <= 6e9]
    assert found[2] == pytest.approx(np.mean(inside))
    done_s = Run(directory).summary["flows"][0]["completion_s"]
    until_ns = (done_s - 1) * 1e9
    first = [r["goodput_bps"] / 1e6 for r in rows_of(directory, 0) if 5e8 < r["t_ns"] <= until_ns]
    assert found[0] == pytest.approx(np.mean(first))


def base_rtt_ms(flow: int, t_ms: int) -> float:
    """Return a flow's RTT in ms without queueing at a time, according to SCENARIO."""
    path_ms = 20 if t_ms < 3000 else 50
    # The new value holds from the end of the outage.
    a_ms = 10 if t_ms < 4500 else 30
    crosses_a = flow == 1 and t_ms < 6500
    return path_ms + (a_ms if crosses_a else 0) + (20 if flow == 2 else 0)


@pytest.mark.parametrize("flow", [0, 1, 2])
def test_base_rtts_are_means_of_each_second(directory: Path, flow: int) -> None:
    found = base_rtt_by_second(run_record(Run(directory)), flow)
    assert found is not None
    steps = range(0, 1000, 50)
    expected = [
        np.mean([base_rtt_ms(flow, second * 1000 + step) for step in steps])
        for second in range(DURATION_S)
    ]
    # Route and link change at multiples of the step, so that sums of steps are integrals.
    assert found == pytest.approx(np.array(expected))


def test_transients_follow_a_rise_of_the_base_rtt(directory: Path) -> None:
    """Raise the base RTT from 20 to 50 ms at 3 s, and further for the second flow's link."""
    rise = {"kind": "transient", "after": "rise", "window": "1500 ms"}
    for keys, from_s, until_s in (
        ({"rise": 0.1}, 3.0, 4.5),
        ({"rise": 0.1, "skip": "500 ms"}, 3.5, 4.5),
        ({"rise": 1.6}, math.inf, 0.0),
    ):
        inside = [
            row["goodput_bps"] / 1e6
            for row in rows_of(directory, 0)
            if from_s * 1e9 < row["t_ns"] <= until_s * 1e9
        ]
        expected = pytest.approx(np.mean(inside)) if inside else None
        assert measure(directory, **rise, **keys)[0] == expected
    record = run_record(Run(directory))
    assert rises_of_base_rtt(record, 1, 0.1).tolist() == [3.0, 4.0, 5.0]
    assert rises_of_base_rtt(record, 1, 0.2).tolist() == [3.0]


def test_srtt_is_divided_by_the_base_rtt_of_its_second(directory: Path) -> None:
    keys = {"kind": "samples", "series": "srtt_over_base", "from": "3 s", "until": "7 s"}
    for flow, found in enumerate(measure(directory, **keys)):
        ratios = []
        for row in rows_of(directory, flow):
            if 3e9 < row["t_ns"] <= 7e9 and row["srtt_us"] is not None:
                second = -(-row["t_ns"] // 10**9) - 1
                moments = range(second * 1000, second * 1000 + 1000, 50)
                base_ms = np.mean([base_rtt_ms(flow, t_ms) for t_ms in moments])
                ratios.append(row["srtt_us"] / 1e3 / base_ms)
        assert found == pytest.approx(np.mean(ratios))
        assert found > 1


def test_base_rtts_of_a_computed_path_are_those_of_the_summary(tmp_path: Path) -> None:
    path = {"from": "San Diego", "to": "New York", "constellation": "starlink-shell1"}
    scenario = {**content()["scenario"], "path": path, "run": {"duration": "6 s"}}
    skyhop.sim(scenario, output=tmp_path / "run")
    run = Run(tmp_path / "run")
    found = base_rtt_by_second(run_record(run), 0)
    assert found is not None
    # One holds the path's frames, the other interpolates between them.
    assert np.nanmean(found) == pytest.approx(
        run.summary["flows"][0]["base_rtt_mean_us"] / 1e3, rel=2e-3
    )


def test_a_link_with_a_path_of_its_own_has_no_known_base_rtt(tmp_path: Path) -> None:
    skyhop.path(kind="fixed", rtt="30 ms", duration="3 s").write(tmp_path / "path.parquet")
    trace = {"kind": "trace", "file": str(tmp_path / "path.parquet")}
    scenario = content()["scenario"]
    scenario["links"] = {"more": {"path": trace, "rate": "5 Mbit/s"}}
    scenario["flow"] = [{"cc": "cubic", "via": ["more"]}, {"cc": "cubic"}]
    skyhop.sim(scenario, output=tmp_path / "run")
    record = run_record(Run(tmp_path / "run"))
    assert base_rtt_by_second(record, 0) is None
    assert base_rtt_by_second(record, 1) == pytest.approx(np.array([20.0] * 3))
    found = measure(tmp_path / "run", kind="samples", series="srtt_over_base")
    assert found[0] is None
    assert found[1] is not None


def test_times_and_rates_of_bytes(directory: Path) -> None:
    rows, done_s = rows_of(directory, 0), Run(directory).summary["flows"][0]["completion_s"]
    assert 6 < done_s < 8
    arrived, before_ns, crossed = 0.0, 0, {}
    for row in rows:
        more = row["goodput_bps"] / 8 * (row["t_ns"] - before_ns) / 1e9
        for size in (1e6, 2.2e6):
            if arrived < size <= arrived + more:
                share = (size - arrived) / more
                crossed[size] = (before_ns + share * (row["t_ns"] - before_ns)) / 1e9
        arrived, before_ns = arrived + more, row["t_ns"]
    found = measure(directory, kind="time_to_bytes", bytes="1 MB")[0]
    assert found == pytest.approx(crossed[1e6])
    took_s = crossed[2.2e6] - crossed[1e6]
    window = {"kind": "rate_over_bytes", "after_bytes": "1 MB", "bytes": "2.2 MB"}
    assert measure(directory, **window)[0] == pytest.approx(1.2 * 8 / took_s)
    cut_s = math.floor(took_s / 0.25) * 0.25
    assert cut_s != took_s
    found = measure(directory, **window, cut="250 ms")[0]
    assert found == pytest.approx(1.2 * 8 / cut_s)
    # A clock that begins 300 ms after the flow.
    clock = {"bytes": "1 MB", "from": "300 ms"}
    found = measure(directory, kind="time_to_bytes", **clock)[0]
    assert found == pytest.approx(crossed[1e6] - 0.3)
    found = measure(directory, kind="rate_over_bytes", **clock)[0]
    assert found == pytest.approx(8 / (crossed[1e6] - 0.3))
    # No byte follows the last one; times of the late flow count from its start.
    assert measure(directory, kind="time_to_bytes", bytes="2.41 MB")[0] is None
    assert measure(directory, kind="time_to_bytes", bytes="2.4 MB")[0] == pytest.approx(
        done_s, abs=0.1
    )
    # Runs of older versions and of other engines have no RTTs of acknowledgements.
    rtts = [r["ack_rtt_us"] / 1e3 for r in rows if r["ack_rtt_us"] is not None]
    assert measure(directory, kind="samples", series="ack_rtt")[0] == pytest.approx(np.mean(rtts))
    # The flow's last sample ends after the flow, so it does not count.
    keys = {"kind": "samples", "series": "srtt", "within": "flow"}
    alive = [r["srtt_us"] / 1e3 for r in rows if r["srtt_us"] and r["t_ns"] <= done_s * 1e9]
    assert len(alive) == len(rows) - 1
    assert measure(directory, **keys)[0] == pytest.approx(np.mean(alive))
    late = measure(directory, kind="time_to_bytes", bytes="100 kB")[2]
    assert late is not None
    assert 0 < late < 4.5


def link_rows_of(directory: Path, direction: str) -> list[dict[str, Any]]:
    frame = pl.read_parquet(directory / "link.parquet")
    rows = frame.filter(pl.col("link") == "path", pl.col("direction") == direction)
    return rows.sort("t_ns").rows(named=True)


def test_throughput_is_the_delivery_rate_of_the_paths_link(directory: Path) -> None:
    inside = [
        row["delivered_bytes"] * 8e-5
        for row in link_rows_of(directory, "forward")
        if 3e9 < row["t_ns"] <= 7e9
    ]
    assert len(inside) == 40
    keys = {"kind": "samples", "series": "throughput", "bin": "1 s", "from": "3 s", "until": "7 s"}
    # The link's throughput is the same for each of its flows.
    assert measure(directory, **keys)[1:] == [pytest.approx(np.mean(inside))] * 2
    assert max(inside) <= 10 * 1.01


def test_throughput_of_a_late_flow_has_its_sample_times(directory: Path) -> None:
    record = run_record(Run(directory))
    first, late = (samples_of(record, flow, "throughput") for flow in (0, 2))
    assert late[0][0] >= 2.5
    # Both series are the link's throughput.
    of_first = dict(zip(first[0].round(6), first[1], strict=True))
    assert late[1][0] == pytest.approx(of_first[late[0].round(6)[0]])


def test_throughput_has_the_flows_direction(tmp_path: Path) -> None:
    scenario = {**content()["scenario"], "flow": [{"cc": "cubic", "from": "to"}]}
    skyhop.sim(scenario, output=tmp_path / "run")
    expected = np.mean(
        [row["delivered_bytes"] * 8e-5 for row in link_rows_of(tmp_path / "run", "back")]
    )
    assert measure(tmp_path / "run", kind="samples", series="throughput") == [
        pytest.approx(expected)
    ]
    assert expected > 5


def test_retransmissions_are_a_share_of_deliveries(tmp_path: Path) -> None:
    scenario = {**content()["scenario"], "link": {"rate": "10 Mbit/s", "loss": "1 %"}}
    run = tmp_path / "run"
    skyhop.sim(scenario, output=run)
    delivered = [row["delivered_bytes"] / 1514 for row in link_rows_of(run, "forward")]
    again = [row["retransmits"] for row in rows_of(run, 0)]
    assert len(again) == len(delivered) == 30
    assert sum(again) > 0
    shares = [
        100 * sum(again[place : place + 10]) / sum(delivered[place : place + 10])
        for place in (0, 10, 20)
    ]
    keys = {"kind": "samples", "series": "retransmit_share", "bin": "1 s"}
    assert measure(run, **keys) == [pytest.approx(np.mean(shares))]
    assert measure(run, **keys, stat="max") == [pytest.approx(max(shares))]
    # Without bins, samples without deliveries are left out.
    each = [100 * a / d for a, d in zip(again, delivered, strict=True) if d > 0]
    keys = {"kind": "samples", "series": "retransmit_share"}
    assert measure(run, **keys) == [pytest.approx(np.mean(each))]


def test_a_window_can_be_given_in_bytes(directory: Path) -> None:
    """Check the window in which the bytes from 1 MB to 2.2 MB of the first flow arrived."""
    first_s = measure(directory, kind="time_to_bytes", bytes="1 MB")[0] or 0.0
    last_s = measure(directory, kind="time_to_bytes", bytes="2.2 MB")[0] or 0.0
    window = {"within": "bytes", "after_bytes": "1 MB", "bytes": "2.2 MB"}
    samples = [(r["t_ns"] / 1e9, r["srtt_us"] / 1e3) for r in rows_of(directory, 0) if r["srtt_us"]]
    inside = [srtt for t_s, srtt in samples if first_s < t_s <= last_s]
    keys = {"kind": "samples", "series": "srtt", **window}
    assert measure(directory, **keys)[0] == pytest.approx(np.mean(inside))
    shorter = [srtt for t_s, srtt in samples if first_s + 0.5 < t_s <= last_s - 0.25]
    assert measure(directory, **keys, **{"from": "500 ms", "until": "-250 ms"})[0] == pytest.approx(
        np.mean(shorter)
    )
    # The window begins at the first byte by default; without enough bytes there is none.
    early = [srtt for t_s, srtt in samples if t_s <= first_s]
    keys = {"kind": "samples", "series": "srtt", "within": "bytes", "bytes": "1 MB"}
    assert measure(directory, **keys)[0] == pytest.approx(np.mean(early))
    assert measure(directory, **{**keys, "bytes": "1 GB"})[0] is None


def test_a_metric_can_be_a_share_of_values(directory: Path) -> None:
    bins = bins_of(directory, 0, 500)
    inside = np.array([bins[end] for end in range(1500, 5001, 500)])
    middle = float(np.median(inside))
    keys = {"kind": "samples", "bin": "500 ms", "from": "1 s", "until": "5 s"}
    assert measure(directory, **keys, above=middle)[0] == pytest.approx(50)
    assert measure(directory, **keys, upto=middle)[0] == pytest.approx(50)
    least, most = sorted(inside)[1], sorted(inside)[4]
    assert measure(directory, **keys, above=least, upto=most)[0] == pytest.approx(3 / 8 * 100)
    assert over(directory, "sum", bin="1 s", above=0) == 100


PING = {
    "path": {"kind": "fixed", "rtt": "40 ms", "jitter": {"below": "20 ms", "above": "20 ms"}},
    "link": {"rate": "10 Mbit/s", "loss": "10 %"},
    "flow": [{"kind": "probe", "interval": "20 ms"}],
    "run": {"duration": "10 s"},
}


def test_round_trips_of_a_probe(tmp_path: Path) -> None:
    study = content(scenario=PING, axis=[], repeats=2)
    study["metric"] = [
        {"name": "middle", "kind": "probe", "unit": "ms", "pool": True, "from": "2 s"},
        {"name": "sd", "kind": "probe", "stat": "sd", "from": "2 s"},
        {"name": "slow", "kind": "probe", "above": 45, "unit": "%"},
    ]
    done = run_study(load_study(study), tmp_path / "out", jobs=2)
    rows = done.results.frame.rows(named=True)
    late_of_both = []
    for row in rows:
        table = pl.read_parquet(done.directory.runs / row["run"] / "probes.parquet")
        known = table.drop_nulls("rtt_ns")
        assert 400 < known.height < table.height
        rtts_ms = known.get_column("rtt_ns").to_numpy() / 1e6
        late = rtts_ms[known.get_column("t_ns").to_numpy() > 2e9]
        assert row["middle_ms"] == pytest.approx(late.mean())
        assert row["sd"] == pytest.approx(late.std(ddof=1))
        assert row["slow_pct"] == pytest.approx(100 * (rtts_ms > 45).mean())
        late_of_both.append(late)
    asked = {"stat": "pooled_sd"}
    found = done.results.call_result("middle", asked, done.results.call_values("middle", asked))
    assert found == pytest.approx(np.concatenate(late_of_both).std(ddof=1))


def test_times_are_rounded_down() -> None:
    """Round times down like the GEO comparison, where 24.9 s for 50 MB count as 24 s."""
    assert rounded_down(24.9, 1.0) == 24
    assert rounded_down(24.0, 1.0) == 24
    assert rounded_down(24.9, None) == 24.9
    assert 50 * 8 / rounded_down(24.9, 1.0) == pytest.approx(16.7, abs=0.05)
    t_s, rates = np.array([1.0, 2.0, 3.0]), np.array([8.0, 0.0, 16.0])
    assert seconds_to(t_s, rates, 1e6, 0.0) == 1
    assert seconds_to(t_s, rates, 2e6, 0.0) == 2.5
    assert seconds_to(t_s, rates, 0, 0.0) == 0
    assert seconds_to(t_s, rates, 3e6 + 10, 0.0) is None
    assert seconds_to(t_s, rates, 1e6, 1.0) == 1.5
    # Rounded rates may lack the last byte; the time after the transfer must not count.
    t_s, rates = np.array([1.0, 2.0, 3.0]), np.array([8.0, 8.0, 0.0])
    assert seconds_to(t_s, rates, 2e6 + 1, 0.0) == 2


def two_flows(**changes: Any) -> dict[str, Any]:
    scenario = {**content()["scenario"], "flow": [{"cc": "cubic"}, {"cc": "cubic"}]}
    # Without loss, all seeds would give the same results.
    scenario["link"] = {"rate": "10 Mbit/s", "loss": "1 %"}
    axis = [
        {"name": "cc", "points": {
            cc: {"flow.0.cc": cc, "flow.1.cc": cc} for cc in ("cubic", "bbr")}},
        {"name": "queue", "key": "link.queue", "values": ["1 BDP", "2 BDP"]},
    ]  # fmt: skip
    return content(scenario=scenario, axis=axis, **changes)


RATIO = {"name": "ratio", "kind": "flows", "over": "min/max", "bin": "500 ms", "from": "1 s",
         "pool": True, "ddof": 0}  # fmt: skip
CWND = {"name": "cwnd_sd", "kind": "samples", "series": "cwnd", "stat": "sd", "pool": True}
RELATIVE = {"name": "to_cubic", "kind": "relative", "of": "goodput", "to": {"cc": "cubic"}}
MORE = {"name": "more", "kind": "relative", "of": "srtt", "by": "difference", "unit": "ms",
        "to": {"cc": "cubic", "queue": "1 BDP"}}  # fmt: skip


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run a study of two flows, two seeds and two queues; return its outcome."""
    study = load_study(two_flows(repeats=2, metric=[RATIO, CWND, RELATIVE, MORE]))
    return run_study(study, tmp_path_factory.mktemp("pooled") / "out", jobs=2)


def flow_samples(done: Any, cc: str, column: str) -> list[tuple[str, list[float]]]:
    """Return the samples of a column after the start, with their run, per run and flow."""
    found = []
    frame = done.results.frame.filter(pl.col("cc") == cc, pl.col("queue") == "1 BDP")
    for run, flow in frame.select("run", "flow").rows():
        table = pl.read_parquet(done.directory.runs / run / "flows.parquet")
        mine = table.filter(pl.col("flow") == flow, pl.col("t_ns") > 0).sort("t_ns")
        found.append((run, mine.get_column(column).to_list()))
    return found


def test_bins_of_all_runs_are_pooled(pooled: Any) -> None:
    results, infos = pooled.results, pooled.study.metrics.infos
    at = {"cc": "bbr", "queue": "1 BDP"}
    cwnds = [value for _, values in flow_samples(pooled, "bbr", "cwnd_packets") for value in values]
    chosen = {**at, "stat": "pooled_mean"}
    found = results.call_result("cwnd_sd", chosen, results.call_values("cwnd_sd", chosen))
    assert found == pytest.approx(np.mean(cwnds))
    estimate = results.estimate(infos["cwnd_sd"], at, "pooled")
    assert estimate.mean == pytest.approx(np.mean(cwnds))
    assert estimate.sd == pytest.approx(np.std(cwnds, ddof=1))
    assert estimate.interval.high - estimate.mean == pytest.approx(estimate.sd)
    # Bins of 500 ms contain five samples, from 1 s on.
    rates: dict[str, list[Any]] = {}
    for run, values in flow_samples(pooled, "bbr", "goodput_bps"):
        rates.setdefault(run, []).append(np.array(values[10:]).reshape(-1, 5).mean(axis=1))
    ratios = np.concatenate([np.minimum(a, b) / np.maximum(a, b) for a, b in rates.values()])
    assert len(rates) == 2
    assert len(ratios) == 8
    estimate = results.estimate(infos["ratio"], at, "pooled")
    assert estimate.mean == pytest.approx(ratios.mean())
    assert estimate.sd == pytest.approx(ratios.std(ddof=0))
    runs = results.estimate(infos["ratio"], at, "sd")
    assert runs.sd == pytest.approx(np.std(runs.values, ddof=1))
    assert runs.mean == pytest.approx(runs.values.mean())


def test_claims_can_use_pooled_statistics(pooled: Any) -> None:
    from skyhop.study.claims import check_claims, judge

    check = 'ratio(cc="bbr", stat="pooled_mean") > 0.01 and ratio(stat="pooled_sd") < 1'
    claim = {"text": "…", "check": check}
    study = load_study(two_flows(repeats=2, metric=[RATIO, CWND, RELATIVE, MORE], claim=[claim]))
    (result,) = judge(check_claims(study.file, study.metrics, "here"), pooled.results)
    assert result.verdict == "holds"
    alone = {"text": "…", "check": 'ratio(cc="bbr", stat="pooled_mean") > 0.01'}
    study = load_study(two_flows(repeats=2, metric=[RATIO, CWND, RELATIVE, MORE], claim=[alone]))
    (result,) = judge(study.claims, pooled.results)
    (comparison,) = result.findings[0].comparisons
    # The jackknife leaves out one of four runs: two seeds with two queues.
    values = pooled.results.bin_moments(study.metrics.infos["ratio"], {"cc": "bbr"})
    assert len(values) == 4
    without = [ours(np.delete(values, place, axis=0)) for place in range(4)]
    error = (3 / 4 * sum((w - np.mean(without)) ** 2 for w in without)) ** 0.5
    low, high = comparison.interval.low, comparison.interval.high
    # Tables give 3.182 for Student's t with 3 degrees of freedom.
    assert (high - low) / 2 == pytest.approx(3.182 * error, rel=1e-3)


def ours(moments: Any) -> float:
    return float((moments[:, 0] * moments[:, 1]).sum() / moments[:, 0].sum())


def test_a_metric_relative_to_another_point(pooled: Any) -> None:
    rows = pooled.results.frame.rows(named=True)
    assert len(rows) == 16
    for row in rows:
        (there,) = [
            other for other in rows
            if (other["cc"], other["queue"]) == ("cubic", row["queue"])
            and (other["seed"], other["flow"]) == (row["seed"], row["flow"])
        ]  # fmt: skip
        assert row["to_cubic"] == pytest.approx(row["goodput_bps"] / there["goodput_bps"])
        (there,) = [
            other for other in rows
            if (other["cc"], other["queue"]) == ("cubic", "1 BDP")
            and (other["seed"], other["flow"]) == (row["seed"], row["flow"])
        ]  # fmt: skip
        less = (row["srtt_mean_us"] - there["srtt_mean_us"]) / 1e3
        assert row["more_ms"] == pytest.approx(less, abs=1e-9)
    written = pl.read_parquet(pooled.directory.root / "results.parquet")
    assert written.get_column("to_cubic").null_count() == 0


def test_a_relative_metric_follows_axes_of_one_zip(tmp_path: Path) -> None:
    """Compare BBR with 2 BDP to CUBIC with 1 BDP, because both axes are of one zip."""
    axis = [
        {"name": "cc", "key": "flow.0.cc", "values": ["cubic", "bbr"], "zip": "z"},
        {"name": "queue", "key": "link.queue", "values": ["1 BDP", "2 BDP"], "zip": "z"},
    ]
    study = load_study(content(axis=axis, metric=[RELATIVE], repeats=1))
    done = run_study(study, tmp_path / "out", jobs=1)
    goodput = dict(done.results.frame.select("cc", "goodput_bps").rows())
    ratios = dict(done.results.frame.select("cc", "to_cubic").rows())
    assert ratios == pytest.approx({"cubic": 1, "bbr": goodput["bbr"] / goodput["cubic"]})


def test_digests_of_shipped_studies_are_unchanged() -> None:
    """Check that later keys leave digests alone; others would measure finished runs again."""
    expected = {
        "all-pairs": "617f590d", "satcp-fig8": "f1a17ceb", "satcp-fig9": "f56dace3",
        "satcp-table1": "e8b10f05", "satpipe-fig13": "b1070cc0", "satpipe-fig14": "49883add",
        "satpipe-table2": "9e7ed7cb",
    }  # fmt: skip
    found = {name: load_study(find_study(name)).metrics.digest for name in expected}
    assert found == expected
    # A relative metric measures nothing in the run itself.
    own = MetricSet.build([RelativeMetric.model_validate(RELATIVE)], "here")
    assert own.digest == MetricSet.build([], "here").digest
    assert MetricSet.build([FlowsMetric.model_validate(RATIO)], "here").digest != own.digest


def test_every_key_of_a_metric_has_a_place_in_the_digest() -> None:
    kinds = typing.get_args(typing.get_args(Metric)[0])
    keys = {key for kind in kinds for key in kind.model_fields}
    assert keys == {*metric_digest._FIRST_KEYS, *metric_digest._LATER_KEYS}


FLOWS = {"name": "x", "kind": "flows", "over": "sum"}
NO_KIND = {"name": "x"}
WRONG: Sequence[tuple[dict[str, Any], str]] = (
    (NO_KIND, "metric 1.kind: is missing"),
    ({**NO_KIND, "kind": "mean"}, "metric 1.kind: expected 'expression', 'samples'"),
    ({**NO_KIND, "kind": "probe", "bin": "1 s"}, '`bin` goes with kind = "samples" or'),
    ({"name": "x", "kind": "flows"}, 'kind = "flows" needs `over`'),
    ({"name": "x", "kind": "samples", "over": "sum"}, '`over` goes with kind = "flows"'),
    ({**FLOWS, "over": "one/others"}, '`flow` goes with over = "one/others"'),
    ({**FLOWS, "over": "one/others", "flow": 1, "flows": [0, 2]}, "`flow` to be one of `flows`"),
    ({**FLOWS, "over": "sum/sum", "flows": [0]}, '`against` goes with over = "sum/sum"'),
    ({**FLOWS, "over": "sum/sum", "against": [1]}, "needs `flows`, none of them in `against`"),
    ({**FLOWS, "over": "sum/sum", "flows": [0, 1], "against": [1]}, "none of them in `against`"),
    ({**FLOWS, "within": "flow"}, '`within` goes with kind = "samples" or "transient"'),
    ({**FLOWS, "from": "80 %", "until": "20 %"}, "expected `from` before `until`"),
    ({**FLOWS, "from": "-1 s", "until": "-2 s"}, "expected `from` before `until`"),
    ({**FLOWS, "from": "later"}, "metric 1.from"),
    ({**FLOWS, "from": "1.2.3 s"}, "is not a duration"),
    ({**FLOWS, "bin": "0 s"}, "expected `bin` above 0 s"),
    ({"name": "x", "kind": "transient", "after": "rise"}, 'after = "rise" goes with `rise`'),
    ({"name": "x", "kind": "transient", "rise": 0.1}, 'after = "rise" goes with `rise`'),
    ({"name": "x", "kind": "transient", "skip": "5 s"}, "expected `skip` below `window`"),
    ({"name": "x", "kind": "gap"}, 'kind = "gap" needs `edge`'),
    ({"name": "x", "kind": "samples", "edge": "end"}, '`edge` goes with kind = "gap"'),
    ({"name": "x", "kind": "time_to_bytes"}, "needs `bytes`"),
    ({"name": "x", "kind": "time_to_bytes", "bytes": "5 apples"}, "metric 1.bytes"),
    ({"name": "x", "kind": "rate_over_bytes", "bytes": "2 MB", "after_bytes": "1 MB",
      "from": "1 s"}, "`from` and `after_bytes`"),
    ({"name": "x", "kind": "rate_over_bytes", "bytes": "1 MB", "after_bytes": "2 MB"},
     "expected `after_bytes` below `bytes`"),
    ({"name": "x", "kind": "relative", "of": "goodput"}, "needs `to`"),
    ({"name": "x", "kind": "relative", "of": "speed", "to": {"cc": "bbr"}}, "no metric `speed`"),
    ({"name": "x", "kind": "relative", "of": "goodput", "to": {"cc": "reno"}},
     "cc has no value 'reno'"),
    ({"name": "x", "kind": "relative", "of": "goodput", "to": {"seed": 1}}, "is not an axis"),
)  # fmt: skip


@pytest.mark.parametrize(("metric", "expected"), WRONG)
def test_a_wrong_metric_is_named(metric: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError) as caught:
        load_study(content(metric=[metric]))
    assert expected in str(caught.value)
    assert "metric 1" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_pooled_statistics_need_kept_bins() -> None:
    plain = {**RATIO, "pool": False, "ddof": 1}
    for changes in (
        {"claim": [{"text": "…", "check": 'ratio(stat="pooled_mean") > 1'}]},
        {"panel": [{"kind": "lines", "title": "", "metric": "ratio", "x": "queue",
                    "spread": "pooled"}]},
    ):  # fmt: skip
        with pytest.raises(InputError, match="pool = true"):
            load_study(two_flows(metric=[plain], **changes))
        load_study(two_flows(metric=[RATIO], **changes))


def test_expressions_cannot_use_relative_metrics() -> None:
    twice = {"name": "twice", "kind": "expression", "value": "2 * to_cubic"}
    with pytest.raises(InputError, match="no metric `to_cubic`"):
        load_study(content(metric=[RELATIVE, twice]))


def test_jains_index_is_of_flows_that_send_as_fast_as_tcp_allows() -> None:
    summary = {"flows": [{"id": 0, "goodput_bps": 10}, {"id": 1, "goodput_bps": 10},
                         {"id": 2, "goodput_bps": 1}, {"id": 3, "goodput_bps": 9,
                          "connection": "10.0.0.1:80"}],
               "apps": [{"id": 2, "kind": "page"}, {"id": 1, "kind": "bulk"}]}  # fmt: skip
    assert [flow["id"] for flow in bulk_flows(summary)] == [0, 1]
