"""A small simulated fleet: its runs, and what they cost its nodes."""

from __future__ import annotations

from pathlib import Path

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
