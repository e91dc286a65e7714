"""Read-only database queries that only the pages need."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import NamedTuple

import sqlalchemy as sa

from skyhop_testbed.api import Settings
from skyhop_testbed.keys import secret_hash
from skyhop_testbed.orchestrator import accounts
from skyhop_testbed.orchestrator.request_context import RequestContext
from skyhop_testbed.store.tables import audit, config, credential, job, node, run
from skyhop_testbed.words import ACTIVE, ENDED


def key_of_secret(ctx: RequestContext, secret: str) -> str | None:
    """Return the id of the credential with this secret, by which it can be revoked.

    `None` if unknown.
    """
    return ctx.connection.scalar(
        sa.select(credential.c.id).where(credential.c.hash == secret_hash(secret))
    )


def credentials(ctx: RequestContext, user: str) -> list[sa.RowMapping]:
    """Return a user's valid tokens and sessions, latest first, without secrets."""
    shown = ("id", "kind", "label", "created_ns", "expires_ns", "used_ns")
    query = sa.select(*(credential.c[name] for name in shown)).where(
        credential.c.user == user,
        credential.c.kind.in_((accounts.TOKEN, accounts.SESSION)),
        ~credential.c.spent,
        sa.or_(credential.c.expires_ns.is_(None), credential.c.expires_ns > ctx.now_ns),
    )
    return ctx.all(query.order_by(credential.c.id.desc()).limit(500))


def invitations(ctx: RequestContext) -> list[sa.RowMapping]:
    """Return invitations that are neither used nor expired, latest first, without secrets."""
    query = sa.select(credential.c.node, credential.c.created_ns, credential.c.expires_ns).where(
        credential.c.kind == accounts.INVITATION,
        ~credential.c.spent,
        credential.c.expires_ns > ctx.now_ns,
    )
    return ctx.all(query.order_by(credential.c.id.desc()))


def audit_log(
    ctx: RequestContext, *, before: int = 0, who: str = "", limit: int = 100
) -> list[sa.RowMapping]:
    """Return lines of the audit log, latest first.

    Args:
        ctx: the request.
        before: only lines with a smaller id, for the next page; 0 for no limit.
        who: part of the actor's name; "" for all.
        limit: upper limit on lines.
    """
    query = sa.select(audit).order_by(audit.c.id.desc()).limit(limit)
    query = query.where(audit.c.id < before) if before else query
    query = query.where(audit.c.who.contains(who, autoescape=True)) if who else query
    return ctx.all(query)


class Setting(NamedTuple):
    """Setting of the testbed with its default, and whether it was set explicitly."""

    key: str
    value: float
    usual: float
    is_set: bool


def settings(ctx: RequestContext) -> list[Setting]:
    """Return every setting with its default."""
    were_set = {row["key"]: json.loads(row["value"]) for row in ctx.all(sa.select(config))}
    return [
        Setting(key, were_set.get(key, usual), usual, key in were_set)
        for key, usual in asdict(Settings()).items()
    ]


def busy_nodes(ctx: RequestContext) -> dict[str, int]:
    """Return the number of active runs per node, as client or server; every user may see it."""
    query = sa.select(run.c.client, run.c.server).where(
        run.c.state.in_([state.value for state in ACTIVE])
    )
    counted: dict[str, int] = {}
    for row in ctx.all(query):
        for name in (row["client"], row["server"]):
            if name:
                counted[name] = counted.get(name, 0) + 1
    return counted


def names_of_jobs(ctx: RequestContext, ids: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return name and owner of jobs, by id; every user may see who has reserved a node."""
    query = sa.select(job.c.id, job.c.name, job.c.owner).where(job.c.id.in_(sorted(set(ids))))
    rows = ctx.all(query)
    return {row["id"]: (row["name"].partition("~")[0], row["owner"]) for row in rows}


def counts_of_job(ctx: RequestContext, job_id: str) -> dict[str, int]:
    """Return the number of runs of a job, by state."""
    query = sa.select(run.c.state, sa.func.count().label("n")).where(run.c.job == job_id)
    return {row["state"]: row["n"] for row in ctx.all(query.group_by(run.c.state))}


def next_starts(ctx: RequestContext) -> dict[str, int]:
    """Return the start of each job's current or next run in ns, by job id."""
    ended = [state.value for state in ENDED]
    query = (
        sa.select(run.c.job, sa.func.min(run.c.start_ns).label("start_ns"))
        .where(run.c.state.notin_(ended), run.c.end_ns > ctx.now_ns)
        .group_by(run.c.job)
    )
    return {row["job"]: row["start_ns"] for row in ctx.all(query)}


def names_of_nodes(ctx: RequestContext) -> list[str]:
    """Return the names of all nodes, sorted."""
    return list(ctx.connection.scalars(sa.select(node.c.name).order_by(node.c.name)))
