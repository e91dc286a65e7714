"""Pages of jobs, and of the evaluations of triggers."""

from __future__ import annotations

import json

from starlette.responses import Response

from skyhop_testbed import api
from skyhop_testbed.orchestrator import access, jobs, nodes, planning, runs
from skyhop_testbed.orchestrator.request_context import DeniedError
from skyhop_testbed.web import queries
from skyhop_testbed.web.page_request import PageRequest
from skyhop_testbed.web.pages.submit import readable
from skyhop_testbed.web.toml import to_toml

_TRIGGER_KEYS = ("job", "job_name", "owner", "node", "at_ns", "fired", "run", "why", "expression")


def listing(request: PageRequest) -> Response:
    """Show the list of jobs that the caller may see."""
    with_ended = request.query("ended") == "1"
    with request.reading() as ctx:
        listed = jobs.listing(
            ctx, of_node=request.query("node"), user=request.query("user"), ended=with_ended
        )
        starts = queries.next_starts(ctx)
        names = queries.names_of_nodes(ctx)
    return request.render(
        "jobs.html",
        title="Jobs",
        jobs=listed[:500],
        starts=starts,
        names=names,
        node=request.query("node"),
        user=request.query("user"),
        ended=with_ended,
    )


def show(request: PageRequest) -> Response:
    """Show a job and its runs.

    Raises:
        DeniedError: the caller owns neither the job nor one of its nodes.
    """
    with request.reading() as ctx:
        row = jobs.get(ctx, request.path_param("job"))
        spec = planning.spec_of(row)
        is_mine = ctx.caller.is_admin or row["owner"] == ctx.caller.name
        hosts = any(access.owns_node(ctx, name) for name in spec.nodes)
        if not is_mine and not hosts and not access.owns_node(ctx, spec.server or ""):
            raise DeniedError("this job is not yours")
        listed = runs.listing(ctx, of_job=row["id"], to_ns=ctx.now_ns, limit=20)
        ahead = runs.listing(ctx, of_job=row["id"], from_ns=ctx.now_ns, limit=10_000)
        counts = queries.counts_of_job(ctx, row["id"])
    return request.render(
        "job.html",
        title=row["name"].partition("~")[0],
        job=dict(row),
        spec=spec,
        toml=to_toml(readable(spec)) if is_mine else "",
        is_mine=is_mine,
        may_stop=is_mine or hosts,
        runs=listed,
        ahead=[run for run in ahead[::-1] if run.state in ("planned", "armed")][:5],
        counts=counts,
    )


def cancel(request: PageRequest) -> Response:
    """Cancel a job, and redirect to its page."""
    name = request.path_param("job")
    request.change(api.CANCEL_JOB, api.NamedJob(job=name))
    return request.redirect(f"/jobs/{name}", "cancelled")


def triggers(request: PageRequest) -> Response:
    """Show the latest evaluations of triggers, and why they did or did not fire."""
    with request.reading() as ctx:
        logged = nodes.trigger_evaluations(
            ctx, of_job=request.query("job"), of_node=request.query("node"), limit=200
        )
        names = queries.names_of_nodes(ctx)
    return request.render(
        "triggers.html",
        title="Triggers",
        logged=[(line, description(line)) for line in logged],
        names=names,
        node=request.query("node"),
        job=request.query("job"),
    )


def description(line: api.TriggerLine) -> str:
    """Return a node's report of an evaluation as one line of text."""
    parts = [str(each) for each in (line.expression, line.why) if each]
    for key, value in line.as_json().items():
        if key in _TRIGGER_KEYS or value in (None, "", {}):
            continue
        if isinstance(value, dict):
            parts += [f"{name} = {json.dumps(each)}" for name, each in sorted(value.items())]
        else:
            parts.append(f"{key}: {value if isinstance(value, str) else json.dumps(value)}")
    return "; ".join(parts)[:600]
