"""Gaps in a link's deliveries: begin, end and length relative to a grid of handovers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import skyhop
from skyhop.study.metric_kinds import GapMetric
from skyhop.study.metrics import MetricSet


def gap_value(directory: Path, **keys: Any) -> float | None:
    """Return the value of a metric of gaps in a run of one flow."""
    metric = GapMetric.model_validate({"name": "own", "kind": "gap", **keys})
    (row,) = MetricSet.build([metric], "here").rows(directory)
    found: float | None = row["own"]
    return found


def test_gaps_are_measured_relative_to_the_grid(tmp_path: Path) -> None:
    """Take the link down for 50 ms at UTC second 5, which is 3 s into the run; packets wait."""
    path = {"from": "32.881,-117.237", "to": "San Francisco, US", "relay": "access"}
    path |= {"constellation": "starlink-gen1", "start": "2019-12-01T00:00:02Z"}
    path |= {"outage": "none", "during_outage": "hold"}
    scenario = {
        "path": path,
        "link": {"rate": "20 Mbit/s"},
        "flow": [{"cc": "bbr", "from": "to"}],
        "change": [{"at": "3 s", "outage": "50 ms"}],
        "run": {"duration": "5 s", "sample": "2 ms", "seed": 7},
    }
    skyhop.sim(scenario, output=tmp_path / "run")
    gap: dict[str, Any] = {"from": "2 s", "offset": "5 s", "window": "100 ms", "largest": 1}
    edges = ("begin", "end", "length")
    begin, end, length = (gap_value(tmp_path / "run", edge=edge, **gap) for edge in edges)
    assert begin is not None
    # Packets in flight still arrive after the moment, up to half a round trip later.
    assert 0 <= begin < 15
    assert length == pytest.approx(50, abs=4)
    assert end == pytest.approx(begin + (length or 0))
    # The receiver's clock, whose error the seed draws, shifts the gap.
    own = gap_value(tmp_path / "run", edge="begin", clock="20 ms", **gap)
    assert own == pytest.approx(begin + 1e3 * random.Random(7).uniform(-0.02, 0.02))
    # The gap does not count far from the grid, or if it is not completely in the window.
    for keys in ({"offset": "6500 ms"}, {"window": "20 ms"}):
        found = gap_value(tmp_path / "run", edge="length", **{**gap, **keys})
        assert found is None or found < 40
