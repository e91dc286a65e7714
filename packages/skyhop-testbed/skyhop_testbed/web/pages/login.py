"""Pages to log in with a token and to log out, and the colour theme."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from skyhop_testbed import api
from skyhop_testbed.orchestrator import accounts, page_port
from skyhop_testbed.orchestrator.request_context import UnknownCallerError
from skyhop_testbed.web import session as sessions
from skyhop_testbed.web.page_request import PageRequest

_LONGEST = 300
_LOGINS_PER_MINUTE, _ALL_LOGINS_PER_MINUTE = 10, 120


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
        TooOftenError: there were too many attempts, from this address or in total.
    """
    if request.session is not None:
        return request.redirect("/")
    client = request.http.client.host if request.http.client else ""
    request.orchestrator.rates.check(f"log-in at {client}", _LOGINS_PER_MINUTE)
    request.orchestrator.rates.check("log-in", _ALL_LOGINS_PER_MINUTE)
    token = request.form_field("token").strip()[:_LONGEST]
    try:
        secret = request.change(page_port.LOG_IN, page_port.LogIn(token=token))
    except UnknownCallerError as error:
        return _form(request, 401, str(error))
    response = request.redirect(_own_page(request.form_field("next")))
    sessions.set_session(response, secret)
    sessions.forget(response, sessions.LOGIN_COOKIE)
    return response


def log_out(request: PageRequest) -> Response:
    """Delete the session and its cookie."""
    request.change(page_port.LOG_OUT, api.Nothing())
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
