"""Checks of new jobs before their write transaction, and what the transaction checks again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed_harness import ADMIN, ANN, BEGIN_NS, BOB, LocalOrchestrator, S, job, local_orchestrator

from skyhop.errors import InputError
from skyhop_testbed import api, calendar
from skyhop_testbed.orchestrator import jobs, nodes, runs
from skyhop_testbed.orchestrator.handlers import call
from skyhop_testbed.orchestrator.planning import bookings
from skyhop_testbed.orchestrator.request_context import (
    Caller,
    ConflictError,
    NotFoundError,
    RequestContext,
)
from skyhop_testbed.words import Role

HOURLY = 'cron = "0 * * * *"'


@pytest.fixture
def at(tmp_path: Path) -> Iterator[LocalOrchestrator]:
    with local_orchestrator(tmp_path / "state") as made:
        yield made


def found(at: LocalOrchestrator, text: str, caller: Caller = BOB) -> jobs.Checked:
    with at.orchestrator.reading(caller) as ctx:
        return jobs.check_new(ctx, text)


def accept(
    at: LocalOrchestrator, text: str, found: jobs.Checked, caller: Caller = BOB
) -> api.SubmittedJob:
    with at.writing(caller) as ctx:
        return jobs.submit(ctx, text, {}, at.orchestrator.objects, found=found)


def test_a_job_that_was_accepted_since_the_check_is_met(at: LocalOrchestrator) -> None:
    at.submit(job("daily", 'cron = "30 3 * * *"'))
    text = job("hourly", HOURLY)
    before = found(at, text)
    assert before.findings.total == 0
    at.submit(job("other", 'at = "2027-01-01T05:00:30Z"'))
    with pytest.raises(ConflictError, match="ann's job other, run"):
        accept(at, text, before)
    with at.writing(ANN) as ctx:
        jobs.cancel(ctx, "other")
    made = accept(at, text, before)
    assert made.first is not None
    assert made.first.start_ns == BEGIN_NS
    # The same job again, which was checked before there was a job of its name.
    with pytest.raises(InputError, match="you have an active job of this name"):
        accept(at, text, before)


def test_a_run_that_was_moved_since_the_check_is_met(at: LocalOrchestrator) -> None:
    moved = at.submit(job("once", 'at = "2027-01-01T05:00:00Z"'))
    text = job("noon", 'at = "2027-01-01T12:00:00Z"')
    before = found(at, text)
    with at.writing(ANN) as ctx:
        (row,) = runs.listing(ctx, of_job=moved.id)
        runs.reschedule(ctx, row.id, BEGIN_NS + 12 * 3600 * S)
    with pytest.raises(ConflictError, match="ann's job once, run"):
        accept(at, text, before)


def test_a_node_that_was_deleted_since_the_check_is_missed(at: LocalOrchestrator) -> None:
    text = job("hourly", HOURLY, nodes='["b"]')
    before = found(at, text)
    with at.writing(ADMIN) as ctx:
        nodes.delete(ctx, "b")
    with pytest.raises(NotFoundError, match="there is no node b"):
        accept(at, text, before)


def test_the_write_transaction_compares_with_no_reservation_of_before(
    at: LocalOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minute in range(10, 60, 10):
        at.submit(job(f"j{minute}", f'cron = "{minute} * * * *"'))
    compared: list[tuple[bool, int]] = []
    is_writing = []
    enter, check = at.orchestrator.database.writing, calendar.check

    def writing() -> Any:
        is_writing.append(True)
        return enter()

    def counted(plan: Any, others: Any, booked: Any, **keys: Any) -> Any:
        compared.append((bool(is_writing), len(others) + len(booked)))
        return check(plan, others, booked, **keys)

    monkeypatch.setattr(at.orchestrator.database, "writing", writing)
    monkeypatch.setattr(jobs, "check", counted)
    asked = api.SubmitJob(toml=job("hourly", HOURLY), files={})
    assert call(at.orchestrator, api.SUBMIT_JOB, BOB, asked).runs == 14 * 24
    changed = api.ModifyJob(job="hourly", toml=job("hourly", 'cron = "5 * * * *"'), files={})
    is_writing.clear()
    assert call(at.orchestrator, api.MODIFY_JOB, BOB, changed).name == "hourly"
    assert compared == [(False, 5), (False, 5)]


def test_a_replaced_jobs_run_in_progress_is_met(at: LocalOrchestrator) -> None:
    made = at.submit(job("mine", 'at = "now"', length='"1 h"'))
    with at.orchestrator.reading(ANN) as ctx:
        (row,) = runs.listing(ctx, of_job=made.id)
    at.change("a", row.id, "claimed", fence=1)
    text = job("mine", 'at = "2027-01-01T00:30:00Z"')
    with at.orchestrator.reading(ANN) as ctx:
        before = jobs.check_changed(ctx, "mine", text)
    with at.writing(ANN) as ctx, pytest.raises(ConflictError, match="ann's job mine"):
        jobs.modify(ctx, "mine", text, {}, at.orchestrator.objects, found=before)


def steps(ctx: RequestContext, node: str) -> int:
    """Return the number of hundreds of SQLite's steps that reading a node's bookings takes."""
    counted: list[int] = []
    base: Any = ctx.connection.connection.driver_connection
    base.set_progress_handler(lambda: counted.append(1), 100)
    try:
        bookings(ctx, [node])
    finally:
        base.set_progress_handler(None, 0)
    return len(counted)


def test_the_bookings_of_a_node_are_found_without_the_runs_of_others(
    at: LocalOrchestrator,
) -> None:
    at.submit(job("hourly", HOURLY))
    at.submit(job("once", 'at = "2027-01-01T05:30:00Z"'))
    with at.orchestrator.reading(ANN) as ctx:
        before = steps(ctx, "a")
    for minute in range(0, 60, 4):
        at.submit(job(f"j{minute}", f'cron = "{minute} * * * *"', nodes='["b"]'), BOB)
    with at.orchestrator.reading(ANN) as ctx:
        assert len(bookings(ctx, ["a"])[1]) == 1
        # There are 5,000 more runs.
        assert steps(ctx, "a") <= before + 20


def test_a_refused_event_leaves_nothing_in_the_database(at: LocalOrchestrator) -> None:
    trigger = 'trigger = "pop_ping_latency_ms > 100"\nend = "2027-01-02T00:00:00Z"'
    made = at.submit(job("tilted", trigger))
    with at.orchestrator.reading(ANN) as ctx:
        (row,) = runs.listing(ctx, of_job=made.id)
    new = {"run": "01J0000000000000000000000Z", "after": row.id, "start_ns": 1, "end_ns": 2}
    change = {"at_ns": -1, "state": "claimed", "actor": "", "details": {"fence": 1}}
    health = ("health", {"load": 3})
    at.report("a", ("run", {"run": row.id, "change": change, "new": new}), health)
    with at.writing(Caller("root", Role.ADMIN)) as ctx:
        assert [each.id for each in runs.listing(ctx, states=["planned"])] == [row.id]
        assert nodes.document(ctx, "a").health == {"load": 3}
