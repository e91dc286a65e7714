"""What each procedure of users and administrators does: one row each, from a message to an answer.

All are synchronous and get a desk; `rpc` has asked before who calls and whether his role may.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import sqlalchemy as sa

from skyhop.errors import InputError
from skyhop.testbed.orchestrator import jobs, nodes, people, planning, runs
from skyhop.testbed.orchestrator.desk import (
    DeniedError,
    Desk,
    NotFoundError,
    Settings,
    as_json,
)
from skyhop.testbed.orchestrator.office import Office
from skyhop.testbed.protocol import testbed_pb2 as pb
from skyhop.testbed.store.tables import audit, config, job, run
from skyhop.testbed.words import ENDED, JobKind

Procedure = Callable[[Office, Desk, Any], Any]

_LARGEST_NS = 2**62
_ADDRESSES = "addresses"
"""Their key in the table of settings."""


def _document(values: object) -> pb.Document:
    return pb.Document(json=as_json(values))


def _rows(values: object) -> pb.Rows:
    return pb.Rows(json=as_json(values))


def _table(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise InputError("expected a JSON object")
    return values


def _submit(office: Office, desk: Desk, asked: pb.JobText) -> pb.JobReply:
    made = jobs.submit(desk, asked.toml, asked.files, office.objects)
    return pb.JobReply(json=as_json(made))


def _modify(office: Office, desk: Desk, asked: pb.ModifyJobRequest) -> pb.JobReply:
    made = jobs.modify(desk, asked.job, asked.toml, asked.files, office.objects)
    return pb.JobReply(json=as_json(made))


def _cancel(_office: Office, desk: Desk, asked: pb.JobName) -> pb.JobReply:
    return pb.JobReply(json=as_json(jobs.cancel(desk, asked.job)))


def _list_jobs(_office: Office, desk: Desk, asked: pb.ListJobsRequest) -> pb.Rows:
    if asked.node:
        nodes.get(desk, asked.node)
    return _rows(jobs.listing(desk, of_node=asked.node, user=asked.user, ended=asked.ended))


def _next_slot(_office: Office, desk: Desk, asked: pb.NextSlotRequest) -> pb.Slot:
    for name in asked.nodes:
        nodes.get(desk, name)
    if not asked.nodes or not 0 < asked.length_ns < _LARGEST_NS:
        raise InputError("expected nodes and a length")
    from_ns = max(asked.from_ns, desk.now_ns)
    slot = planning.next_slot(desk, asked.nodes, asked.length_ns, from_ns, asked.end_ns or None)
    return pb.Slot(found=slot is not None, start_ns=slot or 0)


def _calendar(_office: Office, desk: Desk, asked: pb.CalendarRequest) -> pb.Rows:
    return _rows(calendar(desk, list(asked.nodes), asked.from_ns, asked.to_ns))


def calendar(desk: Desk, wanted: list[str], from_ns: int, to_ns: int) -> list[dict[str, Any]]:
    """Return what has nodes in a time: all may see that, and whose it is, not what."""
    for name in wanted:
        nodes.get(desk, name)
    query = sa.select(run, job.c.name.label("job_name"), job.c.owner, job.c.kind, job.c.overhead)
    query = query.join(job).where(run.c.end_ns > from_ns, run.c.start_ns < (to_ns or _LARGEST_NS))
    if wanted:
        query = query.where(sa.or_(run.c.client.in_(wanted), run.c.server.in_(wanted)))
    rows = desk.all(query.order_by(run.c.start_ns).limit(10_000))
    keys = ("id", "client", "server", "start_ns", "end_ns", "state", "owner", "kind", "overhead")
    ended = {state.value for state in ENDED}
    return [
        {key: row[key] for key in keys}
        | {"job_name": row["job_name"] if runs.visible(desk, row, row["owner"]) else ""}
        | {"reserves": _reserves(row, ended)}
        for row in rows
    ]


def _reserves(row: sa.RowMapping, ended: set[str]) -> bool:
    waits = row["kind"] == JobKind.TRIGGER and row["state"] in ("planned", "armed")
    return bool(row["overhead"]) and row["state"] not in ended and not waits


def _list_runs(_office: Office, desk: Desk, asked: pb.ListRunsRequest) -> pb.Rows:
    found = runs.listing(
        desk,
        of_job=asked.job,
        node=asked.node,
        user=asked.user,
        states=list(asked.states),
        from_ns=asked.from_ns,
        to_ns=asked.to_ns,
        limit=asked.limit,
    )
    if not found:
        _check_named(desk, asked)
    return _rows(found)


def _check_named(desk: Desk, asked: Any) -> None:
    """Say where nothing was found because there is no such thing.

    Raises:
        NotFoundError: there is no such job or node.
    """
    if asked.node:
        nodes.get(desk, asked.node)
    if asked.job:
        # Of another's job there is nothing to say, and so nothing to see.
        with contextlib.suppress(DeniedError):
            jobs.get(desk, asked.job)


def _put_node(_office: Office, desk: Desk, asked: pb.Document) -> pb.Document:
    return _document(nodes.put(desk, _table(asked.json)))


def _delete_node(office: Office, desk: Desk, asked: pb.NodeName) -> pb.Document:
    nodes.delete(desk, asked.node)
    desk.afterwards.append(lambda: office.telemetry.delete(asked.node))
    return _document({"deleted": asked.node})


def _invite(_office: Office, desk: Desk, asked: pb.NodeName) -> pb.Secret:
    nodes.get(desk, asked.node)
    expires_ns = desk.now_ns + people.INVITATION_NS
    secret = people.issue(desk, people.INVITATION, of_node=asked.node, expires_ns=expires_ns)
    return pb.Secret(value=secret, expires_ns=expires_ns)


def _issue_token(_office: Office, desk: Desk, asked: pb.IssueTokenRequest) -> pb.Secret:
    expires_ns = asked.expires_ns or None
    label = asked.label
    secret = people.issue(
        desk, people.TOKEN, of_user=asked.user, expires_ns=expires_ns, label=label
    )
    return pb.Secret(value=secret, expires_ns=expires_ns or 0)


def _revoke_token(_office: Office, desk: Desk, asked: pb.RevokeTokenRequest) -> pb.Document:
    return _document({"revoked": people.revoke(desk, asked.user, asked.token)})


def _delete_user(_office: Office, desk: Desk, asked: pb.UserName) -> pb.Document:
    ended = people.delete_user(desk, asked.user)
    return _document({"deleted": asked.user, "jobs_ended": ended})


def _put_config(_office: Office, desk: Desk, asked: pb.Document) -> pb.Document:
    return _document(put_config(desk, _table(asked.json)))


def put_config(desk: Desk, values: dict[str, Any]) -> dict[str, Any]:
    """Change settings.

    Raises:
        InputError: there is no such key, or its value is no number above 0.
    """
    known = asdict(Settings())
    for key, value in values.items():
        if key not in known:
            raise InputError(f'"{key[:40]}" is not known; there are {", ".join(known)}')
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e10:  # noqa: PLR2004
            raise InputError(f"{key}: expected a number above 0")
        desk.do(sa.delete(config).where(config.c.key == key))
        desk.do(sa.insert(config).values(key=key, value=json.dumps(value)))
    return asdict(replace(desk.settings, **values))


def keep_addresses(desk: Desk, values: dict[str, str]) -> None:
    """Keep where the testbed is reached, for invitations to say."""
    desk.do(sa.delete(config).where(config.c.key == _ADDRESSES))
    desk.do(sa.insert(config).values(key=_ADDRESSES, value=json.dumps(values)))


def _addresses(desk: Desk) -> dict[str, Any]:
    text = desk.connection.scalar(sa.select(config.c.value).where(config.c.key == _ADDRESSES))
    return {_ADDRESSES: json.loads(text) if text else {}}


def _audit(_office: Office, desk: Desk, asked: pb.AuditRequest) -> pb.Rows:
    query = sa.select(audit).where(audit.c.at_ns >= asked.from_ns)
    if asked.to_ns:
        query = query.where(audit.c.at_ns < asked.to_ns)
    query = query.order_by(audit.c.id.desc()).limit(runs.most(asked.limit, 200))
    return _rows([dict(row) for row in desk.all(query)])


def _obstruction_map(office: Office, desk: Desk, asked: pb.NodeName) -> pb.Document:
    nodes.get(desk, asked.node)
    file = office.telemetry.map_file(asked.node)
    if file is None:
        raise NotFoundError(f"{asked.node}: has told of no obstruction map yet")
    return pb.Document(json=file.read_text("utf-8"))


def _trigger_log(_office: Office, desk: Desk, asked: pb.TriggerLogRequest) -> pb.Rows:
    found = nodes.log_of_triggers(
        desk,
        of_job=asked.job,
        of_node=asked.node,
        from_ns=asked.from_ns,
        to_ns=asked.to_ns,
        limit=asked.limit,
    )
    if not found:
        _check_named(desk, asked)
    return _rows(found)


READING: dict[str, Procedure] = {
    "CheckJob": lambda _, desk, a: pb.Checked(json=as_json(jobs.check_job(desk, a.toml))),
    "ListJobs": _list_jobs,
    "NextSlot": _next_slot,
    "Calendar": _calendar,
    "ListRuns": _list_runs,
    "GetRun": lambda _, desk, a: _document(runs.document(desk, a.run)),
    "ListNodes": lambda _, desk, a: _rows(nodes.listing(desk, active=a.active)),
    "GetNode": lambda _, desk, a: _document(nodes.document(desk, a.node)),
    "TriggerLog": _trigger_log,
    "ObstructionMap": _obstruction_map,
    "GetProfile": lambda _, desk, __: _document(people.profile(desk)),
    "ListUsers": lambda _, desk, __: _rows(people.users(desk)),
    "GetConfig": lambda _, desk, __: _document(asdict(desk.settings) | _addresses(desk)),
    "Audit": _audit,
}
"""Those that change nothing."""

WRITING: dict[str, Procedure] = {
    "SubmitJob": _submit,
    "ModifyJob": _modify,
    "CancelJob": _cancel,
    "AbortRun": lambda _, desk, a: _document(runs.abort(desk, a.run, a.reason)),
    "RescheduleRun": lambda _, desk, a: _document(runs.reschedule(desk, a.run, a.from_ns)),
    "SetScavenger": lambda _, desk, a: _document(nodes.set_scavenger(desk, a.node, a.mode)),
    "SetPolicy": lambda _, desk, a: _document(nodes.set_policy(desk, a.node, _table(a.json))),
    "PutProfile": lambda _, desk, a: _document(people.put_profile(desk, _table(a.json))),
    "PutUser": lambda _, desk, a: _document(people.put_user(desk, _table(a.json))),
    "DeleteUser": _delete_user,
    "IssueToken": _issue_token,
    "RevokeToken": _revoke_token,
    "PutNode": _put_node,
    "DeleteNode": _delete_node,
    "Invite": _invite,
    "PutConfig": _put_config,
}
"""Those that do."""
