"""Runs: claims, state changes reported by nodes, aborts, moves to another time, and lost runs."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from skyhop.errors import InputError
from skyhop_testbed.api import Document, RunDocument, RunFile, RunInfo
from skyhop_testbed.ids import is_id
from skyhop_testbed.orchestrator import access, statements
from skyhop_testbed.orchestrator.reports import FollowUp, RunReport
from skyhop_testbed.orchestrator.request_context import (
    ITSELF,
    DeniedError,
    NotFoundError,
    RequestContext,
    as_json,
)
from skyhop_testbed.states import Change, allowed
from skyhop_testbed.store.tables import artefact, event, job, run
from skyhop_testbed.words import ACTIVE, ENDED, JobKind, Reason, Role, Side, State

_LOG = logging.getLogger(__name__)
_SECOND = 1_000_000_000
_MAX_CLOCK_LEAD_NS = 86_400 * _SECOND
"""Longest time by which a reported change may lie in the future; later changes are refused."""
_MOST_ROWS = 10_000
FILES_SHOWN = 1000
"""Number of files in a run's document."""
_OUTPUTS = ("stdout", "stderr", "manifest.json", "telemetry.parquet")
"""Files that a run's document has, however many files come before them."""
_CLOCK_LIMIT_MS = 100.0
"""Clock offset above which events carry a warning: time stamps are then too inaccurate to relate to
the 15 s reconfiguration of satellite links."""
_LARGEST_FENCE, _LATEST_NS = 2**63, 2**62
_PREEMPTED = frozenset({Reason.SCAVENGER, Reason.BUSY})
"""Reasons that count as preemption: a run of a job with `at` is then moved to another time."""


def get(ctx: RequestContext, name: str) -> sa.RowMapping:
    """Return a run's row.

    Raises:
        NotFoundError: there is no such run.
    """
    row = ctx.first(statements.RUN, name=name) if is_id(name) else None
    if row is None:
        raise NotFoundError(f"there is no run {name[:40]}")
    return row


def apply(
    ctx: RequestContext, row: sa.RowMapping, change: Change, fence: int | None = None
) -> State:
    """Apply a state change to a run, and log it as an event; return the resulting state.

    A change that the state machine does not allow has no effect and is logged with `applied` false.
    It happens when a node reports on a run that was ended meanwhile.

    Args:
        ctx: the request.
        row: the run.
        change: the change.
        fence: fencing token of a claim, which the run then has whatever its state.
    """
    before = State(row["state"])
    change = _moved_if_preempted(ctx, row, change) if allowed(before, change.state) else change
    applied = allowed(before, change.state)
    reason = change.reason.value if change.reason else None
    ctx.execute(
        statements.ADD_EVENT,
        run=row["id"],
        at_ns=change.at_ns,
        received_ns=ctx.now_ns,
        actor=change.actor,
        state=change.state.value,
        reason=reason,
        details=as_json(change.details),
        applied=applied,
    )
    ctx.changed_runs.add(row["id"])
    _LOG.info("run %s %s by %s applied=%s", row["id"], change.state.value, change.actor, applied)
    new = {key: row[key] for key in ("state", "reason", "end_ns", "fence")}
    if fence is not None:
        new["fence"] = fence
    if applied:
        new["state"] = change.state.value
        if reason is not None or change.state in ENDED:
            new["reason"] = reason
        if change.state in ENDED and change.at_ns < row["end_ns"] and before is not State.PLANNED:
            # The run ended early; the rest of its reserved time is free again.
            new["end_ns"] = max(change.at_ns, row["start_ns"] + 1)
    if applied or fence is not None:
        values = {f"new_{key}": value for key, value in new.items()}
        ctx.execute(statements.CHANGE_RUN, name=row["id"], **values)
    if not applied:
        return before
    if before is State.LOST:
        ctx.bump_revision(nodes_of(row))
    elif change.state in ENDED:
        # The node that reports the end knows it.
        reporter = ctx.caller.name if ctx.caller.role is Role.NODE else ""
        ctx.bump_revision(nodes_of(row) - {reporter})
    return change.state


def _moved_if_preempted(ctx: RequestContext, row: sa.RowMapping, change: Change) -> Change:
    """Return the change.

    If it preempts an `at` run, move the run and return a rescheduling instead.
    """
    stopped = change.state in (State.ABORTED, State.SKIPPED) and change.reason in _PREEMPTED
    if not stopped:
        return change
    found = ctx.first(statements.JOB, name=row["job"])
    if found is None or found["kind"] != JobKind.AT or found["state"] != "active":
        return change
    from skyhop_testbed.orchestrator.planning import move_run, soonest_ns

    moved = move_run(ctx, row, found, soonest_ns(ctx, change.at_ns))
    details = {**change.details, "because": change.reason.value if change.reason else None}
    if moved is None:
        return Change(change.at_ns, change.state, change.actor, Reason.NO_SLOT, details)
    details |= {"run": moved["id"], "start_ns": moved["start_ns"]}
    return Change(change.at_ns, State.RESCHEDULED, change.actor, change.reason, details)


def claim(ctx: RequestContext, name: str, fence: int, at_ns: int) -> tuple[bool, str]:
    """Grant a run to its client node, which may then execute it.

    Args:
        ctx: the request of the node.
        name: id of the run.
        fence: fencing token, chosen by the node and stored there before the call; a repeated call
            with the same token is the same claim.
        at_ns: time of the claim by the node's clock.

    Returns:
        whether the claim is granted, and the reason if it is not.
    """
    row = get(ctx, name)
    if row["client"] != ctx.caller.name:
        return False, "it is another node's"
    state = State(row["state"])
    if state in ACTIVE and row["fence"] == fence:
        return True, ""
    if state not in (State.PLANNED, State.ARMED):
        return False, f"it is {state.value}"
    if fence <= row["fence"]:
        return False, "a newer claim was granted"
    why = _why_not_run(ctx, row)
    if why is not None:
        change = Change(ctx.now_ns, State.SKIPPED, ITSELF.actor, Reason.REFUSED, {"text": why})
        apply(ctx, row, change)
        return False, why
    details = {"fence": fence, **_clock_of(ctx)}
    apply(ctx, row, Change(at_ns, State.CLAIMED, ctx.caller.actor, None, details), fence)
    return True, ""


def _why_not_run(ctx: RequestContext, row: sa.RowMapping) -> str | None:
    """Return why the results of a run would not be accepted; None if they would be."""
    from skyhop_testbed.orchestrator.quotas import why_not_run

    owner = ctx.scalar(statements.OWNER, name=row["job"])
    return why_not_run(ctx, str(owner), row["client"])


def apply_report(ctx: RequestContext, report: RunReport) -> tuple[sa.RowMapping, State]:
    """Apply a node's report of a state change; return the run's row before it, and its state now.

    Raises:
        InputError: the report is invalid, or the node may not report this change.
    """
    if report.new:
        _insert_follow_up(ctx, report.new)
    change = report.change
    if not 0 <= change.at_ns <= ctx.now_ns + _MAX_CLOCK_LEAD_NS:
        raise InputError(f"run {report.run[:40]}: invalid time of a change: {change.at_ns}")
    row = get(ctx, report.run)
    if ctx.caller.name not in (row["client"], row["server"]):
        raise InputError(f"run {row['id']} does not run on {ctx.caller.name}")
    if row["client"] != ctx.caller.name and change.state in ENDED | {State.CLAIMED}:
        raise InputError(f"run {row['id']}: its server {ctx.caller.name} may not claim or end it")
    change = Change(change.at_ns, change.state, ctx.caller.actor, change.reason, change.details)
    fence = change.details.get("fence")
    if change.state is State.CLAIMED and isinstance(fence, int):
        if not 0 < fence < _LARGEST_FENCE:
            raise InputError(f"run {row['id']}: invalid fence {str(fence)[:40]}")
        if State(row["state"]) is State.CLAIMED and row["fence"] == fence:
            # The claim was granted already, but the reply did not reach the node.
            return row, State.CLAIMED
    else:
        fence = None
    row = _with_trigger_times(ctx, row, change)
    if change.state is State.CLAIMED:
        change = replace(change, details={**change.details, **_clock_of(ctx)})
    return row, apply(ctx, row, change, fence)


def clock_off_ms(health: Document) -> float | None:
    """Return the clock offset in ms that a node reports, if it deserves a warning; else `None`."""
    offset_ms = health.get("clock_offset_ms")
    if not isinstance(offset_ms, int | float) or not abs(offset_ms) > _CLOCK_LIMIT_MS:
        return None
    return float(offset_ms)


def _clock_of(ctx: RequestContext) -> dict[str, float]:
    """Return the event detail `clock_offset_ms` of the calling node.

    Empty if its clock is accurate.
    """
    health = ctx.scalar(statements.HEALTH, node=ctx.caller.name)
    off_ms = clock_off_ms(json.loads(health or "{}"))
    return {} if off_ms is None else {"clock_offset_ms": off_ms}


def _with_trigger_times(ctx: RequestContext, row: sa.RowMapping, change: Change) -> sa.RowMapping:
    """Replace the trigger's window in a run's row by the run's actual times; return the row."""
    times = [change.details.get(key) for key in ("start_ns", "end_ns")]
    begins = change.state in (State.CLAIMED, State.DEPLOYING)
    if not begins or not all(isinstance(time_ns, int) for time_ns in times):
        return row
    start_ns, end_ns = (int(time_ns) for time_ns in times if time_ns is not None)
    kind = ctx.connection.scalar(sa.select(job.c.kind).where(job.c.id == row["job"]))
    if kind != JobKind.TRIGGER or not row["start_ns"] <= start_ns < end_ns < _LATEST_NS:
        return row
    chosen = sa.update(run).where(run.c.id == row["id"])
    ctx.execute(chosen.values(start_ns=start_ns, end_ns=end_ns))
    return get(ctx, row["id"])


def _insert_follow_up(ctx: RequestContext, new_run: FollowUp) -> None:
    """Insert a run that a node created: the next run within a trigger's window."""
    name, after = new_run.run, new_run.after
    if not is_id(name) or ctx.first(sa.select(run.c.id).where(run.c.id == name)):
        return
    old = get(ctx, after)
    found = ctx.first(sa.select(job).where(job.c.id == old["job"]))
    if old["client"] != ctx.caller.name or found is None or found["kind"] != JobKind.TRIGGER:
        raise InputError(f"run {name}: {after[:40]} is not a triggered run of {ctx.caller.name}")
    row = {key: old[key] for key in ("job", "client", "server")}
    start_ns, end_ns = new_run.start_ns, new_run.end_ns
    if not 0 <= start_ns < end_ns < _LATEST_NS:
        raise InputError(f"run {name}: invalid window from {start_ns} to {end_ns}")
    row |= {"start_ns": start_ns, "end_ns": end_ns, "after": after}
    ctx.execute(
        sa.insert(run).values(id=name, state=State.PLANNED, created_ns=ctx.now_ns, fence=0, **row)
    )


def abort(ctx: RequestContext, name: str, reason: str) -> RunDocument:
    """Abort a run, planned or in progress; return the run's document.

    Raises:
        NotFoundError: there is no such run.
        DeniedError: the caller owns neither its job nor one of its nodes.
        InputError: the run has ended.
    """
    row = get(ctx, name)
    why = _stop_reason(ctx, row)
    if State(row["state"]) in ENDED:
        raise InputError(f"run {name} has ended: it is {row['state']}")
    apply(
        ctx,
        row,
        Change(ctx.now_ns, State.ABORTED, ctx.caller.actor, why, {"text": reason[:200]}),
    )
    end_tasks(ctx, name)
    ctx.bump_revision(nodes_of(row))
    return document(ctx, name)


def reschedule(ctx: RequestContext, name: str, from_ns: int = 0) -> RunDocument:
    """Move a planned run of a job with `at` to the nearest free time.

    Return the new run's document.

    Args:
        ctx: the request of the job's owner or an administrator.
        name: id of the run.
        from_ns: earliest start; 0 for `reschedule_after_s` from now.

    Raises:
        NotFoundError, DeniedError: there is no such run, or its job has another owner.
        InputError: the run has begun or ended, its job has no `at`, or there is no free time.
    """
    from skyhop_testbed.orchestrator.planning import move_run, soonest_ns

    row = get(ctx, name)
    found = ctx.first(statements.JOB, name=row["job"])
    assert found is not None, "runs are of jobs"
    access.check_owns_job(ctx, found["owner"], f"run {name}")
    if State(row["state"]) is not State.PLANNED:
        raise InputError(f"run {name} is {row['state']}: only planned runs can be moved")
    if found["kind"] != JobKind.AT or found["state"] != "active":
        raise InputError(
            f"run {name}: only runs of jobs with `at` can be moved: change its job instead"
        )
    earliest_ns = max(from_ns, ctx.now_ns) if from_ns else soonest_ns(ctx)
    moved = move_run(ctx, row, found, earliest_ns, without=row["job"])
    if moved is None:
        raise InputError(f"run {name}: its nodes have no free time left before the end of its job")
    details = {"run": moved["id"], "start_ns": moved["start_ns"]}
    apply(ctx, row, Change(ctx.now_ns, State.RESCHEDULED, ctx.caller.actor, Reason.USER, details))
    return document(ctx, moved["id"])


def _stop_reason(ctx: RequestContext, row: sa.RowMapping) -> Reason:
    owner = ctx.scalar(statements.OWNER, name=row["job"])
    if ctx.caller.is_admin or owner == ctx.caller.name:
        return Reason.USER
    if any(access.owns_node(ctx, node) for node in (row["client"], row["server"]) if node):
        return Reason.OWNER
    raise DeniedError(f"run {row['id']} is not yours")


def end_tasks(ctx: RequestContext, name: str) -> None:
    """Close the open task of a run that starts its server; its stop has to reach the server."""
    ctx.execute(statements.END_TASK, name=name)


def skip_planned(ctx: RequestContext, of_job: str, reason: Reason) -> None:
    """Skip all planned runs of a job, with an event for each: as `apply`, but in few statements."""
    waiting = (run.c.job == of_job) & (run.c.state == State.PLANNED)
    ids = list(ctx.connection.scalars(sa.select(run.c.id).where(waiting)))
    if not ids:
        return
    values = {"at_ns": ctx.now_ns, "received_ns": ctx.now_ns, "actor": ctx.caller.actor}
    values |= {"state": State.SKIPPED.value, "reason": reason.value, "details": "{}"}
    made = [{"run": each, "applied": True, **values} for each in ids]
    ctx.connection.execute(sa.insert(event), made)
    skipped = sa.update(run).where(waiting)
    ctx.execute(skipped.values(state=State.SKIPPED.value, reason=reason.value))
    ctx.changed_runs.update(ids)
    _LOG.info("job %s: %s planned runs skipped by %s", of_job, len(ids), ctx.caller.actor)


def nodes_of(row: sa.RowMapping) -> set[str]:
    """Return the names of a run's client and server node."""
    return {name for name in (row["client"], row["server"]) if name}


def find_lost(ctx: RequestContext, most: int = 100) -> int:
    """Mark as lost runs whose end and last event are both longer ago than `lost_after_s`.

    Args:
        ctx: the request.
        most: upper limit on marked runs.

    Returns:
        their number.
    """
    before_ns = ctx.now_ns - round(ctx.settings.lost_after_s * _SECOND)
    last = (
        sa.select(sa.func.max(event.c.received_ns)).where(event.c.run == run.c.id).scalar_subquery()
    )
    waiting = [State.PLANNED.value, State.ARMED.value, *(state.value for state in ACTIVE)]
    query = (
        sa.select(run)
        .where(run.c.state.in_(waiting), run.c.end_ns < before_ns)
        .where(sa.func.coalesce(last, run.c.created_ns) < before_ns)
        .limit(most)
    )
    rows = ctx.all(query)
    for row in rows:
        apply(ctx, row, Change(ctx.now_ns, State.LOST, ITSELF.actor, Reason.OFFLINE))
        end_tasks(ctx, row["id"])
    return len(rows)


def may_see(ctx: RequestContext, row: Mapping[str, Any] | sa.RowMapping, owner: str) -> bool:
    """Return whether the caller may see a run's details; all users may know that the run exists."""
    if ctx.caller.role is Role.ADMIN or owner == ctx.caller.name:
        return True
    return any(access.owns_node(ctx, node) for node in (row["client"], row["server"]) if node)


def check_files(ctx: RequestContext, name: str) -> sa.RowMapping:
    """Return the row of a run whose files the caller may read.

    Files are for the job's owner and administrators, not for owners of nodes.

    Raises:
        NotFoundError, DeniedError: there is no such run, or its job has another owner.
    """
    row = get(ctx, name)
    owner = ctx.scalar(statements.OWNER, name=row["job"])
    access.check_owns_job(ctx, str(owner), f"run {name}")
    return row


def files(
    ctx: RequestContext, name: str, after: tuple[str, str] = ("", ""), limit: int = FILES_SHOWN
) -> list[RunFile]:
    """Return files of a run in the order of their sides and names.

    Args:
        ctx: the request.
        name: the run's id.
        after: side and name of the file after which the list begins.
        limit: upper limit on files.

    Raises:
        NotFoundError, DeniedError: there is no such run, or the caller may not see it.
    """
    row = get(ctx, name)
    owner = ctx.scalar(statements.OWNER, name=row["job"])
    if owner is None or not may_see(ctx, row, owner):
        raise DeniedError(f"run {name} is not yours")
    place = sa.tuple_(artefact.c.side, artefact.c.name)
    query = sa.select(artefact).where(artefact.c.run == name, place > sa.tuple_(*after))
    query = query.order_by(artefact.c.side, artefact.c.name).limit(limit)
    return [RunFile(**each) for each in ctx.all(query)]


def document(ctx: RequestContext, name: str) -> RunDocument:
    """Return a run with its events, its files and its job's specification.

    Raises:
        NotFoundError, DeniedError: there is no such run, or the caller may not see it.
    """
    row = get(ctx, name)
    found = ctx.first(statements.JOB, name=row["job"])
    if found is None or not may_see(ctx, row, found["owner"]):
        raise DeniedError(f"run {name} is not yours")
    events = ctx.all(sa.select(event).where(event.c.run == name).order_by(event.c.id))
    shown = files(ctx, name)
    count, total = ctx.connection.execute(
        sa.select(sa.func.count(), sa.func.sum(artefact.c.size)).where(artefact.c.run == name)
    ).one()
    if count > len(shown):
        known = {(each.side, each.name) for each in shown}
        outputs = (artefact.c.run == name) & artefact.c.name.in_(_OUTPUTS)
        more = [RunFile(**each) for each in ctx.all(sa.select(artefact).where(outputs))]
        shown += [each for each in more if (each.side, each.name) not in known]
    return RunDocument.model_validate(
        {
            **row,
            **{"job_name": found["name"], "owner": found["owner"], "kind": found["kind"]},
            "events": [{**e, "details": json.loads(e["details"])} for e in events],
            "files": [dict(each) for each in shown],
            "file_count": count,
            "file_bytes": total or 0,
            "spec": json.loads(found["spec"]),
        }
    )


def listing(
    ctx: RequestContext,
    *,
    of_job: str = "",
    node: str = "",
    user: str = "",
    states: Iterable[str] = (),
    from_ns: int = 0,
    to_ns: int = 0,
    limit: int = 0,
) -> list[RunInfo]:
    """Return runs that the caller may see, latest first.

    Without `states`, only the next planned run of each job on each node is included: a job that
    runs every minute has thousands of planned runs.

    Args:
        ctx: the request.
        of_job: id or name of a job; "" for all.
        node: client or server node; "" for all.
        user: owner of the job; "" for all.
        states: states of the runs; empty for all.
        from_ns: start of the time range: runs that end before it are left out; 0 for no limit.
        to_ns: end of the time range: runs that start after it are left out; 0 for no limit.
        limit: upper limit on rows; 0 for 100.

    Raises:
        InputError: there is no such state.
    """
    for state in states:
        if state not in list(State):
            raise InputError(
                f'state: "{state[:40]}" is not a state; choose from {", ".join(State)}'
            )
    query = sa.select(run, job.c.name.label("job_name"), job.c.owner, job.c.kind).join(job)
    if not ctx.caller.is_admin:
        mine = access.my_nodes(ctx)
        query = query.where(
            sa.or_(job.c.owner == ctx.caller.name, run.c.client.in_(mine), run.c.server.in_(mine))
        )
    for wanted, clause in (
        (of_job, sa.or_(job.c.name == of_job, job.c.id == of_job)),
        (node, sa.or_(run.c.client == node, run.c.server == node)),
        (user, job.c.owner == user),
        (from_ns, run.c.end_ns > from_ns),
        (to_ns, run.c.start_ns < to_ns),
        (list(states), run.c.state.in_(list(states))),
    ):
        query = query.where(clause) if wanted else query
    if not states:
        query = query.where(~_after_next_planned(ctx.now_ns))
    query = query.order_by(run.c.start_ns.desc(), run.c.id.desc()).limit(row_limit(limit, 100))
    return [RunInfo.model_validate(dict(row)) for row in ctx.all(query)]


def row_limit(requested: int, usual: int) -> int:
    """Return the number of rows to list: `requested`, or `usual` if that is 0, capped."""
    return min(requested if requested > 0 else usual, _MOST_ROWS)


def _after_next_planned(now_ns: int) -> sa.ColumnElement[bool]:
    """Return an SQL condition: the run is planned, and not its job's next run on its client."""
    to_come = (run.c.state == State.PLANNED) & (run.c.start_ns > now_ns)
    first = sa.func.min(run.c.start_ns)
    next_ones = sa.select(run.c.job, run.c.client, first).where(to_come)
    key = sa.tuple_(run.c.job, run.c.client, run.c.start_ns)
    return to_come & key.not_in(next_ones.group_by(run.c.job, run.c.client))


def side_of(row: sa.RowMapping, node: str) -> Side | None:
    """Return the side (client or server) of a run that a node executes; `None` if neither."""
    if node == row["client"]:
        return Side.CLIENT
    return Side.SERVER if node == row["server"] else None
