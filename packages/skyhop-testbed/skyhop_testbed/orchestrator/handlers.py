"""Handlers of the operations that are one transaction: from a request to its answer.

All are synchronous and receive a request context; `service` has authenticated the caller and
checked the role before. `reading` and `writing` enter them into the tables by operation.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

import sqlalchemy as sa

from skyhop.errors import InputError, SkyhopError
from skyhop_testbed import api
from skyhop_testbed.api import A, Operation, Q
from skyhop_testbed.keys import fingerprint, is_request_of, valid_until
from skyhop_testbed.orchestrator import (
    access,
    accounts,
    alerts,
    jobs,
    nodes,
    planning,
    quotas,
    runs,
    uploads,
    webhooks,
)
from skyhop_testbed.orchestrator.authority import FIRST_NAME, Generation
from skyhop_testbed.orchestrator.core import Orchestrator
from skyhop_testbed.orchestrator.request_context import (
    Caller,
    DeniedError,
    NotFoundError,
    RequestContext,
)
from skyhop_testbed.orchestrator.stored_file import StoredFile
from skyhop_testbed.store.tables import audit, config, job, run
from skyhop_testbed.words import ENDED, JobKind, Side

_LARGEST_NS = 2**62
_LARGEST_SETTING = 1e15
_MOST_RESERVATIONS = 10_000
_ADDRESSES = "addresses"
"""Key of the testbed's public addresses in the table `config`."""

_OF_CALLER = (api.RENEW.name, api.PUT_PROFILE.name)
"""Operations that change the caller."""

READING: dict[str, Callable[[Orchestrator, RequestContext, Any], Any]] = {}
"""Handlers that only read the database, by the operation's name."""
WRITING: dict[str, Callable[[Orchestrator, RequestContext, Any], Any]] = {}
"""Handlers that modify the database, by the operation's name."""

PREPARING: dict[str, Callable[[RequestContext, Any], Any]] = {
    api.SUBMIT_JOB.name: lambda ctx, a: jobs.check_new(ctx, a.toml),
    api.MODIFY_JOB.name: lambda ctx, a: jobs.check_changed(ctx, a.job, a.toml),
}
"""Long work before a handler that modifies the database, by the operation's name.

It has a transaction of its own, which only reads; its result is `RequestContext.prepared`.
"""

FILES: dict[str, Callable[[Orchestrator, RequestContext, Any], Path | StoredFile]] = {}
"""Handlers of downloads, which return the file, by the operation's name."""

ACTING: dict[str, Callable[[Orchestrator, Caller, Any], Any]] = {}
"""Handlers that change more than the database, by the operation's name."""

Handler = Callable[[Orchestrator, RequestContext, Q], A]
Acting = Callable[[Orchestrator, Caller, Q], A]


def reading(operation: Operation[Q, A]) -> Callable[[Handler[Q, A]], Handler[Q, A]]:
    """Return a decorator that makes a function the handler of an operation that only reads."""
    return lambda handler: READING.setdefault(operation.name, handler)


def writing(operation: Operation[Q, A]) -> Callable[[Handler[Q, A]], Handler[Q, A]]:
    """Return a decorator that makes a function the handler of an operation that writes."""
    return lambda handler: WRITING.setdefault(operation.name, handler)


def acting(operation: Operation[Q, A]) -> Callable[[Acting[Q, A]], Acting[Q, A]]:
    """Return a decorator for a handler that opens its transactions itself."""
    return lambda handler: ACTING.setdefault(operation.name, handler)


def file(
    operation: Operation[Q, bytes],
) -> Callable[[Handler[Q, Path | StoredFile]], Handler[Q, Path | StoredFile]]:
    """Return a decorator that makes a function the handler of a download."""
    return lambda handler: FILES.setdefault(operation.name, handler)


def call(orchestrator: Orchestrator, operation: Operation[Q, A], caller: Caller, request: Q) -> A:
    """Call an operation's handler in a transaction, with a line of the audit log."""
    if operation.name in READING:
        with orchestrator.reading(caller) as ctx:
            return cast("A", READING[operation.name](orchestrator, ctx, request))
    if operation.name in ACTING:
        done = cast("A", ACTING[operation.name](orchestrator, caller, request))
        with orchestrator.writing(caller) as ctx:
            ctx.audit(operation.name, target_of(dict(request)))
        return done
    prepared = None
    if operation.name in PREPARING:
        with orchestrator.reading(caller) as ctx:
            prepared = PREPARING[operation.name](ctx, request)
    with orchestrator.writing(caller) as ctx:
        ctx.prepared = prepared
        done = cast("A", WRITING[operation.name](orchestrator, ctx, request))
        if operation.is_audited:
            own = operation.name in _OF_CALLER
            ctx.audit(operation.name, caller.name if own else target_of(dict(request)))
        return done


def note_refusal(
    orchestrator: Orchestrator,
    operation: Operation[Any, Any],
    caller: Caller,
    target: str,
    error: SkyhopError,
) -> None:
    """Write a refused call to the audit log, if the operation's calls are written there."""
    if operation.is_audited:
        with orchestrator.writing(caller) as ctx:
            ctx.audit(operation.name, target, f"refused: {error}"[:300])


def target_of(values: Mapping[str, object]) -> str:
    """Return the job, run, node or user that a request names, for the audit log; never a secret."""
    for name in ("job", "run", "node", "user", "name", "version"):
        if values.get(name):
            return str(values[name])[:200]
    lines = str(values.get("toml", "")).splitlines()
    return next((line for line in lines if line.startswith("id")), "")[:200]


@writing(api.ENROL)
def _enrol(of: Orchestrator, ctx: RequestContext, request: api.Enrol) -> api.Certificate:
    accounts.redeem_invitation(ctx, request.token, request.node)
    nodes.get(ctx, request.node)
    accounts.delete_certificates(ctx, request.node)
    return _certificate(of, ctx, request.node, request.csr_pem)


def _certificate(
    of: Orchestrator, ctx: RequestContext, node: str, request_pem: bytes
) -> api.Certificate:
    pem = of.authority.sign_node(node, request_pem, of.now())
    expires_ns = round(valid_until(pem)[1].timestamp() * 1e9)
    issuer = of.authority.signing.name
    accounts.register_certificate(ctx, node, fingerprint(pem), expires_ns, issuer)
    return api.Certificate(
        certificate_pem=pem,
        authority_pem=of.authority.certificate_pem,
        orders_key=of.authority.orders_key,
        orders_keys=of.authority.orders_keys,
    )


@writing(api.REENROL)
def _reenrol(of: Orchestrator, ctx: RequestContext, request: api.Reenrol) -> api.Reenrolment:
    """Issue a certificate to a node whose certificate has expired, if an administrator agrees."""
    node, old, asked = request.node, request.certificate_pem, request.csr_pem
    try:
        digest, is_own = fingerprint(old), is_request_of(old, asked, request.signature)
    except ValueError as error:
        raise InputError(f"the certificate cannot be read: {error}") from None
    nodes.get(ctx, node)
    accounts.check_expired(ctx, node, digest)
    if not is_own:
        raise DeniedError("the request is not signed by the key of the expired certificate")
    if not accounts.take_approval(ctx, node, hashlib.sha256(asked).digest()):
        return api.Reenrolment()
    accounts.delete_certificates(ctx, node)
    return api.Reenrolment(certificate=_certificate(of, ctx, node, asked))


def authority_status(of: Orchestrator, ctx: RequestContext) -> api.AuthorityStatus:
    """Return the authorities that nodes and users trust, and the nodes that lack the newest."""
    signing, former = of.authority.signing, of.authority.former
    behind = accounts.nodes_behind(ctx, signing.name, FIRST_NAME)
    return api.AuthorityStatus(
        signing=_authority_info(signing),
        former=None if former is None else _authority_info(former),
        nodes_behind=behind,
    )


def _authority_info(generation: Generation) -> api.AuthorityInfo:
    begin, end = valid_until(generation.certificate_pem)
    return api.AuthorityInfo(
        name=generation.name,
        sha256=fingerprint(generation.certificate_pem).hex(),
        from_ns=round(begin.timestamp() * 1e9),
        to_ns=round(end.timestamp() * 1e9),
    )


@acting(api.ROTATE_AUTHORITY)
def _rotate(of: Orchestrator, caller: Caller, _request: api.Nothing) -> api.AuthorityStatus:
    of.rotate_authority()
    with of.reading(caller) as ctx:
        return authority_status(of, ctx)


@acting(api.RETIRE_AUTHORITY)
def _retire(of: Orchestrator, caller: Caller, request: api.Retire) -> api.AuthorityStatus:
    with of.reading(caller) as ctx:
        status = authority_status(of, ctx)
    if status.former is not None and status.nodes_behind and not request.force:
        raise InputError(
            f"{', '.join(status.nodes_behind[:5])}: {len(status.nodes_behind)} nodes have no "
            "certificate of the new authority yet: wait for them, or retire with --force and "
            "invite them again"
        )
    of.retire_authority()
    with of.reading(caller) as ctx:
        return authority_status(of, ctx)


@writing(api.CLAIM)
def _claim(_: Orchestrator, ctx: RequestContext, request: api.Claim) -> api.Grant:
    granted, reason = runs.claim(ctx, request.run, request.fence, request.at_ns)
    return api.Grant(granted=granted, reason=reason)


@writing(api.REPORT)
def _report(of: Orchestrator, ctx: RequestContext, request: api.Batch) -> int:
    last, samples = nodes.report(ctx, request.events)
    # Store samples before the commit: if the commit fails, it is harmless to store them twice.
    if samples:
        of.store_telemetry(ctx.caller.name, samples)
    seen = nodes.newest_map(request.events)
    if seen is not None:
        of.telemetry.write_map(ctx.caller.name, seen)
    return last


@reading(api.UPLOAD_STATE)
def _upload_state(of: Orchestrator, ctx: RequestContext, request: api.RunSide) -> dict[str, int]:
    uploads.check_uploader(ctx, request.run, request.side)
    return of.uploads.offsets(request.run, request.side)


@reading(api.UPLOAD_PROGRESS)
def _upload_progress(
    of: Orchestrator, ctx: RequestContext, request: api.RunSide
) -> api.UploadProgress:
    uploads.check_uploader(ctx, request.run, request.side)
    return of.uploads.progress(request.run, request.side, ctx.settings.files_per_run)


@file(api.OBSTRUCTION_MAP)
def _obstruction_map(of: Orchestrator, ctx: RequestContext, request: api.NamedNode) -> Path:
    nodes.get(ctx, request.node)
    path = of.telemetry.map_file(request.node)
    if path is None:
        raise NotFoundError(f"{request.node}: no obstruction map has been reported yet")
    return path


@reading(api.LIST_JOBS)
def _list_jobs(_: Orchestrator, ctx: RequestContext, request: api.ListJobs) -> list[api.JobInfo]:
    if request.node:
        nodes.get(ctx, request.node)
    return jobs.listing(ctx, of_node=request.node, user=request.user, ended=request.ended)


@reading(api.NEXT_SLOT)
def _next_slot(_: Orchestrator, ctx: RequestContext, request: api.NextSlot) -> api.Slot:
    for name in request.nodes:
        nodes.get(ctx, name)
    if not request.nodes or not 0 < request.length_ns < _LARGEST_NS:
        raise InputError("expected nodes and a length")
    from_ns = max(request.from_ns, ctx.now_ns)
    end_ns = request.end_ns or None
    slot = planning.next_slot(ctx, request.nodes, request.length_ns, from_ns, end_ns)
    return api.Slot(start_ns=slot)


def calendar(
    ctx: RequestContext, wanted: Sequence[str], from_ns: int, to_ns: int
) -> list[api.Reservation]:
    """Return the runs on nodes (all nodes if `wanted` is empty) in a time range, earliest first.

    Occurrences of repeating jobs that have no run yet are included, without an id, for as long
    ahead as runs are planned.
    """
    for name in wanted:
        nodes.get(ctx, name)
    query = sa.select(run, job.c.name.label("job_name"), job.c.owner, job.c.kind, job.c.overhead)
    query = query.join(job).where(run.c.end_ns > from_ns, run.c.start_ns < (to_ns or _LARGEST_NS))
    if wanted:
        query = query.where(sa.or_(run.c.client.in_(wanted), run.c.server.in_(wanted)))
    rows = [dict(row) for row in ctx.all(query.order_by(run.c.start_ns).limit(_MOST_RESERVATIONS))]
    later = planning.later_occurrences(
        ctx, wanted, from_ns, to_ns or ctx.now_ns + planning.AHEAD_NS
    )
    rows += islice(later, _MOST_RESERVATIONS - len(rows))
    rows.sort(key=lambda row: row["start_ns"])
    ended = {state.value for state in ENDED}
    found = []
    for row in rows:
        name = row["job_name"] if runs.may_see(ctx, row, row["owner"]) else ""
        values = {**row, "job_name": name, "reserves": _reserves(row, ended)}
        found.append(api.Reservation.model_validate(values))
    return found


def _reserves(row: Mapping[str, Any], ended: set[str]) -> bool:
    waits = row["kind"] == JobKind.TRIGGER and row["state"] in ("planned", "armed")
    return bool(row["overhead"]) and row["state"] not in ended and not waits


@reading(api.LIST_RUNS)
def _list_runs(_: Orchestrator, ctx: RequestContext, request: api.ListRuns) -> list[api.RunInfo]:
    found = runs.listing(
        ctx,
        of_job=request.job,
        node=request.node,
        user=request.user,
        states=request.states,
        from_ns=request.from_ns,
        to_ns=request.to_ns,
        limit=request.limit,
    )
    if not found:
        _check_named(ctx, request)
    return found


def _check_named(ctx: RequestContext, request: api.ListRuns | api.TriggerLog) -> None:
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


@writing(api.SUBMIT_JOB)
def _submit(of: Orchestrator, ctx: RequestContext, request: api.SubmitJob) -> api.SubmittedJob:
    of.check_room()
    return jobs.submit(ctx, request.toml, request.files, of.objects, found=ctx.prepared)


@writing(api.MODIFY_JOB)
def _modify(of: Orchestrator, ctx: RequestContext, request: api.ModifyJob) -> api.SubmittedJob:
    of.check_room()
    return jobs.modify(
        ctx, request.job, request.toml, request.files, of.objects, found=ctx.prepared
    )


@writing(api.DROP_FILES)
def _drop_files(of: Orchestrator, ctx: RequestContext, request: api.NamedRun) -> int:
    """Delete a run's files before their retention time; return the bytes that this frees."""
    runs.check_files(ctx, request.run)
    freed = 0
    for side in Side:
        files = of.uploads.files_of(ctx, request.run, side)
        freed += of.uploads.kept_bytes(ctx, files)
        if of.uploads.forget(ctx, files):
            ctx.after_commit.append(partial(of.uploads.remove, files.directory))
    return freed


@writing(api.DELETE_NODE)
def _delete_node(of: Orchestrator, ctx: RequestContext, request: api.NamedNode) -> str:
    nodes.delete(ctx, request.node)
    ctx.after_commit.append(lambda: of.telemetry.delete(request.node))
    return request.node


@writing(api.INVITE)
def _invite(_: Orchestrator, ctx: RequestContext, request: api.NamedNode) -> str:
    nodes.get(ctx, request.node)
    expires_ns = ctx.now_ns + accounts.INVITATION_NS
    return accounts.issue(ctx, accounts.INVITATION, of_node=request.node, expires_ns=expires_ns)


@reading(api.TRIGGER_LOG)
def _trigger_log(
    _: Orchestrator, ctx: RequestContext, request: api.TriggerLog
) -> list[api.TriggerLine]:
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
    return found


@writing(api.ISSUE_TOKEN)
def _issue_token(_: Orchestrator, ctx: RequestContext, request: api.IssueToken) -> str:
    return accounts.issue(
        ctx,
        accounts.TOKEN,
        of_user=request.user,
        expires_ns=request.expires_ns or None,
        label=request.label,
    )


@reading(api.GET_CONFIG)
def _get_config(of: Orchestrator, ctx: RequestContext, _request: api.Nothing) -> api.Config:
    text = ctx.connection.scalar(sa.select(config.c.value).where(config.c.key == _ADDRESSES))
    addresses = json.loads(text) if text else {}
    return api.Config(**asdict(ctx.settings), addresses=addresses, shortage=of.shortage() or "")


def put_config(ctx: RequestContext, values: api.Document) -> api.Settings:
    """Change settings; return all settings.

    Raises:
        InputError: a key is unknown, or its value is not a number above 0.
    """
    known = asdict(api.Settings())
    for key, value in values.items():
        if key not in known:
            raise InputError(f'"{key[:40]}" is not known; there are {", ".join(known)}')
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 < value < _LARGEST_SETTING
        ):
            raise InputError(f"{key}: expected a number above 0")
        ctx.execute(sa.delete(config).where(config.c.key == key))
        ctx.execute(sa.insert(config).values(key=key, value=json.dumps(value)))
    return replace(ctx.settings, **values)  # type: ignore[arg-type]


def store_addresses(ctx: RequestContext, values: dict[str, str]) -> None:
    """Store the testbed's public addresses, which invitations contain."""
    ctx.execute(sa.delete(config).where(config.c.key == _ADDRESSES))
    ctx.execute(sa.insert(config).values(key=_ADDRESSES, value=json.dumps(values)))


def _quotas(ctx: RequestContext, kind: str, name: str) -> list[api.QuotaLine]:
    """Return the quotas of a user or a node.

    Raises:
        InputError: the kind is neither "user" nor "node".
        DeniedError: it is neither the caller nor the caller's node.
    """
    if kind not in (quotas.USER, quotas.NODE):
        raise InputError('kind: expected "user" or "node"')
    if kind == quotas.NODE:
        nodes.get(ctx, name)
        access.check_owns_node(ctx, name)
    elif name != ctx.caller.name and not ctx.caller.is_admin:
        raise DeniedError(f"the quotas of {name[:80]} are not yours")
    return quotas.lines(ctx, kind, name)


@reading(api.AUDIT)
def _audit(_: Orchestrator, ctx: RequestContext, request: api.ListAudit) -> list[api.AuditLine]:
    query = sa.select(audit).where(audit.c.at_ns >= request.from_ns)
    if request.to_ns:
        query = query.where(audit.c.at_ns < request.to_ns)
    query = query.order_by(audit.c.id.desc()).limit(runs.row_limit(request.limit, 200))
    return [api.AuditLine.model_validate(dict(row)) for row in ctx.all(query)]


writing(api.RENEW)(lambda of, ctx, a: _certificate(of, ctx, ctx.caller.name, a.csr_pem))
file(api.INPUT)(lambda of, ctx, a: jobs.input_file(ctx, a.job, a.name, of.objects))
file(api.FETCH)(lambda of, ctx, a: of.uploads.stored(ctx, a.run, a.side, a.name))
reading(api.CHECK_JOB)(lambda _, ctx, a: jobs.check_job(ctx, a.toml))
writing(api.CANCEL_JOB)(lambda _, ctx, a: jobs.cancel(ctx, a.job))
reading(api.CALENDAR)(lambda _, ctx, a: calendar(ctx, a.nodes, a.from_ns, a.to_ns))
reading(api.LIST_FILES)(
    lambda _, ctx, a: runs.files(
        ctx, a.run, (a.after_side, a.after_name), runs.row_limit(a.limit, runs.FILES_SHOWN)
    )
)
reading(api.GET_RUN)(lambda _, ctx, a: runs.document(ctx, a.run))
writing(api.ABORT_RUN)(lambda _, ctx, a: runs.abort(ctx, a.run, a.reason))
writing(api.RESCHEDULE_RUN)(lambda _, ctx, a: runs.reschedule(ctx, a.run, a.from_ns))
reading(api.LIST_NODES)(lambda _, ctx, a: nodes.listing(ctx, active=a.active))
reading(api.GET_NODE)(lambda _, ctx, a: nodes.document(ctx, a.node))
writing(api.SET_SCAVENGER)(lambda _, ctx, a: nodes.set_scavenger(ctx, a.node, a.mode))
writing(api.SET_POLICY)(lambda _, ctx, a: nodes.set_policy(ctx, a.node, a.policy))
writing(api.PUT_NODE)(lambda _, ctx, a: nodes.put(ctx, a))
reading(api.GET_PROFILE)(lambda _, ctx, __: accounts.profile(ctx))
writing(api.PUT_PROFILE)(lambda _, ctx, a: accounts.put_profile(ctx, a))
reading(api.LIST_USERS)(lambda _, ctx, __: accounts.users(ctx))
writing(api.PUT_USER)(lambda _, ctx, a: accounts.put_user(ctx, a))
writing(api.DELETE_USER)(lambda _, ctx, a: accounts.delete_user(ctx, a.user))
writing(api.REVOKE_TOKEN)(lambda _, ctx, a: accounts.revoke(ctx, a.user, a.token))
reading(api.AUTHORITY)(lambda of, ctx, _: authority_status(of, ctx))
reading(api.TRUST)(lambda of, _, __: api.Trust(authority_pem=of.authority.certificate_pem))
writing(api.APPROVE)(lambda _, ctx, a: accounts.approve(ctx, a.node))
reading(api.GET_QUOTAS)(lambda _, ctx, a: _quotas(ctx, a.kind, a.name))
writing(api.PUT_QUOTAS)(lambda _, ctx, a: quotas.put(ctx, a.kind, a.name, a.values))
writing(api.PUT_CONFIG)(lambda _, ctx, a: put_config(ctx, a.values))
reading(api.LIST_ALERTS)(lambda _, ctx, a: alerts.listing(ctx, ended=a.all, limit=a.limit))
reading(api.LIST_WEBHOOKS)(lambda _, ctx, __: webhooks.listing(ctx))
writing(api.PUT_WEBHOOK)(lambda _, ctx, a: webhooks.put(ctx, a))
writing(api.DELETE_WEBHOOK)(lambda _, ctx, a: webhooks.remove(ctx, a.name))
writing(api.TEST_WEBHOOK)(lambda _, ctx, a: webhooks.test(ctx, a.name))
