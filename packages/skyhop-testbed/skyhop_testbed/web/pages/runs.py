"""Pages of runs: list, single run with events, output and files, and its telemetry."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.parse import quote

from starlette.responses import FileResponse, Response, StreamingResponse

from skyhop.errors import InputError, RunError, SkyhopError
from skyhop_testbed import api
from skyhop_testbed.event_details import without_repetitions
from skyhop_testbed.orchestrator import access, nodes, runs
from skyhop_testbed.orchestrator.stored_file import StoredFile
from skyhop_testbed.web import queries, reasons
from skyhop_testbed.web.page_request import PageRequest
from skyhop_testbed.web.pages.nodes import charts, series
from skyhop_testbed.web.pages.pictures import picture
from skyhop_testbed.words import ACTIVE, ENDED, JobKind, State

_S_NS = 10**9
_DAY_NS = 86_400 * _S_NS
_ROWS = 50
_LAST_PAGE = 199
_TAIL_BYTES, _LOG_BYTES = 6_000, 400_000
_PIECE_BYTES = 256 << 10
_AROUND_NS = 60 * _S_NS
_LONGEST_NS = 7 * _DAY_NS
_FIGURES_SHOWN = 3
_RUN_DIRECTORY = "summary.json"
_OUTPUTS = ("stdout", "stderr")
_GROUPS = {
    "now": [state.value for state in ACTIVE],
    "ahead": [State.PLANNED.value, State.ARMED.value],
    "ended": [state.value for state in ENDED],
}
_REPORT_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""Content security policy of a report: no scripts or requests, since it shows untrusted files."""


def listing(request: PageRequest) -> Response:
    """Show runs that the caller may see, latest first."""
    page = request.query_number("page", 0, 0, _LAST_PAGE)
    wanted = {name: request.query(name) for name in ("job", "node", "user", "state", "from", "to")}
    known = [state.value for state in State]
    states = _GROUPS.get(wanted["state"], [s for s in known if s == wanted["state"]])
    with request.reading() as ctx:
        # Runs are planned two weeks ahead: if the user chooses no state, show only runs that have
        # begun.
        end_ns = _day(wanted["to"], 1) or (0 if wanted["state"] else ctx.now_ns)
        found = runs.listing(
            ctx,
            of_job=wanted["job"],
            node=wanted["node"],
            user=wanted["user"],
            states=states,
            from_ns=_day(wanted["from"]),
            to_ns=end_ns,
            limit=(page + 1) * _ROWS + 1,
        )
        names = queries.names_of_nodes(ctx)
    return request.render(
        "runs.html",
        title="Runs",
        runs=found[page * _ROWS : (page + 1) * _ROWS],
        page=page,
        has_more=len(found) > (page + 1) * _ROWS and page < _LAST_PAGE,
        wanted=wanted,
        query="".join(f"&{key}={value}" for key, value in _plain(wanted)),
        names=names,
        states=known,
        groups=list(_GROUPS),
    )


def _plain(wanted: dict[str, str]) -> list[tuple[str, str]]:
    from urllib.parse import quote

    return [(key, quote(value, safe="")) for key, value in wanted.items() if value]


def _day(text: str, after: int = 0) -> int:
    try:
        day = dt.datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=dt.UTC)
    except ValueError:
        return 0
    return min(max(0, round(day.timestamp()) * _S_NS + after * _DAY_NS), 2**63 - 1)


def show(request: PageRequest) -> Response:
    """Show a run with its events, output, files and figures."""
    return request.render("run.html", 200, **_run(request))


def state(request: PageRequest) -> Response:
    """Return the fragment with a run's state and events, which the page polls."""
    return request.render("state.html", 200, **_run(request, state_only=True))


def _run(request: PageRequest, *, state_only: bool = False) -> dict[str, object]:
    name = request.path_param("run")
    with request.reading() as ctx:
        run = runs.document(ctx, name)
        is_users = ctx.caller.is_admin or run.owner == ctx.caller.name
        files = run.files if is_users else []
        outputs = (
            []
            if state_only
            else [
                (
                    file,
                    _output(request.orchestrator.uploads.stored(ctx, name, file.side, file.name)),
                )
                for file in files[::-1]
                if file.name in _OUTPUTS and file.size
            ]
        )
        logged = (
            []
            if state_only or run.kind is not JobKind.TRIGGER
            else [
                line
                for line in nodes.trigger_evaluations(ctx, of_job=run.job, limit=1000)
                if line.run in (None, name) and line.node == run.client
            ][:20]
        )
        may_stop = is_users or any(
            access.owns_node(ctx, node) for node in (run.client, run.server) if node
        )
    names = {(str(file.side), file.name) for file in files}
    return {
        "title": f"Run of {run.job_name.partition('~')[0]}",
        "run": run,
        "details": without_repetitions(each.details for each in run.events),
        "why": reasons.why(run, files),
        "has_ended": run.state in ENDED,
        "is_users": is_users,
        "may_move": is_users and run.kind == JobKind.AT and run.state == State.PLANNED,
        "may_stop": may_stop and run.state not in ENDED,
        "files": files,
        "outputs": outputs,
        "logged": logged,
        "reports": [each for each in sorted(names) if _is_run_directory(each, names)],
        "figures": [(kind, *each) for each in sorted(names) for kind in [_kind(each[1])] if kind][
            :_FIGURES_SHOWN
        ],
        "has_begun": run.start_ns < request.orchestrator.now_ns(),
    }


def _is_run_directory(file: tuple[str, str], names: set[tuple[str, str]]) -> bool:
    side, name = file
    path = PurePosixPath(name)
    return path.name == _RUN_DIRECTORY and (side, str(path.with_name("run.json"))) in names


def _kind(name: str) -> str:
    """Return the kind of figure for a run's file, by the file's name; "" for no figure."""
    last = PurePosixPath(name).name.lower()
    if re.search(r"traceroute|mtr|scamper|\.trace$", last):
        return "segments"
    return "sky" if re.search(r"obstruction.*\.(json|pb|bin)$", last) else ""


def abort(request: PageRequest) -> Response:
    """Abort a run, and redirect to its page."""
    name = request.path_param("run")
    why = request.form_field("why")[:200]
    request.change(api.ABORT_RUN, api.AbortRun(run=name, reason=why))
    return request.redirect(f"/runs/{name}", "aborted")


def reschedule(request: PageRequest) -> Response:
    """Move a run to the nearest free time, and redirect to the run that replaces it."""
    name = request.path_param("run")
    made = request.change(api.RESCHEDULE_RUN, api.RescheduleRun(run=name))
    return request.redirect(f"/runs/{made.id}", "rescheduled")


def log(request: PageRequest) -> Response:
    """Show the last 400 kB of a file as text."""
    found, name = _stored(request)
    # A file that has been deleted has no page.
    found.open().close()
    text = _tail(found, _LOG_BYTES)
    return request.render(
        "log.html",
        title=name,
        run=request.path_param("run"),
        side=request.path_param("side"),
        name=name,
        text=text,
        is_cut=found.size > _LOG_BYTES,
    )


def download(request: PageRequest) -> Response:
    """Return a file of a run as a download, which browsers do not display."""
    found, name = _stored(request)
    headers = {"content-security-policy": "sandbox; default-src 'none'"}
    if found.path.is_file():
        return FileResponse(
            found.local_path(),
            media_type="application/octet-stream",
            filename=PurePosixPath(name).name,
            content_disposition_type="attachment",
            headers=headers,
        )
    headers["content-length"] = str(found.size)
    named = quote(PurePosixPath(name).name, safe="")
    headers["content-disposition"] = f"attachment; filename*=utf-8''{named}"
    return StreamingResponse(
        _pieces(found.open()), media_type="application/octet-stream", headers=headers
    )


def report(request: PageRequest) -> Response:
    """Return skyhop's report of a run directory among a run's files, sandboxed by its CSP."""
    path, name = _file(request)
    if PurePosixPath(name).name != _RUN_DIRECTORY:
        raise InputError("a report needs a run directory: choose its summary.json")
    made = request.state.drawings.get(
        "report", directory=str(path.parent), run=request.path_param("run")
    )
    headers = {"content-security-policy": _REPORT_POLICY}
    return Response(made.read_bytes(), media_type="text/html", headers=headers)


def figure(request: PageRequest) -> Response:
    """Return a figure of a file of a run: path segments or obstruction map."""
    path, name = _file(request)
    kind = request.path_param("kind")
    if kind not in ("segments", "sky") or _kind(name) != kind:
        raise InputError("there is no such figure")
    return picture(request, kind, file=str(path))


def telemetry(request: PageRequest) -> Response:
    """Show the client terminal's telemetry during the run, and a minute before and after."""
    with request.reading() as ctx:
        run = runs.document(ctx, request.path_param("run"))
        now_ns = ctx.now_ns
    begin_ns = run.start_ns - _AROUND_NS
    end_ns = min(run.end_ns + _AROUND_NS, now_ns // (10 * _S_NS) * 10 * _S_NS)
    begin_ns = max(begin_ns, end_ns - _LONGEST_NS)
    problem, found = "", None
    try:
        if end_ns <= begin_ns:
            raise InputError("this run has not begun")
        found = series(request, run.client, begin_ns, end_ns)
    except (InputError, RunError) as error:
        problem = str(error)
    limits = (begin_ns / _S_NS, end_ns / _S_NS)
    return request.render(
        "run_telemetry.html",
        title="Telemetry of the run",
        run=run,
        problem=problem,
        charts=charts(found, limits) if found else [],
    )


def _file(request: PageRequest) -> tuple[Path, str]:
    """Return path and name of the requested file, if the caller may read it.

    Raises:
        NotFoundError, DeniedError: there is no such file, or its job has another owner.
        InputError: the file is in the bucket alone.
    """
    run, side, name = (request.path_param(part) for part in ("run", "side", "name"))
    with request.reading() as ctx:
        path, _, _ = request.orchestrator.uploads.file(ctx, run, side, name)
    return path, name


def _stored(request: PageRequest) -> tuple[StoredFile, str]:
    """Return the requested file, on disk or in the bucket, and its name, as `_file` does."""
    run, side, name = (request.path_param(part) for part in ("run", "side", "name"))
    with request.reading() as ctx:
        return request.orchestrator.uploads.stored(ctx, run, side, name), name


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while data := file.read(_PIECE_BYTES):
            yield data


def _output(found: StoredFile) -> str:
    """Return the end of a run's output for its page, which does not wait for the bucket."""
    return _tail(found) if found.path.is_file() else "(in the testbed's bucket: open the file)"


def _tail(found: StoredFile, most: int = _TAIL_BYTES) -> str:
    """Return the last `most` bytes of a file as printable text; "" if it cannot be read."""
    try:
        with found.open() as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - most))
            text = file.read(most).decode("utf-8", "replace")
    except (OSError, SkyhopError):
        return ""
    if size > most:
        text = text.partition("\n")[2] or text
    return "".join(c for c in text.replace("\r\n", "\n") if c in "\n\t" or c.isprintable())
