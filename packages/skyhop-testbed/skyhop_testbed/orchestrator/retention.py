"""Deletion of old rows, in steps of bounded size: each step is one short transaction.

Ended runs go with their events and tasks once they have no files, and jobs once they have no runs.
The rows of users, nodes and credentials that are valid stay.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa

from skyhop_testbed.orchestrator.request_context import RequestContext
from skyhop_testbed.store.tables import (
    artefact,
    audit,
    event,
    job,
    job_file,
    preemption,
    run,
    task,
    trigger_log,
    usage,
)
from skyhop_testbed.store.usage import UPLOADED_BYTES
from skyhop_testbed.words import ENDED

_S_NS = 1_000_000_000
_ROWS, _RUNS = 1_000, 200
"""Upper limits on rows of one table, and on runs with their events, that one step deletes."""
_USAGE_DAYS = 40

Step = Callable[[RequestContext], int]
"""One step: it deletes a bounded number of rows, and returns how many."""


def delete_old_lines(ctx: RequestContext) -> int:
    """Delete lines of the audit log, evaluations of triggers and preemptions that are too old."""
    before_ns = ctx.now_ns - round(ctx.settings.log_retention_s * _S_NS)
    deleted = 0
    for table in (audit, trigger_log, preemption):
        old = sa.select(table.c.id).where(table.c.at_ns < before_ns).limit(_ROWS)
        deleted += ctx.execute(sa.delete(table).where(table.c.id.in_(old)))
    today = ctx.now_ns // (86_400 * _S_NS)
    past = (usage.c.what == UPLOADED_BYTES) & (usage.c.day < today - _USAGE_DAYS)
    ctx.execute(sa.delete(usage).where(past))
    return deleted


def delete_old_runs(ctx: RequestContext) -> int:
    """Delete runs without files that ended too long ago, with their events and tasks."""
    before_ns = ctx.now_ns - round(ctx.settings.run_retention_s * _S_NS)
    has_files = sa.exists().where(artefact.c.run == run.c.id)
    old = run.c.state.in_([state.value for state in ENDED]) & (run.c.end_ns < before_ns)
    ids = list(ctx.connection.scalars(sa.select(run.c.id).where(old, ~has_files).limit(_RUNS)))
    if ids:
        for table in (event, task):
            ctx.execute(sa.delete(table).where(table.c.run.in_(ids)))
        ctx.execute(sa.delete(run).where(run.c.id.in_(ids)))
    return len(ids)


def delete_old_jobs(ctx: RequestContext, inputs: Path) -> int:
    """Delete ended jobs that have no runs and no log, and the input files that no job has.

    Args:
        ctx: the request.
        inputs: directory of the jobs' input files, named by their digests.
    """
    before_ns = ctx.now_ns - round(ctx.settings.run_retention_s * _S_NS)
    old = (job.c.state != "active") & (job.c.created_ns < before_ns)
    has_runs = sa.exists().where(run.c.job == job.c.id)
    has_log = sa.exists().where(trigger_log.c.job == job.c.id)
    query = sa.select(job.c.id).where(old, ~has_runs, ~has_log).limit(_RUNS)
    ids = list(ctx.connection.scalars(query))
    if not ids:
        return 0
    files = set(ctx.connection.scalars(sa.select(job_file.c.sha256).where(job_file.c.job.in_(ids))))
    # The rows of its nodes and files go with a job.
    ctx.execute(sa.delete(job).where(job.c.id.in_(ids)))
    kept = sa.select(job_file.c.sha256).where(job_file.c.sha256.in_(sorted(files)))
    for digest in files - set(ctx.connection.scalars(kept)):
        (inputs / digest).unlink(missing_ok=True)
    return len(ids)
