"""Versions of the protocol: the last version's recorded messages with the present code, and back.

The files in `protocol1` were written by the last version that had no protocol number. An agent and
an orchestrator of that version are therefore what these files say.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field
from testbed_harness import ANN, LocalOrchestrator, job, local_orchestrator, served

from skyhop.errors import InputError
from skyhop.version import __version__
from skyhop_testbed import api, protocol
from skyhop_testbed import job as jobs_module
from skyhop_testbed.agent import schedule
from skyhop_testbed.job import Job, Kernel, Run, When
from skyhop_testbed.orchestrator import jobs, nodes, runs
from skyhop_testbed.orchestrator.agents import note_agent
from skyhop_testbed.orchestrator.handlers import call
from skyhop_testbed.orchestrator.request_context import ITSELF, Caller
from skyhop_testbed.protocol import OLDEST, PROTOCOL, Peer, fields_since, needed_protocol, since
from skyhop_testbed.schedule import ServerAnswer, ServerTask, StopOrder
from skyhop_testbed.store.database import VERSION, open_database
from skyhop_testbed.store.tables import audit, node, task, trigger_log
from skyhop_testbed.wire import Wire
from skyhop_testbed.words import Backend, Network, Role

_RECORDED = Path(__file__).parent / "protocol1"
REQUESTS = json.loads((_RECORDED / "requests.json").read_text())
ANSWERS = json.loads((_RECORDED / "answers.json").read_text())
KEYS = json.loads((_RECORDED / "keys.json").read_text())
RUN, TASK = "01JZZZZZZZZZZZZZZZZZZZZZZZ", "01JZZZZZZZZZZZZZZZZZZZZZZT"
JOB = "01JZZZZZZZZZZZZZZZZZZZZZZJ"
A = Caller("a", Role.NODE)


@pytest.fixture
def at(tmp_path: Path) -> Iterator[LocalOrchestrator]:
    with local_orchestrator(tmp_path / "state") as made:
        yield made


# --- an agent of the last version, and this orchestrator ---


@pytest.mark.parametrize("said", REQUESTS, ids=lambda said: f"{said['operation']}")
def test_requests_of_the_last_version_are_read(said: dict[str, Any]) -> None:
    operation = api.OPERATIONS[said["operation"]]
    path, _, query = said["path"].partition("?")
    assert operation.method == said["method"]
    assert path.count("/") == operation.path.count("/")
    places = zip(operation.path.split("/"), path.split("/"), strict=True)
    values = {name[1:-1]: value for name, value in places if name.startswith("{")}
    values |= dict(httpx.QueryParams(query)) | (said["body"] or {})
    message = api.read_request(operation, values)
    assert set(values) == message.model_fields_set


def test_reports_of_the_last_version_are_applied(at: LocalOrchestrator) -> None:
    made = at.submit(job("j", server='"s"', run='client = ["true"]\nserve = ["true"]'))
    other = at.submit(job("k", when='cron = "0 6 * * *"'))
    with at.writing(ITSELF) as ctx:
        run = runs.listing(ctx, of_job=made.id)[0].id
        # The task is of a run that goes on.
        going = runs.listing(ctx, of_job=other.id)[0].id
        row = {"run": going, "node": "a", "kind": "start", "state": "open", "id": TASK}
        ctx.execute(sa.insert(task).values(**row, created_ns=0, expires_ns=2**62))
    (batch,) = (each["body"] for each in REQUESTS if each["body"] and each["body"].get("events"))
    text = json.dumps(batch).replace(RUN, run).replace(JOB, made.id)
    message = api.read_request(api.REPORT, json.loads(text))
    last = call(at.orchestrator, api.REPORT, A, message)
    assert last == 10
    with at.writing(ANN) as ctx:
        document = runs.document(ctx, run)
        told = [each.state.value for each in document.events]
        assert told == ["claimed", "deploying", "executing", "finishing", "complete"]
        refused = [r["outcome"] for r in ctx.all(sa.select(audit)) if "refused" in r["outcome"]]
        assert not refused
        assert len(ctx.all(sa.select(trigger_log))) == 1
        assert ctx.connection.scalar(sa.select(task.c.state).where(task.c.id == TASK)) == "done"
        shown = nodes.document(ctx, "a")
        assert shown.health["backends"] == {
            "process": None,
            "podman": "podman is not installed",
            "docker": "docker is not installed",
        }
        assert shown.scavenger_active
        assert (shown.version, shown.upgrade) == ("0.1.0", "")
    kept = at.orchestrator.telemetry.read(["a"], ["pop_ping_latency_ms"])
    assert kept["pop_ping_latency_ms"].to_list() == [31.5]


def test_all_kinds_of_the_last_version_are_tried() -> None:
    events = {e["kind"] for each in REQUESTS for e in (each["body"] or {}).get("events", [])}
    assert events | {"map"} == set(KEYS["kinds"]["events"])
    assert {order["kind"] for order in ANSWERS["Follow"]} == set(KEYS["kinds"]["orders"])
    # An upload has no body of JSON.
    assert {each["operation"] for each in REQUESTS} | {"Upload"} == set(KEYS["requests"])


# --- an orchestrator of the last version, and this agent ---


def test_answers_of_the_last_version_are_read() -> None:
    issued = api.ENROL.adapter.validate_python(ANSWERS["Enrol"])
    assert not issued.orders_keys
    orders = [api.FOLLOW.adapter.validate_python(each) for each in ANSWERS["Follow"]]
    kinds: dict[str, type[BaseModel]] = {
        "stop": StopOrder,
        "task": ServerTask,
        "task-result": ServerAnswer,
    }
    for order in orders:
        key = issued.orders_key
        if order.kind is api.OrderKind.SCHEDULE:
            read = schedule.read_schedule(key, "a", order.body, order.signature)
            assert (read.revision, [*read.runs]) == (7, [RUN])
            assert not any(each.fault for each in read.jobs.values())
            assert read.settings.trust == ""
            assert read.settings.restored_at_ns == 0
        else:
            kind = kinds.pop(order.kind.value)
            schedule.verified(key, "a", order.body, order.signature, kind)
    assert not kinds
    for name, answer in ANSWERS.items():
        if name not in ("Follow", "Problem"):
            api.OPERATIONS[name].adapter.validate_python(answer)
    api.Problem.model_validate(ANSWERS["Problem"])


def test_requests_to_an_older_orchestrator_have_only_fields_that_it_knows() -> None:
    for name, known in KEYS["requests"].items():
        model = api.OPERATIONS[name].request
        newer = fields_since(model)
        unmarked = {field for field in model.model_fields if field not in newer}
        assert unmarked <= set(known), f"{name}: mark new fields with protocol.since"
        assert all(1 < number <= PROTOCOL for number in newer.values())


def test_a_wire_leaves_out_what_its_peer_does_not_know() -> None:
    class Later(api.Claim):
        colour: str = Field("", json_schema_extra=protocol.since(2))
        taste: str = Field("", json_schema_extra=protocol.since(3))

    sent: list[dict[str, Any]] = []
    said = {"skyhop-protocol": "1-2", "skyhop-version": "0.2.0"}

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        assert request.headers["skyhop-protocol"] == f"{OLDEST}-{PROTOCOL}"
        assert request.headers["skyhop-version"] == __version__
        return httpx.Response(200, json={"granted": True, "reason": ""}, headers=said)

    wire = Wire(httpx.Client(base_url="https://x", transport=httpx.MockTransport(answer)))
    later = Later(run=RUN, fence=1, at_ns=2, colour="red", taste="sour")
    for _ in range(2):
        wire.call(api.CLAIM, later)
    assert sent == [{"fence": 1, "at_ns": 2}, {"fence": 1, "at_ns": 2, "colour": "red"}]
    assert wire.peer == Peer("0.2.0", 1, 2)


def test_keys_of_a_job_that_older_agents_refuse_are_marked() -> None:
    for model in (Job, When, Run, Kernel):
        newer = fields_since(model)
        keys = {i.alias or n for n, i in model.model_fields.items() if n not in newer}
        assert keys == set(KEYS["job"][model.__name__]), "mark new keys with protocol.since"
    for name, words in (("backend", Backend), ("network", Network)):
        unmarked = {each.value for each in words if each not in protocol.VALUES_SINCE}
        assert unmarked == set(KEYS["values"][name]), "enter new values into VALUES_SINCE"


# --- what is too old ---


@pytest.mark.parametrize(
    ("headers", "side"),
    [
        ({}, ""),
        ({"skyhop-protocol": "1-9", "skyhop-version": "2.0"}, ""),
        ({"skyhop-protocol": "1-1"}, ""),
        ({"skyhop-protocol": "7-9", "skyhop-version": "2.0"}, "orchestrator"),
        ({"skyhop-protocol": "7-"}, ""),
        ({"skyhop-protocol": "1" * 5000}, ""),
        ({"skyhop-protocol": "x-y", "skyhop-version": "0" * 900}, ""),
    ],
)
def test_the_side_to_upgrade(headers: dict[str, str], side: str) -> None:
    peer = Peer.of_headers(headers)
    assert peer.side_to_upgrade == side
    assert len(peer.version) <= 40
    if side:
        assert f"upgrade the {side} to skyhop 2.0 or newer" in peer.why_not_understood


def test_an_agent_older_than_the_oldest_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "OLDEST", 2)
    peer = Peer.of_headers({"skyhop-version": "0.0.9"})
    assert peer.side_to_upgrade == "agent"
    assert peer.why_not_understood.endswith(f"upgrade the agent to skyhop {__version__}")
    assert Peer.of_headers({"skyhop-protocol": "2-2"}).side_to_upgrade == ""


class _LaterRun(Run):
    model_config = ConfigDict(frozen=True)
    colour: str = Field("", alias="colour", json_schema_extra=since(2))


class _LaterJob(Job):
    model_config = ConfigDict(frozen=True)
    run: _LaterRun


def later_job(**run: Any) -> Job:
    spec = {"id": "j", "nodes": ["a", "b"], "length": "1 min", "when": {"at": "now"}}
    return _LaterJob.model_validate({**spec, "run": {"client": ["true"], **run}})


def test_the_protocol_that_a_job_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert needed_protocol(later_job()) == (1, "")
    assert needed_protocol(later_job(colour="red")) == (2, "run.colour")
    monkeypatch.setattr(protocol, "VALUES_SINCE", {Network.NONE: 3})
    assert needed_protocol(later_job(colour="red", network="none")) == (3, "run.network")
    assert needed_protocol(later_job(network="host")) == (1, "")


def test_a_job_for_a_newer_agent_is_refused_at_submission(
    at: LocalOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connects(name: str, lowest: int, highest: int) -> None:
        agent = Peer("0.1.0", lowest, highest)
        note_agent(at.orchestrator, Caller(name, Role.NODE), agent)

    monkeypatch.setattr(jobs, "read", lambda _text: later_job(colour="red"))
    monkeypatch.setattr(jobs_module, "Job", _LaterJob)
    connects("a", 1, 2)
    with at.writing(ANN) as ctx:
        assert jobs.check_job(ctx, "").conflicts_total == 0
    connects("b", 1, 1)
    with at.writing(ANN) as ctx, pytest.raises(InputError) as refused:
        jobs.submit(ctx, "", {}, at.orchestrator.objects)
    assert str(refused.value) == (
        "b: its agent (skyhop 0.1.0) does not know run.colour: ask its owner to upgrade it, or "
        "choose another node"
    )
    connects("b", 1, 2)
    with at.writing(ANN) as ctx:
        assert jobs.submit(ctx, "", {}, at.orchestrator.objects).runs == 2


def test_the_list_of_nodes_says_who_must_upgrade(at: LocalOrchestrator) -> None:
    note_agent(at.orchestrator, A, Peer("9.0", 7, 9))
    note_agent(at.orchestrator, Caller("b", Role.NODE), Peer("0.1.0", 1, 2))
    with at.writing(ANN) as ctx:
        listed = {each.name: each for each in nodes.listing(ctx)}
    assert "upgrade the orchestrator to skyhop 9.0" in listed["a"].upgrade
    assert (listed["b"].version, listed["b"].upgrade) == ("0.1.0", "")
    assert (listed["s"].version, listed["s"].upgrade) == ("", "")


def test_a_database_of_the_first_version_is_migrated(at: LocalOrchestrator) -> None:
    file = at.orchestrator.directory / "testbed.sqlite"
    at.orchestrator.close()
    with closing(sqlite3.connect(file)) as old:
        old.execute("ALTER TABLE node DROP COLUMN agent")
        old.execute("PRAGMA user_version = 1")
        old.commit()
    for _ in range(2):
        database = open_database(file)
        with database.reading() as connection:
            assert [*connection.scalars(sa.select(node.c.agent))] == ["{}"] * 3
            assert connection.exec_driver_sql("PRAGMA user_version").scalar() == VERSION
        database.close()


@pytest.mark.integration
def test_versions_are_said_at_connection(tmp_path: Path) -> None:
    with served(tmp_path / "state") as made:
        agent = made.agent("a")
        agent.call(api.REPORT, api.Batch())
        assert (agent.peer.lowest, agent.peer.highest) == (OLDEST, PROTOCOL)
        assert agent.peer.version == __version__
        next(iter(agent.stream(api.FOLLOW, api.Follow())))
        with made.testbed() as testbed:
            assert testbed.nodes()[0].version == __version__
        agent._http.headers["skyhop-protocol"] = "7-9"
        agent._http.headers["skyhop-version"] = "9.0"
        with pytest.raises(api.ApiError, match=r"the orchestrator to skyhop 9\.0") as refused:
            agent.call(api.REPORT, api.Batch())
        assert refused.value.kind is api.ErrorKind.DENIED
        with made.testbed() as testbed:
            assert "must" not in testbed.nodes()[0].version
            assert "upgrade the orchestrator" in testbed.nodes()[0].upgrade
