"""Planning of runs: one run per occurrence of a job in the next fourteen days, and moved runs.

This module also moves a preempted run of a job with `at` to another time, and writes the schedules
of nodes. The calendar has its own
types for reservations: `Plan` for an accepted job, `Booking` for a run whose time differs from its
job's plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypedDict

import sqlalchemy as sa

from skyhop.errors import InputError
from skyhop_testbed.calendar import Booking, Plan, nearest_slot, occurrences
from skyhop_testbed.ids import new_id
from skyhop_testbed.job import Job, job_of
from skyhop_testbed.orchestrator.marks import node_marks
from skyhop_testbed.orchestrator.request_context import RequestContext
from skyhop_testbed.schedule import (
    InputFile,
    NodeSchedule,
    NodeSettings,
    ScheduledJob,
    ScheduledRun,
)
from skyhop_testbed.store.tables import job, job_file, job_node, node, run, user
from skyhop_testbed.words import ACTIVE, ENDED, JobKind, Role, ScavengerMode, State

_S_NS = 1_000_000_000
AHEAD_NS = 14 * 86_400 * _S_NS
_MAX_OCCURRENCES = 2_000
"""Upper limit on runs planned in one pass; further runs are planned in a later pass."""
_MOST_RUNS = 2_000
"""Upper limit on runs in one schedule; later schedules carry the later runs."""
_RESERVING_STATES = [State.PLANNED.value, *(state.value for state in ACTIVE)]


def spec_of(row: sa.RowMapping) -> Job:
    """Return the job specification that a row of the table `job` holds."""
    return job_of(json.loads(row["spec"]), f"job {row['name']}")


def plan_of(row: sa.RowMapping, gone: Iterable[int] = ()) -> Plan:
    """Return a job as a calendar plan.

    Args:
        row: the job.
        gone: start times of occurrences that no longer reserve their nodes.
    """
    return Plan(row["id"], spec_of(row), row["created_ns"], frozenset(gone))


def bookings(
    ctx: RequestContext, nodes: Iterable[str], *, without: str = ""
) -> tuple[list[Plan], list[Booking]]:
    """Return the reservations of any of these nodes from now on.

    Args:
        ctx: the request.
        nodes: names of the nodes.
        without: id of a job whose reservations are ignored.

    Returns:
        jobs as plans; runs whose time differs from their job's plan as bookings.
    """
    wanted = sorted(set(nodes))
    chosen = sa.select(job_node.c.job).where(job_node.c.node.in_(wanted))
    rows = ctx.all(
        sa.select(job).where(
            job.c.id.in_(chosen), job.c.state == "active", job.c.overhead, job.c.id != without
        )
    )
    ids = [row["id"] for row in rows]
    table = ctx.all(
        sa.select(run, job.c.kind)
        .join(job)
        .where(run.c.end_ns > ctx.now_ns, job.c.overhead, run.c.job != without)
        .where(sa.or_(run.c.client.in_(wanted), run.c.server.in_(wanted)))
    )
    gone: dict[str, set[int]] = {name: set() for name in ids}
    booked = []
    for each in table:
        state = State(each["state"])
        if each["job"] in gone and (state in ENDED or each["kind"] == JobKind.AT):
            gone[each["job"]].add(each["start_ns"])
        off_plan = each["job"] not in gone or each["kind"] != JobKind.CRON
        if (
            state.value in _RESERVING_STATES
            and off_plan
            and not (state is State.PLANNED and each["kind"] == JobKind.TRIGGER)
        ):
            booked.append(_booking_of(each))
    # A job with `at` has one run, which may have been moved: its booking counts, not its plan.
    plans = [plan_of(row, gone[row["id"]]) for row in rows if row["kind"] != JobKind.AT]
    return plans, booked


def _booking_of(row: sa.RowMapping) -> Booking:
    nodes = frozenset(name for name in (row["client"], row["server"]) if name)
    return Booking(row["job"], row["id"], nodes, row["start_ns"], row["end_ns"])


def plan_runs(ctx: RequestContext, row: sa.RowMapping) -> list[str]:
    """Plan a job's runs up to the planning horizon; return the ids of the new runs."""
    spec = spec_of(row)
    first = not row["planned_ns"]
    if not first and row["kind"] != JobKind.CRON:
        return []
    begin_ns = max(row["created_ns"], row["planned_ns"])
    if row["kind"] == JobKind.CRON:
        end_ns = ctx.now_ns + AHEAD_NS
    else:
        begin_ns, end_ns = 0, 2**63 - 1
    made: list[_NewRun] = []
    planned_ns = end_ns
    for each in occurrences(spec, begin_ns, end_ns, submitted_ns=row["created_ns"]):
        if len(made) >= _MAX_OCCURRENCES:
            planned_ns = each.start_ns
            break
        made += _new_runs(ctx, row["id"], spec, each.start_ns, each.end_ns)
    if made:
        ctx.connection.execute(sa.insert(run), [vars(each) for each in made])
    values = {"planned_ns": min(planned_ns, 2**62)}
    ctx.execute(sa.update(job).where(job.c.id == row["id"]).values(**values))
    if made:
        ctx.bump_revision({*spec.nodes, *([spec.server] if spec.server else [])})
    return [each.id for each in made]


@dataclass(frozen=True)
class _NewRun:
    """Row of the table `run` for a new run, which no node has claimed."""

    id: str
    job: str
    client: str
    server: str | None
    start_ns: int
    end_ns: int
    created_ns: int
    after: str | None = None
    state: State = State.PLANNED
    fence: int = 0


def _new_runs(
    ctx: RequestContext, job_id: str, spec: Job, start_ns: int, end_ns: int
) -> list[_NewRun]:
    """Return the runs of one occurrence: one run per client node of the job."""
    now_ns = ctx.now_ns
    return [
        _NewRun(new_id(now_ns), job_id, client, spec.server, start_ns, end_ns, now_ns)
        for client in spec.nodes
    ]


def next_slot(
    ctx: RequestContext,
    nodes: Iterable[str],
    length: int,
    from_ns: int,
    end_ns: int | None,
    *,
    without: str = "",
) -> int | None:
    """Return the next time at which all nodes are free for `length` ns, or None."""
    wanted = frozenset(nodes)
    plans, booked = bookings(ctx, wanted, without=without)
    return nearest_slot(plans, booked, wanted, length_ns=length, from_ns=from_ns, end_ns=end_ns)


def soonest_ns(ctx: RequestContext, at_ns: int = 0) -> int:
    """Return the earliest start of a run that replaces one preempted at `at_ns` (default: now)."""
    return max(at_ns, ctx.now_ns) + round(ctx.settings.reschedule_after_s * _S_NS)


class MovedRun(TypedDict):
    """Id and times of a run that replaces another."""

    id: str
    start_ns: int
    end_ns: int


def move_run(
    ctx: RequestContext, row: sa.RowMapping, of: sa.RowMapping, from_ns: int, *, without: str = ""
) -> MovedRun | None:
    """Plan a replacement of a run on the same nodes, at the nearest free time.

    Args:
        ctx: the request.
        row: the run to replace.
        of: the job of the run.
        from_ns: earliest start.
        without: id of a job whose reservations are ignored.

    Returns:
        the new run, or None if there is no free time.
    """
    spec = spec_of(of)
    nodes = [name for name in (row["client"], row["server"]) if name]
    length = spec.length_ns
    start_ns = next_slot(ctx, nodes, length, from_ns, spec.when.end, without=without)
    if start_ns is None:
        return None
    made = _NewRun(
        new_id(ctx.now_ns), row["job"], row["client"], row["server"], start_ns, start_ns + length,
        ctx.now_ns, row["id"],
    )  # fmt: skip
    ctx.execute(sa.insert(run).values(**vars(made)))
    ctx.bump_revision(set(nodes))
    return {"id": made.id, "start_ns": made.start_ns, "end_ns": made.end_ns}


def extend_plans(ctx: RequestContext) -> None:
    """Plan further runs of repeating jobs, and close jobs that have no future runs."""
    soon = ctx.now_ns + AHEAD_NS - 86_400 * _S_NS
    active = job.c.state == "active"
    for row in ctx.all(sa.select(job).where(active, job.c.planned_ns < soon)):
        try:
            plan_runs(ctx, row)
        except InputError as error:
            ctx.audit("plan", row["id"], str(error))
    open_runs = sa.select(run.c.job).where(run.c.state.notin_([state.value for state in ENDED]))
    for row in ctx.all(sa.select(job).where(active, job.c.id.notin_(open_runs))):
        end_ns = spec_of(row).when.end
        if row["kind"] != JobKind.CRON or (end_ns is not None and end_ns <= ctx.now_ns):
            ctx.execute(sa.update(job).where(job.c.id == row["id"]).values(state="over"))


def node_schedule(ctx: RequestContext, row: sa.RowMapping) -> NodeSchedule:
    """Return a node's schedule: its unfinished runs, their jobs, its policy and the settings.

    Runs in which the node is only the server are included, so that the node keeps their time free.
    """
    name, ended = row["name"], [state.value for state in ENDED]
    mine = ctx.all(
        sa.select(run, node.c.address.label("server_address"))
        .join(node, node.c.name == run.c.server, isouter=True)
        .where((run.c.client == name) | (run.c.server == name), run.c.state.notin_(ended))
        .order_by(run.c.start_ns, run.c.id)
        .limit(_MOST_RUNS)
    )
    settings = ctx.settings
    return NodeSchedule(
        node=name,
        revision=row["revision"],
        issued_ns=ctx.now_ns,
        jobs={each: scheduled_job(ctx, each) for each in sorted({r["job"] for r in mine})},
        runs=[ScheduledRun.model_validate(dict(each)) for each in mine],
        policy=json.loads(row["policy"]),
        scavenger_mode=ScavengerMode(row["scavenger_mode"]),
        settings=NodeSettings(
            heartbeat_s=settings.heartbeat_s,
            late_s=settings.late_s,
            reschedule_after_s=settings.reschedule_after_s,
            **node_marks(ctx.connection),
        ),
    )


def scheduled_job(ctx: RequestContext, name: str) -> ScheduledJob:
    """Return a job, by its id, in the form that orders to nodes contain."""
    row = ctx.first(sa.select(job, user.c.role).join(user).where(job.c.id == name))
    assert row is not None
    files = ctx.all(sa.select(job_file).where(job_file.c.job == name))
    return ScheduledJob(
        owner=row["owner"],
        priv=row["role"] in (Role.ADMIN, Role.USER_PRIV),
        spec=spec_of(row),
        files={f["name"]: InputFile(size=f["size"], sha256=f["sha256"]) for f in files},
    )
