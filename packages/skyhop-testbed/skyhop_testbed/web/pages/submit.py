"""Page to submit or change a job: its TOML file, a small form that writes it, and conflicts."""

from __future__ import annotations

import datetime as dt
import shlex
from typing import Any

from starlette.responses import Response

from skyhop.data.toml import read_toml
from skyhop.errors import InputError, SkyhopError
from skyhop_testbed.orchestrator import access, jobs, planning
from skyhop_testbed.orchestrator.request_context import (
    ConflictError,
    DeniedError,
    NotFoundError,
    RequestContext,
)
from skyhop_testbed.web import queries
from skyhop_testbed.web.page_request import PageRequest
from skyhop_testbed.web.rendering import iso
from skyhop_testbed.web.toml import to_toml
from skyhop_testbed.words import JobKind, Role

_S_NS = 10**9
_SHOWN = 10
"""Upper limit on conflicts that the page shows."""


def show(request: PageRequest) -> Response:
    """Show the form with an example job, for the nodes and the time in the query."""
    with request.reading() as ctx:
        names = queries.names_of_nodes(ctx)
    chosen = [name for name in request.http.query_params.getlist("node")[:100] if name in names]
    when = (
        {"kind": "at", "at": request.query("at")}
        if request.query("at")
        else {"kind": "at", "at": "now"}
    )
    values = {
        "id": "my-job",
        "nodes": chosen or names[:1],
        "length": request.query("length") or "5 min",
        "client": "ping -c 60 8.8.8.8",
        **when,
    }
    text = _file(values)
    checked = verdict(request, text) if request.query("at") else None
    return _form(request, text=text, small=values, verdict=checked)


def show_change(request: PageRequest) -> Response:
    """Show the form with an existing job of the caller, to change it."""
    with request.reading() as ctx:
        row = jobs.get(ctx, request.path_param("job"))
        access.check_owns_job(ctx, row["owner"], f"job {row['name']}")
        spec = planning.spec_of(row).as_json()
    return _form(request, text=to_toml(readable(spec)))


def fill(request: PageRequest) -> Response:
    """Write the job file from the small form, or set a free time in it."""
    free_ns = request.form_field("use_at")
    try:
        text = _with_time(_text(request), free_ns) if free_ns else _file(_small(request))
    except InputError as error:
        return _form(
            request, 400, text=_text(request), small=_small(request), verdict={"error": str(error)}
        )
    return _form(request, text=text, small=_small(request), verdict=verdict(request, text))


def check(request: PageRequest) -> Response:
    """Show the result of a check of the job, without submitting it."""
    found = verdict(request, _text(request))
    if request.is_partial:
        return request.render("verdict.html", verdict=found)
    return _form(request, text=_text(request), small=_small(request), verdict=found)


def submit(request: PageRequest) -> Response:
    """Submit the job; show the form again with the reason if it is refused."""
    text = _text(request)
    try:
        made = request.run_procedure(
            "SubmitJob",
            _job_id(text),
            lambda ctx: jobs.submit(
                ctx, text, request.files, request.orchestrator.directory / "objects"
            ),
        )
    except (InputError, DeniedError) as error:
        return _refused(request, text, error)
    return request.redirect(f"/jobs/{made['id']}", "submitted")


def change(request: PageRequest) -> Response:
    """Replace a job; show the form again with the reason if it is refused."""
    text, name = _text(request), request.path_param("job")
    with request.reading() as ctx:
        access.check_owns_job(ctx, jobs.get(ctx, name)["owner"], f"job {name}")
    try:
        made = request.run_procedure(
            "ModifyJob",
            name,
            lambda ctx: jobs.modify(
                ctx, name, text, request.files, request.orchestrator.directory / "objects"
            ),
        )
    except (InputError, DeniedError) as error:
        return _refused(request, text, error)
    return request.redirect(f"/jobs/{made['id']}", "modified")


def verdict(request: PageRequest, text: str) -> dict[str, Any]:
    """Check a job; return an error, conflicts with the next free time, or the first start."""
    changed = request.http.path_params.get("job", "") or request.form_field("changes")
    try:
        access.check_role("CheckJob", request.caller)
        with request.reading() as ctx:
            found = jobs.check_job(ctx, text)
            if changed:
                # `check_job` ignores the reservations of the job that is being changed.
                found["changes"] = changed
            if found["conflicts_total"]:
                found["slot_ns"] = _free_ns(ctx, text)
        found["conflicts"] = found["conflicts"][:_SHOWN]
        return found
    except (InputError, DeniedError) as error:
        return {"error": str(error)}


def _free_ns(ctx: RequestContext, text: str) -> int | None:
    """Return the next time in ns at which all nodes of a job are free for its length, or None."""
    spec = jobs.read(text)
    names = [*spec.nodes, *([spec.server] if spec.server else [])]
    at = spec.when.at if spec.when.kind is JobKind.AT and spec.when.at != "now" else None
    from_ns = max(ctx.now_ns, at if isinstance(at, int) else spec.when.start or 0)
    return planning.next_slot(ctx, names, spec.length_ns, from_ns, spec.when.end)


def _refused(request: PageRequest, text: str, error: SkyhopError) -> Response:
    if isinstance(error, ConflictError):
        return _form(request, 409, text=text, small=_small(request), verdict=verdict(request, text))
    kinds = ((DeniedError, 403), (NotFoundError, 404))
    status = next((number for kind, number in kinds if isinstance(error, kind)), 400)
    return _form(request, status, text=text, small=_small(request), verdict={"error": str(error)})


def _form(
    request: PageRequest,
    status: int = 200,
    *,
    text: str,
    small: dict[str, Any] | None = None,
    verdict: dict[str, Any] | None = None,
) -> Response:
    changes = request.http.path_params.get("job", "")
    with request.reading() as ctx:
        names = queries.names_of_nodes(ctx)
    return request.render(
        "submit.html",
        status,
        title="Change a job" if changes else "Submit a job",
        text=text,
        small={"nodes": [], **(small or {})},
        names=names,
        verdict=verdict,
        changes=changes,
        may_kernel=request.caller.role in (Role.ADMIN, Role.USER_PRIV),
    )


def _text(request: PageRequest) -> str:
    return request.form_field("toml").replace("\r\n", "\n")


def _job_id(text: str) -> str:
    """Return the id in a job file, for the audit log; "" if it cannot be read."""
    try:
        return str(read_toml(text, "job").get("id", ""))[:80]
    except InputError:
        return ""


_SMALL = (
    "id", "server", "length", "kind", "cron", "at", "trigger", "start", "end", "client", "serve",
    "description",
)  # fmt: skip


def _small(request: PageRequest) -> dict[str, Any]:
    return {
        **{name: request.form_field(name)[:4096].strip() for name in _SMALL},
        "nodes": [name[:80] for name in request.form.get("nodes", [])],
        "light": request.form_field("light") == "yes",
    }


def _file(values: dict[str, Any]) -> str:
    """Return a job file from the small form's values.

    Raises:
        InputError: a command line has an unclosed quotation mark.
    """
    kind = values.get("kind") or "at"
    when = {kind: values.get(kind) or {"at": "now", "cron": "0 * * * *"}.get(kind, "")}
    when |= {name: values[name] for name in ("start", "end") if values.get(name)}
    run: dict[str, Any] = {"client": _words(values.get("client") or "true")}
    job: dict[str, Any] = {"id": values.get("id") or "my-job", "nodes": values.get("nodes") or []}
    if values.get("server"):
        job["server"] = values["server"]
        run["serve"] = _words(values.get("serve") or "iperf3 -s -1 -p {port}")
    job["length"] = values.get("length") or "5 min"
    if values.get("light"):
        job["overhead"] = False
    if values.get("description"):
        job["description"] = values["description"]
    return to_toml({**job, "when": when, "run": run})


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InputError(f"the command line: {str(error).lower()}") from None


def _with_time(text: str, free_ns: str) -> str:
    """Return a job file with another time in its `at`, formatted again.

    Raises:
        InputError: the file is not TOML or its job has no `at`, or the time is invalid.
    """
    try:
        job = read_toml(text, "job")
        at = iso(int(free_ns) + _S_NS - 1)
    except (ValueError, OverflowError) as error:
        raise InputError(f"job: {error}") from None
    when = job.get("when")
    if not isinstance(when, dict) or "at" not in when:
        raise InputError("job: only a job that runs once (`at`) can take a free time")
    when["at"] = at
    return to_toml(job)


def readable(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a job's specification in a readable form: times as ISO 8601, length with unit."""
    when = dict(spec["when"])
    for key in ("at", "start", "end"):
        if isinstance(when.get(key), int):
            moment = dt.datetime.fromtimestamp(when[key] / _S_NS, dt.UTC)
            when[key] = moment.isoformat().replace("+00:00", "Z")
    length = spec["length"]
    return {**spec, "length": f"{length:g} s" if length == round(length) else length, "when": when}
