"""A planted bad orientation is found; without one, false alarms are rare."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import Skyhop
from scipy.sparse import csr_array

from needs import cases
from skyhop.analysis.orientation import _permuted, by_orientation
from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME
from skyhop.telemetry.store import Store

S = 10**9
START_NS = 1_700_000_007 * S
"""Begin of a slot: 22:13:27 UTC."""
PLANTED = (1.25, 64.85)


def telemetry(seed: int, slots: int, worse_ms: float = 0.0) -> pl.DataFrame:
    """Return seconds of a terminal that turns slowly, with rare excursions.

    Each slot of 15 s has its own latency; in the planted cell `worse_ms` is added.

    """
    draw = np.random.default_rng(seed)
    count = 15 * slots
    # The terminal stays for four slots near one of the cells around its middle.
    stays = np.repeat(np.arange(-(-slots // 4)), 4)[:slots].repeat(15)
    spread = draw.normal(0, [[0.2], [0.12]], (2, -(-slots // 4)))
    azimuth = 1.0 + spread[0][stays] + draw.normal(0, 0.002, count)
    elevation = 64.95 + spread[1][stays] + draw.normal(0, 0.002, count)
    latency = draw.gamma(20, 1, slots).repeat(15) + draw.gamma(4, 3, count)
    there = (np.floor(azimuth * 10) == 12) & (np.floor(elevation * 10) == 648)
    latency += worse_ms * there
    lost = draw.random(count) < 0.02
    return pl.DataFrame(
        {
            "node": ["bcn-1"] * count,
            TIME: START_NS + S * np.arange(1, count + 1),
            "direction_azimuth": azimuth,
            "direction_elevation": elevation,
            "pop_ping_latency_ms": pl.Series(np.where(lost, np.nan, latency)).fill_nan(None),
            "pop_ping_drop_rate": lost.astype(float),
            "tilt": np.full(count, 25.0),
            "attitude_uncertainty": np.full(count, 0.5),
        }
    )


def test_a_planted_cell_is_found_and_only_it() -> None:
    frame = telemetry(1, 4000, worse_ms=25.0)
    found = by_orientation(frame, seed=1)
    significant = found.significant()
    assert significant.select("azimuth_deg", "elevation_deg").rows() == [PLANTED]
    assert significant["p"][0] == pytest.approx(0.001), "no deal of 999 is as bad"
    worst = found.worst.row(0, named=True)
    assert (worst["azimuth_deg"], worst["elevation_deg"]) == PLANTED
    assert worst["n"] >= 300
    assert worst["visits"] > 5


def test_a_faint_one_is_found_most_often() -> None:
    tries = cases(10)
    found = [
        PLANTED in by_orientation(telemetry(seed, 4000, worse_ms=12.0), permutations=99)
        .significant().select("azimuth_deg", "elevation_deg").rows()
        for seed in range(tries)
    ]  # fmt: skip
    assert sum(found) >= 0.8 * tries


def test_without_one_chance_finds_one_in_a_twentieth_of_cases() -> None:
    tries = cases(120)
    alarms = sum(
        by_orientation(telemetry(1000 + seed, 600), seed=seed, permutations=59).significant().height
        > 0
        for seed in range(tries)
    )
    # 5 % are 6 of 120; 13 or more have a probability of one in 300.
    assert alarms <= 0.05 * tries + 2.8 * (0.05 * 0.95 * tries) ** 0.5


def test_slots_that_are_alike_are_noticed_and_longer_blocks_help() -> None:
    """Shift times by half a slot: neighbouring blocks then share half of their latency."""
    tries = cases(60)
    shifted = [telemetry(s, 600).with_columns(pl.col(TIME) + 7 * S) for s in range(tries)]
    alarms = 0
    for seed, frame in enumerate(shifted):
        short = by_orientation(frame, seed=seed, permutations=19)
        assert short.caution is not None
        assert '--block "60 s"' in short.caution
        long = by_orientation(frame, seed=seed, permutations=59, block_s=60)
        alarms += long.significant().height > 0
    assert alarms <= 0.05 * tries + 2.8 * (0.05 * 0.95 * tries) ** 0.5
    assert by_orientation(telemetry(1, 600), permutations=19).caution is None


@pytest.mark.parametrize("seed", range(5))
def test_scores_equal_those_of_a_matrix_of_slots_and_cells(seed: int) -> None:
    draw = np.random.default_rng(seed)
    cells, ranks = 20, draw.permutation(300) + 1.0
    matrix = draw.integers(0, 15, (cells, len(ranks))) * (draw.random((cells, len(ranks))) < 0.02)
    matrix[[7, cells - 1]] = 0  # No block of these cells has enough samples.
    rows, slots = np.nonzero(matrix)
    counts = pl.DataFrame({"row": rows, "slot": slots, "count": matrix[rows, slots]})
    found, p = _permuted(ranks, counts, cells, seed, permutations=99)

    weights = csr_array(matrix.astype(float))
    norms = np.maximum(np.sqrt((matrix.astype(float) ** 2).sum(axis=1)), 1e-300)
    even = (ranks - ranks.mean()) / ranks.std()
    again = np.random.default_rng(seed)
    worst = np.array([(weights @ again.permutation(even) / norms).max() for _ in range(99)])
    assert found.tolist() == (weights @ even / norms).tolist()
    assert p.tolist() == [(1 + (worst >= score).sum()) / 100 for score in found]


def test_cells_are_what_a_slow_count_says() -> None:
    frame = telemetry(3, 200)
    found = by_orientation(frame, permutations=19)
    rows = frame.to_dicts()
    assert found.samples == len(rows)
    cell = found.cells.row(0, named=True)
    x, y = round(cell["azimuth_deg"] * 10 - 0.5), round(cell["elevation_deg"] * 10 - 0.5)
    here = [row for row in rows if np.floor(row["direction_azimuth"] * 10) == x
            and np.floor(row["direction_elevation"] * 10) == y]  # fmt: skip
    known = [r["pop_ping_latency_ms"] for r in here if r["pop_ping_latency_ms"] is not None]
    assert cell["n"] == len(here)
    assert cell["share"] == pytest.approx(len(here) / len(rows))
    assert cell["p50_ms"] == pytest.approx(np.median(known))
    assert cell["p95_ms"] == pytest.approx(np.percentile(known, 95))
    assert cell["drop"] == pytest.approx(np.mean([row["pop_ping_drop_rate"] for row in here]))
    small = found.cells.filter(pl.col("n") < 30)
    assert small.height > 0
    assert small["p"].null_count() == small.height
    assert found.cells["share"].sum() == pytest.approx(1)


def test_a_terminal_that_looks_south_is_not_torn_apart() -> None:
    frame = telemetry(3, 200).with_columns(
        direction_azimuth=(pl.col("direction_azimuth") + 179 + 180) % 360 - 180
    )
    assert frame["direction_azimuth"].min() < -179 < 179 < frame["direction_azimuth"].max()  # type: ignore[operator]
    found = by_orientation(frame, permutations=19)
    low, high = found.azimuth_deg
    assert high - low < 1
    assert found.cells["azimuth_deg"].max() - found.cells["azimuth_deg"].min() < 2  # type: ignore[operator]


def test_what_cannot_be_told_is_refused() -> None:
    frame = telemetry(3, 20)
    with pytest.raises(InputError, match="there is no pop_ping_latency_ms with"):
        by_orientation(frame.with_columns(direction_azimuth=pl.lit(None, pl.Float64)))
    other = frame.with_columns(node=pl.lit("edh"))
    with pytest.raises(InputError, match="name one of bcn-1, edh"):
        by_orientation(pl.concat([frame, other]))
    # Latency is constant, so no cell is worse than another.
    even = by_orientation(frame.with_columns(pop_ping_latency_ms=pl.lit(30.0)), permutations=19)
    assert even.significant().is_empty()


def test_the_command_prints_a_table_json_and_a_figure(skyhop: Skyhop, tmp_path: Path) -> None:
    store = Store(tmp_path / "kept")
    frame = telemetry(1, 1200, worse_ms=25.0)
    store.append(
        "bcn-1", [{k: v for k, v in row.items() if k != "node"} for row in frame.to_dicts()]
    )
    printed = skyhop("telemetry", "orientation", "kept", "--node", "bcn-1", "-o", "map.png")
    assert printed.returncode == 0, printed.stderr
    assert "1 cell is worse at 5 %" in printed.stdout
    assert (tmp_path / "map.png").stat().st_size > 10_000
    found = json.loads(
        skyhop("telemetry", "orientation", "kept", "--node", "bcn-1", "--json").stdout
    )
    assert found["samples"] == frame.height
    assert skyhop("telemetry", "orientation", "kept", "--node", "edh").returncode == 2
