"""Handlers of the unary remote procedures of users and administrators: from request to reply.

All are synchronous and receive a request context; `rpc` has authenticated the caller and checked
the role before.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import sqlalchemy as sa

from skyhop.errors import InputError
from skyhop_testbed.orchestrator import accounts, jobs, nodes, planning, runs
from skyhop_testbed.orchestrator.core import Orchestrator
from skyhop_testbed.orchestrator.request_context import (
    DeniedError,
    NotFoundError,
    RequestContext,
    Settings,
    as_json,
)
from skyhop_testbed.protocol import testbed_pb2 as pb
from skyhop_testbed.store.tables import audit, config, job, run
from skyhop_testbed.words import ENDED, JobKind

Procedure = Callable[[Orchestrator, RequestContext, Any], Any]

_LARGEST_NS = 2**62
_ADDRESSES = "addresses"
"""Key of the testbed's public addresses in the table `config`."""


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


def _submit(orchestrator: Orchestrator, ctx: RequestContext, request: pb.JobText) -> pb.JobReply:
    made = jobs.submit(ctx, request.toml, request.files, orchestrator.objects)
    return pb.JobReply(json=as_json(made))


def _modify(
    orchestrator: Orchestrator, ctx: RequestContext, request: pb.ModifyJobRequest
) -> pb.JobReply:
    made = jobs.modify(ctx, request.job, request.toml, request.files, orchestrator.objects)
    return pb.JobReply(json=as_json(made))


def _cancel(_orchestrator: Orchestrator, ctx: RequestContext, request: pb.JobName) -> pb.JobReply:
    return pb.JobReply(json=as_json(jobs.cancel(ctx, request.job)))


def _list_jobs(
    _orchestrator: Orchestrator, ctx: RequestContext, request: pb.ListJobsRequest
) -> pb.Rows:
    if request.node:
        nodes.get(ctx, request.node)
    return _rows(jobs.listing(ctx, of_node=request.node, user=request.user, ended=request.ended))


def _next_slot(
    _orchestrator: Orchestrator, ctx: RequestContext, request: pb.NextSlotRequest
) -> pb.Slot:
    for name in request.nodes:
        nodes.get(ctx, name)
    if not request.nodes or not 0 < request.length_ns < _LARGEST_NS:
        raise InputError("expected nodes and a length")
    from_ns = max(request.from_ns, ctx.now_ns)
    slot = planning.next_slot(
        ctx, request.nodes, request.length_ns, from_ns, request.end_ns or None
    )
    return pb.Slot(found=slot is not None, start_ns=slot or 0)


def _calendar(
    _orchestrator: Orchestrator, ctx: RequestContext, request: pb.CalendarRequest
) -> pb.Rows:
    return _rows(calendar(ctx, list(request.nodes), request.from_ns, request.to_ns))


def calendar(
    ctx: RequestContext, wanted: list[str], from_ns: int, to_ns: int
) -> list[dict[str, Any]]:
    """Return the runs on nodes (all nodes if `wanted` is empty) in a time range, earliest first.

    Every user sees times and owners. The job's name is "" if the caller may not see the run.
    """
    for name in wanted:
        nodes.get(ctx, name)
    query = sa.select(run, job.c.name.label("job_name"), job.c.owner, job.c.kind, job.c.overhead)
    query = query.join(job).where(run.c.end_ns > from_ns, run.c.start_ns < (to_ns or _LARGEST_NS))
    if wanted:
        query = query.where(sa.or_(run.c.client.in_(wanted), run.c.server.in_(wanted)))
    rows = ctx.all(query.order_by(run.c.start_ns).limit(10_000))
    keys = ("id", "client", "server", "start_ns", "end_ns", "state", "owner", "kind", "overhead")
    ended = {state.value for state in ENDED}
    return [
        {key: row[key] for key in keys}
        | {"job_name": row["job_name"] if runs.may_see(ctx, row, row["owner"]) else ""}
        | {"reserves": _reserves(row, ended)}
        for row in rows
    ]


def _reserves(row: sa.RowMapping, ended: set[str]) -> bool:
    waits = row["kind"] == JobKind.TRIGGER and row["state"] in ("planned", "armed")
    return bool(row["overhead"]) and row["state"] not in ended and not waits


def _list_runs(
    _orchestrator: Orchestrator, ctx: RequestContext, request: pb.ListRunsRequest
) -> pb.Rows:
    found = runs.listing(
        ctx,
        of_job=request.job,
        node=request.node,
        user=request.user,
        states=list(request.states),
        from_ns=request.from_ns,
        to_ns=request.to_ns,
        limit=request.limit,
    )
    if not found:
        _check_named(ctx, request)
    return _rows(found)


def _check_named(ctx: RequestContext, request: Any) -> None:
    """Check that the job and the node exist that a request with an empty result names.

    Raises:
        NotFoundError: there is no such job or node.
    """
    if request.node:
        nodes.get(ctx, request.node)
    if request.job:
        # For another user's job the empty result is the right answer.
        with contextlib.suppress(DeniedError):
            jobs.get(ctx, request.job)


def _put_node(
    _orchestrator: Orchestrator, ctx: RequestContext, request: pb.Document
) -> pb.Document:
    return _document(nodes.put(ctx, _table(request.json)))


def _delete_node(
    orchestrator: Orchestrator, ctx: RequestContext, request: pb.NodeName
) -> pb.Document:
    nodes.delete(ctx, request.node)
    ctx.after_commit.append(lambda: orchestrator.telemetry.delete(request.node))
    return _document({"deleted": request.node})


def _invite(_orchestrator: Orchestrator, ctx: RequestContext, request: pb.NodeName) -> pb.Secret:
    nodes.get(ctx, request.node)
    expires_ns = ctx.now_ns + accounts.INVITATION_NS
    secret = accounts.issue(ctx, accounts.INVITATION, of_node=request.node, expires_ns=expires_ns)
    return pb.Secret(value=secret, expires_ns=expires_ns)


def _issue_token(
    _orchestrator: Orchestrator, ctx: RequestContext, request: pb.IssueTokenRequest
) -> pb.Secret:
    expires_ns = request.expires_ns or None
    label = request.label
    secret = accounts.issue(
        ctx, accounts.TOKEN, of_user=request.user, expires_ns=expires_ns, label=label
    )
    return pb.Secret(value=secret, expires_ns=expires_ns or 0)


def _revoke_token(
    _orchestrator: Orchestrator, ctx: RequestContext, request: pb.RevokeTokenRequest
) -> pb.Document:
    return _document({"revoked": accounts.revoke(ctx, request.user, request.token)})


def _delete_user(
    _orchestrator: Orchestrator, ctx: RequestContext, request: pb.UserName
) -> pb.Document:
    ended = accounts.delete_user(ctx, request.user)
    return _document({"deleted": request.user, "jobs_ended": ended})


def _put_config(
    _orchestrator: Orchestrator, ctx: RequestContext, request: pb.Document
) -> pb.Document:
    return _document(put_config(ctx, _table(request.json)))


def put_config(ctx: RequestContext, values: dict[str, Any]) -> dict[str, Any]:
    """Change settings; return all settings.

    Raises:
        InputError: a key is unknown, or its value is not a number above 0.
    """
    known = asdict(Settings())
    for key, value in values.items():
        if key not in known:
            raise InputError(f'"{key[:40]}" is not known; there are {", ".join(known)}')
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e10:  # noqa: PLR2004
            raise InputError(f"{key}: expected a number above 0")
        ctx.execute(sa.delete(config).where(config.c.key == key))
        ctx.execute(sa.insert(config).values(key=key, value=json.dumps(value)))
    return asdict(replace(ctx.settings, **values))


def store_addresses(ctx: RequestContext, values: dict[str, str]) -> None:
    """Store the testbed's public addresses, which invitations contain."""
    ctx.execute(sa.delete(config).where(config.c.key == _ADDRESSES))
    ctx.execute(sa.insert(config).values(key=_ADDRESSES, value=json.dumps(values)))


def _addresses(ctx: RequestContext) -> dict[str, Any]:
    text = ctx.connection.scalar(sa.select(config.c.value).where(config.c.key == _ADDRESSES))
    return {_ADDRESSES: json.loads(text) if text else {}}


def _audit(_orchestrator: Orchestrator, ctx: RequestContext, request: pb.AuditRequest) -> pb.Rows:
    query = sa.select(audit).where(audit.c.at_ns >= request.from_ns)
    if request.to_ns:
        query = query.where(audit.c.at_ns < request.to_ns)
    query = query.order_by(audit.c.id.desc()).limit(runs.row_limit(request.limit, 200))
    return _rows([dict(row) for row in ctx.all(query)])


def _obstruction_map(
    orchestrator: Orchestrator, ctx: RequestContext, request: pb.NodeName
) -> pb.Document:
    nodes.get(ctx, request.node)
    file = orchestrator.telemetry.map_file(request.node)
    if file is None:
        raise NotFoundError(f"{request.node}: no obstruction map has been reported yet")
    return pb.Document(json=file.read_text("utf-8"))


def _trigger_log(
    _orchestrator: Orchestrator, ctx: RequestContext, request: pb.TriggerLogRequest
) -> pb.Rows:
    found = nodes.trigger_evaluations(
        ctx,
        of_job=request.job,
        of_node=request.node,
        from_ns=request.from_ns,
        to_ns=request.to_ns,
        limit=request.limit,
    )
    if not found:
        _check_named(ctx, request)
    return _rows(found)


READING: dict[str, Procedure] = {
    "CheckJob": lambda _, ctx, a: pb.Checked(json=as_json(jobs.check_job(ctx, a.toml))),
    "ListJobs": _list_jobs,
    "NextSlot": _next_slot,
    "Calendar": _calendar,
    "ListRuns": _list_runs,
    "GetRun": lambda _, ctx, a: _document(runs.document(ctx, a.run)),
    "ListNodes": lambda _, ctx, a: _rows(nodes.listing(ctx, active=a.active)),
    "GetNode": lambda _, ctx, a: _document(nodes.document(ctx, a.node)),
    "TriggerLog": _trigger_log,
    "ObstructionMap": _obstruction_map,
    "GetProfile": lambda _, ctx, __: _document(accounts.profile(ctx)),
    "ListUsers": lambda _, ctx, __: _rows(accounts.users(ctx)),
    "GetConfig": lambda _, ctx, __: _document(asdict(ctx.settings) | _addresses(ctx)),
    "Audit": _audit,
}
"""RPC handlers that only read the database."""

WRITING: dict[str, Procedure] = {
    "SubmitJob": _submit,
    "ModifyJob": _modify,
    "CancelJob": _cancel,
    "AbortRun": lambda _, ctx, a: _document(runs.abort(ctx, a.run, a.reason)),
    "RescheduleRun": lambda _, ctx, a: _document(runs.reschedule(ctx, a.run, a.from_ns)),
    "SetScavenger": lambda _, ctx, a: _document(nodes.set_scavenger(ctx, a.node, a.mode)),
    "SetPolicy": lambda _, ctx, a: _document(nodes.set_policy(ctx, a.node, _table(a.json))),
    "PutProfile": lambda _, ctx, a: _document(accounts.put_profile(ctx, _table(a.json))),
    "PutUser": lambda _, ctx, a: _document(accounts.put_user(ctx, _table(a.json))),
    "DeleteUser": _delete_user,
    "IssueToken": _issue_token,
    "RevokeToken": _revoke_token,
    "PutNode": _put_node,
    "DeleteNode": _delete_node,
    "Invite": _invite,
    "PutConfig": _put_config,
}
"""RPC handlers that modify the database."""
