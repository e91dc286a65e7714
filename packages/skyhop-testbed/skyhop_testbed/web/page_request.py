"""Request object of the page handlers: caller, form fields and ways to respond.

A page handler is a function from a `PageRequest` to a response. It runs in a worker thread, and its
exceptions become error pages.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import anyio
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from skyhop.errors import SkyhopError
from skyhop_testbed import api
from skyhop_testbed.api import A, Operation, Q
from skyhop_testbed.orchestrator import accounts, page_port
from skyhop_testbed.orchestrator.core import View
from skyhop_testbed.orchestrator.http import STATUS
from skyhop_testbed.orchestrator.request_context import (
    ITSELF,
    Caller,
    DeniedError,
    RequestContext,
    UnknownCallerError,
)
from skyhop_testbed.web import session as sessions
from skyhop_testbed.web.changes import Changes
from skyhop_testbed.web.drawings import Drawings
from skyhop_testbed.web.recent import RecentTelemetry
from skyhop_testbed.web.rendering import Renderer
from skyhop_testbed.web.session import Session

_MOST_FIELDS, _MOST_FILES = 200, 100
_THREADS, _SLOW_THREADS = 6, 4
"""Upper limits on concurrent page handlers, and on those that wait for drawings; each may hold a
connection of the database pool."""

_LOG = logging.getLogger(__name__)
Page = Callable[["PageRequest"], Response]
"""Page handler: builds the response of one request."""


@dataclass
class AppState:
    """Objects that all requests of the application share."""

    orchestrator: View
    changes: Changes
    renderer: Renderer
    drawings: Drawings
    recent: RecentTelemetry
    threads: anyio.CapacityLimiter | None = None
    slow_threads: anyio.CapacityLimiter | None = None


@dataclass
class PageRequest:
    """One HTTP request, with its session and form fields."""

    state: AppState
    http: Request
    session: Session | None = None
    csrf: str = ""
    """CSRF token for the forms of the response."""
    form: Mapping[str, list[str]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def orchestrator(self) -> View:
        """The orchestrator that the pages show, to read."""
        return self.state.orchestrator

    @property
    def caller(self) -> Caller:
        """The logged-in user.

        Raises:
            UnknownCallerError: the request has no valid session.
        """
        if self.session is None:
            raise UnknownCallerError("log in first")
        return self.session.caller

    @property
    def is_partial(self) -> bool:
        """Whether htmx requests a fragment of a page."""
        return self.http.headers.get("hx-request") == "true"

    def path_param(self, name: str) -> str:
        """Return a named parameter of the path."""
        return str(self.http.path_params[name])

    def query(self, name: str, default: str = "") -> str:
        """Return a query parameter, cut to 200 characters."""
        return self.http.query_params.get(name, default)[:200]

    def query_number(self, name: str, default: int, least: int, most: int) -> int:
        """Return an integer query parameter, clamped to a range; the default if it is invalid."""
        text = self.query(name)
        known = text.isascii() and text.isdigit() and len(text) <= len(str(most))
        return min(max(int(text), least), most) if known else default

    def form_field(self, name: str, default: str = "") -> str:
        """Return the first value of a form field."""
        return next(iter(self.form.get(name, [])), default)

    def render(self, template: str, status: int = 200, **values: Any) -> Response:
        """Return a page rendered from a template."""
        html = self.state.renderer.render(template, self, values)
        return Response(html, status, media_type="text/html")

    def redirect(self, path: str, done: str = "") -> Response:
        """Return a redirect (303) to a page.

        `done` is the key of the message that the page shows.
        """
        return RedirectResponse(f"{path}?done={done}" if done else path, 303)

    def reading(self) -> AbstractContextManager[RequestContext]:
        """Open a read-only request context of the caller."""
        return self.orchestrator.reading(self.caller)

    def change(self, operation: Operation[Q, A], request: Q) -> A:
        """Have the orchestrator perform an operation for the session, with its permissions.

        Raises:
            UnknownCallerError: the session, or the token of a log-in, is not valid.
            DeniedError: the caller's role may not call the operation.
            SkyhopError: the operation failed, and nothing was changed.
        """
        secret = self.session.secret if self.session else ""
        return self.state.changes.perform(operation, secret, request)

    def check_admin(self) -> None:
        """Check that the caller is an administrator.

        Raises:
            DeniedError: the caller is not.
        """
        if not self.caller.is_admin:
            raise DeniedError("this page is for administrators")


def endpoint(
    state: AppState, handler: Page, *, is_open: bool = False, is_slow: bool = False
) -> Callable[[Request], Awaitable[Response]]:
    """Return the ASGI endpoint for a handler.

    The endpoint authenticates the user, checks the CSRF token, calls the handler, and turns
    exceptions into error pages.

    Args:
        state: objects of all requests.
        handler: the page's handler.
        is_open: whether it needs no login.
        is_slow: whether it waits for drawings, which then does not delay other pages.
    """

    async def answer(http: Request) -> Response:
        request = PageRequest(state, http)
        if state.threads is None:
            state.threads = anyio.CapacityLimiter(_THREADS)
            state.slow_threads = anyio.CapacityLimiter(_SLOW_THREADS)
        try:
            await anyio.to_thread.run_sync(_authenticate, request, limiter=state.threads)
            if request.session is None and not is_open:
                raise UnknownCallerError("log in first")
            if http.method == "POST":
                await _read_form(request)
            limiter = state.slow_threads if is_slow else state.threads
            return await anyio.to_thread.run_sync(handler, request, limiter=limiter)
        except (SkyhopError, HTTPException, ClientDisconnect) as error:
            return refused(request, error)
        except Exception:
            # The user learns that it is a fault of the server; the log has the details.
            _LOG.exception("%s %s", http.method, http.url.path)
            return refused(
                request,
                HTTPException(500, "internal error of the testbed: its log has the details"),
            )

    return answer


def _authenticate(request: PageRequest) -> None:
    """Set the session from the cookie, and check its user's rate limit."""
    secret = sessions.cookie(request.http, sessions.SESSION_COOKIE)
    if secret:
        with suppress(UnknownCallerError):
            with request.orchestrator.reading(ITSELF) as ctx:
                caller, is_noted = accounts.caller_of_token(ctx, secret, accounts.SESSION)
            request.session = Session(secret, caller)
            request.csrf = request.session.csrf
            if not is_noted:
                # A page is shown even if its use cannot be noted now.
                with suppress(SkyhopError):
                    request.change(page_port.NOTE_USE, api.Nothing())
    if request.session is None:
        return
    with request.reading() as ctx:
        most = ctx.settings.requests_per_minute
    request.orchestrator.rates.check(f"page {request.caller.name}", most)


async def _read_form(request: PageRequest) -> None:
    """Read the form fields and files, and check the CSRF token.

    Raises:
        HTTPException: the form has too many or too large fields.
        DeniedError: the form was not sent by one of these pages, or its session has ended.
    """
    http = request.http
    wrong = DeniedError("this form is not from this site, or it has expired: reload its page")
    if not sessions.is_same_origin(http):
        raise wrong
    values: dict[str, list[str]] = {}
    files: dict[str, bytes] = {}
    async with http.form(max_files=_MOST_FILES, max_fields=_MOST_FIELDS) as form:
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                if value.filename:
                    files[value.filename] = await value.read()
            else:
                values.setdefault(name, []).append(value)
    request.form, request.files = values, files
    name = sessions.SESSION_COOKIE if request.session else sessions.LOGIN_COOKIE
    secret = request.session.secret if request.session else sessions.cookie(http, name)
    given = http.headers.get(sessions.CSRF_HEADER) or request.form_field("csrf")
    if not secret or not sessions.is_csrf(secret, given):
        raise wrong


_TITLES = {
    400: "Invalid request",
    401: "Log in first",
    403: "Permission denied",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict with other jobs",
    413: "Request too large",
    429: "Too many requests",
    503: "Not available now",
}


def refused(request: PageRequest, error: Exception) -> Response:
    """Return the error page of an exception; the log-in page if there is no session."""
    if isinstance(error, HTTPException):
        status, problem = error.status_code, str(error.detail)
    elif isinstance(error, ClientDisconnect):
        return PlainTextResponse("", 400)
    else:
        status = next((number for kind, _, number in STATUS if isinstance(error, kind)), 500)
        problem = str(error)
    is_page = request.http.method == "GET" and not request.is_partial
    if status == 401 and is_page and not request.http.url.path.endswith(".json"):  # noqa: PLR2004
        path = request.http.url.path
        return request.redirect("/login" if path == "/" else f"/login?next={quote(path)}")
    if request.is_partial or request.http.url.path.endswith(".json"):
        return PlainTextResponse(problem, status)
    title = _TITLES.get(status, "Internal error")
    return request.render("error.html", status, title=title, problem=problem)
