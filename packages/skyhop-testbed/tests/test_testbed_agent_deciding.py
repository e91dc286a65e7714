"""Decisions of a node: single cases, then random sequences; and its database and policy."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from manual_clock import ManualClock
from node_here import Sockets

from needs import cases
from skyhop.errors import InputError
from skyhop_testbed.agent import own_traffic
from skyhop_testbed.agent.agent_db import AgentDb, Durability, OutboxEntry
from skyhop_testbed.agent.deciding import (
    Action,
    ActionKind,
    KnownRun,
    PlannedRun,
    Situation,
    decide,
    hindrance,
)
from skyhop_testbed.agent.deploying import KernelError, assignment_of
from skyhop_testbed.agent.local_run import LocalRun
from skyhop_testbed.agent.own_traffic import CountedRun
from skyhop_testbed.agent.policy import Policy
from skyhop_testbed.agent.reports import TaskReport, TelemetryReport
from skyhop_testbed.agent.running import run_entry
from skyhop_testbed.agent.sensing import Host
from skyhop_testbed.executor.result import Outcome
from skyhop_testbed.scavenger import Rule
from skyhop_testbed.schedule import ScheduledJob, ServerAnswer
from skyhop_testbed.states import allowed
from skyhop_testbed.words import ENDED, JobKind, Reason, Side, State

S_NS = 1_000_000_000
LATE_NS = 60 * S_NS


def planned(
    run: str = "a", start_s: float = 100.0, length_s: float = 50.0, **more: object
) -> PlannedRun:
    start_ns, length_ns = round(start_s * S_NS), round(length_s * S_NS)
    each = PlannedRun(
        run=run,
        job=f"job-{run}",
        kind=JobKind.CRON,
        is_overhead=True,
        is_client=True,
        start_ns=start_ns,
        end_ns=start_ns + length_ns,
        length_ns=length_ns,
    )
    return replace(each, **more)  # type: ignore[arg-type]


def known(run: str, state: State, **more: object) -> dict[str, KnownRun]:
    each = KnownRun(run, run, Side.CLIENT, state, True, 150 * S_NS)
    each = replace(each, **more)  # type: ignore[arg-type]
    return {each.key: each}


def at(now_s: float, *runs: PlannedRun, **more: object) -> Situation:
    situation = Situation(round(now_s * S_NS), runs, {}, late_ns=LATE_NS)
    return replace(situation, **more)  # type: ignore[arg-type]


WINDOW = planned(kind=JobKind.TRIGGER, length_s=500.0)
ARMED = known("a", State.ARMED)
SERVED = planned("b", 249, is_client=False)
"""Run of another node, which this one serves."""
SERVED_ENDED = {
    "b.server": KnownRun("b.server", "b", Side.SERVER, State.COMPLETE, is_overhead=True, end_ns=0)
}
BUSY = known("b", State.EXECUTING)


@pytest.mark.parametrize(
    ("situation", "expected"),
    [
        (at(99.9, planned()), []),
        (at(100, planned()), [(ActionKind.BEGIN, None)]),
        (at(159, planned(length_s=500.0)), [(ActionKind.BEGIN, None)]),
        (at(161, planned(length_s=500.0)), [(ActionKind.SKIP, Reason.OFFLINE)]),
        (at(150, planned()), [(ActionKind.SKIP, Reason.OFFLINE)]),
        (at(100, planned(), is_scavenged=True), [(ActionKind.SKIP, Reason.SCAVENGER)]),
        (at(100, planned(is_overhead=False), is_scavenged=True), [(ActionKind.BEGIN, None)]),
        (at(100, planned(), planned("b", 50), known=BUSY), []),
        (
            at(161, planned(length_s=500.0), planned("b", 50), known=known("b", State.EXECUTING)),
            [(ActionKind.SKIP, Reason.BUSY)],
        ),
        (at(100, planned(), planned("b", 50), known=known("b", State.FINISHING)), []),
        (
            at(151, planned(start_s=150), planned("b"), known=known("b", State.FINISHING)),
            [(ActionKind.BEGIN, None)],
        ),
        (
            at(100, planned(is_overhead=False), planned("b", 50), known=BUSY),
            [(ActionKind.BEGIN, None)],
        ),
        (at(100, planned(), planned("b")), [(ActionKind.BEGIN, None)]),
        (at(100, planned(is_client=False)), []),
        (at(100, planned(), known=known("a", State.COMPLETE)), []),
        (at(100, planned(), known=known("a", State.SKIPPED)), []),
        (at(100, planned(state=State.ABORTED)), []),
        (at(100, planned(state=State.EXECUTING)), [(ActionKind.FAIL, Reason.KILLED)]),
        (
            at(100, planned(), objection=lambda _: (Reason.NEEDS, "no iperf3")),
            [(ActionKind.SKIP, Reason.NEEDS)],
        ),
        # Active runs that are not wanted, or give way.
        (at(100, known=known("a", State.EXECUTING)), [(ActionKind.STOP, Reason.USER)]),
        (at(100, known=known("a", State.FINISHING)), []),
        (at(100, known=known("a", State.EXECUTING, side=Side.SERVER)), []),
        (at(100, known=known("a", State.EXECUTING, is_made=True)), []),
        (
            at(100, planned(), known=known("a", State.EXECUTING), is_scavenged=True),
            [(ActionKind.STOP, Reason.SCAVENGER)],
        ),
        (
            at(100, known=known("a", State.EXECUTING, side=Side.SERVER), is_scavenged=True),
            [(ActionKind.STOP, Reason.SCAVENGER)],
        ),
        (
            at(
                100,
                planned(),
                known=known("a", State.EXECUTING, is_overhead=False),
                is_scavenged=True,
            ),
            [],
        ),
        # Runs with triggers.
        (at(99, WINDOW), []),
        (at(100, WINDOW), [(ActionKind.ARM, None)]),
        (at(500, WINDOW), [(ActionKind.ARM, None)]),
        (at(100, WINDOW, known=ARMED), []),
        (at(600, WINDOW, known=ARMED), [(ActionKind.SKIP, Reason.NEVER_FIRED)]),
        (
            at(600, WINDOW, known=ARMED, has_fired=lambda _: True),
            [(ActionKind.SKIP, Reason.WINDOW_OVER)],
        ),
        (at(600, replace(WINDOW, after="z"), known=ARMED), [(ActionKind.SKIP, Reason.WINDOW_OVER)]),
        (at(600, WINDOW), [(ActionKind.SKIP, Reason.OFFLINE)]),
        (at(300, known=ARMED), [(ActionKind.STOP, Reason.USER)]),
        (at(300, WINDOW, known=ARMED, is_scavenged=True), []),
    ],
)
def test_what_is_done(
    situation: Situation, expected: list[tuple[ActionKind, Reason | None]]
) -> None:
    assert [(action.kind, action.reason) for action in decide(situation)] == expected


@pytest.mark.parametrize(
    ("situation", "why"),
    [
        (at(200, WINDOW, known=ARMED), None),
        (at(600, WINDOW, known=ARMED), "window-over"),
        (at(200, WINDOW, known=ARMED, is_scavenged=True), "scavenger"),
        (at(200, WINDOW, known=ARMED | BUSY), "busy: another run"),
        (at(200, WINDOW, planned("b", 300), known=ARMED), None),
        (at(200, WINDOW, planned("b", 249), known=ARMED), "busy: run b is planned"),
        (at(200, WINDOW, planned("b", 249, is_overhead=False), known=ARMED), None),
        (at(200, WINDOW, planned("b", 249), known=ARMED | known("b", State.SKIPPED)), None),
        (at(200, WINDOW, SERVED, known=ARMED), "busy: run b is planned"),
        (at(200, WINDOW, SERVED, known=ARMED | SERVED_ENDED), None),
        (at(199, WINDOW, SERVED, known=ARMED), None),
    ],
)
def test_what_a_trigger_may_begin(situation: Situation, why: str | None) -> None:
    each = replace(WINDOW, length_ns=50 * S_NS)
    found = hindrance(situation, each)
    assert found is None if why is None else (found or "").startswith(why)


class Tried:
    """Node that applies the decisions, and is killed at random."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.planned = [self._planned(number) for number in range(self.chance.randint(1, 8))]
        self.known: dict[str, KnownRun] = {}
        self.begun: list[str] = []
        self.reasons: dict[str, Reason | None] = {}

    def _planned(self, number: int) -> PlannedRun:
        each = planned(
            f"run{number}", self.chance.uniform(0, 300), self.chance.choice([5, 30, 120])
        )
        return replace(
            each,
            is_overhead=self.chance.random() < 0.7,
            kind=JobKind.TRIGGER if self.chance.random() < 0.2 else JobKind.CRON,
        )

    def step(self, now_s: float) -> None:
        """Apply the decisions at a time, and advance the runs."""
        scavenged = self.chance.random() < 0.05
        situation = at(now_s, *self.planned, known=dict(self.known), is_scavenged=scavenged)
        for action in decide(situation):
            self._do(action)
        for key, each in list(self.known.items()):
            self._live(key, each, situation)
        holding = [key for key, each in self.known.items() if each.occupies_node(situation.now_ns)]
        assert len(holding) <= 1, f"{holding} at once"

    def _do(self, action: Action) -> None:
        each = next((p for p in self.planned if p.run == action.run), None)
        before = self.known.get(action.run)
        state = {
            ActionKind.BEGIN: State.CLAIMED,
            ActionKind.ARM: State.ARMED,
            ActionKind.SKIP: State.SKIPPED,
            ActionKind.FAIL: State.FAILED,
            ActionKind.STOP: State.ABORTED,
        }[action.kind]
        assert allowed(before.state if before else State.PLANNED, state), (before, action)
        if action.kind is ActionKind.BEGIN:
            self.begun.append(action.run)
        if state in ENDED:
            assert action.reason is not None
            self.reasons[action.run] = action.reason
        if before is not None:
            self.known[action.run] = replace(before, state=state)
        else:
            assert each is not None
            made = known(each.run, state, is_overhead=each.is_overhead, end_ns=each.end_ns)
            self.known |= made

    def _live(self, key: str, each: KnownRun, situation: Situation) -> None:
        waiting = next(p for p in self.planned if p.run == key)
        if each.state is State.ARMED and self.chance.random() < 0.02:
            now = replace(situation, known=dict(self.known))
            if hindrance(now, waiting) is None:
                self.begun.append(key)
                end_ns = situation.now_ns + waiting.length_ns
                self.known[key] = replace(each, state=State.CLAIMED, end_ns=end_ns)
        elif each.state is State.CLAIMED:
            self.known[key] = replace(each, state=State.EXECUTING)
        elif each.state is State.EXECUTING and situation.now_ns >= each.end_ns - S_NS:
            self.known[key] = replace(each, state=State.FINISHING)
        elif each.state is State.FINISHING and self.chance.random() < 0.3:
            self.known[key] = replace(each, state=State.COMPLETE)
            self.reasons[key] = None


def test_whatever_comes_no_run_is_begun_twice_and_none_is_forgotten() -> None:
    for seed in range(cases(60)):
        tried = Tried(seed)
        now_s = 0.0
        while now_s < 900:
            # An agent that was away resumes at a later time, from its database.
            now_s += 1.0 if tried.chance.random() < 0.98 else tried.chance.uniform(1, 120)
            tried.step(now_s)
        assert len(tried.begun) == len(set(tried.begun)), seed
        assert set(tried.reasons) == {p.run for p in tried.planned}, seed


def test_the_second_in_which_a_run_ends_is_not_the_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_traffic, "TcpTable", Sockets)
    file = tmp_path / "dev"
    host = Host("eth9", file, clock=ManualClock())
    user = []
    for second, rx_bytes in enumerate([0, 10**6, 2 * 10**6, 3 * 10**6]):
        file.write_text(f"\n\n eth9: {rx_bytes} 0 0 0 0 0 0 0 0 0\n")
        runs = [CountedRun("a", os.getpid(), "none")] if second < 2 else []
        user.append(host.measure(second * S_NS, runs, Rule(), None).user_rx_bps)
    assert user == [None, 8e6, None, 8e6]
    assert host.is_active


# The agent's database.


JOB: dict[str, object] = {
    "id": "j",
    "nodes": ["a"],
    "length": 10,
    "when": {"at": "now"},
    "run": {"client": ["true"]},
}


def scheduled(*, priv: bool = False, **others: object) -> ScheduledJob:
    return ScheduledJob.model_validate({"spec": {**JOB, **others}, "priv": priv})


def local_run(name: str = "a", **others: object) -> LocalRun:
    spec = scheduled(**others).spec
    return LocalRun(name, Side.CLIENT, State.CLAIMED, "job", spec, 0, 10 * S_NS)


def test_the_book_has_runs_and_reports_in_one_step(tmp_path: Path) -> None:
    db = AgentDb(tmp_path, 5 * S_NS)
    made = local_run()
    made.reason = Reason.EXIT
    assert db.save_run(made, run_entry(made, 7, {"exit": 0}))
    db.put("fence", "3")
    db.flush()
    again = AgentDb(tmp_path, 5 * S_NS)
    assert again.local_runs() == [made]
    ((seq, at_ns, kind, text),) = again.next_batch()
    assert (seq, at_ns, kind) == (5001, 7, "run")
    assert '"exit":0' in text
    again.acknowledge(seq)
    assert again.next_batch() == []
    again.trim_outbox()
    again.flush()
    assert db.next_batch() == []
    assert again.get("fence") == "3"
    # Numbers go on after the acknowledged reports, and after those that a killed agent has used.
    again.add(OutboxEntry(8, TelemetryReport([])))
    ((after, *_),) = again.next_batch()
    assert after > seq
    again.acknowledge(after)
    third = AgentDb(tmp_path, 5 * S_NS)
    third.add(OutboxEntry(9, TelemetryReport([])))
    assert third.next_batch()[-1][0] > after


def test_a_full_disk_makes_reports_wait_and_loses_none(tmp_path: Path) -> None:
    said: list[str] = []
    db = AgentDb(tmp_path, 0, said.append)
    db._base.execute("PRAGMA max_page_count=12")
    written = [
        db.save_run(local_run(f"run{n}"), run_entry(local_run(f"run{n}"), n, {}))
        for n in range(100)
    ]
    assert written[0]
    assert not written[-1]
    assert len(said) == 1
    db._base.execute("PRAGMA max_page_count=1000000")
    assert db.save_run(local_run("last"), run_entry(local_run("last"), 100, {}))
    assert [at_ns for _, at_ns, _, _ in db.next_batch()] == list(range(101))
    assert len(db.local_runs()) == 101
    assert said[-1] == "book.sqlite can be written again"


def test_the_oldest_telemetry_goes_first_and_runs_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skyhop_testbed.agent.agent_db._MOST_TELEMETRY", 3)
    db = AgentDb(tmp_path, 0)
    db.save_run(local_run(), run_entry(local_run(), 1, {}))
    for number in range(10):
        db.add(OutboxEntry(number, TelemetryReport([])))
        db.next_batch()
    db.next_batch()
    db.trim_outbox()
    assert [(kind, at_ns) for _, at_ns, kind, _ in db.next_batch()] == [
        ("run", 1), ("telemetry", 7), ("telemetry", 8), ("telemetry", 9),
    ]  # fmt: skip


def test_what_is_acted_on_is_synced_and_the_rest_waits(tmp_path: Path) -> None:
    """A run's claim, start and end are synced; steps between share a commit, without a sync."""
    db = AgentDb(tmp_path, 0)
    db.save_run(local_run(), run_entry(local_run(), 0, {}))
    commits, syncs = db.counts.commits, db.counts.syncs
    for state in (State.DEPLOYING, State.EXECUTING, State.FINISHING):
        made = local_run()
        made.state = state
        db.save_run(made, run_entry(made, 1, {}), durability=Durability.HELD)
    assert (db.counts.commits, db.counts.syncs) == (commits, syncs)
    db.flush()
    assert (db.counts.commits, db.counts.syncs) == (commits + 1, syncs)
    for at_ns in range(100):
        db.add(OutboxEntry(at_ns, TelemetryReport([])))
        db.acknowledge(db.next_batch()[-1][0])
    assert (db.counts.commits, db.counts.syncs) == (commits + 1, syncs)
    made.state = State.COMPLETE
    db.save_run(made, run_entry(made, 2, {}))
    assert (db.counts.commits, db.counts.syncs) == (commits + 2, syncs + 1)
    # A killed agent has what was synced or flushed, and not what was held.
    made.settled_ns = 5
    db.save_run(made, durability=Durability.HELD)
    (kept,) = AgentDb(tmp_path, 0).local_runs()
    assert (kept.state, kept.settled_ns) == (State.COMPLETE, 0)


def test_a_batch_that_is_not_acknowledged_comes_again_the_same(tmp_path: Path) -> None:
    """Its numbers stay, so that the orchestrator applies each report once; later ones follow."""
    db = AgentDb(tmp_path, 0)
    for at_ns in range(3):
        db.add(OutboxEntry(at_ns, TelemetryReport([])))
    sent = db.next_batch()
    assert [at_ns for _, at_ns, _, _ in sent] == [0, 1, 2]
    db.save_run(local_run(), run_entry(local_run(), 3, {}))
    db.add(OutboxEntry(4, TelemetryReport([])))
    again = db.next_batch()
    assert again[:3] == sent
    assert [at_ns for _, at_ns, _, _ in again] == [0, 1, 2, 3, 4]
    assert [seq for seq, *_ in again] == sorted(seq for seq, *_ in again)
    db.acknowledge(again[1][0])
    assert [at_ns for _, at_ns, _, _ in db.next_batch()] == [2, 3, 4]
    # What was sent and not acknowledged is in the file, also after the agent was killed.
    assert [at_ns for _, at_ns, _, _ in AgentDb(tmp_path, 0).next_batch()][-3:] == [2, 3, 4]


def test_no_number_is_given_twice_whenever_the_agent_is_killed(tmp_path: Path) -> None:
    draw, last = random.Random(3), 0
    db = AgentDb(tmp_path, S_NS)
    for at_ns in range(cases(200)):
        if draw.random() < 0.3:
            db.save_run(local_run(), run_entry(local_run(), at_ns, {}))
        else:
            db.add(OutboxEntry(at_ns, TelemetryReport([])))
        new = [seq for seq, at, _, _ in db.next_batch() if at == at_ns]
        assert len(new) == 1
        assert new[0] > last
        last = new[0]
        db.acknowledge(last)
        if draw.random() < 0.2:
            db = AgentDb(tmp_path, S_NS)


def test_a_database_of_an_agent_before_reserved_numbers_goes_on(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "book.sqlite")) as base:
        base.execute(
            "CREATE TABLE outbox (seq INTEGER PRIMARY KEY AUTOINCREMENT, at_ns INTEGER NOT NULL,"
            " kind TEXT NOT NULL, json TEXT NOT NULL)"
        )
        base.execute("INSERT INTO outbox VALUES (70, 1, 'run', '{}')")
        base.execute("DELETE FROM outbox")
        base.commit()
    db = AgentDb(tmp_path, 0)
    db.add(OutboxEntry(2, TelemetryReport([])))
    assert db.next_batch()[0][0] == 71


def test_what_is_no_book_is_said(tmp_path: Path) -> None:
    (tmp_path / "book.sqlite").write_bytes(b"something else, long enough to be looked at" * 100)
    with pytest.raises(InputError, match=r"book\.sqlite"):
        AgentDb(tmp_path, 0)


@pytest.mark.parametrize(
    ("policy", "spec", "why"),
    [
        ({}, {}, None),
        ({"programs": ["iperf3"]}, {}, None),
        ({"programs": ["ping"]}, {}, 'the program "iperf3"'),
        ({"programs": ["iperf3"]}, {"env": {"PATH": "."}}, 'the program "iperf3"'),
        ({"programs": ["iperf3"]}, {"client": ["./iperf3"]}, 'the program "./iperf3"'),
        ({"programs": []}, {"client": None, "scenario": "x"}, 'the program "skyhop"'),
        ({"networks": ["none"]}, {}, "the network internet"),
        ({"networks": ["host"]}, {}, None),
        ({"networks": ["host"]}, {"network": "host"}, None),
        ({}, {"network": "host"}, "the network host"),
        ({"networks": ["internet"]}, {"network": "host"}, "the network host"),
        ({"backends": ["podman"]}, {}, "the back end process"),
        ({"hours": ["01:00-02:00"]}, {}, "not at this hour"),
        ({"hours": ["00:00-01:00"]}, {}, None),
        ({"data_cap_bytes_per_month": 1000}, {}, "this month's"),
        ({"data_cap_bytes_per_month": 1001}, {}, None),
    ],
)
def test_what_an_owner_allows(
    policy: dict[str, object], spec: dict[str, object], why: str | None
) -> None:
    job = scheduled(run={"client": ["iperf3"], **spec})
    assert not job.fault
    found = Policy.of(policy).refusal(job, 60 * S_NS, 1000)
    assert found is None if why is None else (found or "").startswith(why)


@pytest.mark.parametrize(
    ("policy", "priv", "is_allowed"),
    [({}, True, False), ({"kernel": True}, False, False), ({"kernel": True}, True, True)],
)
def test_kernel_services_need_owner_and_role(
    policy: dict[str, object], priv: bool, is_allowed: bool
) -> None:
    run = {"client": ["iperf3"], "network": "veth"}
    job = scheduled(run=run, kernel={"cc": "bbr"}, priv=priv)
    assert (Policy.of(policy).refusal(job, 0, 0) is None) == is_allowed


@pytest.mark.parametrize(
    "policy", [{"ports": [0, 9]}, {"ports": "x"}, {"hours": ["9"]}, {"nice": "x"}]
)
def test_what_is_no_policy(policy: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Policy.of(policy)


def test_what_the_kernel_service_refuses_is_told_from_what_is_no_job(tmp_path: Path) -> None:
    run = local_run(run={"client": ["true"], "network": "veth"}, kernel={"cc": "bbr"})
    for socket in (None, str(tmp_path / "nobody.sock")):
        node: Any = SimpleNamespace(name="a", policy=Policy.of({}), kernel=socket)
        with pytest.raises(KernelError, match="kernel service"):
            assignment_of(node, run, None)
    assert "of_a_later_version" in scheduled(of_a_later_version=1).fault


def test_a_row_of_an_older_agent_is_read() -> None:
    """Read the row of a client that waits for its server, as of the first version."""
    row = {
        "run": "R", "side": "client", "state": "waiting-server", "job": "J", "spec": JOB,
        "start_ns": 1, "end_ns": 2, "client": "a", "server": "s", "server_address": "192.0.2.1",
        "files": {"x": {"size": 1, "sha256": "00"}}, "after": None, "is_made": False, "fence": 9,
        "is_granted": True, "reason": None, "is_silent": False,
        "stop": {"reason": "user", "state": "aborted", "message": "m"}, "boot": "b", "starts": 1,
        "port": 5201, "task": "", "answer": {"run": "R", "node": "a", "ready": True, "port": 5201},
        "is_uploaded": False, "settled_ns": 0,
    }  # fmt: skip
    made = LocalRun.loads(json.dumps(row))
    assert made.answer == ServerAnswer(run="R", ready=True, port=5201)
    assert made.stop == Outcome(State.ABORTED, Reason.USER, "m")
    again = json.loads(made.dumps())
    assert {**again, "answer": row["answer"], "spec": JOB} == {
        **row,
        "fault": "",
        "is_given_up": False,
    }
    assert again["spec"] == {**JOB, "length": 10.0}
    reply = {"task": "T", "run": "R", "ok": False, "port": None, "error": "no"}
    served = LocalRun.loads(json.dumps({**row, "side": "server", "answer": reply}))
    assert served.answer == TaskReport("T", "R", ok=False, error="no")
