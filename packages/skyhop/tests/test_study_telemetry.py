"""Studies of measured data: quantiles, spikes, rates in a window, shares of segments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from skyhop.errors import InputError
from skyhop.predict.frame import complete_frame, write_frame
from skyhop.study import StudyRun, load_study, run_study

SECOND_NS = 10**9
MARK_S = 1_700_000_007
"""A moment of the grid (UTC second 27), in s since 1970."""

TRACES = "".join(
    f"""traceroute to 8.8.8.8 (8.8.8.8), 30 hops max, 60 byte packets
 1  192.168.1.1  2.0 ms
 2  100.64.0.1  {32 + more} ms
 3  172.16.250.66  {32 + more} ms
 4  206.224.64.190  {32 + more} ms
 5  206.224.64.57  {32 + more} ms
 6  8.8.8.8  {40 + more} ms
"""
    for more in range(4)
)


def frame(place: Path) -> str:
    """Write 600 s of 30 ms and 100 Mbit/s with a spike from one moment of the grid to the next."""
    assert MARK_S % 15 == 12
    latency, rate = np.full(600, 30.0), np.full(600, 100e6)
    rate[-60:] = 0.5e6
    drop = np.zeros(600)
    first = 153  # The frame begins 153 s before a moment of the grid.
    latency[first : first + 15], rate[first : first + 15] = 90.0, 40e6
    drop[[first, first + 14]] = 0.5
    ends = (MARK_S - first + 1 + np.arange(600)) * SECOND_NS
    rows = pl.DataFrame(
        {"node": ["car"] * 600, "time_ns": ends, "latency_ms": latency, "drop": drop,
         "rx_bps": rate, "tx_bps": np.where(np.arange(600) < 300, 2e6, 0.0)}
    )  # fmt: skip
    write_frame(complete_frame(rows), place / "car.parquet")
    return str(place / "car.parquet")


def content(place: Path, **telemetry: Any) -> dict[str, Any]:
    return {
        "title": "A car", "question": "How long?", "engine": "telemetry", "keep": "rows",
        "telemetry": {"data": frame(place), **telemetry},
        "axis": [{"name": "window", "key": "window", "values": ["10 s"]}],
    }  # fmt: skip


def run(place: Path, repeats: int, **telemetry: Any) -> StudyRun:
    made = content(place, **telemetry) | {"repeats": repeats}
    return run_study(load_study(made), place / "study", jobs=1)


def rows(place: Path, repeats: int = 1, **telemetry: Any) -> list[dict[str, Any]]:
    done = run(place, repeats, **telemetry)
    assert not done.failures, done.failures
    return done.results.frame.sort("seed").to_dicts()


def test_latencies_of_blocks_are_those_of_their_seconds(tmp_path: Path) -> None:
    found = rows(tmp_path, repeats=4, blocks=4)
    assert [row["seconds"] for row in found] == [150] * 4
    assert [row["latency_median"] for row in found] == [30.0] * 4
    assert [row["latency_max"] for row in found] == [30.0, 90.0, 30.0, 30.0]


def test_idle_seconds_use_little_in_both_directions(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, idle_below="1 Mbit/s")
    assert row["seconds"] == 60


def test_a_spike_between_two_moments_of_the_grid_is_found(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, describes="spikes")
    assert (row["spikes"], row["spikes_on_steps"]) == (1, 1)
    assert (row["spike_starts"], row["spike_ends"]) == (100.0, 100.0)
    assert row["loss"] == pytest.approx(100 / 600)
    assert row["loss_at_edges"] > 10 * row["loss"]


@pytest.mark.parametrize(("at", "mbps"), [("0 s", 100.0), ("153 s", 40.0), ("160 s", 52.0)])
def test_a_window_counts_from_the_first_second(tmp_path: Path, at: str, mbps: float) -> None:
    (row,) = rows(tmp_path, describes="rate", at=at)
    assert row["rate"] == pytest.approx(mbps)


def test_traceroutes_have_shares_of_segments(tmp_path: Path) -> None:
    traces = tmp_path / "traces.txt"
    traces.write_text(TRACES, "utf-8")
    (row,) = rows(tmp_path, describes="route", data=str(traces))
    assert row["s2_share"] > 70
    assert sum(row[f"s{n}_share"] for n in range(1, 7)) == pytest.approx(100, abs=1)
    assert row["s2_low"] <= row["s2_share"]


@pytest.mark.parametrize(
    ("telemetry", "says"),
    [
        ({"at": "1 s"}, 'telemetry.at goes with describes = "rate"'),
        ({"describes": "rate"}, 'telemetry.at goes with describes = "rate"'),
        ({"idle_below": "much"}, "telemetry.idle_below: expected a rate"),
        ({"describes": "weather"}, "telemetry.describes"),
    ],
)
def test_wrong_keys_are_named(tmp_path: Path, telemetry: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as refused:
        list(load_study(content(tmp_path, **telemetry)).runs())
    assert says in str(refused.value)


def test_more_seeds_than_blocks_are_an_error(tmp_path: Path) -> None:
    (failure,) = run(tmp_path, repeats=3, blocks=2).failures
    assert failure.error == "telemetry.blocks: 2 blocks have no block 3: lower `repeats`"


def test_seconds_without_a_latency_that_counts_are_an_error(tmp_path: Path) -> None:
    (failure,) = run(tmp_path, repeats=1, idle_below="0.1 Mbit/s").failures
    assert "has no latency in the seconds that count" in failure.error
