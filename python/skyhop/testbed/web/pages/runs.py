"""Runs: all of them, and one with its life, what it printed, its files and its terminal."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path, PurePosixPath
from typing import Any

from starlette.responses import FileResponse, Response

from skyhop.errors import InputError, RunError
from skyhop.testbed.orchestrator import access, nodes, runs
from skyhop.testbed.orchestrator.desk import NotFoundError
from skyhop.testbed.web import queries
from skyhop.testbed.web.ask import Ask
from skyhop.testbed.web.pages.nodes import charts, series
from skyhop.testbed.web.pages.pictures import picture
from skyhop.testbed.words import ACTIVE, ENDED, JobKind, State

_S_NS = 10**9
_DAY_NS = 86_400 * _S_NS
_ROWS = 50
_LAST_PAGE = 199
_TAIL_BYTES, _LOG_BYTES = 6_000, 400_000
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
_ALONE = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""What a report may: nothing but look as it does; it is made of others' files."""


def listing(ask: Ask) -> Response:
    """Show runs that the caller may see, the latest first."""
    page = ask.number("page", 0, 0, _LAST_PAGE)
    wanted = {name: ask.query(name) for name in ("job", "node", "user", "state", "from", "to")}
    known = [state.value for state in State]
    states = _GROUPS.get(wanted["state"], [s for s in known if s == wanted["state"]])
    with ask.reading() as desk:
        # Runs are planned weeks ahead: unless they are asked for, those that have begun count.
        end_ns = _day(wanted["to"], 1) or (0 if wanted["state"] else desk.now_ns)
        found = runs.listing(
            desk,
            of_job=wanted["job"],
            node=wanted["node"],
            user=wanted["user"],
            states=states,
            from_ns=_day(wanted["from"]),
            to_ns=end_ns,
            limit=(page + 1) * _ROWS + 1,
        )
        names = queries.names_of_nodes(desk)
    return ask.page(
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


def show(ask: Ask) -> Response:
    """Show a run."""
    return ask.page("run.html", **_run(ask))


def state(ask: Ask) -> Response:
    """Show a run's life alone, for a page that looks again and again."""
    return ask.page("state.html", **_run(ask, alone=True))


def _run(ask: Ask, *, alone: bool = False) -> dict[str, Any]:
    name = ask.path("run")
    with ask.reading() as desk:
        run = runs.document(desk, name)
        is_users = desk.caller.is_admin or run["owner"] == desk.caller.name
        files = run["files"] if is_users else []
        outputs = (
            []
            if alone
            else [
                (file, _tail(ask.office.uploads.file(desk, name, file["side"], file["name"])[0]))
                for file in files[::-1]
                if file["name"] in _OUTPUTS and file["size"]
            ]
        )
        logged = (
            []
            if alone or run["kind"] != "trigger"
            else [
                line
                for line in nodes.log_of_triggers(desk, of_job=run["job"], limit=1000)
                if line["run"] in (None, name) and line["node"] == run["client"]
            ][:20]
        )
        may_stop = is_users or any(
            access.owns_node(desk, node) for node in (run["client"], run["server"]) if node
        )
    names = {(file["side"], file["name"]) for file in files}
    return {
        "title": f"Run of {run['job_name'].partition('~')[0]}",
        "run": run,
        "has_ended": State(run["state"]) in ENDED,
        "is_users": is_users,
        "may_move": is_users and run["kind"] == JobKind.AT and run["state"] == State.PLANNED,
        "may_stop": may_stop and State(run["state"]) not in ENDED,
        "files": files,
        "outputs": outputs,
        "logged": logged,
        "reports": [each for each in sorted(names) if _is_run_directory(each, names)],
        "figures": [(kind, *each) for each in sorted(names) for kind in [_kind(each[1])] if kind][
            :_FIGURES_SHOWN
        ],
        "has_begun": run["start_ns"] < ask.office.now_ns(),
    }


def _is_run_directory(file: tuple[str, str], names: set[tuple[str, str]]) -> bool:
    side, name = file
    path = PurePosixPath(name)
    return path.name == _RUN_DIRECTORY and (side, str(path.with_name("run.json"))) in names


def _kind(name: str) -> str:
    """Return which figure a file of a run is for, by its name."""
    last = PurePosixPath(name).name.lower()
    if re.search(r"traceroute|mtr|scamper|\.trace$", last):
        return "segments"
    return "sky" if re.search(r"obstruction.*\.(json|pb|bin)$", last) else ""


def abort(ask: Ask) -> Response:
    """Stop a run."""
    name = ask.path("run")
    why = ask.field("why")[:200]
    ask.act("AbortRun", name, lambda desk: runs.abort(desk, name, why))
    return ask.go(f"/runs/{name}", "aborted")


def reschedule(ask: Ask) -> Response:
    """Move a run to the nearest free time, and show the one in its place."""
    name = ask.path("run")
    made = ask.act("RescheduleRun", name, lambda desk: runs.reschedule(desk, name))
    return ask.go(f"/runs/{made['id']}", "rescheduled")


def log(ask: Ask) -> Response:
    """Show the end of a file as text."""
    path, name = _file(ask)
    text = _tail(path, _LOG_BYTES)
    return ask.page(
        "log.html",
        title=name,
        run=ask.path("run"),
        side=ask.path("side"),
        name=name,
        text=text,
        is_cut=path.stat().st_size > _LOG_BYTES,
    )


def download(ask: Ask) -> Response:
    """Return a file of a run, to be kept and not to be shown."""
    path, name = _file(ask)
    headers = {"content-security-policy": "sandbox; default-src 'none'"}
    return FileResponse(
        path,
        media_type="application/octet-stream",
        filename=PurePosixPath(name).name,
        content_disposition_type="attachment",
        headers=headers,
    )


def report(ask: Ask) -> Response:
    """Return skyhop's own report of a run directory among a run's files; it can do nothing."""
    path, name = _file(ask)
    if PurePosixPath(name).name != _RUN_DIRECTORY:
        raise InputError("reports are of run directories: name its summary.json")
    made = ask.rooms.drawings.made("report", directory=str(path.parent), run=ask.path("run"))
    headers = {"content-security-policy": _ALONE}
    return Response(made.read_bytes(), media_type="text/html", headers=headers)


def figure(ask: Ask) -> Response:
    """Return a figure of a file of a run."""
    path, name = _file(ask)
    kind = ask.path("kind")
    if kind not in ("segments", "sky") or _kind(name) != kind:
        raise InputError("there is no such figure")
    return picture(ask, kind, file=str(path))


def telemetry(ask: Ask) -> Response:
    """Show what the run's terminal said meanwhile, and a minute before and after."""
    with ask.reading() as desk:
        run = runs.document(desk, ask.path("run"))
        now_ns = desk.now_ns
    begin_ns = run["start_ns"] - _AROUND_NS
    end_ns = min(run["end_ns"] + _AROUND_NS, now_ns // (10 * _S_NS) * 10 * _S_NS)
    begin_ns = max(begin_ns, end_ns - _LONGEST_NS)
    said, found = "", None
    try:
        if end_ns <= begin_ns:
            raise InputError("this run has not begun")
        found = series(ask, run["client"], begin_ns, end_ns)
    except (InputError, RunError) as error:
        said = str(error)
    limits = (begin_ns / _S_NS, end_ns / _S_NS)
    return ask.page(
        "run_telemetry.html",
        title="Telemetry of the run",
        run=run,
        said=said,
        charts=charts(found, limits) if found else [],
    )


def _file(ask: Ask) -> tuple[Path, str]:
    """Return a file that the caller may have.

    Raises:
        NotFoundError, DeniedError: there is none, or it is another's.
    """
    run, side, name = (ask.path(part) for part in ("run", "side", "name"))
    with ask.reading() as desk:
        path, _, _ = ask.office.uploads.file(desk, run, side, name)
    if not path.is_file() or path.is_symlink():
        raise NotFoundError(f"{name[:80]}: has been deleted")
    return path, name


def _tail(path: Path, most: int = _TAIL_BYTES) -> str:
    """Return the end of a file as text that can be shown."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - most))
            text = file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""
    if size > most:
        text = text.partition("\n")[2] or text
    return "".join(c for c in text.replace("\r\n", "\n") if c in "\n\t" or c.isprintable())
