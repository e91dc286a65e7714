"""Room for results on a node: one budget for all runs, the disk's floor, and refused uploads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from manual_clock import S_NS
from node_here import NodeHere, Script
from testbed_fake_orchestrator import NODE

from skyhop.errors import InputError
from skyhop_testbed.agent.policy import Policy
from skyhop_testbed.api import ApiError, ErrorKind
from skyhop_testbed.free_space import Space
from skyhop_testbed.orchestrator.nodes import _POLICY

KB = 1_000
LIMITS = {"disk_bytes": 20_000 * KB, "free_floor_bytes": 1_000_000}
OF_RUN = 20_000 * KB + 2 * 10_000_000
"""Bytes that one run may write: its files, and its two outputs."""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeHere]:
    made = NodeHere(tmp_path, monkeypatch)
    yield made
    made.close()


def job(*command: str, length_s: float = 20.0, **others: Any) -> dict[str, Any]:
    run = {"client": list(command), "network": "none", "keep": ["*"]}
    made = {"id": "try", "nodes": [NODE], "length": length_s, "when": {"at": 1}, "run": run}
    return made | {"overhead": False} | others


def files(node: NodeHere, run: str) -> bool:
    return (node.state / "runs" / run).exists()


def outcome(node: NodeHere, run: str) -> str:
    return node.orchestrator.states(run)[-1]


def text(node: NodeHere, run: str) -> str:
    said = [
        body["change"]["details"].get("text", "")
        for _, kind, body in node.orchestrator.events
        if kind == "run" and body["run"] == run
    ]
    return str(said[-1])


def budget(node: NodeHere, runs: float, **more: Any) -> None:
    """Give all runs together the room of a number of runs."""
    node.orchestrator.policy = {**LIMITS, "results_bytes": runs * OF_RUN, **more}


def test_runs_at_once_begin_as_far_as_their_limits_fit(node: NodeHere) -> None:
    budget(node, 2.5)
    node.start()
    made = [node.orchestrator.plan(job("sleep", "200", length_s=400.0)) for _ in range(4)]
    node.clock.advance(5)
    working = [run for run in made if node.started(run)]
    assert len(working) == 2
    node.clock.advance(160)
    others = [run for run in made if run not in working]
    # They have waited for a tenth of their length.
    assert [outcome(node, run) for run in others] == ["skipped(disk)"] * 2
    assert text(node, others[0]).startswith(
        f"results of runs take {2 * OF_RUN:,} of results_bytes = {round(2.5 * OF_RUN):,}, "
        f"and new runs may write {OF_RUN:,}: "
    )


def test_a_run_that_waits_for_room_begins_when_there_is_some(node: NodeHere) -> None:
    budget(node, 1.5)
    node.start()
    first = node.orchestrator.plan(job("sleep", "30", length_s=60.0))
    node.until(lambda: node.started(first))
    second = node.orchestrator.plan(job("sleep", "30", length_s=600.0))
    node.until_settled(second)
    assert [outcome(node, run) for run in (first, second)] == ["complete"] * 2
    assert node.started(second)[0] - node.started(first)[0] >= 30 * S_NS


def test_the_oldest_uploaded_results_go_first_and_those_that_wait_stay(node: NodeHere) -> None:
    budget(node, 1.4, keep_days=100)
    content = bytes(OF_RUN // 4)
    node.scripts["write"] = Script(1.0, writes={"x": content})
    node.start()
    uploaded = []
    for _ in range(2):
        run = node.orchestrator.plan(job("write"))
        node.until_settled(run)
        uploaded.append(run)
        node.clock.advance(2)
    assert [files(node, run) for run in uploaded] == [True, True]
    node.orchestrator.stop()
    third = node.orchestrator.plan(job("write"))
    node.orchestrator.start()
    node.until(lambda: node.started(third))
    assert [files(node, run) for run in uploaded] == [False, True]
    node.until_settled(third)
    assert outcome(node, third) == "complete"


def test_results_that_wait_for_their_upload_refuse_further_runs(node: NodeHere) -> None:
    budget(node, 1.2)
    node.scripts["write"] = Script(1.0, writes={"x": bytes(OF_RUN * 2 // 5)})
    node.start()
    first = node.orchestrator.plan(job("write"))
    later = node.orchestrator.plan(job("write"), 60.0)
    node.until(lambda: node.started(first))
    node.orchestrator.stop()
    node.clock.advance(300)
    node.orchestrator.start()
    node.until_settled(first)
    node.until_settled(later)
    assert (outcome(node, first), outcome(node, later)) == ("complete", "skipped(disk)")
    assert any(name.startswith(f"{first}/") for name in node.orchestrator.files)


def test_below_its_floor_a_node_begins_no_run_says_so_and_recovers(node: NodeHere) -> None:
    budget(node, 10)
    node.start()
    assert node.agent is not None
    # More than the default floor, which holds until the schedule brings the policy.
    free = {"bytes": 600_000_000}
    node.agent._node.space_of = lambda _path: Space(10**9, free["bytes"])
    before = node.orchestrator.plan(job("true"))
    node.until_settled(before)
    free["bytes"] = 900_000
    refused = node.orchestrator.plan(job("true"))
    node.until_settled(refused)
    said = "the node's disk has 900,000 bytes free, less than its floor of 1,000,000"
    assert outcome(node, refused) == "skipped(disk)"
    assert text(node, refused).startswith(said)
    node.clock.advance(62)
    assert said in node.log()
    assert _health(node)["shortage"].startswith(said)
    free["bytes"] = 600_000_000
    after = node.orchestrator.plan(job("true"))
    node.until_settled(after)
    node.clock.advance(62)
    assert (outcome(node, before), outcome(node, after)) == ("complete", "complete")
    assert "the node's disk has room again" in node.log()
    health = _health(node)
    assert health["shortage"] == ""
    assert health["results_most_bytes"] == 10 * OF_RUN
    assert 0 < node.agent._housekeeping._room.used_bytes() < OF_RUN


def _health(node: NodeHere) -> dict[str, Any]:
    found = [body for _, kind, body in node.orchestrator.events if kind == "health"]
    return dict(found[-1])


def test_a_trigger_stays_armed_while_the_disk_is_full(node: NodeHere) -> None:
    budget(node, 10)
    node.start()
    assert node.agent is not None
    free = {"bytes": 0}
    node.agent._node.space_of = lambda _path: Space(10**9, free["bytes"])
    when = {"trigger": "pop_ping_latency_ms > 50", "end": 1, "cooldown": 5.0}
    run = node.orchestrator.plan(job("true", when=when, length_s=5.0))
    node.orchestrator.runs[0]["end_ns"] += 600 * S_NS
    node.orchestrator.publish()
    node.clock.advance(5)
    assert node.orchestrator.states(run) == ["armed"]
    node.says(pop_ping_latency_ms=80.0)
    node.clock.advance(5)
    why = [body["why"] for _, kind, body in node.orchestrator.events if kind == "trigger"]
    assert any(each.startswith("disk: the node's disk has 0 bytes free") for each in why)
    assert node.orchestrator.states(run) == ["armed"]
    free["bytes"] = 10**8
    node.says(pop_ping_latency_ms=30.0)
    node.clock.advance(5)
    node.says(pop_ping_latency_ms=80.0)
    node.until_settled(run)
    assert outcome(node, run) == "complete"


def test_files_that_are_refused_for_good_are_sent_once(node: NodeHere) -> None:
    node.start()
    assert node.agent is not None
    wire: Any = node.agent._node.link.wire
    sent = []

    def refuse(*_: Any) -> bool:
        sent.append(1)
        raise ApiError(ErrorKind.DENIED, "quota: 51 files of this side of the run, 50 are allowed")

    wire.upload = refuse
    node.scripts["write"] = Script(1.0, writes={"x": b"x"})
    run = node.orchestrator.plan(job("write"))
    node.until_settled(run)
    node.clock.advance(3600)
    assert len(sent) == 1
    assert outcome(node, run) == "failed(upload)"
    assert text(node, run) == "denied: quota: 51 files of this side of the run, 50 are allowed"
    assert files(node, run)


def test_a_refusal_for_now_is_tried_again(node: NodeHere) -> None:
    node.start()
    assert node.agent is not None
    wire: Any = node.agent._node.link.wire
    upload, sent = wire.upload, []

    def refuse_first(*asked: Any) -> bool:
        sent.append(1)
        if len(sent) <= 2:
            raise ApiError(ErrorKind.TOO_OFTEN, "quota of user ann: bytes uploaded today are used")
        return bool(upload(*asked))

    wire.upload = refuse_first
    run = node.orchestrator.plan(job("true"))
    node.until_settled(run)
    assert (len(sent), outcome(node, run)) == (3, "complete")


def test_the_policys_keys_are_read_and_known_to_the_orchestrator() -> None:
    made = Policy.of({"results_bytes": 5e9, "free_floor_bytes": 1e6})
    assert (made.results_bytes, made.free_floor_bytes) == (5e9, 1_000_000)
    assert {"results_bytes", "free_floor_bytes"} <= _POLICY
    assert json.dumps(Policy().results_bytes) == "20000000000"
    with pytest.raises(InputError):
        Policy.of({"results_bytes": "many"})
