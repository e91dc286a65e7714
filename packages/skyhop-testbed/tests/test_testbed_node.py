"""Agent of a node on a clock that the test advances: its actions, their order and times."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from manual_clock import BEGIN_NS, S_NS
from node_here import NodeHere, Script
from testbed_fake_orchestrator import NODE

from needs import cases
from skyhop_testbed import api
from skyhop_testbed.agent import deploying, own_traffic
from skyhop_testbed.agent.link import Link, RefusedError
from skyhop_testbed.executor.execution import GRACE_S, GRACE_WITH_NETWORK_S
from skyhop_testbed.executor.tcp_sockets import TcpSocket

SERVED, OTHER = "01JZZZZZZZZZZZZZZZZZZZZZZZ", "01JZZZZZZZZZZZZZZZZZZZZZZY"

OWN_INODE = 77
"""Inode of the agent's connection."""


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
    node.until(lambda: at.states(run)[-1] == "aborted(scavenger)")
    assert at.states(other)[-1] == "executing"
    refused = at.plan(job("true"))
    node.until_settled(refused)
    assert at.states(refused) == ["skipped(scavenger)"]
    at.runs = [r for r in at.runs if r["id"] != other]
    at.publish()
    # Files are uploaded when the link has been the testbed's for a minute.
    node.until(lambda: {f"{each}/client/manifest.json" for each in (run, other)} <= set(at.files))
    assert 69 * S_NS <= node.clock.now_ns() - loud_ns <= 75 * S_NS
    assert at.states(other)[-1] == "executing"
    result = manifest(node, run)["result"]
    assert result["reason"] == "scavenger"
    assert result["ended_ns"] - loud_ns <= 3 * S_NS


MB = 1_000_000


def test_an_upload_pauses_while_the_owner_is_active_and_goes_on_where_it_was(
    node: NodeHere,
) -> None:
    at = node.orchestrator
    at.policy = {"upload_bps": 8e6}
    node.scripts["make"] = Script(writes={f"f{i}": bytes([i]) * MB for i in range(10)})
    node.start()
    node.clock.advance(3)
    run = at.plan(job("make", length_s=300.0))
    node.until(lambda: at.states(run)[-1:] == ["finishing"])
    begin_ns = node.clock.now_ns()
    for step in range(50):
        node.clock.at(2 + step * 0.1, lambda s=step: node.counts(s * 100_000))  # type: ignore[misc]
    node.until_settled(run)
    took_s = (node.clock.now_ns() - begin_ns) / S_NS
    assert at.states(run)[-1] == "complete"
    # 10 MB take 10 s at 8 Mbit/s; the owner is active for 5 s and then quiet for a minute.
    assert 70 <= took_s <= 80
    sent = sum(size for name, size in at.pieces if name != "manifest.json")
    assert sent == 10 * MB, "nothing is sent twice"


def test_an_upload_keeps_to_the_owners_rate(node: NodeHere) -> None:
    at = node.orchestrator
    at.policy = {"upload_bps": 800e3}
    node.scripts["make"] = Script(writes={"a": b"x" * MB})
    node.start()
    run = at.plan(job("make", length_s=300.0))
    node.until(lambda: at.states(run)[-1:] == ["finishing"])
    begin_ns = node.clock.now_ns()
    node.until_settled(run)
    # 1 MB takes 10 s at 800 kbit/s, of which a part may be over when the state is seen.
    assert 9 <= (node.clock.now_ns() - begin_ns) / S_NS <= 11.5


def moves(node: NodeHere, tx_bytes: int) -> None:
    """Set the bytes that the agent's connection to the orchestrator has sent."""
    local, peer = ip_address("10.0.0.2"), ip_address("192.0.2.1")
    node.sockets.open = [TcpSocket(7, OWN_INODE, local, peer, 0, tx_bytes, 0, 0)]


def test_the_months_cap_counts_the_agents_bytes_also_after_a_restart(
    node: NodeHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_traffic, "inodes_of", lambda _pids: {OWN_INODE})
    at = node.orchestrator
    at.policy = {"data_cap_bytes_per_month": 10 * MB, "scavenger": {"tx_bps": 1e9}}
    node.scripts["make"] = Script(writes={"a": b"x"})
    node.start()
    moves(node, 6 * MB)
    node.clock.advance(10)
    first = at.plan(job("make"))
    node.until_settled(first)
    assert at.states(first)[-1] == "complete"
    node.end()
    assert "used up" not in node.log()
    moves(node, 0)
    node.start()
    node.clock.advance(5)
    moves(node, 5 * MB)
    node.clock.advance(5)
    telemetry = len(told(node, "telemetry"))
    refused = at.plan(job("make"))
    node.until_settled(refused)
    node.clock.advance(30)
    assert at.states(refused) == ["skipped(refused)"]
    assert len(told(node, "telemetry")) == telemetry, "samples stay on the node"
    assert node.log().count("data cap of 10,000,000 bytes is used up") == 1
    data = told(node, "health")[-1]["data"]
    assert (data["used_bytes"], data["cap_bytes"]) == (11 * MB, 10 * MB)
    assert "used up" in data["held_back"]


def test_results_wait_for_the_next_month_when_the_cap_is_reached(
    node: NodeHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_traffic, "inodes_of", lambda _pids: {OWN_INODE})
    at = node.orchestrator
    at.policy = {"data_cap_bytes_per_month": 10 * MB, "scavenger": {"tx_bps": 1e9}}
    node.scripts["sleep"] = Script(20.0, writes={"a": b"x"})
    node.clock.set_wall(BEGIN_NS + (31 * 86_400 - 120) * S_NS)
    node.start()
    run = at.plan(job("sleep", "20", length_s=60.0))
    node.until(lambda: node.started(run))
    moves(node, 11 * MB)
    node.clock.advance(110)
    assert at.states(run)[-1] == "finishing"
    assert not at.pieces
    node.until_settled(run)
    assert at.states(run)[-1] == "complete"
    assert node.clock.now_ns() >= BEGIN_NS + 31 * 86_400 * S_NS, "it is January"


def test_udp_that_a_node_cannot_count_is_refused_in_a_sentence(
    node: NodeHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deploying, "missing_for_groups", lambda: "BPF: it needs root")
    at, states = node.orchestrator, node.orchestrator.states
    at.policy = {"networks": ["host", "none"]}
    node.start()

    def settled(**run: Any) -> str:
        planned = at.plan(job("true", run={"network": "host", **run}))
        node.until_settled(planned)
        return states(planned)[-1]

    assert settled() == "skipped(needs)"
    (last,) = [b["change"] for b in told(node, "run") if b["change"]["state"] == "skipped"]
    text = last["details"]["text"]
    assert "BPF: it needs root" in text
    assert 'transport = "tcp"' in text
    assert settled(transport="tcp") == "complete"
    assert settled(network="none") == "complete"
    at.policy = {"networks": ["host"], "uncounted_udp": True}
    at.publish()
    node.clock.advance(2)
    assert settled() == "complete"


def test_an_older_orchestrator_gets_the_files_too(node: NodeHere) -> None:
    at = node.orchestrator
    at.is_old = True
    node.scripts["make"] = Script(writes={f"f{i}": b"x" * i for i in range(20)})
    node.start()
    run = at.plan(job("make"))
    node.until_settled(run)
    assert at.states(run)[-1] == "complete"
    assert len(manifest(node, run)["files"]) == 22


def test_a_refused_upload_ends_the_run_with_its_reason(
    node: NodeHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bool:
        raise RefusedError("denied: the run has more than 3 files")

    node.start()
    monkeypatch.setattr(Link, "upload", refuse)
    run = node.orchestrator.plan(job("true"))
    node.until_settled(run)
    assert node.orchestrator.states(run)[-1] == "failed(upload)"
    (last,) = [b["change"] for b in told(node, "run") if b["change"]["state"] == "failed"]
    assert last["details"]["text"] == "denied: the run has more than 3 files"


def test_more_files_than_the_owners_limit_end_the_run_with_a_reason(node: NodeHere) -> None:
    at = node.orchestrator
    at.policy = {"files": 100}
    node.scripts["make"] = Script(writes={f"f{i:03}": b"x" for i in range(150)})
    node.start()
    run = at.plan(job("make"))
    node.until_settled(run)
    assert at.states(run)[-1] == "failed(disk)"
    assert len(manifest(node, run)["files"]) == 102
    assert "100" in manifest(node, run)["result"]["message"]
    assert manifest(node, run)["result"]["partial"] is True


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
