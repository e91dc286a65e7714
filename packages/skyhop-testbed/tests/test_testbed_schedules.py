"""Schedules as differences: what a node holds, what orders cost, and what goes wrong on the way."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from manual_clock import ManualClock
from testbed_harness import ANN, LocalOrchestrator, S, job, local_orchestrator

from needs import cases
from skyhop.errors import InputError
from skyhop_testbed import api, differences
from skyhop_testbed.agent.agent_db import AgentDb
from skyhop_testbed.agent.link import Link
from skyhop_testbed.agent.schedule import (
    DivergedError,
    Schedule,
    StoredOrder,
    load_stored,
    read_change,
    read_schedule,
)
from skyhop_testbed.api import Operation, OrderKind
from skyhop_testbed.orchestrator import jobs, nodes, runs
from skyhop_testbed.orchestrator.handlers import put_config
from skyhop_testbed.orchestrator.node_orders import NodeOrders
from skyhop_testbed.orchestrator.planning import OCCURRENCES_AHEAD
from skyhop_testbed.orchestrator.request_context import ITSELF, Caller
from skyhop_testbed.orchestrator.schedules import Held
from skyhop_testbed.protocol import Peer
from skyhop_testbed.words import ENDED, Role

A = Caller("a", Role.NODE)
HOUR_S = 3600
MINUTELY = 'cron = "* * * * *"\nend = "2027-01-20T00:00:00Z"'


@pytest.fixture
def at(tmp_path: Path) -> Iterator[LocalOrchestrator]:
    with local_orchestrator(tmp_path / "state") as made:
        yield made


@dataclasses.dataclass
class Follower:
    """Node `a` as far as it follows its schedule; it notes the orders that it gets."""

    at: LocalOrchestrator
    held: dict[str, Held] = dataclasses.field(default_factory=dict)
    schedule: Schedule = dataclasses.field(default_factory=Schedule)
    orders: list[api.Order] = dataclasses.field(default_factory=list)
    whole: int = 0

    def __post_init__(self) -> None:
        self.connect()

    @property
    def key(self) -> bytes:
        """Public key that verifies orders."""
        return self.at.orchestrator.authority.orders_key

    def connect(self, digest: str | None = "") -> None:
        """Open a stream of orders: with the schedule's digest unless another is given."""
        asked = api.Follow(revision=self.schedule.revision, digest=digest or self.schedule.digest)
        self.stream = NodeOrders(self.at.orchestrator, A, asked, self.held)

    def get(self) -> list[api.Order]:
        """Apply the orders that are due; return them."""
        found = self.stream.due()
        for order in found:
            self.apply(order)
        self.orders += found
        return found

    def apply(self, order: api.Order) -> None:
        """Apply an order to the schedule that the node has."""
        body, signature = order.content(), order.signature
        self.schedule, whole = read_change(self.key, "a", body, signature, self.schedule)
        self.whole += whole

    def expected(self) -> set[str]:
        """Return the ids of the runs that the node must know by now."""
        with self.at.orchestrator.reading(ITSELF) as ctx:
            listed = nodes.schedule(ctx, "a")[1]["runs"]
            until_ns = self.at.now_ns + round(ctx.settings.horizon_s * S)
        return {run["id"] for run in listed if run["start_ns"] < until_ns}


def size(order: api.Order) -> int:
    return len(api.FOLLOW.adapter.dump_json(order, exclude_unset=True))


def execute(at: LocalOrchestrator, name: str) -> None:
    for state in ("claimed", "deploying", "executing", "finishing", "complete"):
        at.change("a", name, state)


def test_a_difference_leads_to_the_same_schedule() -> None:
    draw = random.Random(5)
    parts: dict[str, Any] = {}
    before = differences.digests_of(parts)
    for _ in range(cases(200)):
        for _ in range(draw.randrange(4)):
            name = f"run:{draw.randrange(20)}"
            if draw.random() < 0.4:
                parts.pop(name, None)
            else:
                parts[name] = {"start_ns": draw.randrange(5), "state": draw.choice("pq")}
        after = differences.digests_of(parts)
        changed, gone = differences.difference(before, parts, after)
        applied = {name: each for name, each in before.items() if name not in gone}
        applied |= differences.digests_of(changed)
        assert differences.digest(applied) == differences.digest(after)
        assert set(changed) <= set(parts)
        before = after


def test_a_runs_state_is_no_difference_but_its_time_is() -> None:
    digests = [
        differences.digest_of_part("run:1", {"start_ns": start_ns, "state": state})
        for start_ns, state in ((1, "planned"), (1, "executing"), (2, "planned"))
    ]
    assert digests[0] == digests[1] != digests[2]


def test_a_day_of_a_run_per_minute_costs_an_order_per_hour(at: LocalOrchestrator) -> None:
    at.submit(job("m", MINUTELY, length='"30 s"'))
    node = Follower(at)
    (first,) = node.get()
    assert len(node.schedule.runs) == OCCURRENCES_AHEAD
    # The form for nodes that read no differences, which was sent after each run.
    with at.orchestrator.reading(A) as ctx:
        whole = len(json.dumps(nodes.schedule(ctx, "a")[1]))
    assert size(first) < whole / 6
    node.orders.clear()
    executed = 0
    for minute in range(0, 24 * 60, 10):
        if minute % 30 == 0:
            due = max(r.start_ns for r in node.schedule.runs.values() if r.start_ns <= at.now_ns)
            execute(at, next(r.id for r in node.schedule.runs.values() if r.start_ns == due))
            executed += 1
        at.pass_s(600)
        node.get()
    assert executed == 48
    # One per hour for the horizon: none for a run that the node itself has ended.
    assert len(node.orders) == 24
    assert sum(map(size, node.orders)) < 150_000
    assert node.whole == 1
    assert node.expected() <= set(node.schedule.runs)
    # The runs that it has ended are gone from it.
    assert all(node.at.now_ns - r.start_ns < 25 * HOUR_S * S for r in node.schedule.runs.values())


def test_the_horizon_is_a_setting(at: LocalOrchestrator) -> None:
    at.submit(job("h", 'cron = "0 * * * *"', length='"30 s"'))
    node = Follower(at)
    node.get()
    assert 24 <= len(node.schedule.runs) <= 26
    with at.writing(ITSELF) as ctx:
        put_config(ctx, {"horizon_s": 6 * HOUR_S})
    node.get()
    assert 6 <= len(node.schedule.runs) <= 8
    assert node.expected() <= set(node.schedule.runs)
    assert node.whole == 1


def test_what_others_change_arrives_at_once(at: LocalOrchestrator) -> None:
    at.submit(job("h", 'cron = "0 * * * *"', length='"30 s"'))
    node = Follower(at)
    node.get()
    soon = min(node.schedule.runs.values(), key=lambda run: run.start_ns)
    with at.writing(ANN) as ctx:
        runs.abort(ctx, soon.id, "")
    (order,) = node.get()
    assert soon.id not in node.schedule.runs
    assert size(order) < 500
    with at.writing(ANN) as ctx:
        nodes.set_policy(ctx, "a", {"programs": ["ping"]})
    node.get()
    assert node.schedule.policy == {"programs": ["ping"]}
    at.submit(job("now", nodes='["a"]'))
    node.get()
    assert len(node.schedule.jobs) == 2
    with at.writing(ANN) as ctx:
        jobs.cancel(ctx, "h")
    node.get()
    assert set(node.schedule.runs) == node.expected()
    assert len(node.schedule.jobs) == 1
    assert node.get() == []
    assert node.whole == 1


def test_a_run_that_its_server_learns_of_ends_for_the_server_too(at: LocalOrchestrator) -> None:
    both = {"server": '"s"', "run": 'client = ["true"]\nserve = ["true"]'}
    at.submit(job("c", 'at = "2027-01-01T05:00:00Z"', **both))
    server = Caller("s", Role.NODE)
    stream = NodeOrders(at.orchestrator, server, api.Follow(digest=""), {})
    key = at.orchestrator.authority.orders_key
    (order,) = stream.due()
    schedule, _ = read_change(key, "s", order.content(), order.signature, Schedule())
    (name,) = schedule.runs
    at.pass_s(5 * HOUR_S)
    assert stream.due() == []
    at.change("a", name, "skipped", "refused")
    (order,) = stream.due()
    schedule, _ = read_change(key, "s", order.content(), order.signature, schedule)
    assert not schedule.runs


def test_a_difference_applies_only_to_its_own_schedule(at: LocalOrchestrator) -> None:
    """Neither an order that is repeated, nor one that follows a lost order, changes anything."""
    node = Follower(at)
    node.get()
    lost, seen = [], []
    for number in range(3):
        at.submit(job(f"j{number}", f'at = "2027-01-01T0{number + 2}:00:00Z"'))
        (order,) = node.stream.due()
        (lost if number == 1 else seen).append(order)
        if number == 0:
            node.apply(order)
    before = node.schedule
    with pytest.raises(DivergedError, match="revision"):
        node.apply(seen[0])
    with pytest.raises(DivergedError, match="revision"):
        node.apply(seen[1])
    with pytest.raises(InputError, match="not signed"):
        read_change(node.key, "a", lost[0].content() + b" ", lost[0].signature, node.schedule)
    with pytest.raises(InputError, match="another node"):
        read_change(node.key, "b", lost[0].content(), lost[0].signature, node.schedule)
    assert node.schedule is before
    node.apply(lost[0])
    node.apply(seen[1])
    assert set(node.schedule.runs) == node.expected()
    assert len(node.schedule.runs) == 3


def test_a_whole_schedule_that_is_older_is_refused(at: LocalOrchestrator) -> None:
    node = Follower(at)
    (old,) = node.get()
    at.submit(job("j", 'at = "2027-01-01T05:00:00Z"'))
    node.get()
    with pytest.raises(InputError, match="older"):
        node.apply(old)


def test_a_digest_tells_of_schedules_that_diverge(at: LocalOrchestrator) -> None:
    at.submit(job("j", 'at = "2027-01-01T05:00:00Z"'))
    node = Follower(at)
    node.get()
    name = next(each for each in node.schedule.digests if each.startswith("run:"))
    wrong = {**node.schedule.digests, name: bytes(8)}
    node.schedule = dataclasses.replace(node.schedule, digests=wrong)
    at.submit(job("k", 'at = "2027-01-01T06:00:00Z"'))
    with pytest.raises(DivergedError, match="digest"):
        node.get()
    node.schedule = dataclasses.replace(node.schedule, digest="")
    node.connect()
    node.get()
    assert node.whole == 2
    assert set(node.schedule.runs) == node.expected()


def test_a_node_that_comes_back_gets_only_what_it_lacks(at: LocalOrchestrator) -> None:
    at.submit(job("h", 'cron = "0 * * * *"', length='"30 s"'))
    node = Follower(at)
    node.get()
    node.connect()
    assert node.get() == []
    at.pass_s(3 * HOUR_S)
    node.connect()
    node.get()
    assert node.whole == 1
    # An orchestrator that has restarted no longer knows what its nodes hold.
    node.held.clear()
    node.connect()
    assert node.get() == []
    at.submit(job("j", 'at = "2027-01-01T04:30:00Z"'))
    assert size(node.get()[0]) < 900
    node.held.clear()
    at.submit(job("k", 'at = "2027-01-01T05:30:00Z"'))
    node.connect()
    node.get()
    assert node.whole == 2
    assert node.expected() <= set(node.schedule.runs)


def test_a_node_that_reads_no_differences_gets_whole_schedules(at: LocalOrchestrator) -> None:
    at.submit(job("m", MINUTELY, length='"30 s"'))
    stream = NodeOrders(at.orchestrator, A, api.Follow(revision=0), {})
    (order,) = stream.due()
    assert (order.kind, order.packed) == (OrderKind.SCHEDULE, b"")
    schedule = read_schedule(at.orchestrator.authority.orders_key, "a", order.body, order.signature)
    assert len(schedule.runs) == OCCURRENCES_AHEAD
    assert stream.due() == []
    at.submit(job("j", 'at = "2027-01-01T00:00:31Z"', length='"20 s"'))
    assert [order.kind for order in stream.due()] == [OrderKind.SCHEDULE]


def test_an_agent_learns_the_protocol_before_it_asks_for_orders(tmp_path: Path) -> None:
    """An orchestrator of protocol 1 refuses the field `digest`, which `wire` leaves out then."""
    asked: list[str] = []

    class Wire:
        peer = Peer()

        def call(self, operation: Operation[Any, Any], _request: object, _timeout_s: float) -> int:
            asked.append(operation.name)
            self.peer = Peer("0.2.0", 1, 2)
            return 0

        def stream(self, operation: Operation[Any, Any], request: api.Follow) -> str:
            asked.append(f"{operation.name} {request.digest}")
            return "orders"

    class Identity:
        def open_wire(self) -> Wire:
            return Wire()

    link = Link(
        Identity(),  # type: ignore[arg-type]
        AgentDb(tmp_path, 0),
        on_order=lambda _: None,
        follows=lambda: api.Follow(revision=7, digest="abc"),
        heartbeat_s=lambda: 1.0,
        say=lambda _: None,
        clock=ManualClock(),
    )
    for _ in range(2):
        assert link._open_orders() == "orders"
    assert asked == ["Report", "Follow abc", "Follow abc"]


def test_stored_orders_lead_to_the_schedule(at: LocalOrchestrator, tmp_path: Path) -> None:
    at.submit(job("h", 'cron = "0 * * * *"', length='"30 s"'))
    node = Follower(at)
    db = AgentDb(tmp_path, 0)
    for hour in range(5):
        for order in node.get():
            stored = StoredOrder(order.kind, order.content(), order.signature)
            (db.append_order if hour else db.replace_orders)(stored)
        at.pass_s(HOUR_S)
    again = AgentDb(tmp_path, 0)
    assert len(again.orders()) == 5
    loaded = load_stored(node.key, "a", again.orders())
    assert loaded == node.schedule
    # A damaged order ends the list; the orchestrator notices by the digest.
    assert load_stored(node.key, "a", again.orders()[:2]).digest != node.schedule.digest
    assert load_stored(b"x" * 32, "a", again.orders()) == Schedule()


def test_many_differences_are_worth_a_whole_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skyhop_testbed.agent.agent_db._MOST_DIFFERENCES", 3)
    db = AgentDb(tmp_path, 0)
    order = StoredOrder(OrderKind.SCHEDULE_CHANGE, b"{}", bytes(64))
    db.replace_orders(order)
    db.append_order(order)
    db.append_order(order)
    assert not db.orders_are_many()
    db.append_order(order)
    assert db.orders_are_many()
    db.replace_orders(order)
    assert not db.orders_are_many()
    big = random.Random(1).randbytes(200_000)
    db.append_order(StoredOrder(OrderKind.SCHEDULE_CHANGE, big, bytes(64)))
    assert db.orders_are_many()


def test_damaged_compressed_orders_are_refused() -> None:
    order = api.Order.packing(OrderKind.SCHEDULE_CHANGE, b"x" * 1000, bytes(64))
    assert (order.content(), order.body) == (b"x" * 1000, b"")
    assert len(order.packed) < 100
    with pytest.raises(InputError, match="damaged"):
        order.model_copy(update={"packed": b"no zlib"}).content()
    with pytest.raises(InputError, match="cut off"):
        order.model_copy(update={"packed": order.packed[:-5]}).content()
    with pytest.raises(InputError, match="more than 999 bytes"):
        api.unpacked(order.packed, 999)
    assert api.Order.packing(OrderKind.SCHEDULE_CHANGE, b"ab", bytes(64)).body == b"ab"


def test_an_unfinished_run_is_never_missing(at: LocalOrchestrator) -> None:
    """Random changes by users, the node and time: the node always knows what it must."""
    draw = random.Random(11)
    node = Follower(at)
    submitted = 0
    for _ in range(cases(60)):
        what = draw.randrange(6)
        if what == 0:
            submitted += 1
            minute = draw.randrange(60)
            at.submit(job(f"j{submitted}", f'cron = "{minute} * * * *"', overhead="false"))
        elif what == 1 and node.schedule.runs:
            name = draw.choice([*node.schedule.runs])
            with at.writing(ANN) as ctx:
                if runs.get(ctx, name)["state"] not in {state.value for state in ENDED}:
                    runs.abort(ctx, name, "")
        elif what == 2:
            due = [r for r in node.schedule.runs.values() if r.start_ns <= at.now_ns]
            if due:
                execute(at, draw.choice(due).id)
        elif what == 3:
            node.connect()
        elif what == 4 and draw.random() < 0.2:
            node.held.clear()
        else:
            at.pass_s(draw.choice((20, 600, 3600)))
        node.get()
        assert node.expected() <= set(node.schedule.runs)
    assert submitted > 3
