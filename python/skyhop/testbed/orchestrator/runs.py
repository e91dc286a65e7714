"""Runs: what is told of them, and what becomes of those that were stopped or never heard of."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from skyhop.errors import InputError
from skyhop.testbed.ids import is_id
from skyhop.testbed.orchestrator import access
from skyhop.testbed.orchestrator.desk import ITSELF, DeniedError, Desk, NotFoundError, as_json
from skyhop.testbed.states import Change, allowed
from skyhop.testbed.store.tables import artefact, event, job, node, run, task
from skyhop.testbed.words import ACTIVE, ENDED, JobKind, Reason, Role, Side, State

_SECOND = 1_000_000_000
_FAST_NS = 86_400 * _SECOND
"""No node's clock is so far ahead."""
_MOST_ROWS = 10_000
_CLOCK_LIMIT_MS = 100.0
"""What happens every 15 s in the sky cannot be told from runs whose clock is further off."""
_LARGEST_FENCE, _LATEST_NS = 2**63, 2**62
_MADE_ROOM = frozenset({Reason.SCAVENGER, Reason.BUSY})
"""Why a run that happens once is given another time."""


def get(desk: Desk, name: str) -> sa.RowMapping:
    """Return a run.

    Raises:
        NotFoundError: there is none.
    """
    row = desk.one(sa.select(run).where(run.c.id == name)) if is_id(name) else None
    if row is None:
        raise NotFoundError(f"there is no run {name[:40]}")
    return row


def apply(desk: Desk, row: sa.RowMapping, change: Change) -> State:
    """Enter a change into a run's life; return its state then.

    What its life does not allow (a node tells of a run that was ended meanwhile) is kept beside,
    and changes nothing.
    """
    before = State(row["state"])
    change = _with_another_time(desk, row, change) if allowed(before, change.state) else change
    applied = allowed(before, change.state)
    desk.do(
        sa.insert(event).values(
            run=row["id"],
            at_ns=change.at_ns,
            received_ns=desk.now_ns,
            actor=change.actor,
            state=change.state.value,
            reason=change.reason.value if change.reason else None,
            details=as_json(change.details),
            applied=applied,
        )
    )
    desk.watched.add(row["id"])
    if not applied:
        return before
    values: dict[str, Any] = {"state": change.state.value}
    if change.reason is not None or change.state in ENDED:
        values["reason"] = change.reason.value if change.reason else None
    if change.state in ENDED and change.at_ns < row["end_ns"] and before is not State.PLANNED:
        # What is left of its time is free again.
        values["end_ns"] = max(change.at_ns, row["start_ns"] + 1)
    desk.do(sa.update(run).where(run.c.id == row["id"]).values(**values))
    if change.state in ENDED or before is State.LOST:
        desk.touch(nodes_of(row))
    return change.state


def _with_another_time(desk: Desk, row: sa.RowMapping, change: Change) -> Change:
    """Return the change, or that a run which had to make room begins anew later."""
    stopped = change.state in (State.ABORTED, State.SKIPPED) and change.reason in _MADE_ROOM
    if not stopped:
        return change
    found = desk.one(sa.select(job).where(job.c.id == row["job"]))
    if found is None or found["kind"] != JobKind.AT or found["state"] != "active":
        return change
    from skyhop.testbed.orchestrator.planning import move_run, soonest_ns

    moved = move_run(desk, row, found, soonest_ns(desk, change.at_ns))
    details = {**change.details, "because": change.reason.value if change.reason else None}
    if moved is None:
        return Change(change.at_ns, change.state, change.actor, Reason.NO_SLOT, details)
    details |= {"run": moved["id"], "start_ns": moved["start_ns"]}
    return Change(change.at_ns, State.RESCHEDULED, change.actor, change.reason, details)


def claim(desk: Desk, name: str, fence: int, at_ns: int) -> tuple[bool, str]:
    """Give a run to its node.

    Args:
        desk: the node's.
        name: the run's.
        fence: a number of the node's making, kept there before it asks: the same one twice is the
            same claim.
        at_ns: when it took it.

    Returns:
        whether it is granted, and why not.
    """
    row = get(desk, name)
    if row["client"] != desk.caller.name:
        return False, "it is another node's"
    state = State(row["state"])
    if state in ACTIVE and row["fence"] == fence:
        return True, ""
    if state not in (State.PLANNED, State.ARMED):
        return False, f"it is {state.value}"
    if fence <= row["fence"]:
        return False, "a newer claim was granted"
    desk.do(sa.update(run).where(run.c.id == name).values(fence=fence))
    details = {"fence": fence, **_clock_of(desk)}
    apply(desk, row, Change(at_ns, State.CLAIMED, desk.caller.actor, None, details))
    return True, ""


def told(desk: Desk, body: dict[str, Any]) -> None:
    """Enter what a node tells of a run, one that it made itself among them.

    Raises:
        InputError: it is not that node's to tell.
    """
    made = body.get("new")
    if made:
        _adopt(desk, made)
    change = Change.from_json(body["change"])
    if not 0 <= change.at_ns <= desk.now_ns + _FAST_NS:
        raise InputError(f"a change of run {str(body['run'])[:40]} is of no time: {change.at_ns}")
    row = get(desk, str(body["run"]))
    if desk.caller.name not in (row["client"], row["server"]):
        raise InputError(f"run {row['id']} is not {desk.caller.name}'s")
    if row["client"] != desk.caller.name and change.state in ENDED | {State.CLAIMED}:
        raise InputError(f"run {row['id']} is only served by {desk.caller.name}")
    change = Change(change.at_ns, change.state, desk.caller.actor, change.reason, change.details)
    fence = change.details.get("fence")
    if change.state is State.CLAIMED and isinstance(fence, int):
        if not 0 < fence < _LARGEST_FENCE:
            raise InputError(f"run {row['id']}: no fence is {str(fence)[:40]}")
        if State(row["state"]) is State.CLAIMED and row["fence"] == fence:
            # Granted before; the node could not know.
            return
        desk.do(sa.update(run).where(run.c.id == row["id"]).values(fence=fence))
    row = _at_its_time(desk, row, change)
    if change.state is State.CLAIMED:
        change = replace(change, details={**change.details, **_clock_of(desk)})
    apply(desk, row, change)


def clock_off_ms(health: dict[str, Any]) -> float | None:
    """Return how wrong a node's clock is, by what it told, where that is enough to warn of."""
    offset_ms = health.get("clock_offset_ms")
    if not isinstance(offset_ms, int | float) or not abs(offset_ms) > _CLOCK_LIMIT_MS:
        return None
    return float(offset_ms)


def _clock_of(desk: Desk) -> dict[str, float]:
    """Return what stands in the events of a run of the calling node about its clock."""
    health = desk.connection.scalar(sa.select(node.c.health).where(node.c.name == desk.caller.name))
    off_ms = clock_off_ms(json.loads(health or "{}"))
    return {} if off_ms is None else {"clock_offset_ms": off_ms}


def _at_its_time(desk: Desk, row: sa.RowMapping, change: Change) -> sa.RowMapping:
    """Return the run with the times that its trigger gave it, in place of its window's."""
    times = [change.details.get(key) for key in ("start_ns", "end_ns")]
    begins = change.state in (State.CLAIMED, State.DEPLOYING)
    if not begins or not all(isinstance(time_ns, int) for time_ns in times):
        return row
    start_ns, end_ns = (int(time_ns) for time_ns in times if time_ns is not None)
    kind = desk.connection.scalar(sa.select(job.c.kind).where(job.c.id == row["job"]))
    if kind != JobKind.TRIGGER or not row["start_ns"] <= start_ns < end_ns < _LATEST_NS:
        return row
    chosen = sa.update(run).where(run.c.id == row["id"])
    desk.do(chosen.values(start_ns=start_ns, end_ns=end_ns))
    return get(desk, row["id"])


def _adopt(desk: Desk, made: dict[str, Any]) -> None:
    """Take over a run that a node made: the next one of a trigger's window."""
    name, after = str(made["run"]), str(made["after"])
    if not is_id(name) or desk.one(sa.select(run.c.id).where(run.c.id == name)):
        return
    old = get(desk, after)
    found = desk.one(sa.select(job).where(job.c.id == old["job"]))
    if old["client"] != desk.caller.name or found is None or found["kind"] != JobKind.TRIGGER:
        raise InputError(f"run {name} follows none of {desk.caller.name}'s")
    row = {key: old[key] for key in ("job", "client", "server")}
    start_ns, end_ns = int(made["start_ns"]), int(made["end_ns"])
    if not 0 <= start_ns < end_ns < _LATEST_NS:
        raise InputError(f"run {name}: its window is none")
    row |= {"start_ns": start_ns, "end_ns": end_ns, "after": after}
    desk.do(
        sa.insert(run).values(id=name, state=State.PLANNED, created_ns=desk.now_ns, fence=0, **row)
    )


def abort(desk: Desk, name: str, reason: str) -> dict[str, Any]:
    """Stop a run, or take one that is to come off the calendar.

    Raises:
        NotFoundError, DeniedError: it is none, or not the caller's.
        InputError: it has ended.
    """
    row = get(desk, name)
    why = _right_to_stop(desk, row)
    if State(row["state"]) in ENDED:
        raise InputError(f"run {name} has ended: it is {row['state']}")
    apply(
        desk,
        row,
        Change(desk.now_ns, State.ABORTED, desk.caller.actor, why, {"text": reason[:200]}),
    )
    end_tasks(desk, name)
    desk.touch(nodes_of(row))
    return document(desk, name)


def reschedule(desk: Desk, name: str, from_ns: int = 0) -> dict[str, Any]:
    """Move an `at` run that is still to come to the nearest free time; return the one in its place.

    Args:
        desk: of its user, or an administrator.
        name: the run's.
        from_ns: it begins no earlier; `reschedule_after_s` from now where this is 0.

    Raises:
        NotFoundError, DeniedError: there is none, or it is another's.
        InputError: it has begun or ended, is of another kind of job, or there is no room.
    """
    from skyhop.testbed.orchestrator.planning import move_run, soonest_ns

    row = get(desk, name)
    found = desk.one(sa.select(job).where(job.c.id == row["job"]))
    assert found is not None, "runs are of jobs"
    access.check_owns_job(desk, found["owner"], f"run {name}")
    if State(row["state"]) is not State.PLANNED:
        raise InputError(f"run {name} is {row['state']}: only what is still to come can be moved")
    if found["kind"] != JobKind.AT or found["state"] != "active":
        raise InputError(
            f"run {name}: only runs of jobs with `at` can be moved: change its job instead"
        )
    earliest_ns = max(from_ns, desk.now_ns) if from_ns else soonest_ns(desk)
    moved = move_run(desk, row, found, earliest_ns, without=row["job"])
    if moved is None:
        raise InputError(f"run {name}: its nodes have no room left before its job's end")
    details = {"run": moved["id"], "start_ns": moved["start_ns"]}
    apply(
        desk, row, Change(desk.now_ns, State.RESCHEDULED, desk.caller.actor, Reason.USER, details)
    )
    return document(desk, moved["id"])


def _right_to_stop(desk: Desk, row: sa.RowMapping) -> Reason:
    owner = desk.connection.scalar(sa.select(job.c.owner).where(job.c.id == row["job"]))
    if desk.caller.is_admin or owner == desk.caller.name:
        return Reason.USER
    if any(access.owns_node(desk, node) for node in (row["client"], row["server"]) if node):
        return Reason.OWNER
    raise DeniedError(f"run {row['id']} is not yours")


def end_tasks(desk: Desk, name: str) -> None:
    """Forget what a run wanted of its server."""
    opened = (task.c.run == name) & (task.c.state == "open")
    desk.do(sa.update(task).where(opened).values(state="failed", result=as_json({"error": "over"})))


def nodes_of(row: sa.RowMapping) -> set[str]:
    """Return the nodes that take part in a run."""
    return {name for name in (row["client"], row["server"]) if name}


def find_lost(desk: Desk) -> None:
    """Give up runs of which nothing was heard for longer than they can last."""
    limit_ns = round(desk.settings.lost_after_s * _SECOND)
    last = (
        sa.select(sa.func.max(event.c.received_ns)).where(event.c.run == run.c.id).scalar_subquery()
    )
    waiting = [State.PLANNED.value, State.ARMED.value, *(state.value for state in ACTIVE)]
    query = (
        sa.select(run)
        .where(run.c.state.in_(waiting))
        .where(run.c.end_ns + limit_ns < desk.now_ns)
        .where(sa.func.coalesce(last, run.c.created_ns) + limit_ns < desk.now_ns)
        .limit(500)
    )
    for row in desk.all(query):
        apply(desk, row, Change(desk.now_ns, State.LOST, ITSELF.actor, Reason.OFFLINE))
        end_tasks(desk, row["id"])


def visible(desk: Desk, row: sa.RowMapping, owner: str) -> bool:
    """Return whether the caller may see a run's files and reasons; that it is there, all may."""
    if desk.caller.role is Role.ADMIN or owner == desk.caller.name:
        return True
    return any(access.owns_node(desk, node) for node in (row["client"], row["server"]) if node)


def check_files(desk: Desk, name: str) -> sa.RowMapping:
    """Return a run whose files the caller may have: its user's and administrators', not its hosts'.

    Raises:
        NotFoundError, DeniedError: there is none, or it is another's.
    """
    row = get(desk, name)
    owner = desk.connection.scalar(sa.select(job.c.owner).where(job.c.id == row["job"]))
    access.check_owns_job(desk, str(owner), f"run {name}")
    return row


def document(desk: Desk, name: str) -> dict[str, Any]:
    """Return all that is known of a run: events, tasks and files.

    Raises:
        NotFoundError, DeniedError: there is none, or it is not the caller's to see.
    """
    row = get(desk, name)
    found = desk.one(sa.select(job).where(job.c.id == row["job"]))
    if found is None or not visible(desk, row, found["owner"]):
        raise DeniedError(f"run {name} is not yours")
    events = desk.all(sa.select(event).where(event.c.run == name).order_by(event.c.id))
    files = desk.all(
        sa.select(artefact).where(artefact.c.run == name).order_by(artefact.c.side, artefact.c.name)
    )
    return {
        **_row(row, found),
        "events": [{**e, "details": json.loads(e["details"])} for e in map(dict, events)],
        "files": [dict(file) for file in files],
        "spec": json.loads(found["spec"]),
    }


def listing(
    desk: Desk,
    *,
    of_job: str = "",
    node: str = "",
    user: str = "",
    states: Iterable[str] = (),
    from_ns: int = 0,
    to_ns: int = 0,
    limit: int = 0,
) -> list[dict[str, Any]]:
    """Return runs that the caller may see, the latest first.

    Of those that are still to come there is the next one of each job on each node, unless their
    state is asked for: a job of every minute has thousands.

    Raises:
        InputError: there is no such state.
    """
    for state in states:
        if state not in list(State):
            raise InputError(f'state: "{state[:40]}" is none; there are {", ".join(State)}')
    query = sa.select(run, job.c.name.label("job_name"), job.c.owner, job.c.kind).join(job)
    if not desk.caller.is_admin:
        mine = access.my_nodes(desk)
        query = query.where(
            sa.or_(job.c.owner == desk.caller.name, run.c.client.in_(mine), run.c.server.in_(mine))
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
        query = query.where(~_later_than_next(desk.now_ns))
    query = query.order_by(run.c.start_ns.desc(), run.c.id.desc()).limit(most(limit, 100))
    return [dict(row) for row in desk.all(query)]


def most(asked: int, usual: int) -> int:
    """Return how many rows are given to who asks for so many, or does not say."""
    return min(asked if asked > 0 else usual, _MOST_ROWS)


def _later_than_next(now_ns: int) -> sa.ColumnElement[bool]:
    """Return what is true of runs to come that are not the next one of their job on their node."""
    to_come = (run.c.state == State.PLANNED) & (run.c.start_ns > now_ns)
    first = sa.func.min(run.c.start_ns)
    next_ones = sa.select(run.c.job, run.c.client, first).where(to_come)
    key = sa.tuple_(run.c.job, run.c.client, run.c.start_ns)
    return to_come & key.not_in(next_ones.group_by(run.c.job, run.c.client))


def _row(row: sa.RowMapping, found: sa.RowMapping) -> dict[str, Any]:
    return {**row, "job_name": found["name"], "owner": found["owner"], "kind": found["kind"]}


def side_of(row: sa.RowMapping, node: str) -> Side | None:
    """Return which side of a run a node is, None where it is neither."""
    if node == row["client"]:
        return Side.CLIENT
    return Side.SERVER if node == row["server"] else None
