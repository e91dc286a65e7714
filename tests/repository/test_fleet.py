"""A small simulated fleet: its runs, and what they cost its nodes."""

from __future__ import annotations

import sqlite3
from itertools import pairwise
from pathlib import Path

import pytest

from validation.fleet.events import BEGIN_NS, S
from validation.fleet.page import page
from validation.fleet.simulation import Fleet, World

KINDS = ("hour", "six hours", "trigger", "server", "client")


def test_a_day_of_a_small_fleet_costs_little_and_loses_no_run(tmp_path: Path) -> None:
    outcome = Fleet(tmp_path, World(5, 1.0, seed=3, kinds=KINDS)).run()
    per_day = {each.kind: each.per_day for each in outcome.kinds}
    assert set(per_day) == set(KINDS)
    begun = sum(each["runs"] for each in per_day.values())
    complete = sum(each["complete"] for each in per_day.values())
    assert outcome.runs["complete"] == complete
    assert 25 < complete <= begun
    assert per_day["hour"]["runs"] > 15
    assert per_day["client"]["complete"] > 2
    assert per_day["trigger"]["runs"] > 3
    # The schedule comes as differences: a day of a node without a run per minute is some 2 MB.
    for kind, costs in per_day.items():
        assert costs["up_bytes"] < 2.5e6, kind
        assert costs["down_bytes"] < 2.0e6, kind
        assert costs["bytes_written"] < 5e6, kind
    # Synced are the claim, the start and the end of a run, and reservations of numbers.
    assert per_day["hour"]["syncs"] <= 3 * per_day["hour"]["runs"] + 10
    text = page(outcome)
    assert "| a run per hour | 1 |" in text
    assert all(len(line) <= 120 or line.startswith("|") for line in text.splitlines())


@pytest.mark.soak
def test_each_run_of_a_fleet_ends_once_and_the_database_keeps_within_its_bound(
    tmp_path: Path,
) -> None:
    kinds = ("six hours", "six hours", "trigger", "trigger", "server", "client", "client", "idle")
    retention_days, days = 0.75, 2.0
    outcome = Fleet(tmp_path, World(20, days, 5, kinds, retention_days)).run()
    assert outcome.ends.keys() == {1}
    assert outcome.ends[1] > 12 * 24 * retention_days / 2
    for costs in outcome.kinds:
        per_day = costs.per_day
        assert per_day["complete"] <= per_day["runs"], costs.kind
        # A heartbeat each 31.5 s, and what runs and owners' traffic add.
        assert 1_800 < per_day["requests"] < 2_750 + 12 * (per_day["runs"] + 10), costs.kind
        if costs.kind != "server":
            # A run syncs its claim, its start and its end; a death of the agent adds some.
            assert per_day["syncs"] <= 4 * per_day["runs"] + 10, costs.kind
    heartbeats = sum(outcome.counted.values()) / 20 / days
    assert 1_500 < heartbeats < 2_750
    _check_database(tmp_path / "orchestrator" / "testbed.sqlite", days, retention_days)


def _check_database(file: Path, days: float, retention_days: float) -> None:
    """Check that nothing is older than the retention, and that each occurrence has one run."""
    now_ns = BEGIN_NS + round(days * 86_400 * S)
    # Housekeeping has a round an hour.
    oldest_ns = now_ns - round((retention_days * 86_400 + 2 * 3600) * S)
    base = sqlite3.connect(file)
    ended = "('skipped', 'aborted', 'failed', 'complete', 'rescheduled', 'lost')"
    for column, rows in {
        "end_ns": f"run WHERE state IN {ended}",
        "at_ns": "preemption",
        "max(at_ns)": "event GROUP BY run",
    }.items():
        found = [age for (age,) in base.execute(f"SELECT {column} FROM {rows}")]
        assert len(found) > 20, rows
        assert min(found) > oldest_ns, rows
    hourly = "job IN (SELECT id FROM job WHERE kind = 'cron' AND name LIKE 'h-%') AND after IS NULL"
    starts: dict[str, list[int]] = {}
    for name, start_ns in base.execute(f"SELECT job, start_ns FROM run WHERE {hourly} ORDER BY 2"):
        starts.setdefault(name, []).append(start_ns)
    assert len(starts) == 12
    for times in starts.values():
        assert {later - each for each, later in pairwise(times)} == {3600 * S}
        assert times[-1] > now_ns + 10 * 86_400 * S
    base.close()
