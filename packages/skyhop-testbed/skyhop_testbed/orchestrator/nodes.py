"""Nodes: their schedules, the events that they report, and their owners' policies."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import sqlalchemy as sa

from skyhop.errors import InputError
from skyhop.telemetry import maps
from skyhop_testbed.api import Document, Event, NodeDocument, NodeInfo, PutNode, TriggerLine
from skyhop_testbed.fence import check_listen, check_reach
from skyhop_testbed.ids import is_id, new_id
from skyhop_testbed.job import check_name
from skyhop_testbed.orchestrator import access, accounts, alerts, runs, statements
from skyhop_testbed.orchestrator.agents import agent_of
from skyhop_testbed.orchestrator.reports import (
    HealthReport,
    RunReport,
    ScavengerReport,
    TaskReport,
    Told,
    TriggerReport,
)
from skyhop_testbed.orchestrator.request_context import NotFoundError, RequestContext, as_json
from skyhop_testbed.orchestrator.schedules import node_schedule, scheduled_job
from skyhop_testbed.privacy import check_share, without_owners_traffic
from skyhop_testbed.signals import Signals
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
_LONGEST_TEXT = 512
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
        "reach",
        "share",
        "listen",
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
        "signals",
        "results_bytes",
        "free_floor_bytes",
        "weather",
        "orbits",
    }
)


def get(ctx: RequestContext, name: str) -> sa.RowMapping:
    """Return a node's row.

    Raises:
        NotFoundError: there is no such node.
    """
    row = ctx.first(statements.NODE, node=name)
    if row is None:
        raise _not_found(name)
    return row


def _not_found(name: str) -> NotFoundError:
    return NotFoundError(f"there is no node {name[:80]}: skyhop testbed nodes lists them")


def put(ctx: RequestContext, values: PutNode) -> NodeDocument:
    """Create or change a node: owner, description, provider, address and location.

    Raises:
        InputError: a value is invalid.
    """
    try:
        name = check_name(values.name)
    except ValueError as error:
        raise InputError(f"name: {error}") from None
    old = ctx.first(sa.select(node).where(node.c.name == name))
    # A field that the request does not set keeps its value.
    new = {**(old or {}), **values.model_dump(exclude_unset=True)}
    row: dict[str, str | float | None] = {}
    for key in ("description", "provider", "address", "owner"):
        value = new.get(key)
        if value is not None and len(value) > _LONGEST_TEXT:
            raise InputError(f"{key}: expected a text of at most {_LONGEST_TEXT} characters")
        row[key] = value or (None if key == "owner" else "")
    if row["owner"] and not ctx.first(sa.select(user).where(user.c.name == row["owner"])):
        raise NotFoundError(f"owner: there is no user {row['owner']}")
    for key, limit in (("latitude_deg", 90.0), ("longitude_deg", 180.0)):
        value = new.get(key)
        if value is not None and not abs(value) <= limit:
            raise InputError(f"{key}: expected a number from -{limit:g} to {limit:g}")
        # The exact location of a terminal is private; a step of 0.1 degrees is about 11 km.
        row[key] = None if value is None else round(float(value), 1)
    if old is None:
        ctx.execute(sa.insert(node).values(name=name, created_ns=ctx.now_ns, **row))
    else:
        ctx.execute(sa.update(node).where(node.c.name == name).values(**row))
    return document(ctx, name)


def set_policy(ctx: RequestContext, name: str, policy: Document) -> NodeDocument:
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
    _check_signals(policy.get("signals"))
    check_share(policy.get("share"))
    check_reach(policy.get("reach"))
    check_listen(policy.get("listen"))
    text = as_json(policy)
    if len(text) > _LONGEST_EVENT:
        raise InputError(f"policy: longer than {_LONGEST_EVENT:,} characters as JSON")
    ctx.execute(sa.update(node).where(node.c.name == name).values(policy=text))
    ctx.bump_revision({name})
    return document(ctx, name)


def _check_signals(names: object) -> None:
    if names is None:
        return
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError('policy: signals: expected a list of names, such as ["prediction"]')
    try:
        Signals.named(names)
    except ValueError as error:
        raise InputError(f"policy: {error}") from None


def set_scavenger(ctx: RequestContext, name: str, mode: str) -> NodeDocument:
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


def document(ctx: RequestContext, name: str) -> NodeDocument:
    """Return a node; its address, policy and preemptions are included for its owner only."""
    row = get(ctx, name)
    values = _public(ctx, row, _troubles(ctx))
    if access.owns_node(ctx, name):
        values |= {"address": row["address"], "policy": json.loads(row["policy"])}
        values["preemptions"] = _preemptions(ctx, name)
    return NodeDocument(**values)


def listing(ctx: RequestContext, *, active: bool = False) -> list[NodeInfo]:
    """Return all nodes; with `active`, the nodes that reported within the setting `active_s`."""
    query = sa.select(node).order_by(node.c.name)
    if active:
        query = query.where(node.c.last_seen_ns > ctx.now_ns - ctx.settings.active_s * _S_NS)
    troubles = _troubles(ctx)
    return [NodeInfo(**_public(ctx, row, troubles)) for row in ctx.all(query)]


class _Troubles(NamedTuple):
    """Kinds of alerts by node, and nodes that wait for a certificate."""

    firing: dict[str, list[str]]
    waiting: set[str]


def _troubles(ctx: RequestContext) -> _Troubles:
    return _Troubles(alerts.kinds_by_node(ctx), accounts.waiting_nodes(ctx))


def _public(ctx: RequestContext, row: sa.RowMapping, troubles: _Troubles) -> dict[str, Any]:
    """Return the fields of a `NodeInfo`."""
    seen = row["last_seen_ns"]
    limit_s = ctx.settings.heartbeat_s * ctx.settings.missed_heartbeats
    shown = ("name", "owner", "description", "provider", "latitude_deg", "longitude_deg")
    values = {key: row[key] for key in shown}
    values |= {key: row[key] for key in ("scavenger_mode", "scavenger_active", "last_seen_ns")}
    values["online"] = seen is not None and ctx.now_ns - seen <= limit_s * _S_NS
    values["serves"] = bool(row["address"])
    values["health"] = json.loads(row["health"])
    values["clock_off_ms"] = runs.clock_off_ms(values["health"])
    values["alerts"] = troubles.firing.get(row["name"], [])
    agent = agent_of(row)
    values["version"] = (agent and agent.version) or str(values["health"].get("version", ""))
    values["upgrade"] = agent.why_not_understood if agent else ""
    values["is_waiting"] = row["name"] in troubles.waiting
    return values


def _preemptions(ctx: RequestContext, name: str) -> list[Document]:
    query = sa.select(preemption).where(preemption.c.node == name)
    rows = ctx.all(query.order_by(preemption.c.id.desc()).limit(50))
    return [{**json.loads(r["body"]), "at_ns": r["at_ns"], "active": r["active"]} for r in rows]


def schedule(ctx: RequestContext, name: str) -> tuple[int, dict[str, Any]]:
    """Return the revision and the content of a node's schedule."""
    made = node_schedule(ctx, get(ctx, name))
    return made.revision, made.model_dump(mode="json")


def tasks(ctx: RequestContext, name: str) -> list[dict[str, Any]]:
    """Return a node's open tasks: requests to start or stop a server for runs of other nodes."""
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
        for row in ctx.all(statements.TASKS, node=name, now_ns=ctx.now_ns)
    ]


def results(ctx: RequestContext, name: str) -> list[Document]:
    """Return, for each run of a client that waits for its server, how the server's start went."""
    rows = ctx.all(statements.TASK_RESULTS, node=name)
    return [
        {"run": row["run"], "ready": row["state"] == "done", **json.loads(row["result"])}
        for row in rows
    ]


def report(ctx: RequestContext, events: Sequence[Event]) -> tuple[int, list[Document]]:
    """Apply the events of a node; an event that is sent twice is applied once.

    Args:
        ctx: the request of the node.
        events: the events, in order of their sequence numbers.

    Returns:
        the node's last sequence number, and the telemetry samples among the events.
    """
    last = ctx.scalar(statements.LAST_SEQ, node=ctx.caller.name)
    if last is None:
        raise _not_found(ctx.caller.name)
    samples: list[Document] = []
    for each in events:
        if each.seq <= last:
            continue
        last = each.seq
        try:
            # Only the malformed event is rolled back: later events of the batch still count.
            with ctx.undone_if_raising():
                samples += _apply_event(ctx, each)
        except _MALFORMED as error:
            what, said = f"report {each.kind[:20]}", f"refused: {str(error)[:300]}"
            ctx.audit(what, f"event {each.seq}", said)
    ctx.execute(statements.NODE_SEEN, node=ctx.caller.name, seq=last, now_ns=ctx.now_ns)
    return last, samples


def _apply_event(ctx: RequestContext, event: Event) -> list[Document]:
    """Apply an event; return the telemetry samples in it."""
    if len(event.body) > _LONGEST_EVENT:
        raise InputError(f"an event is longer than {_LONGEST_EVENT:,} characters")
    if event.kind == EventKind.MAP:
        maps.decode_map(json.loads(event.body)["map"])
        return []
    if event.kind == EventKind.TELEMETRY:
        samples = json.loads(event.body)["samples"]
        return [each for each in samples if isinstance(each, dict) and "time_ns" in each]
    _EVENT_HANDLERS[EventKind(event.kind)](ctx, event)
    return []


def newest_map(events: Sequence[Event]) -> bytes | None:
    """Return the last valid obstruction map among a node's events, or None."""
    for event in reversed(events):
        if event.kind == EventKind.MAP and len(event.body) <= _LONGEST_EVENT:
            with suppress(*_MALFORMED):
                return maps.decode_map(json.loads(event.body)["map"])
    return None


def _run(ctx: RequestContext, event: Event) -> None:
    report = RunReport.model_validate_json(event.body)
    row, state = runs.apply_report(ctx, report)
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


def _task(ctx: RequestContext, event: Event) -> None:
    report = TaskReport.model_validate_json(event.body)
    name = report.task
    row = ctx.first(sa.select(task).where(task.c.id == name)) if is_id(name) else None
    if row is None or row["node"] != ctx.caller.name:
        raise InputError("there is no such task of this node")
    result = report.model_dump(include={"port", "error"}, exclude_none=True)
    state = "done" if report.ok else "failed"
    chosen = (task.c.id == name) & (task.c.state == "open")
    ctx.execute(sa.update(task).where(chosen).values(state=state, result=as_json(result)))
    ctx.changed_nodes.add(runs.get(ctx, row["run"])["client"])


def _trigger(ctx: RequestContext, event: Event) -> None:
    report = TriggerReport.model_validate_json(event.body)
    name = report.job
    if not ctx.first(statements.NODE_OF_JOB, job=name, node=ctx.caller.name):
        raise InputError("the job of this trigger does not run on this node")
    row = {"job": name, "node": ctx.caller.name, "at_ns": event.at_ns, "fired": report.fired}
    row |= {"body": _told(report), "run": report.run or None}
    made = ctx.connection.execute(statements.ADD_EVALUATION, row).inserted_primary_key
    if made is not None:
        oldest = made[0] - _TRIGGER_LOG_ROWS
        ctx.execute(statements.DELETE_EVALUATIONS, job=name, node=ctx.caller.name, oldest=oldest)


def _scavenger(ctx: RequestContext, event: Event) -> None:
    report = ScavengerReport.model_validate_json(event.body)
    row = {"node": ctx.caller.name, "at_ns": event.at_ns, "active": report.active}
    ctx.execute(statements.ADD_PREEMPTION, body=_told(report), **row)
    ctx.execute(statements.NODE_SCAVENGER, node=ctx.caller.name, active=report.active)


def _health(ctx: RequestContext, event: Event) -> None:
    report = HealthReport.model_validate_json(event.body)
    ctx.execute(statements.NODE_HEALTH, node=ctx.caller.name, told=_told(report))


def _told(report: Told) -> str:
    """Return a report as the node has told it."""
    return as_json(report.model_dump(exclude_unset=True))


_EVENT_HANDLERS: dict[EventKind, Callable[[RequestContext, Event], None]] = {
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
) -> list[TriggerLine]:
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
    return [
        TriggerLine(**{**_evaluation(ctx, row), **{key: row[key] for key in keys}}) for row in rows
    ]


def _evaluation(ctx: RequestContext, row: sa.RowMapping) -> Document:
    """Return an evaluation, without the traffic of the node's owner if the caller may not see it.

    A trigger that a caller submits reads no such traffic, but the owner may have shared it then.
    """
    body: Document = json.loads(row["body"])
    inputs = body.get("inputs")
    if isinstance(inputs, dict) and not access.sees_traffic(ctx, row["node"]):
        body["inputs"] = without_owners_traffic(inputs)
    return body


def is_busy(ctx: RequestContext, name: str) -> bool:
    """Return whether a node executes a run now."""
    states = [state.value for state in ACTIVE]
    return bool(ctx.first(sa.select(run.c.id).where(run.c.client == name, run.c.state.in_(states))))
