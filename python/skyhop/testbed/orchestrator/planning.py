"""The runs ahead: each occurrence of the next fourteen days is a run, planned before its time.

An `at` that came too late or met others is given another time here, and so is one that was stopped
to make room. What reserves nodes is told to the calendar in its own terms: accepted jobs as plans,
runs that stand elsewhere than their job's times as bookings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from skyhop.errors import InputError
from skyhop.testbed.calendar import Booking, Plan, nearest_slot, occurrences
from skyhop.testbed.calendar.occurrences import length_ns
from skyhop.testbed.ids import new_id
from skyhop.testbed.job import Job, job_of
from skyhop.testbed.orchestrator.desk import Desk
from skyhop.testbed.store.tables import job, job_node, run
from skyhop.testbed.words import ACTIVE, ENDED, JobKind, State

_S_NS = 1_000_000_000
AHEAD_NS = 14 * 86_400 * _S_NS
_MOST = 2_000
"""So many runs of a job are planned at a time."""
_HOLDING = [State.PLANNED.value, *(state.value for state in ACTIVE)]


def spec_of(row: sa.RowMapping) -> Job:
    """Return the job that a row keeps."""
    return job_of(json.loads(row["spec"]), f"job {row['name']}")


def plan_of(row: sa.RowMapping, gone: Iterable[int] = ()) -> Plan:
    """Return a job as the calendar sees it."""
    return Plan(row["id"], spec_of(row), row["created_ns"], frozenset(gone))


def bookings(
    desk: Desk, nodes: Iterable[str], *, without: str = ""
) -> tuple[list[Plan], list[Booking]]:
    """Return what reserves any of these nodes from now on: jobs, and runs beside their times."""
    wanted = sorted(set(nodes))
    chosen = sa.select(job_node.c.job).where(job_node.c.node.in_(wanted))
    rows = desk.all(
        sa.select(job).where(
            job.c.id.in_(chosen), job.c.state == "active", job.c.overhead, job.c.id != without
        )
    )
    ids = [row["id"] for row in rows]
    table = desk.all(
        sa.select(run, job.c.kind)
        .join(job)
        .where(run.c.end_ns > desk.now_ns, job.c.overhead, run.c.job != without)
        .where(sa.or_(run.c.client.in_(wanted), run.c.server.in_(wanted)))
    )
    gone: dict[str, set[int]] = {name: set() for name in ids}
    booked = []
    for each in table:
        state = State(each["state"])
        if each["job"] in gone and (state in ENDED or each["kind"] == JobKind.AT):
            gone[each["job"]].add(each["start_ns"])
        beside = each["job"] not in gone or each["kind"] != JobKind.CRON
        if (
            state.value in _HOLDING
            and beside
            and not (state is State.PLANNED and each["kind"] == JobKind.TRIGGER)
        ):
            booked.append(_booking(each))
    # An `at` is one run, which stands where that stands.
    plans = [plan_of(row, gone[row["id"]]) for row in rows if row["kind"] != JobKind.AT]
    return plans, booked


def _booking(row: sa.RowMapping) -> Booking:
    nodes = frozenset(name for name in (row["client"], row["server"]) if name)
    return Booking(row["job"], row["id"], nodes, row["start_ns"], row["end_ns"])


def plan_runs(desk: Desk, row: sa.RowMapping) -> list[str]:
    """Plan a job's runs as far ahead as it is done; return the ids of new ones."""
    spec = spec_of(row)
    first = not row["planned_ns"]
    if not first and row["kind"] != JobKind.CRON:
        return []
    begin_ns = max(row["created_ns"], row["planned_ns"])
    if row["kind"] == JobKind.CRON:
        end_ns = desk.now_ns + AHEAD_NS
    else:
        begin_ns, end_ns = 0, 2**63 - 1
    made: list[dict[str, Any]] = []
    planned_ns = end_ns
    for each in occurrences(spec, begin_ns, end_ns, submitted_ns=row["created_ns"]):
        if len(made) >= _MOST:
            planned_ns = each.start_ns
            break
        made += _planned(desk, row["id"], spec, each.start_ns, each.end_ns)
    if made:
        desk.connection.execute(sa.insert(run), made)
    values = {"planned_ns": min(planned_ns, 2**62)}
    desk.do(sa.update(job).where(job.c.id == row["id"]).values(**values))
    if made:
        desk.touch({*spec.nodes, *([spec.server] if spec.server else [])})
    return [each["id"] for each in made]


def _planned(
    desk: Desk, job_id: str, spec: Job, start_ns: int, end_ns: int
) -> list[dict[str, Any]]:
    """Return the rows of a run on each of a job's clients."""
    of_all = {"job": job_id, "server": spec.server, "start_ns": start_ns, "end_ns": end_ns}
    of_all |= {"state": State.PLANNED, "created_ns": desk.now_ns, "fence": 0}
    return [{"id": new_id(desk.now_ns), "client": client, **of_all} for client in spec.nodes]


def next_slot(
    desk: Desk,
    nodes: Iterable[str],
    length: int,
    from_ns: int,
    end_ns: int | None,
    *,
    without: str = "",
) -> int | None:
    """Return the next time at which nodes are free for so many ns, None where there is none."""
    wanted = frozenset(nodes)
    plans, booked = bookings(desk, wanted, without=without)
    return nearest_slot(plans, booked, wanted, length_ns=length, from_ns=from_ns, end_ns=end_ns)


def soonest_ns(desk: Desk, at_ns: int = 0) -> int:
    """Return when a run may begin that takes the place of one which was moved at a time."""
    return max(at_ns, desk.now_ns) + round(desk.settings.reschedule_after_s * _S_NS)


def move_run(
    desk: Desk, row: sa.RowMapping, of: sa.RowMapping, from_ns: int, *, without: str = ""
) -> dict[str, Any] | None:
    """Plan a run in the place of another, at the nearest free time; None where there is none.

    Args:
        desk: of who moves it.
        row: the run.
        of: its job.
        from_ns: it begins no earlier, on the same nodes.
        without: a job whose runs do not hinder it.
    """
    spec = spec_of(of)
    nodes = [name for name in (row["client"], row["server"]) if name]
    length = length_ns(spec)
    start_ns = next_slot(desk, nodes, length, from_ns, spec.when.end, without=without)
    if start_ns is None:
        return None
    made = {"id": new_id(desk.now_ns), "start_ns": start_ns, "end_ns": start_ns + length}
    others = {"job": row["job"], "client": row["client"], "server": row["server"]}
    times = {"created_ns": desk.now_ns, "after": row["id"], "fence": 0}
    desk.do(sa.insert(run).values(state=State.PLANNED, **made, **others, **times))
    desk.touch(set(nodes))
    return made


def go_on(desk: Desk) -> None:
    """Plan on for jobs that repeat, and close those of which nothing will come."""
    soon = desk.now_ns + AHEAD_NS - 86_400 * _S_NS
    active = job.c.state == "active"
    for row in desk.all(sa.select(job).where(active, job.c.planned_ns < soon)):
        try:
            plan_runs(desk, row)
        except InputError as error:
            desk.note("plan", row["id"], str(error))
    open_runs = sa.select(run.c.job).where(run.c.state.notin_([state.value for state in ENDED]))
    for row in desk.all(sa.select(job).where(active, job.c.id.notin_(open_runs))):
        end_ns = spec_of(row).when.end
        if row["kind"] != JobKind.CRON or (end_ns is not None and end_ns <= desk.now_ns):
            desk.do(sa.update(job).where(job.c.id == row["id"]).values(state="over"))
