"""Page to submit or change a job: its TOML file, a small form that writes it, and conflicts."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import Response

from skyhop.data.toml import read_toml
from skyhop.errors import InputError, SkyhopError
from skyhop_testbed import api
from skyhop_testbed.job import Job
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
    values = Small(
        id="my-job",
        nodes=chosen or names[:1],
        length=request.query("length") or "5 min",
        client="ping -c 60 8.8.8.8",
        kind="at",
        at=request.query("at") or "now",
    )
    text = _file(values)
    checked = verdict(request, text) if request.query("at") else None
    return _form(request, text=text, small=values, verdict=checked)


def show_change(request: PageRequest) -> Response:
    """Show the form with an existing job of the caller, to change it."""
    with request.reading() as ctx:
        row = jobs.get(ctx, request.path_param("job"))
        access.check_owns_job(ctx, row["owner"], f"job {row['name']}")
        spec = planning.spec_of(row)
    return _form(request, text=to_toml(readable(spec)))


def fill(request: PageRequest) -> Response:
    """Write the job file from the small form, or set a free time in it."""
    free_ns = request.form_field("use_at")
    try:
        text = _with_time(_text(request), free_ns) if free_ns else _file(_small(request))
    except InputError as error:
        return _form(
            request, 400, text=_text(request), small=_small(request), verdict=Verdict(str(error))
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
        made = request.change(api.SUBMIT_JOB, api.SubmitJob(toml=text, files=request.files))
    except (InputError, DeniedError) as error:
        return _refused(request, text, error)
    return request.redirect(f"/jobs/{made.id}", "submitted")


def change(request: PageRequest) -> Response:
    """Replace a job; show the form again with the reason if it is refused."""
    text, name = _text(request), request.path_param("job")
    with request.reading() as ctx:
        access.check_owns_job(ctx, jobs.get(ctx, name)["owner"], f"job {name}")
    try:
        asked = api.ModifyJob(job=name, toml=text, files=request.files)
        made = request.change(api.MODIFY_JOB, asked)
    except (InputError, DeniedError) as error:
        return _refused(request, text, error)
    return request.redirect(f"/jobs/{made.id}", "modified")


@dataclass(frozen=True)
class Verdict:
    """Result of the check of a job: an error, or conflicts and the next free time."""

    error: str = ""
    check: api.Check | None = None
    slot_ns: int | None = None

    @property
    def conflicts(self) -> list[api.Conflict]:
        """Conflicts that the page shows."""
        return [] if self.check is None else self.check.conflicts[:_SHOWN]


def verdict(request: PageRequest, text: str) -> Verdict:
    """Check a job; return an error, conflicts with the next free time, or the first start."""
    try:
        access.check_role(api.CHECK_JOB, request.caller)
        with request.reading() as ctx:
            found = jobs.check_job(ctx, text)
            return Verdict("", found, _free_ns(ctx, text) if found.conflicts_total else None)
    except (InputError, DeniedError) as error:
        return Verdict(str(error))


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
    return _form(request, status, text=text, small=_small(request), verdict=Verdict(str(error)))


def _form(
    request: PageRequest,
    status: int = 200,
    *,
    text: str,
    small: Small | None = None,
    verdict: Verdict | None = None,
) -> Response:
    changes = request.http.path_params.get("job", "")
    with request.reading() as ctx:
        names = queries.names_of_nodes(ctx)
    return request.render(
        "submit.html",
        status,
        title="Change a job" if changes else "Submit a job",
        text=text,
        small=small or Small(),
        names=names,
        verdict=verdict,
        changes=changes,
        may_kernel=request.caller.role in (Role.ADMIN, Role.USER_PRIV),
    )


def _text(request: PageRequest) -> str:
    return request.form_field("toml").replace("\r\n", "\n")


@dataclass(frozen=True)
class Small:
    """Fields of the small form."""

    id: str = ""
    server: str = ""
    length: str = ""
    kind: str = ""
    cron: str = ""
    at: str = ""
    trigger: str = ""
    start: str = ""
    end: str = ""
    client: str = ""
    serve: str = ""
    nodes: Sequence[str] = ()
    light: bool = False


def _small(request: PageRequest) -> Small:
    texts = [name for name, field in Small.__dataclass_fields__.items() if field.default == ""]
    return Small(
        **{name: request.form_field(name)[:4096].strip() for name in texts},
        nodes=[name[:80] for name in request.form.get("nodes", [])],
        light=request.form_field("light") == "yes",
    )


def _file(form: Small) -> str:
    """Return a job file from the small form's fields.

    Raises:
        InputError: a command line has an unclosed quotation mark.
    """
    starts = {
        "at": form.at or "now",
        "cron": form.cron or "0 * * * *",
        "trigger": form.trigger,
    }
    kind = form.kind or "at"
    when = {kind: starts.get(kind, ""), "start": form.start or None, "end": form.end or None}
    run: dict[str, object] = {"client": _words(form.client or "true")}
    job: dict[str, object] = {"id": form.id or "my-job", "nodes": list(form.nodes)}
    if form.server:
        job["server"] = form.server
        run["serve"] = _words(form.serve or "iperf3 -s -1 -p {port}")
    job["length"] = form.length or "5 min"
    if form.light:
        job["overhead"] = False
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


def readable(spec: Job) -> dict[str, object]:
    """Return a job's specification in a readable form: times as ISO 8601, length with unit."""
    values: dict[str, object] = {**spec.as_json()}
    when = spec.when.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for key in ("at", "start", "end"):
        if isinstance(when.get(key), int):
            moment = dt.datetime.fromtimestamp(when[key] / _S_NS, dt.UTC)
            when[key] = moment.isoformat().replace("+00:00", "Z")
    length = spec.length_s
    text = f"{length:g} s" if length == round(length) else length
    return {**values, "length": text, "when": when}
