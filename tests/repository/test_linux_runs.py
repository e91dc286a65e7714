"""Results of Linux in tests/linux: series and summaries are consistent."""

from __future__ import annotations

import statistics

import pytest

from validation.linux import recorded

SUMMARY = recorded.summary()


@pytest.mark.parametrize("name", SUMMARY)
def test_series_match_the_summary(name: str) -> None:
    for index, flow in enumerate(SUMMARY[name]["flows"]):
        series = recorded.series(name, index)
        assert len(series.t_s) == 10 * flow["seconds"]
        assert (series.t_s[0], series.t_s[-1]) == (0.1, flow["seconds"])
        assert sum(series.retransmits) == flow["retransmits"]
        assert statistics.mean(series.srtt_us) == pytest.approx(flow["srtt_mean_us"], abs=1)
        cwnd = statistics.mean(series.cwnd_packets)
        assert cwnd == pytest.approx(flow["cwnd_mean_packets"], abs=0.06)


def test_every_series_belongs_to_a_scenario() -> None:
    files = {file.name for file in (recorded.FOLDER / "series").iterdir()}
    flows = {
        f"{name}.flow{index}.csv"
        for name, scenario in SUMMARY.items()
        for index, _ in enumerate(scenario["flows"])
    }
    assert files == flows


def test_draws_of_a_scenario_have_the_same_flows() -> None:
    for name, scenario in recorded.draws().items():
        assert len(scenario["draws"]) == 10, name
        for flows in scenario["draws"]:
            assert [flow["cc"] for flow in flows] == [
                flow["cc"] for flow in scenario["draws"][0]
            ], name


def test_larger_transfers_take_longer() -> None:
    short = recorded.short()
    connections = short["short-cubic-50m-40ms-1bdp"]["connections"]
    received_s = [row["received_s"] for row in connections[1:]]
    assert received_s == sorted(received_s)
    answers_s = short["rpc-cubic-50m-40ms-1bdp"]["response_s_by_gap_s"]
    assert [len(answers_s[gap]) for gap in ("1.0", "0.1")] == [100, 100]
