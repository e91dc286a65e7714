"""Runs in an agent's database: those that decisions see, their fencing tokens, and old ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from testbed_harness import BEGIN_NS, S, StandingClock

from skyhop_testbed.agent.agent_db import AgentDb
from skyhop_testbed.agent.local_run import LocalRun
from skyhop_testbed.agent.local_runs import FORGET_NS, LocalRuns
from skyhop_testbed.agent.policy import Policy
from skyhop_testbed.agent.schedule import Schedule
from skyhop_testbed.job import job_of
from skyhop_testbed.words import Side, State

SPEC = job_of(
    {
        "id": "j",
        "nodes": ["a"],
        "length": 60.0,
        "when": {"cron": "* * * * *"},
        "run": {"client": ["true"]},
    },
    "a test's job",
)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Any]:
    clock = StandingClock()
    (tmp_path / "runs").mkdir()
    database = AgentDb(tmp_path, clock.now_ns())
    yield SimpleNamespace(
        name="a",
        clock=clock,
        db=database,
        runs=tmp_path / "runs",
        policy=Policy(),
        schedule=Schedule(),
    )
    database.close()


def saved(node: Any, name: str, *, side: Side = Side.CLIENT, **values: Any) -> LocalRun:
    start_ns = node.clock.ns
    made = LocalRun(name, side, State.COMPLETE, "j", SPEC, start_ns, start_ns + 60 * S, **values)
    node.db.save_run(made)
    return made


def follow(node: Any, *names: str) -> None:
    node.schedule = Schedule(runs=dict.fromkeys(names))  # type: ignore[arg-type]


def test_decisions_see_unsettled_runs_and_those_of_the_schedule(node: Any) -> None:
    saved(node, "old", settled_ns=BEGIN_NS)
    saved(node, "listed", settled_ns=BEGIN_NS)
    saved(node, "listed", side=Side.SERVER, settled_ns=BEGIN_NS)
    saved(node, "going")
    runs = LocalRuns(node)
    going = runs.get("going")
    assert going is not None
    follow(node, "listed", "later")
    assert {*runs.known()} == {"going", "listed", "listed.server"}
    assert runs.unsettled() == [going]
    going.settled_ns = BEGIN_NS + 1
    assert runs.unsettled() == []
    assert {*runs.known()} == {"listed", "listed.server"}
    assert {each.key for each in runs} == {"old", "listed", "listed.server", "going"}


def test_a_fence_is_larger_than_all_before_although_the_clock_is_set_back(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalRuns, "_start_runner", lambda _runs, _run: None)
    saved(node, "first", settled_ns=BEGIN_NS, fence=BEGIN_NS + 7)
    runs = LocalRuns(node)
    new = [saved(node, name) for name in ("second", "third")]
    for each in new:
        runs.begin(each)
    assert [each.fence for each in new] == [BEGIN_NS + 8, BEGIN_NS + 9]
    node.clock.ns += 60 * S
    fourth = saved(node, "fourth")
    runs.begin(fourth)
    assert fourth.fence == BEGIN_NS + 60 * S
    node.clock.ns -= 120 * S
    again = LocalRuns(node)
    again.begin(fifth := saved(node, "fifth"))
    assert fifth.fence == fourth.fence + 1


def test_a_week_after_its_end_a_run_is_forgotten_unless_the_schedule_lists_it(node: Any) -> None:
    kinds: dict[str, dict[str, Any]] = {
        "uploaded": {"is_uploaded": True, "starts": 1},
        "listed": {"is_uploaded": True, "starts": 1},
        "waiting": {"starts": 1},
        "skipped": {},
    }
    for name, values in kinds.items():
        saved(node, name, settled_ns=BEGIN_NS, **values)
        (node.runs / name).mkdir()
    saved(node, "going")
    runs = LocalRuns(node)
    follow(node, "listed")
    node.clock.ns = BEGIN_NS + FORGET_NS
    runs.forget()
    assert len([*runs]) == 5
    node.clock.ns += 1
    runs.forget()
    left = {"listed", "waiting", "going"}
    assert {each.key for each in runs} == left
    assert {each.key for each in LocalRuns(node)} == left
    assert {each.name for each in node.runs.iterdir()} == {"listed", "waiting"}
    assert [each.key for each in runs.unsettled()] == ["going"]


def test_files_of_uploaded_runs_are_kept_as_long_as_the_owner_says(node: Any) -> None:
    for name, is_uploaded in (("there", True), ("waiting", False)):
        saved(node, name, settled_ns=BEGIN_NS, is_uploaded=is_uploaded, starts=1)
        (node.runs / name).mkdir()
    (node.runs / "unknown").mkdir()
    runs = LocalRuns(node)
    node.clock.ns = BEGIN_NS + round(node.policy.keep_days * 86_400 * S)
    runs.clean()
    assert {each.name for each in node.runs.iterdir()} == {"there", "waiting", "unknown"}
    node.clock.ns += S
    runs.clean()
    assert {each.name for each in node.runs.iterdir()} == {"waiting", "unknown"}
    assert {each.key for each in runs} == {"there", "waiting"}
