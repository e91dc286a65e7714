"""Quotas of users and nodes: active jobs, runs ahead, bytes kept, and bytes uploaded per day.

The settings have the quotas of all users and nodes; the table `quota` has those that an
administrator has set for one of them. A refusal is one line: what is used up, how much is used and
allowed, and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sqlalchemy as sa

from skyhop.errors import InputError
from skyhop_testbed.api import QuotaLine
from skyhop_testbed.job import Job
from skyhop_testbed.orchestrator import statements
from skyhop_testbed.orchestrator.planning import occurrences_ahead
from skyhop_testbed.orchestrator.request_context import (
    NotFoundError,
    RequestContext,
)
from skyhop_testbed.store.tables import job, job_node, node, quota, usage, user
from skyhop_testbed.store.usage import KEPT_BYTES, UPLOADED_BYTES

USER, NODE = "user", "node"
JOBS, RUNS_AHEAD, KEPT, PER_DAY = "jobs", "runs_ahead", "kept_bytes", "upload_bytes_per_day"
FILES_PER_RUN, BYTES_PER_RUN = "files_per_run", "bytes_per_run"
KEYS = (JOBS, RUNS_AHEAD, KEPT, PER_DAY, FILES_PER_RUN, BYTES_PER_RUN)
_DAY_NS = 86_400 * 1_000_000_000
_LARGEST = 1e15
_ADVICE = {
    JOBS: "cancel a job (skyhop testbed cancel)",
    RUNS_AHEAD: "cancel a job, or let it run more rarely",
    KEPT: "delete files of runs (skyhop testbed drop), or wait until they expire",
    PER_DAY: "wait until tomorrow (UTC)",
}
_WORDS = {
    JOBS: "active jobs",
    RUNS_AHEAD: "runs ahead",
    KEPT: "bytes kept",
    PER_DAY: "bytes uploaded today",
}


class QuotaError(InputError):
    """A user or a node has used up a quota."""


def allowed(ctx: RequestContext, kind: str, name: str, key: str) -> float:
    """Return a quota of a user or a node."""
    own = ctx.scalar(statements.QUOTA, kind=kind, name=name, key=key)
    return _default(ctx, kind, key) if own is None else float(own)


def _default(ctx: RequestContext, kind: str, key: str) -> float:
    is_per_run = key in (FILES_PER_RUN, BYTES_PER_RUN)
    return float(getattr(ctx.settings, key if is_per_run else f"{kind}_{key}"))


def used(ctx: RequestContext, kind: str, name: str, key: str) -> int:
    """Return how much of a quota a user or a node uses."""
    return _USED[key](ctx, kind, name)


def _jobs(ctx: RequestContext, kind: str, name: str) -> int:
    query = statements.JOBS_OF_USER if kind == USER else statements.JOBS_OF_NODE
    return int(ctx.scalar(query, name=name))


def _runs_ahead(ctx: RequestContext, kind: str, name: str) -> int:
    of_node = (statements.RUNS_AHEAD_OF_CLIENT, statements.RUNS_AHEAD_OF_SERVER)
    queries = (statements.RUNS_AHEAD_OF_USER,) if kind == USER else of_node
    return sum(int(ctx.scalar(query, name=name, now_ns=ctx.now_ns)) for query in queries)


def _kept(ctx: RequestContext, kind: str, name: str) -> int:
    return _amount(ctx, kind, name, KEPT_BYTES, 0)


def _uploaded_today(ctx: RequestContext, kind: str, name: str) -> int:
    return _amount(ctx, kind, name, UPLOADED_BYTES, ctx.now_ns // _DAY_NS)


def _amount(ctx: RequestContext, kind: str, name: str, what: str, day: int) -> int:
    chosen = (usage.c.kind == kind) & (usage.c.name == name)
    chosen &= (usage.c.what == what) & (usage.c.day == day)
    return int(ctx.connection.scalar(sa.select(usage.c.amount).where(chosen)) or 0)


_USED: Mapping[str, Callable[[RequestContext, str, str], int]] = {
    JOBS: _jobs,
    RUNS_AHEAD: _runs_ahead,
    KEPT: _kept,
    PER_DAY: _uploaded_today,
}


def exceeded(ctx: RequestContext, kind: str, name: str, key: str, added: int = 1) -> str | None:
    """Return, as one line, why `added` more do not fit into a quota; None if they do."""
    return _why_exceeded(
        (kind, name, key), used(ctx, kind, name, key), allowed(ctx, kind, name, key), added
    )


def _why_exceeded(of: tuple[str, str, str], taken: int, most: float, added: int = 1) -> str | None:
    """Return why `added` more do not fit into a quota, which is named by kind, holder and key."""
    kind, name, key = of
    if taken + added <= most:
        return None
    more = f", and this needs {added:,} more" if added > 1 else ""
    return (
        f"quota of {kind} {name}: {taken:,} of {most:,.0f} {_WORDS[key]} are used{more}: "
        f"{_ADVICE[key]}, or ask an administrator for a larger quota"
    )


def check_job(ctx: RequestContext, spec: Job, owner: str, *, replaces: bool = False) -> None:
    """Check that a new job fits into the quotas of its owner and its nodes.

    Args:
        ctx: the request.
        spec: the job.
        owner: the user who owns it.
        replaces: whether it takes the place of one active job of the same name, whose jobs and runs
            still count.

    Raises:
        QuotaError: a quota is used up.
    """
    count = occurrences_ahead(ctx, spec)
    hosts = dict.fromkeys(spec.nodes, count)
    if spec.server:
        hosts[spec.server] = hosts.get(spec.server, 0) + count * len(spec.nodes)
    wanted = [(USER, owner, KEPT, 1)]
    if not replaces:
        wanted += [(USER, owner, JOBS, 1), (USER, owner, RUNS_AHEAD, count * len(spec.nodes))]
        for name, runs in hosts.items():
            wanted += [(NODE, name, JOBS, 1), (NODE, name, RUNS_AHEAD, runs)]
    for kind, name, key, added in wanted:
        why = exceeded(ctx, kind, name, key, added)
        if why is not None:
            raise QuotaError(why)


def room_for_runs(ctx: RequestContext, job_id: str) -> int:
    """Return how many runs of a repeating job may be added ahead of time."""
    row = ctx.first(sa.select(job.c.owner).where(job.c.id == job_id))
    hosts = ctx.connection.scalars(sa.select(job_node.c.node).where(job_node.c.job == job_id))
    who = [(NODE, str(name)) for name in hosts] + ([(USER, row["owner"])] if row else [])
    left = [
        allowed(ctx, kind, name, RUNS_AHEAD) - used(ctx, kind, name, RUNS_AHEAD)
        for kind, name in who
    ]
    return max(0, int(min(left, default=0)))


def why_not_run(ctx: RequestContext, owner: str, client: str) -> str | None:
    """Return, as one line, why a run's results would not be accepted; None if they would be."""
    rows = ctx.all(statements.USAGE, user=owner, node=client, today=ctx.now_ns // _DAY_NS)
    taken = {(row["kind"], row["what"]): row["amount"] for row in rows}
    rows = ctx.all(statements.QUOTAS, user=owner, node=client)
    own = {(row["kind"], row["key"]): row["value"] for row in rows}
    for kind, name in ((USER, owner), (NODE, client)):
        for key, what in ((KEPT, KEPT_BYTES), (PER_DAY, UPLOADED_BYTES)):
            most = own.get((kind, key), _default(ctx, kind, key))
            why = _why_exceeded((kind, name, key), taken.get((kind, what), 0), most)
            if why is not None:
                return why
    return None


def lines(ctx: RequestContext, kind: str, name: str) -> list[QuotaLine]:
    """Return all quotas of a user or a node, with their use.

    Raises:
        NotFoundError: there is no such user or node.
    """
    _check_exists(ctx, kind, name)
    chosen = (quota.c.kind == kind) & (quota.c.name == name)
    own = {row["key"] for row in ctx.all(sa.select(quota.c.key).where(chosen))}
    return [
        QuotaLine(
            kind=kind,
            name=name,
            key=key,
            used=used(ctx, kind, name, key) if key in _USED else None,
            allowed=allowed(ctx, kind, name, key),
            is_own=key in own,
        )
        for key in KEYS
    ]


def put(ctx: RequestContext, kind: str, name: str, values: Mapping[str, object]) -> list[QuotaLine]:
    """Set quotas of one user or node; None as a value restores the testbed's setting.

    Raises:
        NotFoundError: there is no such user or node.
        InputError: there is no such quota, or its value is not a number from 0.
    """
    _check_exists(ctx, kind, name)
    for key, value in values.items():
        if key not in KEYS:
            raise InputError(f'"{key[:40]}" is not a quota; there are {", ".join(KEYS)}')
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_number and 0 <= float(str(value)) < _LARGEST):
            raise InputError(f"{key}: expected a number from 0")
        chosen = (quota.c.kind == kind) & (quota.c.name == name) & (quota.c.key == key)
        ctx.execute(sa.delete(quota).where(chosen))
        if value is not None:
            ctx.execute(sa.insert(quota).values(kind=kind, name=name, key=key, value=value))
    return lines(ctx, kind, name)


def _check_exists(ctx: RequestContext, kind: str, name: str) -> None:
    column = {USER: user.c.name, NODE: node.c.name}.get(kind)
    if column is None:
        raise InputError('expected "user" or "node"')
    if ctx.first(sa.select(column).where(column == name)) is None:
        raise NotFoundError(f"there is no {kind} {name[:80]}")
