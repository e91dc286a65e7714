"""Planning of runs: one run per occurrence of a job in the hours or days to come, and moved runs.

The next 400 occurrences of a job have runs, at most fourteen days ahead: those of an hourly job for
a fortnight, those of a job that runs every minute for 6 h 40 min. The calendar computes occurrences
without runs from the job's specification. Each call plans one piece, so that its transaction is
short; the orchestrator's housekeeping calls until nothing is due.

This module also moves a preempted run of a job with `at` to another time. The calendar has its own
types for reservations: `Plan` for an accepted job, `Booking` for a run whose time differs from its
job's plan.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypedDict

import sqlalchemy as sa

from skyhop.errors import InputError
from skyhop_testbed.calendar import Booking, Plan, nearest_slot, occurrences
from skyhop_testbed.ids import new_id
from skyhop_testbed.job import Job, job_of
from skyhop_testbed.orchestrator.request_context import RequestContext
from skyhop_testbed.store.tables import job, job_node, run
from skyhop_testbed.words import ACTIVE, ENDED, JobKind, State

_S_NS = 1_000_000_000
_DAY_NS = 86_400 * _S_NS
AHEAD_NS = 14 * _DAY_NS
OCCURRENCES_AHEAD = 400
"""Upper limit on a job's occurrences that have a run, from now on."""
_PIECE = 1_000
"""Upper limit on runs planned in one transaction."""
_NEVER_NS = 2**62
_SOONEST_NS = 60 * _S_NS
"""Shortest time between two extensions of a job's plan."""
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


Reservations = tuple[list[Plan], list[Booking]]
"""Jobs as plans, and runs whose time differs from their job's plan as bookings."""


def bookings(
    ctx: RequestContext,
    nodes: Iterable[str],
    *,
    without: str = "",
    known: Reservations = ([], []),
) -> Reservations:
    """Return the reservations of any of these nodes from now on.

    Args:
        ctx: the request.
        nodes: names of the nodes.
        without: id of a job whose reservations are ignored.
        known: reservations that are left out.
    """
    wanted = sorted(set(nodes))
    chosen = sa.select(job_node.c.job).where(job_node.c.node.in_(wanted))
    active = job.c.id.in_(chosen) & (job.c.state == "active") & job.c.overhead
    ignored = {without, *(plan.key for plan in known[0])}
    # A job with `at` has one run, which may have been moved: its booking counts, not its plan.
    ids = ctx.all(sa.select(job.c.id, job.c.kind).where(active))
    single = [row["id"] for row in ids if row["kind"] == JobKind.AT]
    planned = [r["id"] for r in ids if r["kind"] != JobKind.AT and r["id"] not in ignored]
    rows = ctx.all(sa.select(job).where(job.c.id.in_(planned))) if planned else []
    gone: dict[str, set[int]] = {row["id"]: set() for row in rows}
    for each in _ended_early(ctx):
        if each["job"] in gone:
            gone[each["job"]].add(each["start_ns"])
    booked = [
        _booking_of(each)
        for each in _off_plan(ctx, single)
        if each["job"] != without and {each["client"], each["server"]}.intersection(wanted)
    ]
    plans = [plan_of(row, gone[row["id"]]) for row in rows]
    return plans, [each for each in booked if each not in known[1]]


def _ended_early(ctx: RequestContext) -> list[sa.RowMapping]:
    """Return job and start of the runs that ended before their time is over."""
    ended = run.c.state.in_([state.value for state in ENDED])
    return ctx.all(sa.select(run.c.job, run.c.start_ns).where(ended, run.c.end_ns > ctx.now_ns))


def _off_plan(ctx: RequestContext, single: list[str]) -> list[sa.RowMapping]:
    """Return the overhead runs at a time that no active repeating job's plan has.

    These are runs of jobs with `at` or a trigger, and runs of replaced jobs that are in progress. A
    planned run of a trigger reserves nothing.

    Args:
        ctx: the request.
        single: ids of the active jobs with `at` whose planned runs are returned.
    """
    begun = run.c.state.in_([state.value for state in ACTIVE])
    is_repeated = (job.c.kind == JobKind.CRON) & (job.c.state == "active")
    query = sa.select(run).join(job).where(job.c.overhead, begun, ~is_repeated)
    rows = ctx.all(query.where(run.c.end_ns > ctx.now_ns))
    if single:
        # With a limit of their end, or with a subquery, SQLite would read all planned runs.
        planned = run.c.job.in_(single) & (run.c.state == State.PLANNED)
        rows += [r for r in ctx.all(sa.select(run).where(planned)) if r["end_ns"] > ctx.now_ns]
    return rows


def _booking_of(row: sa.RowMapping) -> Booking:
    nodes = frozenset(name for name in (row["client"], row["server"]) if name)
    return Booking(row["job"], row["id"], nodes, row["start_ns"], row["end_ns"])


def plan_runs(ctx: RequestContext, row: sa.RowMapping, most: int | None = None) -> list[str]:
    """Plan the next piece of a job's runs; return the ids of the new runs.

    Args:
        ctx: the request.
        row: the job.
        most: upper limit on new runs of a repeating job, by quotas; None for none.
    """
    spec = spec_of(row)
    if row["kind"] != JobKind.CRON:
        return [] if row["planned_ns"] else _plan_all(ctx, row, spec)
    # Each occurrence has a run per client.
    width = len(spec.nodes)
    wanted = OCCURRENCES_AHEAD - _planned_ahead(ctx, row["id"]) // width
    if most is not None:
        wanted = min(wanted, most // width)
    room = min(wanted, max(1, _PIECE // width))
    planned_ns = ctx.now_ns + AHEAD_NS
    begin_ns = _begin_ns(ctx, row, spec)
    made: list[_NewRun] = []
    for count, each in enumerate(
        occurrences(spec, begin_ns, planned_ns, submitted_ns=row["created_ns"])
    ):
        if count >= room:
            planned_ns = each.start_ns
            break
        made += _new_runs(ctx, row["id"], spec, each.start_ns, each.end_ns)
    is_in_pieces = bool(made) and room < wanted
    pause_ns = min(_DAY_NS, max(_SOONEST_NS, (planned_ns - ctx.now_ns) // 2))
    extend_ns = ctx.now_ns + (0 if is_in_pieces else pause_ns)
    _insert(ctx, spec, made, row["id"], planned_ns=planned_ns, extend_ns=extend_ns)
    return [each.id for each in made]


def occurrences_ahead(ctx: RequestContext, spec: Job) -> int:
    """Return the number of occurrences of a new job that get runs ahead of time."""
    if spec.when.kind is not JobKind.CRON:
        return 1
    times = occurrences(spec, 0, ctx.now_ns + AHEAD_NS, submitted_ns=ctx.now_ns)
    return sum(1 for _ in zip(times, range(OCCURRENCES_AHEAD), strict=False))


def _planned_ahead(ctx: RequestContext, job_id: str) -> int:
    to_come = (run.c.state == State.PLANNED) & (run.c.start_ns >= ctx.now_ns)
    query = sa.select(sa.func.count()).where(run.c.job == job_id, to_come)
    return int(ctx.connection.scalar(query) or 0)


def _begin_ns(ctx: RequestContext, row: sa.RowMapping, spec: Job) -> int:
    """Return the time in ns of the first occurrence to plan.

    Occurrences whose time is over, because the orchestrator was off, get no runs: no node could
    execute them. The audit log has a line about them.
    """
    begin_ns = max(int(row["created_ns"]), int(row["planned_ns"]))
    over_ns = ctx.now_ns - spec.length_ns + 1
    gone = occurrences(spec, begin_ns, over_ns, submitted_ns=row["created_ns"])
    first = next(gone, None) if row["planned_ns"] else None
    if first is None:
        return begin_ns
    count = 1 + sum(1 for _ in gone)
    ctx.audit("plan", row["id"], f"no runs for {count:,} occurrences: the orchestrator was off")
    return over_ns


def _plan_all(ctx: RequestContext, row: sa.RowMapping, spec: Job) -> list[str]:
    """Plan the only occurrence of a job with `at`, or the window of a trigger."""
    made: list[_NewRun] = []
    for each in occurrences(spec, 0, 2**63 - 1, submitted_ns=row["created_ns"]):
        made += _new_runs(ctx, row["id"], spec, each.start_ns, each.end_ns)
    _insert(ctx, spec, made, row["id"], planned_ns=_NEVER_NS, extend_ns=_NEVER_NS)
    return [each.id for each in made]


def _insert(
    ctx: RequestContext, spec: Job, made: list[_NewRun], of_job: str, **times_ns: int
) -> None:
    """Insert new runs of a job, and store up to when it is planned and when to go on."""
    if made:
        ctx.connection.execute(sa.insert(run), [vars(each) for each in made])
        ctx.bump_revision({*spec.nodes, *([spec.server] if spec.server else [])})
    ctx.execute(sa.update(job).where(job.c.id == of_job).values(**times_ns))


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


def later_occurrences(
    ctx: RequestContext, wanted: Iterable[str], from_ns: int, to_ns: int
) -> Iterator[dict[str, Any]]:
    """Yield the occurrences in a time range that have no runs yet, as rows of runs without an id.

    Args:
        ctx: the request.
        wanted: names of nodes, as clients or servers; empty for all.
        from_ns: start of the time range.
        to_ns: end of the time range.
    """
    chosen, names = job.c.kind == JobKind.CRON, sorted(set(wanted))
    if names:
        mine = sa.select(job_node.c.job).where(job_node.c.node.in_(names))
        chosen &= job.c.id.in_(mine)
    unplanned = (job.c.state == "active") & (job.c.planned_ns < to_ns)
    rows = ctx.all(sa.select(job).where(chosen, unplanned).order_by(job.c.id))
    yield from heapq.merge(
        *(_later_of(row, names, from_ns, to_ns) for row in rows), key=lambda each: each["start_ns"]
    )


def _later_of(
    row: sa.RowMapping, names: list[str], from_ns: int, to_ns: int
) -> Iterator[dict[str, Any]]:
    """Yield the occurrences of one job that have no runs yet, in order."""
    spec = spec_of(row)
    begin_ns = max(row["planned_ns"], from_ns - spec.length_ns + 1)
    about = {"id": "", "job_name": row["name"], "state": State.PLANNED.value}
    about |= {"owner": row["owner"], "kind": row["kind"], "overhead": row["overhead"]}
    clients = [name for name in spec.nodes if not names or {name, spec.server} & {*names}]
    for each in occurrences(spec, begin_ns, to_ns, submitted_ns=row["created_ns"]):
        for client in clients:
            times = {"start_ns": each.start_ns, "end_ns": each.end_ns}
            yield {**about, "client": client, "server": spec.server, **times}


def jobs_to_extend(ctx: RequestContext, most: int) -> list[str]:
    """Return the ids of jobs whose plans are due for an extension, the longest due first."""
    due = (job.c.state == "active") & (job.c.extend_ns <= ctx.now_ns)
    query = sa.select(job.c.id).where(due).order_by(job.c.extend_ns, job.c.id)
    return list(ctx.connection.scalars(query.limit(most)))


def extend_plan(ctx: RequestContext, job_id: str, most: int) -> None:
    """Plan a further piece of a repeating job: at most `most` runs."""
    row = ctx.first(sa.select(job).where(job.c.id == job_id, job.c.state == "active"))
    if row is None:
        return
    try:
        plan_runs(ctx, row, most)
    except InputError as error:
        ctx.audit("plan", job_id, str(error))
        later = sa.update(job).where(job.c.id == job_id)
        ctx.execute(later.values(extend_ns=ctx.now_ns + _DAY_NS))


def finished_jobs(ctx: RequestContext) -> list[str]:
    """Return the ids of the active jobs that have no runs to come."""
    open_states = [state.value for state in State if state not in ENDED]
    is_open = sa.exists().where(run.c.job == job.c.id, run.c.state.in_(open_states))
    rows = ctx.all(sa.select(job).where(job.c.state == "active", ~is_open))
    return [row["id"] for row in rows if _is_over(row, ctx.now_ns)]


def _is_over(row: sa.RowMapping, now_ns: int) -> bool:
    end_ns = spec_of(row).when.end
    return row["kind"] != JobKind.CRON or (end_ns is not None and end_ns <= now_ns)


def close_job(ctx: RequestContext, job_id: str) -> None:
    """Mark a job as over."""
    active = (job.c.id == job_id) & (job.c.state == "active")
    ctx.execute(sa.update(job).where(active).values(state="over"))
