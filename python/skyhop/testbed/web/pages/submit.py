"""Submitting a job: its file, a small form that fills it in, and what stands in its way."""

from __future__ import annotations

import datetime as dt
import shlex
from typing import Any

from starlette.responses import Response

from skyhop.data.toml import read_toml
from skyhop.errors import InputError, SkyhopError
from skyhop.testbed.calendar.occurrences import length_ns
from skyhop.testbed.orchestrator import access, jobs, planning
from skyhop.testbed.orchestrator.desk import ConflictError, DeniedError, Desk, NotFoundError
from skyhop.testbed.web import queries
from skyhop.testbed.web.ask import Ask
from skyhop.testbed.web.look import iso
from skyhop.testbed.web.toml import written
from skyhop.testbed.words import JobKind, Role

_S_NS = 10**9
_SHOWN = 10
"""So many conflicts."""


def show(ask: Ask) -> Response:
    """Show the form, with a job to begin with."""
    with ask.reading() as desk:
        names = queries.names_of_nodes(desk)
    chosen = [name for name in ask.request.query_params.getlist("node")[:100] if name in names]
    when = {"kind": "at", "at": ask.query("at")} if ask.query("at") else {"kind": "at", "at": "now"}
    values = {
        "id": "my-job",
        "nodes": chosen or names[:1],
        "length": ask.query("length") or "5 min",
        "client": "ping -c 60 8.8.8.8",
        **when,
    }
    text = _file(values)
    told = verdict(ask, text) if ask.query("at") else None
    return _form(ask, text=text, small=values, verdict=told)


def show_change(ask: Ask) -> Response:
    """Show the form with a job of the caller's as it is."""
    with ask.reading() as desk:
        row = jobs.get(desk, ask.path("job"))
        access.check_owns_job(desk, row["owner"], f"job {row['name']}")
        spec = planning.spec_of(row).as_json()
    return _form(ask, text=written(readable(spec)))


def fill(ask: Ask) -> Response:
    """Fill the file in from the small form; or put a free time into it."""
    free_ns = ask.field("use_at")
    try:
        text = _with_time(_text(ask), free_ns) if free_ns else _file(_small(ask))
    except InputError as error:
        return _form(ask, 400, text=_text(ask), small=_small(ask), verdict={"error": str(error)})
    return _form(ask, text=text, small=_small(ask), verdict=verdict(ask, text))


def check(ask: Ask) -> Response:
    """Say what submitting would come to."""
    found = verdict(ask, _text(ask))
    if ask.wants_part:
        return ask.page("verdict.html", verdict=found)
    return _form(ask, text=_text(ask), small=_small(ask), verdict=found)


def submit(ask: Ask) -> Response:
    """Accept the job, or say why not; nothing is written then."""
    text = _text(ask)
    try:
        made = ask.act(
            "SubmitJob",
            _named(text),
            lambda desk: jobs.submit(desk, text, ask.files, ask.office.directory / "objects"),
        )
    except (InputError, DeniedError) as error:
        return _refused(ask, text, error)
    return ask.go(f"/jobs/{made['id']}", "submitted")


def change(ask: Ask) -> Response:
    """Put another job in a job's place, or say why not."""
    text, name = _text(ask), ask.path("job")
    with ask.reading() as desk:
        access.check_owns_job(desk, jobs.get(desk, name)["owner"], f"job {name}")
    try:
        made = ask.act(
            "ModifyJob",
            name,
            lambda desk: jobs.modify(desk, name, text, ask.files, ask.office.directory / "objects"),
        )
    except (InputError, DeniedError) as error:
        return _refused(ask, text, error)
    return ask.go(f"/jobs/{made['id']}", "modified")


def verdict(ask: Ask, text: str) -> dict[str, Any]:
    """Return what submitting would come to: an error, conflicts with a free time, or a start."""
    changed = ask.request.path_params.get("job", "") or ask.field("changes")
    try:
        access.check_role("CheckJob", ask.caller)
        with ask.reading() as desk:
            found = jobs.check_job(desk, text)
            if changed:
                # Its own times are not in its way; they are not in `check_job`'s either.
                found["changes"] = changed
            if found["conflicts_total"]:
                found["slot_ns"] = _free_ns(desk, text)
        found["conflicts"] = found["conflicts"][:_SHOWN]
        return found
    except (InputError, DeniedError) as error:
        return {"error": str(error)}


def _free_ns(desk: Desk, text: str) -> int | None:
    """Return when the nodes of a job are free next for as long as it takes."""
    spec = jobs.read(text)
    names = [*spec.nodes, *([spec.server] if spec.server else [])]
    at = spec.when.at if spec.when.kind is JobKind.AT and spec.when.at != "now" else None
    from_ns = max(desk.now_ns, at if isinstance(at, int) else spec.when.start or 0)
    return planning.next_slot(desk, names, length_ns(spec), from_ns, spec.when.end)


def _refused(ask: Ask, text: str, error: SkyhopError) -> Response:
    if isinstance(error, ConflictError):
        return _form(ask, 409, text=text, small=_small(ask), verdict=verdict(ask, text))
    kinds = ((DeniedError, 403), (NotFoundError, 404))
    status = next((number for kind, number in kinds if isinstance(error, kind)), 400)
    return _form(ask, status, text=text, small=_small(ask), verdict={"error": str(error)})


def _form(
    ask: Ask,
    status: int = 200,
    *,
    text: str,
    small: dict[str, Any] | None = None,
    verdict: dict[str, Any] | None = None,
) -> Response:
    changes = ask.request.path_params.get("job", "")
    with ask.reading() as desk:
        names = queries.names_of_nodes(desk)
    return ask.page(
        "submit.html",
        status,
        title="Change a job" if changes else "Submit a job",
        text=text,
        small={"nodes": [], **(small or {})},
        names=names,
        verdict=verdict,
        changes=changes,
        may_kernel=ask.caller.role in (Role.ADMIN, Role.USER_PRIV),
    )


def _text(ask: Ask) -> str:
    return ask.field("toml").replace("\r\n", "\n")


def _named(text: str) -> str:
    """Return what a job calls itself, for the audit log."""
    try:
        return str(read_toml(text, "job").get("id", ""))[:80]
    except InputError:
        return ""


_SMALL = (
    "id", "server", "length", "kind", "cron", "at", "trigger", "start", "end", "client", "serve",
    "description",
)  # fmt: skip


def _small(ask: Ask) -> dict[str, Any]:
    return {
        **{name: ask.field(name)[:4096].strip() for name in _SMALL},
        "nodes": [name[:80] for name in ask.form.get("nodes", [])],
        "light": ask.field("light") == "yes",
    }


def _file(values: dict[str, Any]) -> str:
    """Return a job file from the small form's values.

    Raises:
        InputError: a command line has a quotation mark without its other half.
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
    return written({**job, "when": when, "run": run})


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InputError(f"the command line: {str(error).lower()}") from None


def _with_time(text: str, free_ns: str) -> str:
    """Return a job file that runs at a time, written anew.

    Raises:
        InputError: it is no TOML, or the time is none.
    """
    try:
        job = read_toml(text, "job")
        at = iso(int(free_ns) + _S_NS - 1)
    except (ValueError, OverflowError) as error:
        raise InputError(f"job: {error}") from None
    when = job.get("when")
    if not isinstance(when, dict) or "at" not in when:
        raise InputError("job: a free time is for a job that runs once, at a time")
    when["at"] = at
    return written(job)


def readable(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a job as people would write it: instants as text."""
    when = dict(spec["when"])
    for key in ("at", "start", "end"):
        if isinstance(when.get(key), int):
            moment = dt.datetime.fromtimestamp(when[key] / _S_NS, dt.UTC)
            when[key] = moment.isoformat().replace("+00:00", "Z")
    length = spec["length"]
    return {**spec, "length": f"{length:g} s" if length == round(length) else length, "when": when}
