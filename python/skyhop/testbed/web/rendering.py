"""How things are written on pages: times, sizes, states; and the templates."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from skyhop.testbed.web import session as sessions
from skyhop.testbed.words import ACTIVE, State

if TYPE_CHECKING:
    from skyhop.testbed.web.ask import Ask

_S_NS = 10**9
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400
_DONE = {
    "policy": "The policy is set; the node takes it over with its next call.",
    "scavenger": "The switch is set; the node takes it over with its next call.",
    "submitted": "The job is accepted, and its runs are on the calendar.",
    "modified": "The job is changed; runs that had begun go on as they were.",
    "cancelled": "The job is cancelled.",
    "aborted": "The run is stopped.",
    "rescheduled": "The run is moved: this one takes its place.",
    "profile": "Your profile is changed.",
    "revoked": "It is revoked.",
    "user": "The user is kept.",
    "out": "The user is out, and jobs of theirs that were going have ended.",
    "deleted": "It is deleted.",
    "node": "The node is kept.",
}
"""What pages say after a form; addresses carry only the word."""
_LINKS = (
    ("/", "Now"),
    ("/nodes", "Nodes"),
    ("/calendar", "Calendar"),
    ("/submit", "Submit"),
    ("/jobs", "Jobs"),
    ("/runs", "Runs"),
    ("/triggers", "Triggers"),
)


class _Lacking(jinja2.StrictUndefined):
    """What is not there: a fault of a template, unless it is a key of what users or nodes wrote."""

    def __bool__(self) -> bool:  # type: ignore[override]
        return False if isinstance(self._undefined_obj, dict) else super().__bool__()

    def __eq__(self, other: object) -> bool:  # type: ignore[override]
        return False if isinstance(self._undefined_obj, dict) else super().__eq__(other)

    __hash__ = object.__hash__  # type: ignore[assignment]


class Look:
    """The templates."""

    def __init__(self) -> None:
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("skyhop.testbed.web"),
            autoescape=True,
            undefined=_Lacking,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "when": when,
            "clock": clock,
            "iso": iso,
            "lasting": lasting,
            "ago": ago,
            "bytes": sized,
            "rate": rate,
            "called": called,
            "json": lambda value: json.dumps(value, ensure_ascii=False, sort_keys=True),
        }

    def render(self, template: str, ask: Ask, values: dict[str, Any]) -> str:
        """Return a page for whoever asks."""
        look = ask.request.cookies.get(sessions.LOOK_COOKIE, "")
        links = list(_LINKS)
        if ask.session is not None and ask.caller.is_admin:
            links.append(("/admin", "Admin"))
        return self._templates.get_template(template).render(
            myself=ask.session.caller if ask.session else None,
            csrf=ask.csrf,
            look=look if look in sessions.LOOKS else "",
            links=links if ask.session else [],
            here=ask.request.url.path,
            done=_DONE.get(ask.request.query_params.get("done", ""), ""),
            now_ns=ask.office.now_ns(),
            **values,
        )


def _moment(at_ns: int) -> dt.datetime:
    seconds = min(max(at_ns // _S_NS, 0), 253_402_300_799)
    return dt.datetime.fromtimestamp(seconds, dt.UTC)


def iso(at_ns: int) -> str:
    """Return an instant as job files have it."""
    return _moment(at_ns).strftime("%Y-%m-%dT%H:%M:%SZ")


def when(at_ns: int | None) -> Markup | str:
    """Return an instant for people, UTC."""
    if at_ns is None:
        return "never"
    text = _moment(at_ns).strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}">{}</time>').format(iso(at_ns), text)


def clock(at_ns: int) -> Markup:
    """Return the time of the day of an instant, UTC."""
    return Markup('<time datetime="{}">{}</time>').format(
        iso(at_ns), _moment(at_ns).strftime("%H:%M")
    )


def lasting(seconds: float) -> str:
    """Return a length of time in the two largest units that it has."""
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


def ago(at_ns: int | None, now_ns: int) -> str:
    """Return how long ago something was, or in how long it will be."""
    if at_ns is None:
        return "never"
    away_s = (now_ns - at_ns) / _S_NS
    if abs(away_s) < 1:
        return "now"
    return f"{lasting(away_s)} ago" if away_s > 0 else f"in {lasting(-away_s)}"


def sized(count: float | None) -> str:
    """Return a size in bytes."""
    if count is None:
        return "not known"
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:  # noqa: PLR2004
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def rate(bps: float | None) -> str:
    """Return a rate."""
    if bps is None:
        return "not known"
    for unit in ("bit/s", "kbit/s", "Mbit/s"):
        if bps < 1000:  # noqa: PLR2004
            return f"{bps:.3g} {unit}"
        bps /= 1000
    return f"{bps:.3g} Gbit/s"


def called(state: str) -> str:
    """Return to which kind a state belongs, for its colour: its name stands beside it."""
    if state in (State.COMPLETE, "active"):
        return "good"
    if state in (State.FAILED, State.LOST):
        return "bad"
    if state in [each.value for each in ACTIVE]:
        return "busy"
    if state in (State.ABORTED, State.RESCHEDULED):
        return "odd"
    return "quiet"
