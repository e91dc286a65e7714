"""Nodes: what each has to do, what it tells, what its owner allows."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from skyhop.errors import InputError
from skyhop.telemetry import maps
from skyhop.testbed.ids import is_id, new_id
from skyhop.testbed.job import check_name
from skyhop.testbed.orchestrator import access, runs
from skyhop.testbed.orchestrator.desk import Desk, NotFoundError, as_json
from skyhop.testbed.store.tables import (
    credential,
    job,
    job_file,
    job_node,
    node,
    preemption,
    run,
    task,
    trigger_log,
    user,
)
from skyhop.testbed.words import ACTIVE, ENDED, EventKind, Role, ScavengerMode, State, TaskKind

_S_NS = 1_000_000_000
_MOST_RUNS = 2_000
"""Of one schedule; what comes later follows with a later one."""
_LONGEST_EVENT = 256_000
_LOGGED = 20_000
"""So many evaluations of a job's trigger are kept."""
_WRONG = (
    InputError,
    *(ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError),
    *(sa.exc.IntegrityError, sa.exc.DataError, sa.exc.InterfaceError),
)
"""What comes of an event that no agent of ours tells."""
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


def get(desk: Desk, name: str) -> sa.RowMapping:
    """Return a node.

    Raises:
        NotFoundError: there is none.
    """
    row = desk.one(sa.select(node).where(node.c.name == name))
    if row is None:
        raise NotFoundError(f"there is no node {name[:80]}: skyhop testbed nodes lists them")
    return row


def put(desk: Desk, values: dict[str, Any]) -> dict[str, Any]:
    """Make a node, or change one: its owner, where it is, where it serves.

    Raises:
        InputError: a value is not right.
    """
    try:
        name = check_name(str(values.get("name")))
    except ValueError as error:
        raise InputError(f"name: {error}") from None
    old = desk.one(sa.select(node).where(node.c.name == name))
    row: dict[str, Any] = {}
    for key in ("description", "provider", "address", "owner"):
        value = values.get(key, old[key] if old else ("" if key != "owner" else None))
        if value is not None and (not isinstance(value, str) or len(value) > 512):  # noqa: PLR2004
            raise InputError(f"{key}: expected a text of at most 512 characters")
        row[key] = value or (None if key == "owner" else "")
    if row["owner"] and not desk.one(sa.select(user).where(user.c.name == row["owner"])):
        raise NotFoundError(f"owner: there is no user {row['owner']}")
    for key, limit in (("latitude_deg", 90.0), ("longitude_deg", 180.0)):
        value = values.get(key, old[key] if old else None)
        if value is not None and not (isinstance(value, int | float) and abs(value) <= limit):
            raise InputError(f"{key}: expected a number from -{limit:g} to {limit:g}")
        # A terminal's place is its owner's secret: a tenth of a degree is some eleven kilometres.
        row[key] = None if value is None else round(float(value), 1)
    if old is None:
        desk.do(sa.insert(node).values(name=name, created_ns=desk.now_ns, **row))
    else:
        desk.do(sa.update(node).where(node.c.name == name).values(**row))
    return document(desk, name)


def set_policy(desk: Desk, name: str, policy: dict[str, Any]) -> dict[str, Any]:
    """Set what a node's owner allows; the node enforces it.

    Raises:
        NotFoundError, DeniedError: there is none, or it is another's.
        InputError: a key is not known.
    """
    get(desk, name)
    access.check_owns_node(desk, name)
    for key in policy:
        if key not in _POLICY:
            raise InputError(
                f'policy: "{key[:40]}" is not known; there are {", ".join(sorted(_POLICY))}'
            )
    text = as_json(policy)
    if len(text) > _LONGEST_EVENT:
        raise InputError("policy: is too long")
    desk.do(sa.update(node).where(node.c.name == name).values(policy=text))
    desk.touch({name})
    return document(desk, name)


def set_scavenger(desk: Desk, name: str, mode: str) -> dict[str, Any]:
    """Set whether a node's runs make room for its host.

    Raises:
        NotFoundError, DeniedError, InputError: no such node, another's, no such mode.
    """
    get(desk, name)
    access.check_owns_node(desk, name)
    if mode not in [each.value for each in ScavengerMode]:
        raise InputError(f'scavenger: "{mode[:40]}" is none of auto, on, off')
    desk.do(sa.update(node).where(node.c.name == name).values(scavenger_mode=mode))
    desk.touch({name})
    return document(desk, name)


def delete(desk: Desk, name: str) -> None:
    """Take a node off the testbed: its runs are ended and its certificates taken back.

    What runs left belongs to their users, and stays; its telemetry is deleted by the caller.

    Raises:
        NotFoundError: there is none.
        InputError: jobs still name it.
    """
    get(desk, name)
    active = (job_node.c.node == name) & (job.c.state == "active")
    named = desk.one(sa.select(job.c.name).join(job_node).where(active))
    if named:
        raise InputError(f"{name}: job {named['name']} names it; cancel that first")
    desk.do(sa.delete(credential).where(credential.c.node == name))
    told = sa.select(job_node.c.job).where(job_node.c.node == name)
    if desk.one(told):
        gone = {
            "description": "deleted",
            "address": "",
            "latitude_deg": None,
            "longitude_deg": None,
        }
        desk.do(sa.update(node).where(node.c.name == name).values(owner=None, health="{}", **gone))
    else:
        desk.do(sa.delete(preemption).where(preemption.c.node == name))
        desk.do(sa.delete(node).where(node.c.name == name))


def document(desk: Desk, name: str) -> dict[str, Any]:
    """Return what the caller may know of a node: its policy is for its owner."""
    row = get(desk, name)
    owns = access.owns_node(desk, name)
    return _public(desk, row, owns=owns) | (
        {"policy": json.loads(row["policy"]), "preemptions": _preemptions(desk, name)}
        if owns
        else {}
    )


def listing(desk: Desk, *, active: bool = False) -> list[dict[str, Any]]:
    """Return all nodes, or those that were heard of within `active_s`."""
    query = sa.select(node).order_by(node.c.name)
    if active:
        query = query.where(node.c.last_seen_ns > desk.now_ns - desk.settings.active_s * _S_NS)
    return [_public(desk, row, owns=False) for row in desk.all(query)]


def _public(desk: Desk, row: sa.RowMapping, *, owns: bool) -> dict[str, Any]:
    seen = row["last_seen_ns"]
    limit_s = desk.settings.heartbeat_s * desk.settings.missed_heartbeats
    shown = ("name", "owner", "description", "provider", "latitude_deg", "longitude_deg")
    values = {key: row[key] for key in shown}
    values |= {key: row[key] for key in ("scavenger_mode", "scavenger_active", "last_seen_ns")}
    values["online"] = seen is not None and desk.now_ns - seen <= limit_s * _S_NS
    values["serves"] = bool(row["address"])
    values["health"] = json.loads(row["health"])
    if owns:
        values["address"] = row["address"]
    return values


def _preemptions(desk: Desk, name: str) -> list[dict[str, Any]]:
    query = sa.select(preemption).where(preemption.c.node == name)
    rows = desk.all(query.order_by(preemption.c.id.desc()).limit(50))
    return [{**json.loads(r["body"]), "at_ns": r["at_ns"], "active": r["active"]} for r in rows]


def schedule(desk: Desk, name: str) -> tuple[int, dict[str, Any]]:
    """Return a node's revision, and all that it has to do from now on.

    What it serves for others is among it: it keeps that time free for them.
    """
    row = get(desk, name)
    ended = [state.value for state in ENDED]
    mine = desk.all(
        sa.select(run, node.c.address.label("server_address"))
        .join(node, node.c.name == run.c.server, isouter=True)
        .where((run.c.client == name) | (run.c.server == name), run.c.state.notin_(ended))
        .order_by(run.c.start_ns, run.c.id)
        .limit(_MOST_RUNS)
    )
    keys = (
        "id",
        "job",
        "client",
        "server",
        "server_address",
        "start_ns",
        "end_ns",
        "state",
        "after",
    )
    settings = asdict(desk.settings)
    return row["revision"], {
        "node": name,
        "revision": row["revision"],
        "issued_ns": desk.now_ns,
        "jobs": {each: job_body(desk, each) for each in sorted({r["job"] for r in mine})},
        "runs": [{key: each[key] for key in keys} for each in mine],
        "policy": json.loads(row["policy"]),
        "scavenger_mode": row["scavenger_mode"],
        "settings": {k: settings[k] for k in ("heartbeat_s", "late_s", "reschedule_after_s")},
    }


def job_body(desk: Desk, name: str) -> dict[str, Any]:
    """Return a job as orders to nodes hold it."""
    row = desk.one(sa.select(job, user.c.role).join(user).where(job.c.id == name))
    assert row is not None
    files = desk.all(sa.select(job_file).where(job_file.c.job == name))
    return {
        "owner": row["owner"],
        "priv": row["role"] in (Role.ADMIN, Role.USER_PRIV),
        "spec": json.loads(row["spec"]),
        "files": {each["name"]: {k: each[k] for k in ("size", "sha256")} for each in files},
    }


def tasks(desk: Desk, name: str) -> list[dict[str, Any]]:
    """Return what a node is to do as a server, for runs of other nodes."""
    query = sa.select(task, run.c.job, run.c.client, run.c.start_ns, run.c.end_ns).join(run)
    wanted = (task.c.node == name) & (task.c.state == "open") & (task.c.expires_ns > desk.now_ns)
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
            "job": job_body(desk, row["job"]),
        }
        for row in desk.all(query.where(wanted).order_by(task.c.id))
    ]


def results(desk: Desk, name: str) -> list[dict[str, Any]]:
    """Return what servers said to the runs of a client that wait for them."""
    query = sa.select(task, run.c.client).join(run)
    told = (run.c.client == name) & (run.c.state == State.WAITING_SERVER)
    settled = (task.c.kind == TaskKind.START) & (task.c.state != "open")
    rows = desk.all(query.where(told, settled).order_by(task.c.id))
    return [
        {"run": row["run"], "ready": row["state"] == "done", **json.loads(row["result"])}
        for row in rows
    ]


def report(desk: Desk, events: list[tuple[int, int, str, str]]) -> tuple[int, list[dict[str, Any]]]:
    """Enter what a node tells, each once; return its last number, and its telemetry's samples.

    Args:
        desk: the node's.
        events: number, time, kind and JSON of each, in order.
    """
    row = get(desk, desk.caller.name)
    last = row["last_seq"]
    samples: list[dict[str, Any]] = []
    for seq, at_ns, kind, body in events:
        if seq <= last:
            continue
        last = seq
        try:
            # One that is wrong must not keep back those behind it, nor leave half of itself.
            with desk.connection.begin_nested():
                samples += _enter(desk, at_ns, kind, body)
        except _WRONG as error:
            desk.note(f"report {kind[:20]}", f"event {seq}", f"refused: {str(error)[:300]}")
    values = {"last_seq": last, "last_seen_ns": desk.now_ns}
    desk.do(sa.update(node).where(node.c.name == row["name"]).values(**values))
    return last, samples


def _enter(desk: Desk, at_ns: int, kind: str, text: str) -> list[dict[str, Any]]:
    if len(text) > _LONGEST_EVENT:
        raise InputError("an event is too long")
    body = json.loads(text)
    if not isinstance(body, dict):
        raise InputError("an event is no table")
    if kind == EventKind.MAP:
        maps.unpacked(body.get("map"))
        return []
    if kind == EventKind.TELEMETRY:
        samples = body["samples"]
        return [each for each in samples if isinstance(each, dict) and "time_ns" in each]
    _ENTERS[EventKind(kind)](desk, at_ns, body)
    return []


def newest_map(events: list[tuple[int, int, str, str]]) -> bytes | None:
    """Return the last obstruction map among what a node tells; None where there is none."""
    for _, _, kind, text in reversed(events):
        if kind == EventKind.MAP and len(text) <= _LONGEST_EVENT:
            with suppress(*_WRONG):
                return maps.unpacked(json.loads(text)["map"])
    return None


def _run(desk: Desk, _at_ns: int, body: dict[str, Any]) -> None:
    runs.told(desk, body)
    row = runs.get(desk, str(body["run"]))
    state = State(row["state"])
    if not row["server"]:
        return
    if state is State.WAITING_SERVER:
        _ask_server(desk, row, TaskKind.START)
    elif state is State.FINISHING or state in ENDED:
        runs.end_tasks(desk, row["id"])
        _ask_server(desk, row, TaskKind.STOP)


def _ask_server(desk: Desk, row: sa.RowMapping, kind: TaskKind) -> None:
    """Give the server node of a run a task, once of each kind; a stop only after a start."""
    old = {each["kind"] for each in desk.all(sa.select(task.c.kind).where(task.c.run == row["id"]))}
    if kind in old or (kind is TaskKind.STOP and TaskKind.START not in old):
        return
    desk.do(
        sa.insert(task).values(
            id=new_id(desk.now_ns),
            run=row["id"],
            node=row["server"],
            kind=kind,
            state="open",
            created_ns=desk.now_ns,
            expires_ns=row["end_ns"] + 3600 * _S_NS,
        )
    )
    desk.changed.add(row["server"])


def _task(desk: Desk, _at_ns: int, body: dict[str, Any]) -> None:
    name = str(body["task"])
    row = desk.one(sa.select(task).where(task.c.id == name)) if is_id(name) else None
    if row is None or row["node"] != desk.caller.name:
        raise InputError("there is no such task of this node")
    result = {key: body[key] for key in ("port", "error") if body.get(key) is not None}
    state = "done" if body.get("ok") else "failed"
    chosen = (task.c.id == name) & (task.c.state == "open")
    desk.do(sa.update(task).where(chosen).values(state=state, result=as_json(result)))
    desk.changed.add(runs.get(desk, row["run"])["client"])


def _trigger(desk: Desk, at_ns: int, body: dict[str, Any]) -> None:
    name = str(body["job"])
    chosen = (job_node.c.job == name) & (job_node.c.node == desk.caller.name)
    if not desk.one(sa.select(job_node).where(chosen)):
        raise InputError("this trigger is not of this node")
    of_run = str(body["run"]) if body.get("run") else None
    fired = bool(body.get("fired"))
    row = {"job": name, "node": desk.caller.name, "at_ns": at_ns, "fired": fired, "run": of_run}
    made = desk.connection.execute(
        sa.insert(trigger_log).values(body=as_json(body), **row)
    ).inserted_primary_key
    old = (trigger_log.c.job == name) & (trigger_log.c.node == desk.caller.name)
    if made is not None:
        desk.do(sa.delete(trigger_log).where(old, trigger_log.c.id < made[0] - _LOGGED))


def _scavenger(desk: Desk, at_ns: int, body: dict[str, Any]) -> None:
    active = bool(body["active"])
    row = {"node": desk.caller.name, "at_ns": at_ns, "active": active, "body": as_json(body)}
    desk.do(sa.insert(preemption).values(**row))
    mine = node.c.name == desk.caller.name
    desk.do(sa.update(node).where(mine).values(scavenger_active=active))


def _health(desk: Desk, _at_ns: int, body: dict[str, Any]) -> None:
    mine = node.c.name == desk.caller.name
    desk.do(sa.update(node).where(mine).values(health=as_json(body)))


_ENTERS: dict[EventKind, Callable[[Desk, int, dict[str, Any]], None]] = {
    EventKind.RUN: _run,
    EventKind.TASK: _task,
    EventKind.TRIGGER: _trigger,
    EventKind.SCAVENGER: _scavenger,
    EventKind.HEALTH: _health,
}


def log_of_triggers(
    desk: Desk,
    *,
    of_job: str = "",
    of_node: str = "",
    from_ns: int = 0,
    to_ns: int = 0,
    limit: int = 0,
) -> list[dict[str, Any]]:
    """Return why triggers did or did not fire, the latest first: of one's own jobs, or all."""
    query = sa.select(trigger_log, job.c.name.label("job_name"), job.c.owner).join(job)
    if not desk.caller.is_admin:
        query = query.where(job.c.owner == desk.caller.name)
    if of_job:
        query = query.where(sa.or_(job.c.id == of_job, job.c.name == of_job))
    if of_node:
        query = query.where(trigger_log.c.node == of_node)
    if from_ns:
        query = query.where(trigger_log.c.at_ns >= from_ns)
    if to_ns:
        query = query.where(trigger_log.c.at_ns < to_ns)
    rows = desk.all(query.order_by(trigger_log.c.id.desc()).limit(min(limit or 200, 10_000)))
    keys = ("job_name", "owner", "node", "at_ns", "fired", "run")
    return [{**json.loads(row["body"]), **{key: row[key] for key in keys}} for row in rows]


def is_busy(desk: Desk, name: str) -> bool:
    """Return whether a node is at work on a run."""
    states = [state.value for state in ACTIVE]
    return bool(desk.one(sa.select(run.c.id).where(run.c.client == name, run.c.state.in_(states))))
