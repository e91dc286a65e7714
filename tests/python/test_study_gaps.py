"""Where silences of a link begin and end, beside the moments of a grid."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import skyhop
from skyhop.study.file import Metric
from skyhop.study.metrics import MetricSet


def measured(directory: Path, **keys: Any) -> float | None:
    """Return what a metric of gaps comes to in a run of one flow."""
    metric = Metric.model_validate({"name": "own", "kind": "gap", **keys})
    (row,) = MetricSet.of([metric], "here").rows(directory)
    found: float | None = row["own"]
    return found


def test_gaps_begin_and_end_beside_the_moments_of_a_grid(tmp_path: Path) -> None:
    """The link is down for 50 ms at second 5, which is 3 s into the run; packets wait."""
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
    begin, end, length = (measured(tmp_path / "run", edge=edge, **gap) for edge in edges)
    assert begin is not None
    # A packet that was on its way arrives after it, up to half a round trip later.
    assert 0 <= begin < 15
    assert length == pytest.approx(50, abs=4)
    assert end == pytest.approx(begin + (length or 0))
    # By a clock of its own, which the seed draws, all of it is so much later.
    own = measured(tmp_path / "run", edge="begin", clock="20 ms", **gap)
    assert own == pytest.approx(begin + 1e3 * random.Random(7).uniform(-0.02, 0.02))
    # No moment of the grid is near, or the gap is not wholly within the window.
    for keys in ({"offset": "6500 ms"}, {"window": "20 ms"}):
        found = measured(tmp_path / "run", edge="length", **{**gap, **keys})
        assert found is None or found < 40
