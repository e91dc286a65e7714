"""Jobs: parse, check against the calendar, and accept or reject.

Conflicts are searched in a transaction that only reads. The one that writes searches among the
reservations that have come since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from skyhop.errors import InputError
from skyhop_testbed import calendar
from skyhop_testbed.api import Check, Conflict, Interval, JobInfo, SubmittedJob
from skyhop_testbed.calendar import Findings, Plan, check
from skyhop_testbed.ids import new_id
from skyhop_testbed.job import LONGEST_INPUTS_BYTES, Job, read_job
from skyhop_testbed.keys import write_private
from skyhop_testbed.orchestrator import access, quotas, runs
from skyhop_testbed.orchestrator.agents import agent_of
from skyhop_testbed.orchestrator.planning import Reservations, bookings, plan_runs, spec_of
from skyhop_testbed.orchestrator.request_context import (
    ConflictError,
    DeniedError,
    NotFoundError,
    RequestContext,
    as_json,
)
from skyhop_testbed.privacy import check_readable
from skyhop_testbed.protocol import needed_protocol
from skyhop_testbed.states import Change
from skyhop_testbed.store.tables import job, job_file, job_node, node, run
from skyhop_testbed.triggers.parse import fields_in, parse
from skyhop_testbed.words import ACTIVE, ENDED, Reason, Role, Side, State


def read(text: str) -> Job:
    """Parse a job file, including the expressions of its trigger and its conditions.

    Raises:
        InputError: the file or an expression is invalid.
    """
    spec = read_job(text)
    if spec.when.trigger is not None:
        parse(spec.when.trigger)
    for name, condition in spec.run.conditions.items():
        parse(condition, f"condition {name}")
    return spec


@dataclass(frozen=True)
class Checked:
    """Job that was checked against the calendar as it was at a time.

    The search for conflicts may take long. It needs no write transaction: the one that accepts the
    job looks at the reservations that have come since.
    """

    spec: Job
    at_ns: int
    """Time of the check, which counts as the job's submission."""
    without: str
    """Id of the job to be replaced, whose reservations are ignored; "" for none."""
    reservations: Reservations
    """Reservations of the job's nodes at that time."""
    findings: Findings

    def since(self, ctx: RequestContext) -> Findings:
        """Return the conflicts with reservations that have come since.

        The job to be replaced is closed by then; its run in progress is such a reservation.
        """
        others, booked = bookings(ctx, _nodes_of(self.spec), known=self.reservations)
        if not others and not booked:
            return Findings((), 0, None)
        return check(Plan("", self.spec, self.at_ns), others, booked, now_ns=self.at_ns)


def checked(ctx: RequestContext, spec: Job, *, without: str = "") -> Checked:
    """Check a job: search for conflicts, and for the first time without conflict.

    Args:
        ctx: the request.
        spec: the job.
        without: id of a job whose reservations are ignored, such as the job to be replaced.

    Raises:
        InputError: a node does not exist, or the server has no address.
        DeniedError: the job is not permitted to this user.
    """
    _check_permitted(ctx, spec)
    found = bookings(ctx, _nodes_of(spec), without=without)
    findings = check(Plan("", spec, ctx.now_ns), *found, now_ns=ctx.now_ns)
    return Checked(spec, ctx.now_ns, without, found, findings)


def _nodes_of(spec: Job) -> list[str]:
    return [*spec.nodes, *([spec.server] if spec.server else [])]


def _check_permitted(ctx: RequestContext, spec: Job) -> None:
    """Check that a job's nodes exist and understand it, and that the caller may have it.

    Raises:
        InputError, DeniedError: as for `checked`.
    """
    if spec.kernel.is_needed and ctx.caller.role not in (Role.ADMIN, Role.USER_PRIV):
        raise DeniedError('[kernel] is for users with the role "user-priv"')
    wanted = _nodes_of(spec)
    known = set(ctx.connection.scalars(sa.select(node.c.name).where(node.c.name.in_(wanted))))
    for name in wanted:
        if name not in known:
            raise NotFoundError(f"there is no node {name}: skyhop testbed nodes lists them")
    _check_understood(ctx, spec, wanted)
    if spec.server and not _address(ctx, spec.server):
        raise InputError(f"server: {spec.server} has no address; its owner gives it one")
    _check_trigger(ctx, spec)


def _check_trigger(ctx: RequestContext, spec: Job) -> None:
    """Check that a job's trigger does not read an owner's traffic that the caller may not read.

    Raises:
        InputError: it does, on the node that the message names.
    """
    if spec.when.trigger is None:
        return
    fields = fields_in(spec.when.trigger)
    for name in spec.nodes:
        if not access.sees_traffic(ctx, name):
            check_readable(name, fields)


def _check_understood(ctx: RequestContext, spec: Job, names: list[str]) -> None:
    """Check that the agents of all nodes are new enough for a job's keys.

    A node that has never connected passes: its agent is not known yet.

    Raises:
        InputError: an agent is too old; the message names the key that it would refuse.
    """
    needed, key = needed_protocol(spec)
    for row in ctx.all(sa.select(node).where(node.c.name.in_(names)).order_by(node.c.name)):
        agent = agent_of(row)
        if agent is not None and agent.highest < needed:
            raise InputError(
                f"{row['name']}: its agent (skyhop {agent.version or 'without a version'}) does "
                f"not know {key}: ask its owner to upgrade it, or choose another node"
            )


def check_job(ctx: RequestContext, text: str) -> Check:
    """Check a job without submitting it; return its conflicts and its first free time.

    Raises:
        InputError, DeniedError: as for `submit`; conflicts are returned, not raised.
    """
    spec = read(text)
    old = _active_job_id(ctx, spec.id)
    quotas.check_job(ctx, spec, ctx.caller.name, replaces=bool(old))
    findings = checked(ctx, spec, without=old).findings
    return Check(
        job=spec.id,
        kind=spec.when.kind,
        nodes=spec.nodes,
        server=spec.server,
        first=_times(findings.first),
        conflicts=_conflicts(ctx, findings),
        conflicts_total=findings.total,
    )


def check_new(ctx: RequestContext, text: str) -> Checked:
    """Check a job before `submit`, in a transaction that only reads.

    Raises:
        ConflictError, QuotaError, InputError, DeniedError: as for `submit`.
    """
    spec = read(text)
    _check_name(ctx, spec)
    quotas.check_job(ctx, spec, ctx.caller.name)
    found = checked(ctx, spec)
    _refuse(ctx, found.findings)
    return found


def submit(
    ctx: RequestContext,
    text: str,
    files: Mapping[str, bytes],
    objects: Path,
    *,
    owner: str | None = None,
    found: Checked | None = None,
) -> SubmittedJob:
    """Accept a job, and plan its runs.

    Args:
        ctx: the request.
        text: the job file.
        files: contents of the job's input files by their names.
        objects: directory of all input files.
        owner: the job's owner, if it is not the caller.
        found: result of the job's check in an earlier transaction; by default it is checked now.

    Raises:
        ConflictError: other jobs have reserved the nodes; nothing is written.
        QuotaError: the owner or a node has used up a quota.
        InputError, DeniedError: the job is invalid, or not permitted to this user.
    """
    spec = read(text) if found is None else found.spec
    owner = owner or ctx.caller.name
    _check_name(ctx, spec)
    quotas.check_job(ctx, spec, owner)
    if found is None:
        found = checked(ctx, spec)
        _refuse(ctx, found.findings)
    else:
        _check_permitted(ctx, spec)
        _refuse(ctx, found.since(ctx))
    _check_files(spec, files)
    row: dict[str, Any] = {
        "id": new_id(ctx.now_ns),
        "owner": owner,
        "name": spec.id,
        "spec": as_json(spec.as_json()),
        "kind": spec.when.kind.value,
        "overhead": spec.overhead,
        "state": "active",
        "created_ns": found.at_ns,
        "planned_ns": 0,
        "extend_ns": 0,
    }
    # A finished job of this name is renamed: (owner, name) is unique.
    old = (job.c.owner == owner) & (job.c.name == spec.id)
    ctx.execute(sa.update(job).where(old).values(name=job.c.name + "~" + job.c.id))
    ctx.execute(sa.insert(job).values(**row))
    _insert_nodes(ctx, row["id"], spec)
    _store_files(ctx, row["id"], files, objects)
    kept = ctx.first(sa.select(job).where(job.c.id == row["id"]))
    assert kept is not None
    made = plan_runs(ctx, kept)
    values = _columns(kept)
    return SubmittedJob(**values, runs=len(made), first=_times(found.findings.first))


def _check_name(ctx: RequestContext, spec: Job) -> None:
    if _active_job_id(ctx, spec.id):
        raise InputError(f"job {spec.id}: you have an active job of this name; cancel or modify it")


def check_changed(ctx: RequestContext, name: str, text: str) -> Checked:
    """Check a job before `modify`, in a transaction that only reads.

    Raises:
        NotFoundError, DeniedError, ConflictError, InputError: as for `modify`.
    """
    old = get(ctx, name)
    access.check_owns_job(ctx, old["owner"], f"job {name}")
    spec = read(text)
    if spec.id != old["name"]:
        raise InputError(f"the file's id is {spec.id}, not {old['name']}")
    found = checked(ctx, spec, without=old["id"])
    _refuse(ctx, found.findings)
    return found


def modify(
    ctx: RequestContext,
    name: str,
    text: str,
    files: Mapping[str, bytes],
    objects: Path,
    *,
    found: Checked | None = None,
) -> SubmittedJob:
    """Replace a job; runs that have begun continue under the old specification.

    `found` is the result of `check_changed` in an earlier transaction; by default it is called now.

    Raises:
        NotFoundError, DeniedError, ConflictError, InputError: as for `submit`.
    """
    old = get(ctx, name)
    access.check_owns_job(ctx, old["owner"], f"job {name}")
    if found is None or found.without != old["id"]:
        found = check_changed(ctx, name, text)
    _close(ctx, old, Reason.JOB_ENDED)
    ctx.execute(
        sa.update(job).where(job.c.id == old["id"]).values(name=f"{old['name']}~{old['id']}")
    )
    # A job that an administrator corrects keeps its owner.
    return submit(ctx, text, files, objects, owner=old["owner"], found=found)


def cancel(ctx: RequestContext, name: str) -> JobInfo:
    """Cancel a job: skip its planned runs and abort its runs in progress.

    Raises:
        NotFoundError: there is no such job.
        DeniedError: the caller owns neither the job nor one of its client nodes.
    """
    row = get(ctx, name)
    if not any(access.owns_node(ctx, client) for client in spec_of(row).nodes):
        access.check_owns_job(ctx, row["owner"], f"job {name}")
    _close(ctx, row, Reason.USER)
    return JobInfo(**{**_columns(row), "state": "cancelled"})


def close_all(ctx: RequestContext, owner: str) -> int:
    """Cancel all unfinished jobs of a user; return their number."""
    open_runs = sa.select(run.c.job).where(run.c.state.notin_([state.value for state in ENDED]))
    # A replaced job is no longer active, but its runs may still be in progress.
    unfinished = sa.or_(job.c.state == "active", job.c.id.in_(open_runs))
    rows = ctx.all(sa.select(job).where(job.c.owner == owner, unfinished).order_by(job.c.id))
    for row in rows:
        _close(ctx, row, Reason.USER)
    return len(rows)


def _close(ctx: RequestContext, row: sa.RowMapping, reason: Reason) -> None:
    runs.skip_planned(ctx, row["id"], reason)
    begun = run.c.state.in_([State.ARMED.value, *(state.value for state in ACTIVE)])
    for each in ctx.all(sa.select(run).where(run.c.job == row["id"], begun)):
        is_armed = State(each["state"]) is State.ARMED
        if is_armed or reason is not Reason.JOB_ENDED:
            state = State.SKIPPED if is_armed else State.ABORTED
            runs.apply(ctx, each, Change(ctx.now_ns, state, ctx.caller.actor, reason))
            runs.end_tasks(ctx, each["id"])
    ctx.execute(sa.update(job).where(job.c.id == row["id"]).values(state="cancelled"))
    spec = spec_of(row)
    ctx.bump_revision({*spec.nodes, *([spec.server] if spec.server else [])})


def get(ctx: RequestContext, name: str) -> sa.RowMapping:
    """Return a job that the caller may see, by its id, or by its name among the caller's jobs.

    Raises:
        NotFoundError: there is no such job.
        DeniedError: the caller owns neither the job nor one of its nodes.
    """
    mine = (job.c.name == name) & (job.c.owner == ctx.caller.name)
    row = ctx.first(sa.select(job).where(sa.or_(job.c.id == name, mine)))
    if row is None and ctx.caller.is_admin:
        row = ctx.first(sa.select(job).where(job.c.name == name))
    if row is None:
        raise NotFoundError(f"there is no job {name[:80]} of yours")
    if not may_see(ctx, row):
        raise DeniedError(f"job {name[:80]} is not yours")
    return row


def may_see(ctx: RequestContext, row: sa.RowMapping) -> bool:
    """Return whether the caller owns the job or one of its nodes, or is an administrator."""
    if ctx.caller.is_admin or row["owner"] == ctx.caller.name:
        return True
    hosts = sa.select(job_node.c.node).where(job_node.c.job == row["id"])
    return any(access.owns_node(ctx, name) for name in ctx.connection.scalars(hosts))


def listing(
    ctx: RequestContext, *, of_node: str = "", user: str = "", ended: bool = False
) -> list[JobInfo]:
    """Return the caller's own jobs and the jobs on the caller's nodes; all for administrators."""
    query = sa.select(job).order_by(job.c.created_ns.desc()).limit(10_000)
    on = sa.select(job_node.c.job)
    if not ctx.caller.is_admin:
        hosted = on.where(job_node.c.node.in_(access.my_nodes(ctx)))
        query = query.where(sa.or_(job.c.owner == ctx.caller.name, job.c.id.in_(hosted)))
    if of_node:
        query = query.where(job.c.id.in_(on.where(job_node.c.node == of_node)))
    if user:
        query = query.where(job.c.owner == user)
    if not ended:
        query = query.where(job.c.state == "active")
    return [JobInfo(**_columns(row)) for row in ctx.all(query)]


def input_file(ctx: RequestContext, job_id: str, name: str, objects: Path) -> Path:
    """Return the path of a job's input file, for a node that runs the job.

    Raises:
        NotFoundError: there is no such file, or the calling node is not one of the job's.
    """
    chosen = (job_node.c.job == job_id) & (job_node.c.node == ctx.caller.name)
    kept = (job_file.c.job == job_id) & (job_file.c.name == name)
    row = ctx.first(sa.select(job_file).where(kept, sa.exists().where(chosen)))
    if row is None:
        raise NotFoundError(f"there is no such file of job {job_id[:40]} for {ctx.caller.name}")
    return objects / "inputs" / str(row["sha256"])


def _address(ctx: RequestContext, name: str) -> str:
    return str(ctx.connection.scalar(sa.select(node.c.address).where(node.c.name == name)) or "")


def _active_job_id(ctx: RequestContext, name: str) -> str:
    """Return the id of the caller's active job named `name`; "" if there is none."""
    chosen = (job.c.owner == ctx.caller.name) & (job.c.name == name) & (job.c.state == "active")
    return str(ctx.connection.scalar(sa.select(job.c.id).where(chosen)) or "")


def _refuse(ctx: RequestContext, findings: Findings) -> None:
    if findings.total:
        try:
            findings.raise_if_conflicting()
        except InputError as error:
            met = _conflicts(ctx, findings)
            text = str(error)
            for conflict, each in zip(findings.conflicts, met, strict=False):
                text = text.replace(f"job {conflict.other}", f"{each.owner}'s job {each.job}")
            raise ConflictError(text, met) from None


def _conflicts(ctx: RequestContext, findings: Findings) -> list[Conflict]:
    keys = {conflict.other for conflict in findings.conflicts}
    query = sa.select(job.c.id, job.c.name, job.c.owner).where(job.c.id.in_(sorted(keys)))
    names = {row["id"]: row for row in ctx.all(query)}
    return [
        Conflict(
            mine=_interval(each.mine),
            theirs=_interval(each.theirs),
            job=names[each.other]["name"] if each.other in names else "",
            owner=names[each.other]["owner"] if each.other in names else ctx.caller.name,
            nodes=list(each.nodes),
        )
        for each in findings.conflicts[:100]
    ]


def _times(interval: calendar.Interval | None) -> Interval | None:
    return None if interval is None else _interval(interval)


def _interval(interval: calendar.Interval) -> Interval:
    return Interval(start_ns=interval.start_ns, end_ns=interval.end_ns)


def _check_files(spec: Job, files: Mapping[str, bytes]) -> None:
    if sorted(files) != sorted(spec.run.files):
        lacking = sorted(set(spec.run.files) ^ set(files))
        raise InputError(f"run.files: {lacking[0]} is either not listed there or was not sent")
    if sum(len(content) for content in files.values()) > LONGEST_INPUTS_BYTES:
        raise InputError(f"run.files: more than {LONGEST_INPUTS_BYTES:,} bytes in total")


def _store_files(ctx: RequestContext, name: str, files: Mapping[str, bytes], objects: Path) -> None:
    place = objects / "inputs"
    for each, content in files.items():
        digest = hashlib.sha256(content).hexdigest()
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (place / digest).exists():
            write_private(place / digest, content)
        row = {"job": name, "name": each, "size": len(content), "sha256": digest}
        ctx.execute(sa.insert(job_file).values(**row))


def _insert_nodes(ctx: RequestContext, name: str, spec: Job) -> None:
    for client in spec.nodes:
        ctx.execute(sa.insert(job_node).values(job=name, node=client, side=Side.CLIENT))
    if spec.server:
        ctx.execute(sa.insert(job_node).values(job=name, node=spec.server, side=Side.SERVER))


def _columns(row: sa.RowMapping) -> dict[str, Any]:
    """Return the fields of a `JobInfo`."""
    keys = ("id", "owner", "kind", "state", "created_ns", "overhead")
    values = {key: row[key] for key in keys}
    return {**values, "name": row["name"].partition("~")[0], "spec": spec_of(row)}
