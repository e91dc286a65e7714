"""Plans of repeating jobs: pieces, horizon, extension, calendar, and cancellation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from testbed_harness import ADMIN, ANN, BEGIN_NS, BOB, LocalOrchestrator, S, job, local_orchestrator

from skyhop_testbed import api
from skyhop_testbed.orchestrator import handlers, jobs
from skyhop_testbed.orchestrator.planning import AHEAD_NS, OCCURRENCES_AHEAD
from skyhop_testbed.store.database import Database
from skyhop_testbed.store.tables import audit, event, run

MINUTE_NS = 60 * S
EACH_MINUTE = 'cron = "* * * * *"'
LARGEST_CHANGE = 1_500
"""Upper limit on rows that one transaction changes."""


@pytest.fixture
def at(tmp_path: Path) -> Iterator[LocalOrchestrator]:
    with local_orchestrator(tmp_path / "state") as made:
        with made.writing(ADMIN) as ctx:
            many = {"user_jobs": 100, "user_runs_ahead": 100_000, "node_runs_ahead": 100_000}
            handlers.put_config(ctx, many)
        yield made


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of rows that the transactions have changed."""
    counted: list[int] = []
    writing = Database.writing

    @contextmanager
    def counting(self: Database) -> Iterator[Any]:
        with writing(self) as connection:
            base: Any = connection.connection.driver_connection
            before = base.total_changes
            yield connection
            counted.append(base.total_changes - before)

    monkeypatch.setattr(Database, "writing", counting)
    return counted


def starts_of(at: LocalOrchestrator, of: str, client: str = "a") -> list[int]:
    chosen = (run.c.job == of) & (run.c.client == client)
    with at.orchestrator.reading(ADMIN) as ctx:
        return list(
            ctx.connection.scalars(sa.select(run.c.start_ns).where(chosen).order_by("start_ns"))
        )


def light(name: str, when: str = EACH_MINUTE, **keys: str) -> str:
    return job(name, when, length='"30 s"', overhead="false", **keys)


def test_many_jobs_of_each_minute_are_planned_in_short_transactions(
    at: LocalOrchestrator, changes: list[int]
) -> None:
    made = [at.submit(light(f"j{number}")) for number in range(67)]
    for _ in range(4):
        at.pass_s(15)
        at.orchestrator.tick()
    for each in made:
        assert starts_of(at, each.id)[0] == BEGIN_NS
        assert len(starts_of(at, each.id)) == OCCURRENCES_AHEAD
    assert 0 < max(changes) <= LARGEST_CHANGE


def test_a_job_on_many_nodes_is_planned_piece_by_piece(
    at: LocalOrchestrator, changes: list[int]
) -> None:
    names = [f"n{number}" for number in range(40)]
    with at.writing(ADMIN) as ctx:
        for name in names:
            handlers.nodes.put(ctx, api.PutNode(name=name))
    changes.clear()
    listed = ", ".join(f'"{name}"' for name in names)
    made = at.submit(light("wide", nodes=f"[{listed}]"))
    assert made.runs == 1_000
    for _ in range(OCCURRENCES_AHEAD * len(names) // 1_000):
        at.orchestrator.tick()
    # Each extension counts again what is ahead, from the standing clock's time on.
    for name in names:
        assert starts_of(at, made.id, name) == starts_of(at, made.id, names[0])
    assert len(starts_of(at, made.id, names[0])) == OCCURRENCES_AHEAD
    assert max(changes) <= LARGEST_CHANGE


def test_each_occurrence_has_one_run_however_long_the_orchestrator_works(
    at: LocalOrchestrator,
) -> None:
    made = at.submit(light("each-minute"))
    for _ in range(48):
        at.pass_s(1800)
        at.orchestrator.tick()
    found = starts_of(at, made.id)
    hours = 24
    assert len(found) >= hours * 60 + OCCURRENCES_AHEAD // 2
    assert found == [BEGIN_NS + minute * MINUTE_NS for minute in range(len(found))]


def test_a_rare_job_is_planned_a_fortnight_ahead(at: LocalOrchestrator) -> None:
    made = at.submit(light("daily", 'cron = "0 6 * * *"'))
    assert len(starts_of(at, made.id)) == 14


def test_occurrences_during_an_outage_get_no_runs_but_a_line_in_the_log(
    at: LocalOrchestrator,
) -> None:
    made = at.submit(light("each-minute"))
    at.pass_s(2 * 86_400)
    at.orchestrator.tick()
    found = starts_of(at, made.id)
    later = [start_ns for start_ns in found if start_ns > BEGIN_NS + 86_400 * S]
    assert len(later) == OCCURRENCES_AHEAD
    assert min(later) > at.now_ns - 30 * S
    with at.orchestrator.reading(ADMIN) as ctx:
        said = list(
            ctx.connection.scalars(sa.select(audit.c.outcome).where(audit.c.what == "plan"))
        )
    lost = 2 * 24 * 60 - OCCURRENCES_AHEAD
    assert said == [f"no runs for {lost:,} occurrences: the orchestrator was off"]


def test_the_calendar_shows_occurrences_that_have_no_runs_yet(at: LocalOrchestrator) -> None:
    made = at.submit(light("each-minute"))
    at.submit(light("elsewhere", nodes='["b"]'))
    with at.orchestrator.reading(BOB) as ctx:
        found = handlers.calendar(ctx, ["a"], BEGIN_NS, BEGIN_NS + 86_400 * S)
    assert [each.start_ns for each in found] == [BEGIN_NS + m * MINUTE_NS for m in range(24 * 60)]
    counts = Counter(bool(each.id) for each in found)
    assert counts == {True: OCCURRENCES_AHEAD, False: 24 * 60 - OCCURRENCES_AHEAD}
    assert {each.job_name for each in found} == {""}, "another user learns no names"
    with at.orchestrator.reading(ANN) as ctx:
        own = handlers.calendar(ctx, ["a"], BEGIN_NS, 0)
    assert {each.job_name for each in own} == {made.name}
    assert len(own) == 10_000 < AHEAD_NS // MINUTE_NS


def test_a_cancelled_job_of_each_minute_ends_all_its_runs_in_one_short_transaction(
    at: LocalOrchestrator, changes: list[int]
) -> None:
    made = at.submit(light("each-minute"))
    at.submit(light("other"))
    changes.clear()
    with at.writing(ANN) as ctx:
        jobs.cancel(ctx, "each-minute")
        changed = set(ctx.changed_runs)
    with at.orchestrator.reading(ADMIN) as ctx:
        rows = ctx.all(sa.select(run, event.c.actor, event.c.applied).join(event))
    assert {row["job"] for row in rows} == {made.id}
    assert {(row["state"], row["reason"], row["actor"]) for row in rows} == {
        ("skipped", "user", "user:ann")
    }
    assert len(rows) == len(changed) == OCCURRENCES_AHEAD
    assert changes[0] <= LARGEST_CHANGE


def test_a_job_without_runs_to_come_is_over(at: LocalOrchestrator) -> None:
    made = at.submit(light("once", 'at = "now"'))
    ends = at.submit(light("ends", f'{EACH_MINUTE}\nend = "2027-01-01T00:10:00Z"'))
    goes_on = at.submit(light("goes-on"))
    at.pass_s(3600)
    at.orchestrator.tick()
    at.orchestrator.tick()
    with at.orchestrator.reading(ADMIN) as ctx:
        states = {each.id: each.state for each in jobs.listing(ctx, ended=True)}
    assert states == {made.id: "over", ends.id: "over", goes_on.id: "active"}
