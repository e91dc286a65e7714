"""Agent of a node on a clock that the test advances: its actions, their order and times."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from manual_clock import S_NS
from node_here import NodeHere, Script
from testbed_fake_orchestrator import NODE

from needs import cases
from skyhop_testbed import api
from skyhop_testbed.executor.execution import GRACE_S, GRACE_WITH_NETWORK_S

SERVED, OTHER = "01JZZZZZZZZZZZZZZZZZZZZZZZ", "01JZZZZZZZZZZZZZZZZZZZZZZY"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeHere]:
    made = NodeHere(tmp_path, monkeypatch)
    yield made
    made.close()


def job(*command: str, length_s: float = 20.0, **others: Any) -> dict[str, Any]:
    run = {"client": list(command), "network": "none", **others.pop("run", {})}
    made = {"id": "try", "nodes": [NODE], "length": length_s, "when": {"at": 1}, "run": run}
    return made | others


def served(*command: str, length_s: float = 20.0) -> dict[str, Any]:
    run = {"serve": list(command), "network": "internet"}
    return job("true", run=run, length_s=length_s) | {"nodes": ["edh"], "server": NODE}


def manifest(node: NodeHere, run: str, side: str = "client") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(node.orchestrator.files[f"{run}/{side}/manifest.json"])
    return found


def told(node: NodeHere, kind: str) -> list[dict[str, Any]]:
    return [body for _, each, body in node.orchestrator.events if each == kind]


def kept_revision(node: NodeHere) -> int:
    assert node.agent is not None
    stored = node.agent._node.db.orders()
    return int(json.loads(stored[-1].body)["revision"]) if stored else 0


def test_a_run_begins_at_its_start_and_its_files_arrive(node: NodeHere) -> None:
    node.orchestrator.inputs["greeting.txt"] = b"good morning\n"
    node.scripts["cat"] = Script(2.0, writes={"out.txt": b"x"})
    node.start()
    run = node.orchestrator.plan(job("cat", run={"keep": ["*"]}), 7.25)
    node.until_settled(run)
    assert node.orchestrator.states(run) == ["deploying", "executing", "finishing", "complete"]
    files = {name.split("/")[-1] for name in node.orchestrator.files}
    assert files == {"out.txt", "stdout", "stderr", "manifest.json"}
    assert [claim[0] for claim in node.orchestrator.claims] == [run]
    assert {"run", "telemetry", "health", "scavenger"} <= {
        k for _, k, _ in node.orchestrator.events
    }
    (begun_ns,) = node.started(run)
    assert begun_ns - node.orchestrator.runs[0]["start_ns"] == 2_000_000
    result = manifest(node, run)["result"]
    assert result["ended_ns"] - result["began_ns"] == 2 * S_NS


def test_telemetry_has_each_second_once(node: NodeHere) -> None:
    node.start()
    node.clock.advance(65)
    times = [sample["time_ns"] for body in told(node, "telemetry") for sample in body["samples"]]
    begin_ns = times[0]
    assert times == [begin_ns + second * S_NS for second in range(len(times))]
    assert len(times) >= 60


def test_what_a_run_came_to_is_said(node: NodeHere) -> None:
    node.scripts["false"] = Script(exit=3, writes={"a": b"a"})
    node.start()
    plan = node.orchestrator.plan
    failing = plan(job("false", overhead=False))
    missing = plan(job("nosuchprogram", overhead=False))
    late = plan(job("true", overhead=False, length_s=1000.0), -600)
    long = plan(job("sleep", "60", overhead=False, length_s=2.0))
    longer = plan(job("sleep", "60", overhead=False, length_s=4.0, run={"timeout": "success"}))
    unknown = plan(job("true", overhead=False, run={"of_a_later_version": 1}))
    node.until_settled(failing, missing, late, long, longer, unknown)
    states = node.orchestrator.states
    assert states(failing)[-1] == "failed(exit)"
    assert f"{failing}/client/a" in node.orchestrator.files
    assert states(missing) == ["skipped(needs)"]
    assert states(late) == ["skipped(offline)"]
    assert states(long)[-1] == "failed(timeout)"
    assert states(longer)[-1] == "complete"
    # A job that this agent cannot read is not the kernel service's fault.
    assert states(unknown)[-1] == "failed(deploy)"


@pytest.mark.parametrize(
    ("network", "grace_s"), [("none", GRACE_S), ("host", GRACE_WITH_NETWORK_S)]
)
def test_a_program_that_does_not_heed_is_killed_after_the_grace(
    node: NodeHere, network: str, grace_s: float
) -> None:
    node.scripts["sleep"] = Script(1e6, obeys_term=False)
    node.orchestrator.policy = {"networks": ["host", "none"]}
    node.start()
    run = node.orchestrator.plan(job("sleep", "1", length_s=10.0, run={"network": network}))
    node.until_settled(run)
    result = manifest(node, run)["result"]
    deadline_ns = node.orchestrator.runs[0]["end_ns"] - S_NS
    assert (result["reason"], result["signal"]) == ("timeout", 9)
    assert result["ended_ns"] - deadline_ns == pytest.approx(grace_s * S_NS, abs=1e6)


def test_what_the_owner_does_not_allow(node: NodeHere) -> None:
    node.orchestrator.policy = {"programs": ["ping"]}
    node.start()
    run = node.orchestrator.plan(job("true"))
    node.until_settled(run)
    assert node.orchestrator.states(run) == ["skipped(refused)"]


def test_a_claim_that_is_not_granted_is_no_run(node: NodeHere) -> None:
    node.orchestrator.grants = False
    node.start()
    run = node.orchestrator.plan(job("true"))
    node.until(lambda: "not granted" in node.log())
    node.clock.advance(60)
    assert node.orchestrator.states(run) == []
    assert len(node.orchestrator.claims) == 1
    assert node.started(run) == []


@pytest.mark.parametrize(
    "state", ["claimed", "deploying", "waiting-server", "executing", "finishing"]
)
def test_an_agent_that_is_killed_settles_its_run_once(node: NodeHere, state: str) -> None:
    at = node.orchestrator
    held = {"claimed": "claim", "deploying": "input", "finishing": "upload"}.get(state)
    if held:
        at.hold(held)
    at.inputs["input"] = b"1"
    has_server = state == "waiting-server"
    server = {"server": "ams-1", "server_address": "192.0.2.1"} if has_server else {}
    serve = {"run": {"serve": ["true"]}, "server": "ams-1"} if has_server else {}
    node.scripts["sleep"] = Script(0.7, writes={"out": b"x\n"})
    node.start()
    run = at.plan(job("sleep", "1", **serve), **server)
    node.until(at.reached[held].is_set if held else lambda: at.states(run)[-1:] == [state])
    if state == "executing":
        node.until(lambda: node.started(run))
    node.kill()
    at.release()
    node.start()
    if has_server:
        node.clock.advance(1)
        answer = {"run": run, "ready": True, "port": 5201}
        forged = at.signed(api.OrderKind.TASK_RESULT, {**answer, "ready": False}, forged=True)
        for result in (forged, at.signed(api.OrderKind.TASK_RESULT, answer)):
            at.send(result)
    node.until_settled(run)
    assert at.states(run)[-1] == "complete"
    assert len(set(at.states(run))) == len(at.states(run))
    assert len(node.started(run)) == 1
    assert at.files[f"{run}/client/out"] == b"x\n"
    assert len(set(at.claims)) == 1


def test_an_agent_that_is_killed_at_any_moment(node: NodeHere) -> None:
    chance = random.Random(17)
    node.orchestrator.inputs["input"] = b"1"
    node.scripts["cat"] = Script(0.2, writes={"out": b"x\n"})
    runs = []
    for _ in range(cases(10)):
        node.start()
        runs.append(node.orchestrator.plan(job("cat", overhead=False)))
        node.clock.advance(chance.uniform(0.0, 0.6))
        node.kill()
    node.start()
    for run in runs:
        node.until_settled(run)
        states = node.orchestrator.states(run)
        assert states[-1] == "complete", (states, node.log())
        assert len(set(states)) == len(states)
        assert len(node.started(run)) == 1
    assert len(set(node.orchestrator.claims)) == len({run for run, _ in node.orchestrator.claims})


def test_an_executor_that_is_killed_fails_its_run(node: NodeHere) -> None:
    node.scripts["sleep"] = Script(30, writes={"out": b"x\n"})
    node.start()
    run = node.orchestrator.plan(job("sleep", "30"))
    node.until(lambda: node.started(run))
    node.kill_executors()
    node.until_settled(run)
    assert node.orchestrator.states(run)[-1] == "failed(killed)"
    assert node.orchestrator.files[f"{run}/client/out"] == b"x\n"
    assert len(node.started(run)) == 1


def test_what_happens_while_nobody_answers_is_reported_afterwards(node: NodeHere) -> None:
    node.start()
    run = node.orchestrator.plan(job("true"), 30)
    node.until(lambda: kept_revision(node) == node.orchestrator.revision)
    node.orchestrator.stop()
    node.until((node.state / "runs" / run / "result.json").exists)
    node.kill()
    node.start()
    node.clock.advance(120)
    node.orchestrator.start()
    node.until_settled(run)
    states = ["claimed", "deploying", "executing", "finishing", "complete"]
    assert node.orchestrator.states(run) == states
    seqs = [seq for seq, _, _ in node.orchestrator.events]
    assert seqs == sorted(set(seqs))
    assert node.log().count("the orchestrator answers again") >= 1


def test_a_run_goes_on_while_its_agent_is_away(node: NodeHere) -> None:
    node.start()
    run = node.orchestrator.plan(job("sleep", "5"))
    node.until(lambda: node.started(run))
    node.end()
    assert len(node.executors) == 1
    node.clock.advance(60)
    assert not node.executors
    node.start()
    node.until_settled(run)
    assert node.orchestrator.states(run)[-1] == "complete"


def test_orders_that_are_old_or_not_signed_are_refused(node: NodeHere) -> None:
    at = node.orchestrator
    node.start()
    at.publish()
    node.until(lambda: kept_revision(node) == 1)
    at.send(at.schedule(revision=9).model_copy(update={"signature": bytes(64)}))
    at.send(at.schedule(revision=0))
    at.send(at.schedule(node="edh", revision=9))
    node.until(lambda: node.log().count("refused:") == 3)
    assert kept_revision(node) == 1
    assert "not signed" in node.log()
    assert "older" in node.log()
    assert "another node" in node.log()


def test_a_trigger_starts_a_run_with_its_sample_and_arms_the_next(node: NodeHere) -> None:
    at = node.orchestrator
    node.start()
    when = {"trigger": "pop_ping_latency_ms > 50", "end": 1, "cooldown": 10.0, "max_runs": 2}
    run = at.plan(job("true", when=when, length_s=5.0))
    at.runs[0]["end_ns"] += 60 * S_NS
    at.publish()
    node.until(lambda: at.states(run) == ["armed"])
    node.clock.advance(3)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.connect(str(node.state / "triggers.sock"))
        said_ns = node.clock.now_ns()
        node.says(pop_ping_latency_ms=80.0)
        node.until_settled(run)
        lines = [json.loads(line) for line in listener.recv(65_536).decode().splitlines()]
    fired = next(body for body in told(node, "trigger") if body["fired"])
    assert fired["run"] == run
    assert any(line["fired"] for line in lines)
    # The terminal's sampling accounts for one second of it.
    assert node.started(run)[0] - said_ns <= 1.01 * S_NS
    assert at.states(run)[1:] == ["deploying", "executing", "finishing", "complete"]
    (new,) = (body["new"] for body in told(node, "run") if body.get("new"))
    assert new["after"] == run
    assert at.states(new["run"]) == ["armed"]
    # A rising edge during the cooldown is lost.
    for after_s, latency_ms in ((1, 30.0), (3, 80.0), (12, 30.0), (14, 80.0)):
        node.clock.at(after_s, lambda ms=latency_ms: node.says(pop_ping_latency_ms=ms))  # type: ignore[misc]
    second_ns = node.clock.now_ns() + 14 * S_NS
    node.until_settled(new["run"])
    assert 0 <= node.started(new["run"])[0] - second_ns <= 1.01 * S_NS


def test_runs_make_room_for_the_hosts_own_traffic(node: NodeHere) -> None:
    at = node.orchestrator
    node.start()
    run = at.plan(job("sleep", "60", length_s=60.0))
    other = at.plan(job("sleep", "60", length_s=60.0, overhead=False))
    node.until(lambda: node.started(run) and node.started(other))
    node.clock.advance(5)
    loud_ns = node.clock.now_ns()
    for second in range(100):
        node.clock.at(second * 0.1, lambda s=second: node.counts(s * 100_000))  # type: ignore[misc]
    node.until(lambda: f"{run}/client/manifest.json" in at.files)
    assert at.states(run)[-1] == "aborted(scavenger)"
    result = manifest(node, run)["result"]
    assert result["reason"] == "scavenger"
    assert result["ended_ns"] - loud_ns <= 3 * S_NS
    assert at.states(other)[-1] == "executing"
    refused = at.plan(job("true"))
    node.until_settled(refused)
    assert at.states(refused) == ["skipped(scavenger)"]
    at.runs = [r for r in at.runs if r["id"] != other]
    at.publish()
    node.until(lambda: f"{other}/client/manifest.json" in at.files)
    assert at.states(other)[-1] == "executing"


def test_a_node_serves_anothers_run(node: NodeHere) -> None:
    at = node.orchestrator
    at.policy = {"ports": [15_201, 15_300], "networks": ["host"]}
    node.scripts["python3"] = Script(1e6, listens=True)
    node.start()
    at.publish()
    spec = served("python3", "-c", "serve", "{port}")
    node.until(lambda: kept_revision(node))
    at.task(SERVED, "start", spec)
    node.until(lambda: told(node, "task"))
    assert (told(node, "task")[0]["ok"], told(node, "task")[0]["port"]) == (True, 15_201)
    at.task(SERVED, "stop", spec)
    node.until(lambda: (SERVED, "server") in at.complete)
    assert manifest(node, SERVED, "server")["result"]["state"] == "complete"
    node.clock.advance(1)
    spec["run"]["serve"] = ["nosuchprogram"]
    at.task(OTHER, "start", spec)
    node.until(lambda: len(told(node, "task")) >= 3)
    assert not told(node, "task")[-1]["ok"]
    assert "nosuchprogram" in told(node, "task")[-1]["error"]


def test_a_server_that_says_nothing_of_its_port_is_ready_when_it_lives(node: NodeHere) -> None:
    node.scripts["python3"] = Script(1e6)
    node.start()
    node.orchestrator.publish()
    node.until(lambda: kept_revision(node))
    node.orchestrator.task(SERVED, "start", served("python3"))
    node.until(lambda: told(node, "task"), 5)
    assert told(node, "task")[0]["ok"]


def test_a_server_whose_files_are_not_to_be_had_says_so(node: NodeHere) -> None:
    node.orchestrator.publish()
    node.start()
    node.until(lambda: kept_revision(node))
    files = {"a": b"1"}
    node.orchestrator.task(SERVED, "start", served("true", length_s=40.0), files=files)
    asked_ns = node.clock.now_ns()
    node.until(lambda: told(node, "task"))
    assert not told(node, "task")[0]["ok"]
    assert told(node, "task")[0]["error"].startswith("deploy: a: ")
    # A quarter of the run's length, plus the wait after the last try.
    assert 10 * S_NS <= node.clock.now_ns() - asked_ns <= 16 * S_NS


def test_a_server_that_cannot_read_its_job_says_so(node: NodeHere) -> None:
    node.orchestrator.publish()
    node.start()
    node.until(lambda: kept_revision(node))
    node.orchestrator.task(SERVED, "start", served("true") | {"of_a_later_version": 1})
    node.until(lambda: told(node, "task"))
    assert told(node, "task")[0]["error"].startswith('deploy: job: "of_a_later_version"')


def test_a_server_that_does_not_answer_fails_its_client_in_time(node: NodeHere) -> None:
    node.start()
    spec = job("true", length_s=100.0, run={"serve": ["true"]}) | {"server": "ams-1"}
    run = node.orchestrator.plan(spec, server="ams-1", server_address="192.0.2.1")
    node.until(lambda: node.orchestrator.states(run)[-1:] == ["waiting-server"])
    since_s = node.clock.monotonic_s()
    node.until_settled(run)
    assert node.orchestrator.states(run)[-1] == "failed(server)"
    assert node.clock.monotonic_s() - since_s == pytest.approx(25, abs=0.5)


def test_an_upload_is_tried_until_somebody_answers(node: NodeHere) -> None:
    node.start()
    run = node.orchestrator.plan(job("sleep", "5"))
    node.until(lambda: node.started(run))
    node.orchestrator.stop()
    node.clock.advance(600)
    assert not node.orchestrator.complete
    node.orchestrator.start()
    node.until_settled(run)
    assert node.orchestrator.states(run)[-1] == "complete"
    assert node.log().count(f"run {run}: upload: ") == 1


def test_a_run_that_is_stopped_keeps_its_files(node: NodeHere) -> None:
    at = node.orchestrator
    node.scripts["sleep"] = Script(30, writes={"out": b"x\n"})
    node.start()
    run = at.plan(job("sleep", "30"))
    node.until(lambda: node.started(run))
    stop = {"run": run, "reason": "owner"}
    forged = at.signed(api.OrderKind.STOP, {**stop, "reason": "user"}, forged=True)
    at.send(forged)
    node.until(lambda: "refused: an order is not signed" in node.log())
    at.send(at.signed(api.OrderKind.STOP, stop))
    node.until(lambda: (run, "client") in at.complete)
    assert at.states(run)[-1] == "aborted(owner)"
    assert manifest(node, run)["result"]["partial"]
    assert [f["name"] for f in manifest(node, run)["files"] if f["name"] == "out"]


def test_a_wall_clock_that_is_set_back_silences_nothing(node: NodeHere) -> None:
    node.start()
    node.clock.advance(10)
    node.clock.set_wall(node.clock.now_ns() - 3600 * S_NS)
    batches = node.orchestrator.batches
    run = node.orchestrator.plan(job("true"), 2)
    node.until_settled(run)
    node.clock.advance(10)
    assert node.orchestrator.states(run)[-1] == "complete"
    assert node.orchestrator.batches - batches >= 10
