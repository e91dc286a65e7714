"""One request as pages are given it: who asks, what was filled in, how to answer.

A page is a plain function that takes an `Ask` and returns a response. It runs in a thread; what it
raises becomes an error page.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

import anyio
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from skyhop.errors import InputError, RunError, SkyhopError
from skyhop.testbed.orchestrator import access, people
from skyhop.testbed.orchestrator.desk import (
    Caller,
    ConflictError,
    DeniedError,
    Desk,
    NotFoundError,
    UnknownCallerError,
)
from skyhop.testbed.orchestrator.office import Office
from skyhop.testbed.web import session as sessions
from skyhop.testbed.web.drawings import Drawings
from skyhop.testbed.web.look import Look
from skyhop.testbed.web.recent import Recent
from skyhop.testbed.web.session import Limit, Session

_MOST_FIELDS, _MOST_FILES = 200, 100
_THREADS = 6
"""Of pages at once; each may hold a connection to the database."""

_LOG = logging.getLogger(__name__)
_Result = TypeVar("_Result")
Page = Callable[["Ask"], Response]


@dataclass
class Rooms:
    """What all requests share."""

    office: Office
    look: Look
    drawings: Drawings
    recent: Recent
    logins: Limit = field(default_factory=lambda: Limit(10))
    all_logins: Limit = field(default_factory=lambda: Limit(120))
    requests: Limit = field(default_factory=lambda: Limit(600))
    threads: anyio.CapacityLimiter | None = None


@dataclass
class Ask:
    """One request."""

    rooms: Rooms
    request: Request
    session: Session | None = None
    csrf: str = ""
    """What the forms of the answer hold."""
    form: Mapping[str, list[str]] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def office(self) -> Office:
        """The orchestrator."""
        return self.rooms.office

    @property
    def caller(self) -> Caller:
        """Who asks.

        Raises:
            UnknownCallerError: nobody has logged in.
        """
        if self.session is None:
            raise UnknownCallerError("log in first")
        return self.session.caller

    @property
    def wants_part(self) -> bool:
        """Whether a script asks for a part of a page."""
        return self.request.headers.get("hx-request") == "true"

    def path(self, name: str) -> str:
        """Return a part of the address that has a name."""
        return str(self.request.path_params[name])

    def query(self, name: str, default: str = "") -> str:
        """Return what stands behind the question mark, at most 200 characters of it."""
        return self.request.query_params.get(name, default)[:200]

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Return a whole number from behind the question mark; what is none is the default."""
        text = self.query(name)
        known = text.isascii() and text.isdigit() and len(text) <= len(str(most))
        return min(max(int(text), least), most) if known else default

    def field(self, name: str, default: str = "") -> str:
        """Return what was filled in."""
        return next(iter(self.form.get(name, [])), default)

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Answer with a page."""
        html = self.rooms.look.render(template, self, values)
        return Response(html, status, media_type="text/html")

    def go(self, path: str, done: str = "") -> Response:
        """Answer with another page, which says that something was done."""
        return RedirectResponse(f"{path}?done={done}" if done else path, 303)

    def reading(self) -> AbstractContextManager[Desk]:
        """Give a desk that changes nothing."""
        return self.office.reading(self.caller)

    def act(self, procedure: str, target: str, do: Callable[[Desk], _Result]) -> _Result:
        """Do one matter, as the remote procedure of that name does it; the audit log tells of it.

        Raises:
            DeniedError and what the matter raises: nothing was changed then.
        """
        try:
            access.check_role(procedure, self.caller)
            return self.do(procedure, target, do)
        except (DeniedError, InputError) as error:
            if procedure in access.AUDITED:
                with self.office.writing(self.caller) as desk:
                    desk.note(procedure, target[:200], f"refused: {str(error)[:300]}")
            raise

    def do(self, what: str, target: str, do: Callable[[Desk], _Result]) -> _Result:
        """Do one matter that is everybody's own; the audit log tells of it."""
        with self.office.writing(self.caller) as desk:
            result = do(desk)
            desk.note(what, target[:200])
        return result

    def check_admin(self) -> None:
        """Let administrators pass.

        Raises:
            DeniedError: it is none.
        """
        if not self.caller.is_admin:
            raise DeniedError("this page is for administrators")


def endpoint(
    rooms: Rooms, handler: Page, *, is_open: bool = False
) -> Callable[[Request], Awaitable[Response]]:
    """Return what the router calls: who asks, is it from one of our forms, the page, errors."""

    async def answer(request: Request) -> Response:
        ask = Ask(rooms, request)
        if rooms.threads is None:
            rooms.threads = anyio.CapacityLimiter(_THREADS)
        try:
            await anyio.to_thread.run_sync(_know, ask, limiter=rooms.threads)
            if ask.session is None and not is_open:
                raise UnknownCallerError("log in first")
            if request.method == "POST":
                await _take_form(ask)
            return await anyio.to_thread.run_sync(handler, ask, limiter=rooms.threads)
        except (SkyhopError, HTTPException, ClientDisconnect) as error:
            return refused(ask, error)
        except Exception:
            # Whoever asks is told that it is not their fault; why, stands in the log.
            _LOG.exception("%s %s", request.method, request.url.path)
            return refused(ask, HTTPException(500, "this is a fault of the testbed's"))

    return answer


def _know(ask: Ask) -> None:
    """Find out who asks, from the cookie."""
    rooms, secret = ask.rooms, sessions.cookie(ask.request, sessions.SESSION_COOKIE)
    if secret:
        with suppress(UnknownCallerError):
            caller = ask.office.caller_of_token(secret, people.SESSION)
            ask.session = Session(secret, caller)
            ask.csrf = ask.session.csrf
    if ask.session is None:
        return
    with ask.reading() as desk:
        most = desk.settings.requests_per_minute
    if not rooms.requests.takes(ask.caller.name, ask.office.now_ns(), most):
        raise HTTPException(429, "too many requests: wait a minute")


async def _take_form(ask: Ask) -> None:
    """Read what was filled in, and check that it was in one of our forms.

    Raises:
        HTTPException, DeniedError: it is too much, or was not.
    """
    request = ask.request
    wrong = DeniedError("this form is not from here, or too old: load its page again")
    if not sessions.is_from_here(request):
        raise wrong
    values: dict[str, list[str]] = {}
    files: dict[str, bytes] = {}
    async with request.form(max_files=_MOST_FILES, max_fields=_MOST_FIELDS) as form:
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                if value.filename:
                    files[value.filename] = await value.read()
            else:
                values.setdefault(name, []).append(value)
    ask.form, ask.files = values, files
    name = sessions.SESSION_COOKIE if ask.session else sessions.LOGIN_COOKIE
    secret = ask.session.secret if ask.session else sessions.cookie(request, name)
    given = request.headers.get(sessions.CSRF_HEADER) or ask.field("csrf")
    if not secret or not sessions.is_csrf(secret, given):
        raise wrong


_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (UnknownCallerError, 401),
    (DeniedError, 403),
    (NotFoundError, 404),
    (ConflictError, 409),
    (InputError, 400),
    (RunError, 503),
)
_CALLED = {
    400: "That cannot be",
    401: "Log in first",
    403: "Not for you",
    404: "There is no such page",
    405: "Not in that way",
    409: "Others were first",
    413: "Too much",
    429: "Too often",
    503: "It does not work now",
}


def refused(ask: Ask, error: Exception) -> Response:
    """Return the page of an error: one line, and where to go on."""
    if isinstance(error, HTTPException):
        status, said = error.status_code, str(error.detail)
    elif isinstance(error, ClientDisconnect):
        return PlainTextResponse("", 400)
    else:
        status = next((number for kind, number in _STATUS if isinstance(error, kind)), 500)
        said = str(error)
    is_page = ask.request.method == "GET" and not ask.wants_part
    if status == 401 and is_page and not ask.request.url.path.endswith(".json"):  # noqa: PLR2004
        path = ask.request.url.path
        return ask.go("/login" if path == "/" else f"/login?next={quote(path)}")
    if ask.wants_part or ask.request.url.path.endswith(".json"):
        return PlainTextResponse(said, status)
    called = _CALLED.get(status, "It went wrong")
    return ask.page("error.html", status, title=called, said=said)
