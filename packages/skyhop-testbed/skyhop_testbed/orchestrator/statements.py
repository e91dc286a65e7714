"""Statements of frequent requests: those of nodes, which claim runs, report and follow orders.

Building a statement takes several times as long as its execution. These are built once, and have
bound parameters (`RequestContext.first` and its like take their values).
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from skyhop_testbed.orchestrator.request_context import as_json
from skyhop_testbed.store.tables import (
    event,
    job,
    job_file,
    job_node,
    node,
    preemption,
    quota,
    run,
    task,
    trigger_log,
    usage,
    user,
)
from skyhop_testbed.store.usage import KEPT_BYTES, UPLOADED_BYTES
from skyhop_testbed.words import ENDED, State, TaskKind

_given = sa.bindparam

# Runs and their jobs.

RUN = sa.select(run).where(run.c.id == _given("name"))
CHANGE_RUN = (
    sa.update(run)
    .where(run.c.id == _given("name"))
    .values({key: _given(f"new_{key}") for key in ("state", "reason", "end_ns", "fence")})
)
ADD_EVENT = sa.insert(event)
JOB = sa.select(job).where(job.c.id == _given("name"))
JOB_AND_ROLE = sa.select(job, user.c.role).join(user).where(job.c.id == _given("name"))
OWNER = sa.select(job.c.owner).where(job.c.id == _given("name"))
FILES_OF_JOB = sa.select(job_file).where(job_file.c.job == _given("job"))
NODE_OF_JOB = sa.select(job_node).where(
    job_node.c.job == _given("job"), job_node.c.node == _given("node")
)

# Nodes.

_of_node = node.c.name == _given("node")
NODE = sa.select(node).where(_of_node)
HEALTH = sa.select(node.c.health).where(_of_node)
LAST_SEQ = sa.select(node.c.last_seq).where(_of_node)
NODE_SEEN = (
    sa.update(node).where(_of_node).values(last_seq=_given("seq"), last_seen_ns=_given("now_ns"))
)
NODE_HEALTH = sa.update(node).where(_of_node).values(health=_given("told"))
NODE_SCAVENGER = sa.update(node).where(_of_node).values(scavenger_active=_given("active"))
ADD_PREEMPTION = sa.insert(preemption)
ADD_EVALUATION = sa.insert(trigger_log)
DELETE_EVALUATIONS = sa.delete(trigger_log).where(
    trigger_log.c.job == _given("job"),
    trigger_log.c.node == _given("node"),
    trigger_log.c.id < _given("oldest"),
)


def _unfinished_runs(side: sa.Column[Any]) -> sa.Select[Any]:
    """Return the query for a node's unfinished runs that start before a time, earliest first."""
    return (
        sa.select(run, node.c.address.label("server_address"))
        .join(node, node.c.name == run.c.server, isouter=True)
        .where(side == _given("node"), run.c.start_ns < _given("until_ns"))
        .where(run.c.state.in_([state.value for state in State if state not in ENDED]))
        .order_by(run.c.start_ns, run.c.id)
        .limit(_given("most"))
    )


RUNS_OF_CLIENT, RUNS_OF_SERVER = _unfinished_runs(run.c.client), _unfinished_runs(run.c.server)

# Tasks of servers.

TASKS = (
    sa.select(task, run.c.job, run.c.client, run.c.start_ns, run.c.end_ns)
    .join(run)
    .where(task.c.node == _given("node"), task.c.state == "open")
    .where(task.c.expires_ns > _given("now_ns"))
    .order_by(task.c.id)
)
TASK_RESULTS = (
    sa.select(task, run.c.client)
    .join(run)
    .where(run.c.client == _given("node"), run.c.state == State.WAITING_SERVER)
    .where(task.c.kind == TaskKind.START, task.c.state != "open")
    .order_by(task.c.id)
)
END_TASK = (
    sa.update(task)
    .where(task.c.run == _given("name"))
    .where(task.c.kind == TaskKind.START, task.c.state == "open")
    .values(state="failed", result=as_json({"error": "over"}))
)

# Quotas, and their use.

QUOTA = sa.select(quota.c.value).where(
    quota.c.kind == _given("kind"), quota.c.name == _given("name"), quota.c.key == _given("key")
)
_active_jobs = sa.select(sa.func.count()).select_from(job).where(job.c.state == "active")
_of_user = sa.select(job.c.id).where(job.c.owner == _given("name"), job.c.state == "active")
JOBS_OF_USER = _active_jobs.where(job.c.owner == _given("name"))
JOBS_OF_NODE = _active_jobs.where(
    job.c.id.in_(sa.select(job_node.c.job).where(job_node.c.node == _given("name")))
)
_ahead = (
    sa.select(sa.func.count())
    .select_from(run)
    .where(run.c.state == State.PLANNED, run.c.start_ns >= _given("now_ns"))
)
RUNS_AHEAD_OF_USER = _ahead.where(run.c.job.in_(_of_user))
RUNS_AHEAD_OF_CLIENT = _ahead.where(run.c.client == _given("name"))
RUNS_AHEAD_OF_SERVER = _ahead.where(run.c.server == _given("name"))

# Those of a run's user and node together.

USAGE = sa.select(usage.c.kind, usage.c.what, usage.c.amount).where(
    ((usage.c.kind == "user") & (usage.c.name == _given("user")))
    | ((usage.c.kind == "node") & (usage.c.name == _given("node"))),
    ((usage.c.what == KEPT_BYTES) & (usage.c.day == 0))
    | ((usage.c.what == UPLOADED_BYTES) & (usage.c.day == _given("today"))),
)
QUOTAS = sa.select(quota.c.kind, quota.c.key, quota.c.value).where(
    ((quota.c.kind == "user") & (quota.c.name == _given("user")))
    | ((quota.c.kind == "node") & (quota.c.name == _given("node")))
)
