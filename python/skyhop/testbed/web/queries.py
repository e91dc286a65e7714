"""What only pages want to know: small questions to the tables. Nothing is changed here."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from skyhop.testbed.keys import secret_hash
from skyhop.testbed.orchestrator import people
from skyhop.testbed.orchestrator.desk import Desk, Settings
from skyhop.testbed.store.tables import audit, config, credential, job, node, run
from skyhop.testbed.words import ACTIVE, ENDED


def key_of_secret(desk: Desk, secret: str) -> str | None:
    """Return the id by which a secret is revoked."""
    return desk.connection.scalar(
        sa.select(credential.c.id).where(credential.c.hash == secret_hash(secret))
    )


def credentials(desk: Desk, user: str) -> list[dict[str, Any]]:
    """Return a user's tokens and sessions that are good, the latest first; no secrets."""
    shown = ("id", "kind", "label", "created_ns", "expires_ns", "used_ns")
    query = sa.select(*(credential.c[name] for name in shown)).where(
        credential.c.user == user,
        credential.c.kind.in_((people.TOKEN, people.SESSION)),
        ~credential.c.spent,
        sa.or_(credential.c.expires_ns.is_(None), credential.c.expires_ns > desk.now_ns),
    )
    return [dict(row) for row in desk.all(query.order_by(credential.c.id.desc()).limit(500))]


def invitations(desk: Desk) -> list[dict[str, Any]]:
    """Return invitations that have not been taken and have not expired; no secrets."""
    query = sa.select(credential.c.node, credential.c.created_ns, credential.c.expires_ns).where(
        credential.c.kind == people.INVITATION,
        ~credential.c.spent,
        credential.c.expires_ns > desk.now_ns,
    )
    return [dict(row) for row in desk.all(query.order_by(credential.c.id.desc()))]


def audit_log(desk: Desk, *, before: int = 0, who: str = "", limit: int = 100) -> list[Any]:
    """Return lines of the audit log, the latest first; `before` is the id that a page ended at."""
    query = sa.select(audit).order_by(audit.c.id.desc()).limit(limit)
    query = query.where(audit.c.id < before) if before else query
    query = query.where(audit.c.who.contains(who, autoescape=True)) if who else query
    return desk.all(query)


def settings(desk: Desk) -> list[dict[str, Any]]:
    """Return every setting: its value, what it is by itself, and whether it was set."""
    were_set = {row["key"]: json.loads(row["value"]) for row in desk.all(sa.select(config))}
    usual = asdict(Settings())
    return [
        {"key": key, "value": were_set.get(key, value), "usual": value, "set": key in were_set}
        for key, value in usual.items()
    ]


def busy_nodes(desk: Desk) -> dict[str, int]:
    """Return how many runs each node is at work on; that it is, everybody may know."""
    query = sa.select(run.c.client, run.c.server).where(
        run.c.state.in_([state.value for state in ACTIVE])
    )
    counted: dict[str, int] = {}
    for row in desk.all(query):
        for name in (row["client"], row["server"]):
            if name:
                counted[name] = counted.get(name, 0) + 1
    return counted


def names_of_jobs(desk: Desk, ids: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the name and the owner of jobs, by id: who has reserved what, everybody may know."""
    query = sa.select(job.c.id, job.c.name, job.c.owner).where(job.c.id.in_(sorted(set(ids))))
    return {
        row["id"]: {"name": row["name"].partition("~")[0], "owner": row["owner"]}
        for row in desk.all(query)
    }


def counts_of_job(desk: Desk, job_id: str) -> dict[str, int]:
    """Return how many runs of a job are in which state."""
    query = sa.select(run.c.state, sa.func.count().label("n")).where(run.c.job == job_id)
    return {row["state"]: row["n"] for row in desk.all(query.group_by(run.c.state))}


def next_starts(desk: Desk) -> dict[str, int]:
    """Return when each job's next run begins, by the job's id."""
    ended = [state.value for state in ENDED]
    query = (
        sa.select(run.c.job, sa.func.min(run.c.start_ns).label("start_ns"))
        .where(run.c.state.notin_(ended), run.c.end_ns > desk.now_ns)
        .group_by(run.c.job)
    )
    return {row["job"]: row["start_ns"] for row in desk.all(query)}


def names_of_nodes(desk: Desk) -> list[str]:
    """Return the names of all nodes."""
    return list(desk.connection.scalars(sa.select(node.c.name).order_by(node.c.name)))
