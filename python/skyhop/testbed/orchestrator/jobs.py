"""Jobs: read, checked against the calendar, and accepted or not in one transaction."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from skyhop.errors import InputError
from skyhop.testbed.calendar import Findings, Plan, check
from skyhop.testbed.ids import new_id
from skyhop.testbed.job import LONGEST_INPUTS_BYTES, Job, read_job
from skyhop.testbed.keys import write_private
from skyhop.testbed.orchestrator import access, runs
from skyhop.testbed.orchestrator.desk import (
    ConflictError,
    DeniedError,
    Desk,
    NotFoundError,
    as_json,
)
from skyhop.testbed.orchestrator.planning import bookings, plan_runs, spec_of
from skyhop.testbed.states import Change
from skyhop.testbed.store.tables import job, job_file, job_node, node, run
from skyhop.testbed.triggers.parse import parse
from skyhop.testbed.words import ENDED, Reason, Role, Side, State


def read(text: str) -> Job:
    """Read a job file, its trigger too.

    Raises:
        InputError: it is none.
    """
    spec = read_job(text)
    if spec.when.trigger is not None:
        parse(spec.when.trigger)
    return spec


def checked(desk: Desk, spec: Job, *, without: str = "") -> Findings:
    """Return what stands in a job's way.

    Raises:
        InputError, DeniedError: it cannot be at all, or not for this user.
    """
    if spec.kernel.wanted and desk.caller.role not in (Role.ADMIN, Role.USER_PRIV):
        raise DeniedError('[kernel] is for users with the role "user-priv"')
    wanted = [*spec.nodes, *([spec.server] if spec.server else [])]
    known = set(desk.connection.scalars(sa.select(node.c.name).where(node.c.name.in_(wanted))))
    for name in wanted:
        if name not in known:
            raise NotFoundError(f"there is no node {name}: skyhop testbed nodes lists them")
    if spec.server and not _address(desk, spec.server):
        raise InputError(f"server: {spec.server} has no address; its owner gives it one")
    others, booked = bookings(desk, wanted, without=without)
    return check(Plan("", spec, desk.now_ns), others, booked, now_ns=desk.now_ns)


def check_job(desk: Desk, text: str) -> dict[str, Any]:
    """Return what submitting a job would come to."""
    spec = read(text)
    findings = checked(desk, spec, without=_mine(desk, spec.id))
    return {
        "job": spec.id,
        "kind": spec.when.kind.value,
        "nodes": spec.nodes,
        "server": spec.server,
        "first": _times(findings.first),
        "conflicts": _conflicts(desk, findings),
        "conflicts_total": findings.total,
    }


def submit(
    desk: Desk,
    text: str,
    files: Mapping[str, bytes],
    objects: Path,
    *,
    owner: str | None = None,
) -> dict[str, Any]:
    """Accept a job, and plan its runs.

    Raises:
        ConflictError: others have the nodes; nothing was written.
        InputError, DeniedError: it is no job, or not one for this user.
    """
    spec = read(text)
    owner = owner or desk.caller.name
    if _mine(desk, spec.id):
        raise InputError(f"job {spec.id}: you have one of this name; cancel or modify that")
    findings = checked(desk, spec)
    _refuse(desk, findings)
    _check_files(spec, files)
    row: dict[str, Any] = {
        "id": new_id(desk.now_ns),
        "owner": owner,
        "name": spec.id,
        "spec": as_json(spec.as_json()),
        "kind": spec.when.kind.value,
        "overhead": spec.overhead,
        "state": "active",
        "created_ns": desk.now_ns,
        "planned_ns": 0,
    }
    # The name of one that is over may be used again.
    old = (job.c.owner == owner) & (job.c.name == spec.id)
    desk.do(sa.update(job).where(old).values(name=job.c.name + "~" + job.c.id))
    desk.do(sa.insert(job).values(**row))
    _insert_nodes(desk, row["id"], spec)
    _keep_files(desk, row["id"], files, objects)
    kept = desk.one(sa.select(job).where(job.c.id == row["id"]))
    assert kept is not None
    made = plan_runs(desk, kept)
    return {**_public(kept), "runs": len(made), "first": _times(findings.first)}


def modify(
    desk: Desk, name: str, text: str, files: Mapping[str, bytes], objects: Path
) -> dict[str, Any]:
    """Put another job in a job's place; runs that have begun go on as they were.

    Raises:
        NotFoundError, DeniedError, ConflictError, InputError: as for `submit`.
    """
    old = get(desk, name)
    access.check_owns_job(desk, old["owner"], f"job {name}")
    spec = read(text)
    if spec.id != old["name"]:
        raise InputError(f"the file's id is {spec.id}, not {old['name']}")
    _refuse(desk, checked(desk, spec, without=old["id"]))
    _close(desk, old, Reason.JOB_ENDED)
    desk.do(sa.update(job).where(job.c.id == old["id"]).values(name=f"{old['name']}~{old['id']}"))
    # An administrator who mends a job does not take it over.
    return submit(desk, text, files, objects, owner=old["owner"])


def cancel(desk: Desk, name: str) -> dict[str, Any]:
    """End a job: planned runs are taken off the calendar, those under way are stopped.

    Raises:
        NotFoundError, DeniedError: it is none, or not the caller's.
    """
    row = get(desk, name)
    if not any(access.owns_node(desk, client) for client in spec_of(row).nodes):
        access.check_owns_job(desk, row["owner"], f"job {name}")
    _close(desk, row, Reason.USER)
    return {**_public(row), "state": "cancelled"}


def close_all(desk: Desk, owner: str) -> int:
    """End all that a user has going, as `cancel` does; return how many jobs that were."""
    open_runs = sa.select(run.c.job).where(run.c.state.notin_([state.value for state in ENDED]))
    # Runs of a job that was modified meanwhile may still be under way.
    going = sa.or_(job.c.state == "active", job.c.id.in_(open_runs))
    rows = desk.all(sa.select(job).where(job.c.owner == owner, going).order_by(job.c.id))
    for row in rows:
        _close(desk, row, Reason.USER)
    return len(rows)


def _close(desk: Desk, row: sa.RowMapping, reason: Reason) -> None:
    waiting = run.c.state.notin_([state.value for state in ENDED])
    for each in desk.all(sa.select(run).where(run.c.job == row["id"], waiting)):
        begun = State(each["state"]) not in (State.PLANNED, State.ARMED)
        if begun and reason is Reason.JOB_ENDED:
            continue
        state = State.ABORTED if begun else State.SKIPPED
        runs.apply(desk, each, Change(desk.now_ns, state, desk.caller.actor, reason))
        runs.end_tasks(desk, each["id"])
    desk.do(sa.update(job).where(job.c.id == row["id"]).values(state="cancelled"))
    spec = spec_of(row)
    desk.touch({*spec.nodes, *([spec.server] if spec.server else [])})


def get(desk: Desk, name: str) -> sa.RowMapping:
    """Return a job that the caller may see, by its id, or by its name among the caller's.

    Raises:
        NotFoundError, DeniedError: there is none, or it is another's and on none of one's nodes.
    """
    mine = (job.c.name == name) & (job.c.owner == desk.caller.name)
    row = desk.one(sa.select(job).where(sa.or_(job.c.id == name, mine)))
    if row is None and desk.caller.is_admin:
        row = desk.one(sa.select(job).where(job.c.name == name))
    if row is None:
        raise NotFoundError(f"there is no job {name[:80]} of yours")
    if not visible(desk, row):
        raise DeniedError(f"job {name[:80]} is not yours")
    return row


def visible(desk: Desk, row: sa.RowMapping) -> bool:
    """Return whether the caller may see a job: its user, its nodes' owners, administrators."""
    if desk.caller.is_admin or row["owner"] == desk.caller.name:
        return True
    hosts = sa.select(job_node.c.node).where(job_node.c.job == row["id"])
    return any(access.owns_node(desk, name) for name in desk.connection.scalars(hosts))


def listing(
    desk: Desk, *, of_node: str = "", user: str = "", ended: bool = False
) -> list[dict[str, Any]]:
    """Return jobs: one's own, those on one's nodes, and for administrators all."""
    query = sa.select(job).order_by(job.c.created_ns.desc()).limit(10_000)
    on = sa.select(job_node.c.job)
    if not desk.caller.is_admin:
        hosted = on.where(job_node.c.node.in_(access.my_nodes(desk)))
        query = query.where(sa.or_(job.c.owner == desk.caller.name, job.c.id.in_(hosted)))
    if of_node:
        query = query.where(job.c.id.in_(on.where(job_node.c.node == of_node)))
    if user:
        query = query.where(job.c.owner == user)
    if not ended:
        query = query.where(job.c.state == "active")
    return [_public(row) for row in desk.all(query)]


def input_file(desk: Desk, job_id: str, name: str, objects: Path) -> Path:
    """Return a file that a job brought, for a node that runs it.

    Raises:
        NotFoundError: there is none, or the node has no part in it.
    """
    chosen = (job_node.c.job == job_id) & (job_node.c.node == desk.caller.name)
    kept = (job_file.c.job == job_id) & (job_file.c.name == name)
    row = desk.one(sa.select(job_file).where(kept, sa.exists().where(chosen)))
    if row is None:
        raise NotFoundError(f"there is no such file of job {job_id[:40]} for {desk.caller.name}")
    return objects / "inputs" / str(row["sha256"])


def _address(desk: Desk, name: str) -> str:
    return str(desk.connection.scalar(sa.select(node.c.address).where(node.c.name == name)) or "")


def _mine(desk: Desk, name: str) -> str:
    """Return the id of the caller's active job of a name, "" without one."""
    chosen = (job.c.owner == desk.caller.name) & (job.c.name == name) & (job.c.state == "active")
    return str(desk.connection.scalar(sa.select(job.c.id).where(chosen)) or "")


def _refuse(desk: Desk, findings: Findings) -> None:
    if findings.total:
        try:
            findings.refuse()
        except InputError as error:
            met = _conflicts(desk, findings)
            text = str(error)
            for conflict, each in zip(findings.conflicts, met, strict=False):
                text = text.replace(f"job {conflict.other}", f"{each['owner']}'s job {each['job']}")
            raise ConflictError(text, met) from None


def _conflicts(desk: Desk, findings: Findings) -> list[dict[str, Any]]:
    keys = {conflict.other for conflict in findings.conflicts}
    query = sa.select(job.c.id, job.c.name, job.c.owner).where(job.c.id.in_(sorted(keys)))
    names = {row["id"]: row for row in desk.all(query)}
    return [
        {
            "mine": _times(each.mine),
            "theirs": _times(each.theirs),
            "job": names[each.other]["name"] if each.other in names else "",
            "owner": names[each.other]["owner"] if each.other in names else desk.caller.name,
            "nodes": list(each.nodes),
        }
        for each in findings.conflicts[:100]
    ]


def _times(interval: Any) -> dict[str, int] | None:
    if interval is None:
        return None
    return {"start_ns": interval.start_ns, "end_ns": interval.end_ns}


def _check_files(spec: Job, files: Mapping[str, bytes]) -> None:
    if sorted(files) != sorted(spec.run.files):
        lacking = sorted(set(spec.run.files) ^ set(files))
        raise InputError(f"run.files: {lacking[0]} is either not named there or not sent")
    if sum(len(content) for content in files.values()) > LONGEST_INPUTS_BYTES:
        raise InputError(f"run.files: more than {LONGEST_INPUTS_BYTES:,} bytes together")


def _keep_files(desk: Desk, name: str, files: Mapping[str, bytes], objects: Path) -> None:
    place = objects / "inputs"
    for each, content in files.items():
        digest = hashlib.sha256(content).hexdigest()
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (place / digest).exists():
            write_private(place / digest, content)
        row = {"job": name, "name": each, "size": len(content), "sha256": digest}
        desk.do(sa.insert(job_file).values(**row))


def _insert_nodes(desk: Desk, name: str, spec: Job) -> None:
    for client in spec.nodes:
        desk.do(sa.insert(job_node).values(job=name, node=client, side=Side.CLIENT))
    if spec.server:
        desk.do(sa.insert(job_node).values(job=name, node=spec.server, side=Side.SERVER))


def _public(row: sa.RowMapping) -> dict[str, Any]:
    spec = json.loads(row["spec"])
    return {
        "id": row["id"],
        "name": row["name"].partition("~")[0],
        "owner": row["owner"],
        "kind": row["kind"],
        "state": row["state"],
        "created_ns": row["created_ns"],
        "overhead": row["overhead"],
        "spec": spec,
    }
