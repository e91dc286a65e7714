"""Pages to log in with a token and to log out, and the colour theme."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from skyhop_testbed.orchestrator import accounts
from skyhop_testbed.orchestrator.request_context import UnknownCallerError
from skyhop_testbed.web import session as sessions
from skyhop_testbed.web.page_request import PageRequest

_LONGEST = 300


def show(request: PageRequest) -> Response:
    """Show the log-in form; a cookie binds its CSRF token to this browser."""
    if request.session is not None:
        return request.redirect("/")
    return _form(request, 200, "")


def _form(request: PageRequest, status: int, problem: str) -> Response:
    secret = sessions.cookie(request.http, sessions.LOGIN_COOKIE) or accounts.new_secret()
    request.csrf = sessions.csrf_of(secret)
    goal = _own_page(request.form_field("next") or request.query("next"))
    response = request.render("login.html", status, title="Log in", next=goal, problem=problem)
    sessions.set_login(response, secret)
    return response


def log_in(request: PageRequest) -> Response:
    """Check a token and create a session.

    Raises:
        HTTPException: there were too many attempts, from this address or in total.
    """
    if request.session is not None:
        return request.redirect("/")
    now_ns = request.orchestrator.now_ns()
    client = request.http.client.host if request.http.client else ""
    if not (
        request.state.logins.allow(client, now_ns) and request.state.all_logins.allow("", now_ns)
    ):
        raise HTTPException(429, "too many attempts: wait a minute")
    try:
        caller = request.orchestrator.caller_of_token(
            request.form_field("token").strip()[:_LONGEST]
        )
    except UnknownCallerError as error:
        return _form(request, 401, str(error))
    with request.orchestrator.writing(caller) as ctx:
        secret = sessions.begin(ctx)
        ctx.audit("Login", "page")
    response = request.redirect(_own_page(request.form_field("next")))
    sessions.set_session(response, secret)
    sessions.forget(response, sessions.LOGIN_COOKIE)
    return response


def log_out(request: PageRequest) -> Response:
    """Delete the session and its cookie."""
    assert request.session is not None
    with request.orchestrator.writing(request.caller) as ctx:
        sessions.end(ctx, request.session.secret)
        ctx.audit("Logout", "page")
    response = request.redirect("/login")
    sessions.forget(response, sessions.SESSION_COOKIE)
    return response


def set_theme(request: PageRequest) -> Response:
    """Set the colour theme: light, dark or the browser's setting."""
    response = RedirectResponse(_own_page(request.form_field("here")), 303)
    sessions.set_theme(response, request.form_field("look"))
    return response


def _own_page(path: str) -> str:
    """Return the path if it is a safe one on this site, else "/", which prevents open redirects."""
    is_ours = path.startswith("/") and not path.startswith("//") and path.isprintable()
    return path if is_ours and "\\" not in path and len(path) < _LONGEST else "/"
