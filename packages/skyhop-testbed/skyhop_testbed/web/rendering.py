"""Rendering of pages: the Jinja templates, and formats of times, sizes, rates and states."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import jinja2
from markupsafe import Markup

from skyhop_testbed.web import session as sessions
from skyhop_testbed.words import ACTIVE, State

if TYPE_CHECKING:
    from skyhop_testbed.web.page_request import PageRequest

_S_NS = 10**9
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400
_DONE = {
    "policy": "The policy is set; the node applies it once it has its new schedule.",
    "scavenger": "The scavenger mode is set; the node applies it once it has its new schedule.",
    "submitted": "The job is accepted, and its runs are on the calendar.",
    "modified": "The job is changed; runs that had begun continue as before.",
    "cancelled": "The job is cancelled.",
    "aborted": "The run is aborted.",
    "rescheduled": "The run is moved; this page shows its replacement.",
    "profile": "Your profile is saved.",
    "revoked": "The credential is revoked.",
    "user": "The user is saved.",
    "out": "The user is disabled or deleted, and their jobs are cancelled.",
    "deleted": "The node is deleted.",
    "node": "The node is saved.",
}
"""Messages after a submitted form, by the key in the query parameter `done`."""
_LINKS = (
    ("/", "Now"),
    ("/nodes", "Nodes"),
    ("/calendar", "Calendar"),
    ("/submit", "Submit"),
    ("/jobs", "Jobs"),
    ("/runs", "Runs"),
    ("/triggers", "Triggers"),
)


class _Undefined(jinja2.StrictUndefined):
    """Undefined value: an error, except for a missing key in a dict that users or nodes wrote."""

    def __bool__(self) -> bool:  # type: ignore[override]
        return False if isinstance(self._undefined_obj, dict) else super().__bool__()

    def __eq__(self, other: object) -> bool:  # type: ignore[override]
        return False if isinstance(self._undefined_obj, dict) else super().__eq__(other)

    __hash__ = object.__hash__  # type: ignore[assignment]


class Renderer:
    """Jinja environment of the pages, with its filters and common variables."""

    def __init__(self) -> None:
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("skyhop_testbed.web"),
            autoescape=True,
            undefined=_Undefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "timestamp": timestamp,
            "time_of_day": time_of_day,
            "iso": iso,
            "duration": duration,
            "relative": relative,
            "bytes": size_text,
            "quota_amount": quota_amount,
            "rate": rate,
            "state_class": state_class,
            "json": lambda value: json.dumps(value, ensure_ascii=False, sort_keys=True),
        }

    def render(self, template: str, request: PageRequest, values: Mapping[str, object]) -> str:
        """Render a template with the variables that all pages have (user, links, message, time)."""
        theme = request.http.cookies.get(sessions.THEME_COOKIE, "")
        links = list(_LINKS)
        if request.session is not None and request.caller.is_admin:
            links.append(("/admin", "Admin"))
        return self._templates.get_template(template).render(
            myself=request.session.caller if request.session else None,
            csrf=request.csrf,
            look=theme if theme in sessions.THEMES else "",
            links=links if request.session else [],
            here=request.http.url.path,
            done=_DONE.get(request.http.query_params.get("done", ""), ""),
            now_ns=request.orchestrator.now_ns(),
            **values,
        )


def quota_amount(amount: float, key: str) -> str:
    """Return an amount of a quota: a size for bytes, else a number."""
    return size_text(round(amount)) if "bytes" in key else f"{amount:,.0f}"


def _moment(at_ns: int) -> dt.datetime:
    seconds = min(max(at_ns // _S_NS, 0), 253_402_300_799)
    return dt.datetime.fromtimestamp(seconds, dt.UTC)


def iso(at_ns: int) -> str:
    """Return a time in ISO 8601 (UTC, whole seconds), as in job files."""
    return _moment(at_ns).strftime("%Y-%m-%dT%H:%M:%SZ")


def timestamp(at_ns: int | None) -> Markup | str:
    """Return date and time in UTC as a `<time>` element; "never" for None."""
    if at_ns is None:
        return "never"
    text = _moment(at_ns).strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}">{}</time>').format(iso(at_ns), text)


def time_of_day(at_ns: int) -> Markup:
    """Return hour and minute in UTC as a `<time>` element."""
    return Markup('<time datetime="{}">{}</time>').format(
        iso(at_ns), _moment(at_ns).strftime("%H:%M")
    )


def duration(seconds: float) -> str:
    """Return a duration in its two largest units, such as "2 h 5 min"."""
    left = round(seconds)
    if left < 1:
        return f"{seconds:.2g} s" if seconds > 0 else "0 s"
    words: list[str] = []
    for unit, size in (("d", _DAY_S), ("h", _HOUR_S), ("min", _MINUTE_S), ("s", 1)):
        if left >= size and len(words) < 2:  # noqa: PLR2004
            words.append(f"{left // size} {unit}")
            left %= size
        elif words:
            break
    return " ".join(words)


def relative(at_ns: int | None, now_ns: int) -> str:
    """Return a time relative to now, such as "5 min ago" or "in 2 h"; "never" for None."""
    if at_ns is None:
        return "never"
    away_s = (now_ns - at_ns) / _S_NS
    if abs(away_s) < 1:
        return "now"
    return f"{duration(away_s)} ago" if away_s > 0 else f"in {duration(-away_s)}"


def size_text(count: float | None) -> str:
    """Return a size with a decimal unit, such as "1.5 MB"."""
    if count is None:
        return "not known"
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:  # noqa: PLR2004
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def rate(bps: float | None) -> str:
    """Return a rate with its unit, such as "20 Mbit/s"."""
    if bps is None:
        return "not known"
    for unit in ("bit/s", "kbit/s", "Mbit/s"):
        if bps < 1000:  # noqa: PLR2004
            return f"{bps:.3g} {unit}"
        bps /= 1000
    return f"{bps:.3g} Gbit/s"


def state_class(state: str) -> str:
    """Return the CSS class of a state's colour; the page shows the state's name as well."""
    if state in (State.COMPLETE, "active"):
        return "good"
    if state in (State.FAILED, State.LOST):
        return "bad"
    if state in [each.value for each in ACTIVE]:
        return "busy"
    if state in (State.ABORTED, State.RESCHEDULED):
        return "odd"
    return "quiet"
