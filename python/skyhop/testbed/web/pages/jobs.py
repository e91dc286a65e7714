"""Jobs: one's own and those on one's nodes; and why triggers did or did not fire."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

from skyhop.testbed.orchestrator import access, jobs, nodes, planning, runs
from skyhop.testbed.orchestrator.desk import DeniedError
from skyhop.testbed.web import queries
from skyhop.testbed.web.ask import Ask
from skyhop.testbed.web.pages.submit import readable
from skyhop.testbed.web.toml import written

_TRIGGER_KEYS = ("job", "job_name", "owner", "node", "at_ns", "fired", "run", "why", "expression")


def listing(ask: Ask) -> Response:
    """Show jobs."""
    with_ended = ask.query("ended") == "1"
    with ask.reading() as desk:
        listed = jobs.listing(
            desk, of_node=ask.query("node"), user=ask.query("user"), ended=with_ended
        )
        starts = queries.next_starts(desk)
        names = queries.names_of_nodes(desk)
    return ask.page(
        "jobs.html",
        title="Jobs",
        jobs=listed[:500],
        starts=starts,
        names=names,
        node=ask.query("node"),
        user=ask.query("user"),
        ended=with_ended,
    )


def show(ask: Ask) -> Response:
    """Show a job, and its runs.

    Raises:
        DeniedError: it is another's, and runs on none of one's nodes.
    """
    with ask.reading() as desk:
        row = jobs.get(desk, ask.path("job"))
        spec = planning.spec_of(row)
        is_mine = desk.caller.is_admin or row["owner"] == desk.caller.name
        hosts = any(access.owns_node(desk, name) for name in spec.nodes)
        if not is_mine and not hosts and not access.owns_node(desk, spec.server or ""):
            raise DeniedError("this job is not yours")
        listed = runs.listing(desk, of_job=row["id"], to_ns=desk.now_ns, limit=20)
        ahead = runs.listing(desk, of_job=row["id"], from_ns=desk.now_ns, limit=10_000)
        counts = queries.counts_of_job(desk, row["id"])
    return ask.page(
        "job.html",
        title=row["name"].partition("~")[0],
        job=dict(row),
        spec=spec,
        toml=written(readable(spec.as_json())) if is_mine else "",
        is_mine=is_mine,
        may_stop=is_mine or hosts,
        runs=listed,
        ahead=[run for run in ahead[::-1] if run["state"] in ("planned", "armed")][:5],
        counts=counts,
    )


def cancel(ask: Ask) -> Response:
    """End a job."""
    name = ask.path("job")
    ask.act("CancelJob", name, lambda desk: jobs.cancel(desk, name))
    return ask.go(f"/jobs/{name}", "cancelled")


def triggers(ask: Ask) -> Response:
    """Show what triggers came to, and why."""
    with ask.reading() as desk:
        logged = nodes.log_of_triggers(
            desk, of_job=ask.query("job"), of_node=ask.query("node"), limit=200
        )
        names = queries.names_of_nodes(desk)
    return ask.page(
        "triggers.html",
        title="Triggers",
        logged=[{**line, "told": told(line)} for line in logged],
        names=names,
        node=ask.query("node"),
        job=ask.query("job"),
    )


def told(line: dict[str, Any]) -> str:
    """Return in words what a node told of an evaluation."""
    parts = [str(line[key]) for key in ("expression", "why") if line.get(key)]
    for key, value in line.items():
        if key in _TRIGGER_KEYS or value in (None, "", {}):
            continue
        if isinstance(value, dict):
            parts += [f"{name} = {json.dumps(each)}" for name, each in sorted(value.items())]
        else:
            parts.append(f"{key}: {value if isinstance(value, str) else json.dumps(value)}")
    return "; ".join(parts)[:600]
