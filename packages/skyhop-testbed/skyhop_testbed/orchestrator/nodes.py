"""Nodes: their schedules, the events that they report, and their owners' policies."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import sqlalchemy as sa

from skyhop.errors import InputError
from skyhop.telemetry import maps
from skyhop_testbed.ids import is_id, new_id
from skyhop_testbed.job import check_name
from skyhop_testbed.orchestrator import access, runs
from skyhop_testbed.orchestrator.planning import node_schedule, scheduled_job
from skyhop_testbed.orchestrator.request_context import NotFoundError, RequestContext, as_json
from skyhop_testbed.store.tables import (
    credential,
    job,
    job_node,
    node,
    preemption,
    run,
    task,
    trigger_log,
    user,
)
from skyhop_testbed.words import ACTIVE, ENDED, EventKind, ScavengerMode, State, TaskKind

_S_NS = 1_000_000_000
_LONGEST_EVENT = 256_000
_TRIGGER_LOG_ROWS = 20_000
"""Number of trigger evaluations kept per job and node."""
_MALFORMED = (
    InputError,
    *(ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError),
    *(sa.exc.IntegrityError, sa.exc.DataError, sa.exc.InterfaceError),
)
"""Exceptions that an event raises if it does not have the form that skyhop's agent sends."""
_POLICY = frozenset(
    {
        "programs",
        "hours",
        "networks",
        "backends",
        "kernel",
        "data_cap_bytes_per_month",
        "memory_bytes",
        "disk_bytes",
        "processes",
        "nice",
        "ports",
        "quiet_hours",
        "scavenger",
        "location_deg",
        "keep_days",
        "weather",
        "orbits",
    }
)


def get(ctx: RequestContext, name: str) -> sa.RowMapping:
    """Return a node's row.

    Raises:
        NotFoundError: there is no such node.
    """
    row = ctx.first(sa.select(node).where(node.c.name == name))
    if row is None:
        raise NotFoundError(f"there is no node {name[:80]}: skyhop testbed nodes lists them")
    return row


def put(ctx: RequestContext, values: dict[str, Any]) -> dict[str, Any]:
    """Create or change a node: owner, description, provider, address and location.

    Raises:
        InputError: a value is invalid.
    """
    try:
        name = check_name(str(values.get("name")))
    except ValueError as error:
        raise InputError(f"name: {error}") from None
    old = ctx.first(sa.select(node).where(node.c.name == name))
    row: dict[str, Any] = {}
    for key in ("description", "provider", "address", "owner"):
        value = values.get(key, old[key] if old else ("" if key != "owner" else None))
        if value is not None and (not isinstance(value, str) or len(value) > 512):  # noqa: PLR2004
            raise InputError(f"{key}: expected a text of at most 512 characters")
        row[key] = value or (None if key == "owner" else "")
    if row["owner"] and not ctx.first(sa.select(user).where(user.c.name == row["owner"])):
        raise NotFoundError(f"owner: there is no user {row['owner']}")
    for key, limit in (("latitude_deg", 90.0), ("longitude_deg", 180.0)):
        value = values.get(key, old[key] if old else None)
        if value is not None and not (isinstance(value, int | float) and abs(value) <= limit):
            raise InputError(f"{key}: expected a number from -{limit:g} to {limit:g}")
        # The exact location of a terminal is private; a step of 0.1 degrees is about 11 km.
        row[key] = None if value is None else round(float(value), 1)
    if old is None:
        ctx.execute(sa.insert(node).values(name=name, created_ns=ctx.now_ns, **row))
    else:
        ctx.execute(sa.update(node).where(node.c.name == name).values(**row))
    return document(ctx, name)


def set_policy(ctx: RequestContext, name: str, policy: dict[str, Any]) -> dict[str, Any]:
    """Set the policy of a node's owner, which the node itself enforces.

    Raises:
        NotFoundError, DeniedError: there is no such node, or it has another owner.
        InputError: a key is unknown, or the policy is too long.
    """
    get(ctx, name)
    access.check_owns_node(ctx, name)
    for key in policy:
        if key not in _POLICY:
            raise InputError(
                f'policy: "{key[:40]}" is not known; there are {", ".join(sorted(_POLICY))}'
            )
    text = as_json(policy)
    if len(text) > _LONGEST_EVENT:
        raise InputError(f"policy: longer than {_LONGEST_EVENT:,} characters as JSON")
    ctx.execute(sa.update(node).where(node.c.name == name).values(policy=text))
    ctx.bump_revision({name})
    return document(ctx, name)


def set_scavenger(ctx: RequestContext, name: str, mode: str) -> dict[str, Any]:
    """Set the scavenger mode of a node: whether its runs yield to the host's own traffic.

    Raises:
        NotFoundError, DeniedError: there is no such node, or it has another owner.
        InputError: there is no such mode.
    """
    get(ctx, name)
    access.check_owns_node(ctx, name)
    if mode not in [each.value for each in ScavengerMode]:
        raise InputError(f'scavenger: "{mode[:40]}" is not one of auto, on, off')
    ctx.execute(sa.update(node).where(node.c.name == name).values(scavenger_mode=mode))
    ctx.bump_revision({name})
    return document(ctx, name)


def delete(ctx: RequestContext, name: str) -> None:
    """Delete a node and its certificates.

    A node that had jobs keeps an anonymised row, since the files of its runs belong to their users
    and stay. This function leaves the node's telemetry for the caller to delete.

    Raises:
        NotFoundError: there is no such node.
        InputError: an active job names the node.
    """
    get(ctx, name)
    active = (job_node.c.node == name) & (job.c.state == "active")
    named = ctx.first(sa.select(job.c.name).join(job_node).where(active))
    if named:
        raise InputError(f"{name}: job {named['name']} uses this node; cancel the job first")
    ctx.execute(sa.delete(credential).where(credential.c.node == name))
    past_jobs = sa.select(job_node.c.job).where(job_node.c.node == name)
    if ctx.first(past_jobs):
        gone = {
            "description": "deleted",
            "address": "",
            "latitude_deg": None,
            "longitude_deg": None,
        }
        ctx.execute(
            sa.update(node).where(node.c.name == name).values(owner=None, health="{}", **gone)
        )
    else:
        ctx.execute(sa.delete(preemption).where(preemption.c.node == name))
        ctx.execute(sa.delete(node).where(node.c.name == name))


def document(ctx: RequestContext, name: str) -> dict[str, Any]:
    """Return a node's document; its policy and preemptions are included for its owner only."""
    row = get(ctx, name)
    owns = access.owns_node(ctx, name)
    return _public(ctx, row, owns=owns) | (
        {"policy": json.loads(row["policy"]), "preemptions": _preemptions(ctx, name)}
        if owns
        else {}
    )


def listing(ctx: RequestContext, *, active: bool = False) -> list[dict[str, Any]]:
    """Return all nodes; with `active`, the nodes that reported within the setting `active_s`."""
    query = sa.select(node).order_by(node.c.name)
    if active:
        query = query.where(node.c.last_seen_ns > ctx.now_ns - ctx.settings.active_s * _S_NS)
    return [_public(ctx, row, owns=False) for row in ctx.all(query)]


def _public(ctx: RequestContext, row: sa.RowMapping, *, owns: bool) -> dict[str, Any]:
    seen = row["last_seen_ns"]
    limit_s = ctx.settings.heartbeat_s * ctx.settings.missed_heartbeats
    shown = ("name", "owner", "description", "provider", "latitude_deg", "longitude_deg")
    values = {key: row[key] for key in shown}
    values |= {key: row[key] for key in ("scavenger_mode", "scavenger_active", "last_seen_ns")}
    values["online"] = seen is not None and ctx.now_ns - seen <= limit_s * _S_NS
    values["serves"] = bool(row["address"])
    values["health"] = json.loads(row["health"])
    values["clock_off_ms"] = runs.clock_off_ms(values["health"])
    if owns:
        values["address"] = row["address"]
    return values


def _preemptions(ctx: RequestContext, name: str) -> list[dict[str, Any]]:
    query = sa.select(preemption).where(preemption.c.node == name)
    rows = ctx.all(query.order_by(preemption.c.id.desc()).limit(50))
    return [{**json.loads(r["body"]), "at_ns": r["at_ns"], "active": r["active"]} for r in rows]


def schedule(ctx: RequestContext, name: str) -> tuple[int, dict[str, Any]]:
    """Return the revision and the content of a node's schedule."""
    made = node_schedule(ctx, get(ctx, name))
    return made.revision, made.model_dump(mode="json")


def tasks(ctx: RequestContext, name: str) -> list[dict[str, Any]]:
    """Return a node's open tasks: requests to start or stop a server for runs of other nodes."""
    query = sa.select(task, run.c.job, run.c.client, run.c.start_ns, run.c.end_ns).join(run)
    wanted = (task.c.node == name) & (task.c.state == "open") & (task.c.expires_ns > ctx.now_ns)
    return [
        {
            "task": row["id"],
            "run": row["run"],
            "node": name,
            "kind": row["kind"],
            "job_id": row["job"],
            "client": row["client"],
            "start_ns": row["start_ns"],
            "end_ns": row["end_ns"],
            "job": scheduled_job(ctx, row["job"]).model_dump(mode="json"),
        }
        for row in ctx.all(query.where(wanted).order_by(task.c.id))
    ]


def results(ctx: RequestContext, name: str) -> list[dict[str, Any]]:
    """Return, for each run of a client that waits for its server, how the server's start went."""
    query = sa.select(task, run.c.client).join(run)
    waiting = (run.c.client == name) & (run.c.state == State.WAITING_SERVER)
    settled = (task.c.kind == TaskKind.START) & (task.c.state != "open")
    rows = ctx.all(query.where(waiting, settled).order_by(task.c.id))
    return [
        {"run": row["run"], "ready": row["state"] == "done", **json.loads(row["result"])}
        for row in rows
    ]


def report(
    ctx: RequestContext, events: list[tuple[int, int, str, str]]
) -> tuple[int, list[dict[str, Any]]]:
    """Apply the events of a node; an event that is sent twice is applied once.

    Args:
        ctx: the request of the node.
        events: sequence number, time in ns, kind and JSON of each event, in order.

    Returns:
        the node's last sequence number, and the telemetry samples among the events.
    """
    row = get(ctx, ctx.caller.name)
    last = row["last_seq"]
    samples: list[dict[str, Any]] = []
    for seq, at_ns, kind, body in events:
        if seq <= last:
            continue
        last = seq
        try:
            # Only the malformed event is rolled back: later events of the batch still count.
            with ctx.connection.begin_nested():
                samples += _apply_event(ctx, at_ns, kind, body)
        except _MALFORMED as error:
            ctx.audit(f"report {kind[:20]}", f"event {seq}", f"refused: {str(error)[:300]}")
    values = {"last_seq": last, "last_seen_ns": ctx.now_ns}
    ctx.execute(sa.update(node).where(node.c.name == row["name"]).values(**values))
    return last, samples


def _apply_event(ctx: RequestContext, at_ns: int, kind: str, text: str) -> list[dict[str, Any]]:
    if len(text) > _LONGEST_EVENT:
        raise InputError(f"an event is longer than {_LONGEST_EVENT:,} characters")
    body = json.loads(text)
    if not isinstance(body, dict):
        raise InputError("an event is not a JSON object")
    if kind == EventKind.MAP:
        maps.decode_map(body.get("map"))
        return []
    if kind == EventKind.TELEMETRY:
        samples = body["samples"]
        return [each for each in samples if isinstance(each, dict) and "time_ns" in each]
    _EVENT_HANDLERS[EventKind(kind)](ctx, at_ns, body)
    return []


def newest_map(events: list[tuple[int, int, str, str]]) -> bytes | None:
    """Return the last valid obstruction map among a node's events, or None."""
    for _, _, kind, text in reversed(events):
        if kind == EventKind.MAP and len(text) <= _LONGEST_EVENT:
            with suppress(*_MALFORMED):
                return maps.decode_map(json.loads(text)["map"])
    return None


def _run(ctx: RequestContext, _at_ns: int, body: dict[str, Any]) -> None:
    runs.apply_report(ctx, body)
    row = runs.get(ctx, str(body["run"]))
    state = State(row["state"])
    if not row["server"]:
        return
    if state is State.WAITING_SERVER:
        _ask_server(ctx, row, TaskKind.START)
    elif state is State.FINISHING or state in ENDED:
        runs.end_tasks(ctx, row["id"])
        _ask_server(ctx, row, TaskKind.STOP)


def _ask_server(ctx: RequestContext, row: sa.RowMapping, kind: TaskKind) -> None:
    """Create a task for a run's server node.

    A run has at most one task per kind, and a stop task only after a start task.
    """
    old = {each["kind"] for each in ctx.all(sa.select(task.c.kind).where(task.c.run == row["id"]))}
    if kind in old or (kind is TaskKind.STOP and TaskKind.START not in old):
        return
    ctx.execute(
        sa.insert(task).values(
            id=new_id(ctx.now_ns),
            run=row["id"],
            node=row["server"],
            kind=kind,
            state="open",
            created_ns=ctx.now_ns,
            expires_ns=row["end_ns"] + 3600 * _S_NS,
        )
    )
    ctx.changed_nodes.add(row["server"])


def _task(ctx: RequestContext, _at_ns: int, body: dict[str, Any]) -> None:
    name = str(body["task"])
    row = ctx.first(sa.select(task).where(task.c.id == name)) if is_id(name) else None
    if row is None or row["node"] != ctx.caller.name:
        raise InputError("there is no such task of this node")
    result = {key: body[key] for key in ("port", "error") if body.get(key) is not None}
    state = "done" if body.get("ok") else "failed"
    chosen = (task.c.id == name) & (task.c.state == "open")
    ctx.execute(sa.update(task).where(chosen).values(state=state, result=as_json(result)))
    ctx.changed_nodes.add(runs.get(ctx, row["run"])["client"])


def _trigger(ctx: RequestContext, at_ns: int, body: dict[str, Any]) -> None:
    name = str(body["job"])
    chosen = (job_node.c.job == name) & (job_node.c.node == ctx.caller.name)
    if not ctx.first(sa.select(job_node).where(chosen)):
        raise InputError("the job of this trigger does not run on this node")
    of_run = str(body["run"]) if body.get("run") else None
    fired = bool(body.get("fired"))
    row = {"job": name, "node": ctx.caller.name, "at_ns": at_ns, "fired": fired, "run": of_run}
    made = ctx.connection.execute(
        sa.insert(trigger_log).values(body=as_json(body), **row)
    ).inserted_primary_key
    old = (trigger_log.c.job == name) & (trigger_log.c.node == ctx.caller.name)
    if made is not None:
        ctx.execute(
            sa.delete(trigger_log).where(old, trigger_log.c.id < made[0] - _TRIGGER_LOG_ROWS)
        )


def _scavenger(ctx: RequestContext, at_ns: int, body: dict[str, Any]) -> None:
    active = bool(body["active"])
    row = {"node": ctx.caller.name, "at_ns": at_ns, "active": active, "body": as_json(body)}
    ctx.execute(sa.insert(preemption).values(**row))
    mine = node.c.name == ctx.caller.name
    ctx.execute(sa.update(node).where(mine).values(scavenger_active=active))


def _health(ctx: RequestContext, _at_ns: int, body: dict[str, Any]) -> None:
    mine = node.c.name == ctx.caller.name
    ctx.execute(sa.update(node).where(mine).values(health=as_json(body)))


_EVENT_HANDLERS: dict[EventKind, Callable[[RequestContext, int, dict[str, Any]], None]] = {
    EventKind.RUN: _run,
    EventKind.TASK: _task,
    EventKind.TRIGGER: _trigger,
    EventKind.SCAVENGER: _scavenger,
    EventKind.HEALTH: _health,
}


def trigger_evaluations(
    ctx: RequestContext,
    *,
    of_job: str = "",
    of_node: str = "",
    from_ns: int = 0,
    to_ns: int = 0,
    limit: int = 0,
) -> list[dict[str, Any]]:
    """Return trigger evaluations of the caller's jobs (for administrators, all), latest first.

    Args:
        ctx: the request.
        of_job: id or name of a job; "" for all.
        of_node: name of a node; "" for all.
        from_ns: earliest time of an evaluation; 0 for no limit.
        to_ns: end of the time range, exclusive; 0 for no limit.
        limit: upper limit on rows; 0 for 200.
    """
    query = sa.select(trigger_log, job.c.name.label("job_name"), job.c.owner).join(job)
    if not ctx.caller.is_admin:
        query = query.where(job.c.owner == ctx.caller.name)
    if of_job:
        query = query.where(sa.or_(job.c.id == of_job, job.c.name == of_job))
    if of_node:
        query = query.where(trigger_log.c.node == of_node)
    if from_ns:
        query = query.where(trigger_log.c.at_ns >= from_ns)
    if to_ns:
        query = query.where(trigger_log.c.at_ns < to_ns)
    rows = ctx.all(query.order_by(trigger_log.c.id.desc()).limit(runs.row_limit(limit, 200)))
    keys = ("job_name", "owner", "node", "at_ns", "fired", "run")
    return [{**json.loads(row["body"]), **{key: row[key] for key in keys}} for row in rows]


def is_busy(ctx: RequestContext, name: str) -> bool:
    """Return whether a node executes a run now."""
    states = [state.value for state in ACTIVE]
    return bool(ctx.first(sa.select(run.c.id).where(run.c.client == name, run.c.state.in_(states))))
