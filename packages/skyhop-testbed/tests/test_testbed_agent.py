"""Agent as a process: real TLS, real executors, and an orchestrator that the test controls."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import socket
import sqlite3
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from testbed_fake_orchestrator import NODE, TOKEN, AgentProcess, FakeOrchestrator

from needs import cases, needs_namespaces
from skyhop.errors import InputError
from skyhop_testbed import api
from skyhop_testbed.agent.agent_db import FILE, AgentDb
from skyhop_testbed.agent.identity import enrol, read_identity, renew
from skyhop_testbed.agent.link import Link
from skyhop_testbed.agent.running import listens
from skyhop_testbed.agent.service import Options, run_agent
from skyhop_testbed.clock import SYSTEM_CLOCK
from skyhop_testbed.executor.journal import read_journal
from skyhop_testbed.words import ENDED
from waiting import wait_for


@pytest.fixture
def orchestrator(tmp_path: Path) -> Iterator[FakeOrchestrator]:
    made = FakeOrchestrator(tmp_path / "orchestrator")
    yield made
    made.release()
    made.stop()


@pytest.fixture
def agent(tmp_path: Path, orchestrator: FakeOrchestrator) -> Iterator[AgentProcess]:
    needs_namespaces()
    options = {
        "terminal": tmp_path / "terminal.json",
        "interface": "eth9",
        "net_dev": tmp_path / "dev",
    }
    says(tmp_path, pop_ping_latency_ms=30.0)
    counts(tmp_path, 0)
    made = AgentProcess(tmp_path / "state", orchestrator, **options)
    yield made
    made.clear()


def says(tmp_path: Path, **values: object) -> None:
    """Set the values that the terminal reports."""
    aside = tmp_path / "aside"
    aside.write_text(json.dumps(values))
    aside.replace(tmp_path / "terminal.json")


def counts(tmp_path: Path, rx_bytes: int) -> None:
    """Set the received bytes of the host's interface."""
    aside = tmp_path / "aside"
    aside.write_text(f"Inter-|\n face |\n eth9: {rx_bytes} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")
    aside.replace(tmp_path / "dev")


def job(*command: str, length_s: float = 300.0, **others: Any) -> dict[str, Any]:
    run = {"client": list(command), "network": "none", **others.pop("run", {})}
    return {
        "id": "try",
        "nodes": [NODE],
        "length": length_s,
        "when": {"at": 1},
        "run": run,
        **others,
    }


def is_settled(orchestrator: FakeOrchestrator, run: str) -> bool:
    ended = {state.value for state in ENDED}
    return any(state.partition("(")[0] in ended for state in orchestrator.states(run))


def started(agent: AgentProcess, run: str) -> int:
    """Return the number of starts of a run's program."""
    steps = read_journal(agent.state / "runs" / run)
    return sum(step.step == "started" for step in steps)


@pytest.mark.integration
def test_enrolment_keeps_a_key_that_is_its_own(
    tmp_path: Path, orchestrator: FakeOrchestrator
) -> None:
    state = tmp_path / "state"
    enrol(orchestrator.invitation(), state)
    assert read_identity(state).orders_key == orchestrator.authority.orders_key
    assert (state / "identity" / "node.key").stat().st_mode & 0o077 == 0
    with pytest.raises(InputError, match="the token is not good any more"):
        enrol(orchestrator.invitation(), state)


@pytest.mark.integration
@pytest.mark.parametrize("token", ["wrong", TOKEN])
def test_a_token_that_is_not_good_any_more(
    tmp_path: Path, orchestrator: FakeOrchestrator, token: str
) -> None:
    enrol(orchestrator.invitation(), tmp_path / "first")
    with pytest.raises(InputError, match="not good any more"):
        enrol(orchestrator.invitation(token), tmp_path / "state")
    assert not (tmp_path / "state" / "identity").exists()


def test_what_is_no_invitation_or_no_node(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("[]")
    with pytest.raises(InputError, match="no invitation"):
        enrol(file, tmp_path)
    with pytest.raises(InputError, match="not enrolled"):
        run_agent(tmp_path, options=Options())


@pytest.mark.integration
def test_a_run_is_executed_and_its_files_arrive(
    agent: AgentProcess, orchestrator: FakeOrchestrator
) -> None:
    orchestrator.inputs["greeting.txt"] = b"good morning\n"
    agent.start()
    run = orchestrator.plan(
        job("sh", "-c", "cat greeting.txt | tee out.txt", run={"keep": ["*", "telemetry"]}), 1.5
    )
    wait_for(lambda: is_settled(orchestrator, run), why=agent.log)
    assert orchestrator.states(run) == ["deploying", "executing", "finishing", "complete"]
    files = {name.split("/")[-1] for name in orchestrator.files}
    assert files == {"out.txt", "stdout", "stderr", "telemetry.parquet", "manifest.json"}
    assert orchestrator.files[f"{run}/client/out.txt"] == b"good morning\n"
    assert orchestrator.files[f"{run}/client/stdout"] == b"good morning\n"
    assert [claim[0] for claim in orchestrator.claims] == [run]
    kinds = {kind for _, kind, _ in orchestrator.events}
    assert {"run", "telemetry", "health", "scavenger"} <= kinds
    begun = next(s for s in read_journal(agent.state / "runs" / run) if s.step == "started")
    assert begun.at_ns >= orchestrator.runs[0]["start_ns"]


@pytest.mark.soak
def test_what_a_run_came_to_is_said(agent: AgentProcess, orchestrator: FakeOrchestrator) -> None:
    agent.start()
    failing = orchestrator.plan(job("sh", "-c", "echo a > a; exit 3", overhead=False))
    missing = orchestrator.plan(job("nosuchprogram", overhead=False))
    late = orchestrator.plan(job("true", overhead=False, length_s=1000.0), -600)
    long = orchestrator.plan(job("sleep", "600", overhead=False, length_s=20.0))
    unknown = orchestrator.plan(job("true", overhead=False, run={"of_a_later_version": 1}))
    for run in (failing, missing, late, long, unknown):
        wait_for(lambda r=run: is_settled(orchestrator, r), why=agent.log)  # type: ignore[misc]
    assert orchestrator.states(failing)[-1] == "failed(exit)"
    assert f"{failing}/client/a" in orchestrator.files
    assert orchestrator.states(missing) == ["skipped(needs)"]
    assert orchestrator.states(late) == ["skipped(offline)"]
    assert orchestrator.states(long)[-1] == "failed(timeout)"
    # A job that this agent cannot read is not the kernel service's fault.
    assert orchestrator.states(unknown)[-1] == "failed(deploy)"


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.parametrize(
    "state", ["claimed", "deploying", "waiting-server", "executing", "finishing"]
)
def test_an_agent_that_is_killed_settles_its_run_once(
    agent: AgentProcess, orchestrator: FakeOrchestrator, state: str
) -> None:
    held = {"claimed": "claim", "deploying": "input", "finishing": "upload"}.get(state)
    if held:
        orchestrator.hold(held)
    orchestrator.inputs["input"] = b"1"
    has_server = state == "waiting-server"
    server = {"server": "ams-1", "server_address": "192.0.2.1"} if has_server else {}
    serve = {"run": {"serve": ["true"]}, "server": "ams-1"} if has_server else {}
    agent.start()
    run = orchestrator.plan(job("sh", "-c", "sleep 0.7; echo x >> out", **serve), **server)
    if held:
        wait_for(orchestrator.reached[held].is_set, why=agent.log)
    else:
        wait_for(lambda: orchestrator.states(run)[-1:] == [state], why=agent.log)
    if state == "executing":
        wait_for(lambda: started(agent, run))
    agent.kill()
    orchestrator.release()
    agent.start()
    if has_server:
        wait_for(lambda: agent.log().count("follows") > 1, why=agent.log)
        time.sleep(0.5)
        answer = {"run": run, "ready": True, "port": 5201}
        forged = orchestrator.signed(
            api.OrderKind.TASK_RESULT, {**answer, "ready": False}, forged=True
        )
        for result in (forged, orchestrator.signed(api.OrderKind.TASK_RESULT, answer)):
            orchestrator.send(result)
    wait_for(lambda: is_settled(orchestrator, run), why=agent.log)
    assert orchestrator.states(run)[-1] == "complete"
    assert len(set(orchestrator.states(run))) == len(orchestrator.states(run))
    assert started(agent, run) == 1
    assert orchestrator.files[f"{run}/client/out"] == b"x\n"
    assert len(set(orchestrator.claims)) == 1


@pytest.mark.integration
def test_an_executor_that_is_killed_fails_its_run(
    agent: AgentProcess, orchestrator: FakeOrchestrator
) -> None:
    agent.start()
    run = orchestrator.plan(job("sh", "-c", "echo x > out; sleep 300"))
    wait_for((agent.state / "runs" / run / "work" / "out").exists, why=agent.log)
    for pid in agent.executors():
        # The death of one process may end another one.
        with suppress(ProcessLookupError):
            os.kill(pid, 9)
    wait_for(lambda: is_settled(orchestrator, run), why=agent.log)
    assert orchestrator.states(run)[-1] == "failed(killed)"
    assert orchestrator.files[f"{run}/client/out"] == b"x\n"
    assert started(agent, run) == 1


@pytest.mark.soak
@pytest.mark.alone
def test_what_happens_while_nobody_answers_is_reported_afterwards(
    agent: AgentProcess, orchestrator: FakeOrchestrator
) -> None:
    agent.start()
    run = orchestrator.plan(job("sh", "-c", "echo x > out"), 1.5)
    wait_for(lambda: kept_revision(agent) == orchestrator.revision, why=agent.log)
    orchestrator.stop()
    wait_for((agent.state / "runs" / run / "result.json").exists, why=agent.log)
    agent.kill()
    agent.start()
    orchestrator.start()
    wait_for(lambda: is_settled(orchestrator, run), why=agent.log)
    assert orchestrator.states(run) == [
        "claimed",
        "deploying",
        "executing",
        "finishing",
        "complete",
    ]
    seqs = [seq for seq, _, _ in orchestrator.events]
    assert seqs == sorted(set(seqs))


def kept_revision(agent: AgentProcess) -> int:
    row = None
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(agent.state / FILE)) as base:
        row = base.execute("SELECT packed FROM schedule_order ORDER BY n DESC").fetchone()
    return 0 if row is None else int(json.loads(zlib.decompress(row[0]))["revision"])


@pytest.mark.soak
@pytest.mark.alone
def test_a_trigger_starts_a_run_within_a_second_of_its_sample(
    agent: AgentProcess, orchestrator: FakeOrchestrator, tmp_path: Path
) -> None:
    agent.start()
    expression = "pop_ping_latency_ms > 50"
    when = {"trigger": expression, "end": 1, "cooldown": 1.0, "max_runs": 2}
    run = orchestrator.plan(job("sh", "-c", "echo x", when=when, length_s=10.0))
    orchestrator.runs[0]["end_ns"] += 60 * 10**9
    orchestrator.publish()
    wait_for(lambda: orchestrator.states(run) == ["armed"], why=agent.log)
    time.sleep(1.0)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.connect(str(agent.state / "triggers.sock"))
        said_ns = time.time_ns()
        says(tmp_path, pop_ping_latency_ms=80.0)
        wait_for(lambda: is_settled(orchestrator, run), why=agent.log)
        lines = [json.loads(line) for line in listener.recv(65_536).decode().splitlines()]
    begun = next(s for s in read_journal(agent.state / "runs" / run) if s.step == "started")
    fired = next(b for _, k, b in orchestrator.events if k == "trigger" and b["fired"])
    assert fired["run"] == run
    assert any(line["fired"] for line in lines)
    # The terminal's sampling accounts for one second of it.
    assert begun.at_ns - said_ns < 2.2e9
    assert orchestrator.states(run)[1:] == ["deploying", "executing", "finishing", "complete"]
    new = next(b["new"] for _, k, b in orchestrator.events if k == "run" and b.get("new"))
    assert new["after"] == run
    assert orchestrator.states(new["run"]) == ["armed"]


@pytest.mark.soak
@pytest.mark.alone
def test_runs_make_room_for_the_hosts_own_traffic(
    agent: AgentProcess, orchestrator: FakeOrchestrator, tmp_path: Path
) -> None:
    agent.start()
    run = orchestrator.plan(job("sh", "-c", "echo x > out; sleep 300"))
    other = orchestrator.plan(job("sh", "-c", "sleep 300", overhead=False))
    for each in (run, other):
        wait_for(lambda r=each: started(agent, r), why=agent.log)  # type: ignore[misc]
    wait_for((agent.state / "runs" / run / "work" / "out").exists)
    time.sleep(1.0)
    began = time.monotonic()
    while not (agent.state / "runs" / run / "result.json").exists():
        counts(tmp_path, round((time.monotonic() - began) * 1e6))
        time.sleep(0.05)
        assert time.monotonic() - began < 10
    took_s = time.monotonic() - began
    wait_for(lambda: orchestrator.states(run)[-1] == "aborted(scavenger)", why=agent.log)
    assert orchestrator.states(other)[-1] == "executing"
    assert took_s < 3.5
    refused = orchestrator.plan(job("true"))
    wait_for(lambda: is_settled(orchestrator, refused), why=agent.log)
    assert orchestrator.states(refused) == ["skipped(scavenger)"]
    orchestrator.runs = [r for r in orchestrator.runs if r["id"] != other]
    orchestrator.publish()
    # Files are uploaded after a quiet minute.
    for each in (run, other):
        wait_for(lambda r=each: f"{r}/client/manifest.json" in orchestrator.files, why=agent.log)  # type: ignore[misc]
    manifest = json.loads(orchestrator.files[f"{run}/client/manifest.json"])
    assert manifest["result"]["reason"] == "scavenger"
    assert orchestrator.states(other)[-1] == "executing"


@pytest.mark.soak
def test_a_node_serves_anothers_run(agent: AgentProcess, orchestrator: FakeOrchestrator) -> None:
    agent.start()
    orchestrator.policy = {"ports": [15_201, 15_300], "networks": ["host"]}
    orchestrator.publish()
    spec = job("true", run={"serve": ["python3", "-c", SERVER, "{port}"], "network": "host"})
    spec |= {"nodes": ["edh"], "server": NODE}
    run = "01JZZZZZZZZZZZZZZZZZZZZZZZ"
    wait_for(lambda: kept_revision(agent), why=agent.log)
    orchestrator.task(run, "start", spec)
    told = lambda: [b for _, k, b in orchestrator.events if k == "task"]  # noqa: E731
    wait_for(told, why=agent.log)
    assert told()[0]["ok"], told()[0]["error"]
    wait_for(lambda: listens(told()[0]["port"]), why=agent.log)
    orchestrator.task(run, "stop", spec)
    wait_for(lambda: (run, "server") in orchestrator.complete, why=agent.log)
    manifest = json.loads(orchestrator.files[f"{run}/server/manifest.json"])
    assert manifest["result"]["state"] == "complete"
    wait_for(lambda: has_settled(agent, f"{run}.server"), why=agent.log)
    missing = "01JZZZZZZZZZZZZZZZZZZZZZZY"
    spec["run"]["serve"] = ["nosuchprogram"]
    orchestrator.task(missing, "start", spec)
    wait_for(lambda: len(told()) >= 3, why=agent.log)
    assert not told()[-1]["ok"]
    assert "nosuchprogram" in told()[-1]["error"]


def has_settled(agent: AgentProcess, key: str) -> bool:
    """Return whether the agent has settled a run, so that it does not occupy the node."""
    with closing(sqlite3.connect(agent.state / FILE)) as base:
        row = base.execute("SELECT json FROM life WHERE key = ?", (key,)).fetchone()
    return bool(json.loads(row[0])["settled_ns"])


@pytest.mark.soak
def test_a_server_whose_files_are_not_to_be_had_says_so(
    agent: AgentProcess, orchestrator: FakeOrchestrator
) -> None:
    orchestrator.publish()
    agent.start()
    wait_for(lambda: kept_revision(agent), why=agent.log)
    spec = job("true", run={"serve": ["true"]}, length_s=4.0) | {"nodes": ["edh"], "server": NODE}
    orchestrator.task("01JZZZZZZZZZZZZZZZZZZZZZZZ", "start", spec, files={"a": b"1"})
    told = lambda: [b for _, k, b in orchestrator.events if k == "task"]  # noqa: E731
    wait_for(told, why=agent.log)
    assert not told()[0]["ok"]
    assert told()[0]["error"].startswith("deploy: a: ")


@pytest.mark.soak
@pytest.mark.alone
def test_an_agent_that_is_killed_at_any_moment(
    agent: AgentProcess, orchestrator: FakeOrchestrator
) -> None:
    chance = random.Random(17)
    orchestrator.inputs["input"] = b"1"
    runs = []
    for _ in range(cases(3)):
        agent.start()
        runs.append(orchestrator.plan(job("sh", "-c", "echo x >> out", overhead=False)))
        time.sleep(chance.uniform(0.3, 1.0))
        agent.kill()
    agent.start()
    for run in runs:
        wait_for(lambda r=run: is_settled(orchestrator, r), why=agent.log)  # type: ignore[misc]
        told = orchestrator.states(run)
        assert told[-1] == "complete", (told, agent.log())
        assert len(set(told)) == len(told)
        assert started(agent, run) == 1
    assert len(set(orchestrator.claims)) == len({run for run, _ in orchestrator.claims})


SERVER = (
    "import socket, sys; s = socket.create_server(('', int(sys.argv[1])))\n"
    "while True: s.accept()[0].close()"
)


@pytest.mark.soak
def test_one_agent_per_directory_and_an_end_that_leaves_runs(
    agent: AgentProcess, orchestrator: FakeOrchestrator
) -> None:
    agent.start()
    run = orchestrator.plan(job("sh", "-c", "sleep 5; echo x > out"))
    wait_for(lambda: started(agent, run), why=agent.log)
    with pytest.raises(InputError, match="another agent"):
        run_agent(agent.state, options=Options())
    agent.end()
    assert agent.executors()
    agent.start()
    wait_for(lambda: is_settled(orchestrator, run), why=agent.log)
    assert orchestrator.states(run)[-1] == "complete"


@pytest.mark.integration
def test_a_certificate_is_renewed_with_a_new_key(
    tmp_path: Path, orchestrator: FakeOrchestrator
) -> None:
    state = tmp_path / "state"
    enrol(orchestrator.invitation(), state)
    old = read_identity(state)
    now = dt.datetime.now(dt.UTC)
    assert not old.is_to_renew(now + dt.timedelta(days=59))
    assert old.is_to_renew(now + dt.timedelta(days=60))
    said: list[str] = []
    book = AgentDb(tmp_path, 0)
    link = Link(
        old,
        book,
        on_order=lambda _: None,
        follows=api.Follow,
        heartbeat_s=lambda: 1.0,
        say=said.append,
        clock=SYSTEM_CLOCK,
    )
    new = renew(state, old, link.wire)
    assert new.key_pem != old.key_pem
    assert new == read_identity(state)
    link.connect(new)
    link.start()
    wait_for(lambda: orchestrator.batches, why=said)
    link.close()
    book.close()
    assert said == []


@pytest.mark.soak
def test_a_run_that_is_stopped_keeps_its_files(
    agent: AgentProcess, orchestrator: FakeOrchestrator
) -> None:
    agent.start()
    run = orchestrator.plan(job("sh", "-c", "echo x > out; exec sleep 300"))
    wait_for((agent.state / "runs" / run / "work" / "out").exists, why=agent.log)
    stop = {"run": run, "reason": "owner"}
    forged = orchestrator.signed(api.OrderKind.STOP, {**stop, "reason": "user"}, forged=True)
    orchestrator.send(forged)
    wait_for(lambda: "refused: an order is not signed" in agent.log(), why=agent.log)
    orchestrator.send(orchestrator.signed(api.OrderKind.STOP, stop))
    wait_for(lambda: (run, "client") in orchestrator.complete, why=agent.log)
    assert orchestrator.states(run)[-1] == "aborted(owner)"
    manifest = json.loads(orchestrator.files[f"{run}/client/manifest.json"])
    assert manifest["result"]["partial"]
    assert [f["name"] for f in manifest["files"] if f["name"] == "out"]
