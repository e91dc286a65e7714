"""Logging in with a token, logging out, and whether pages are light or dark."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from skyhop.testbed.orchestrator import people
from skyhop.testbed.orchestrator.desk import UnknownCallerError
from skyhop.testbed.web import session as sessions
from skyhop.testbed.web.ask import Ask

_LONGEST = 300


def show(ask: Ask) -> Response:
    """Show the form; a cookie binds it to this browser."""
    if ask.session is not None:
        return ask.go("/")
    return _form(ask, 200, "")


def _form(ask: Ask, status: int, said: str) -> Response:
    secret = sessions.cookie(ask.request, sessions.LOGIN_COOKIE) or people.new_secret()
    ask.csrf = sessions.csrf_of(secret)
    goal = _own_page(ask.field("next") or ask.query("next"))
    response = ask.page("login.html", status, title="Log in", next=goal, said=said)
    sessions.set_login(response, secret)
    return response


def log_in(ask: Ask) -> Response:
    """Make a session of a token.

    Raises:
        HTTPException: it was tried too often.
    """
    if ask.session is not None:
        return ask.go("/")
    now_ns = ask.office.now_ns()
    client = ask.request.client.host if ask.request.client else ""
    if not (ask.rooms.logins.takes(client, now_ns) and ask.rooms.all_logins.takes("", now_ns)):
        raise HTTPException(429, "too many tries: wait a minute")
    try:
        caller = ask.office.caller_of_token(ask.field("token").strip()[:_LONGEST])
    except UnknownCallerError as error:
        return _form(ask, 401, str(error))
    with ask.office.writing(caller) as desk:
        secret = sessions.begin(desk)
        desk.note("Login", "page")
    response = ask.go(_own_page(ask.field("next")))
    sessions.set_session(response, secret)
    sessions.forget(response, sessions.LOGIN_COOKIE)
    return response


def log_out(ask: Ask) -> Response:
    """Delete the session."""
    assert ask.session is not None
    with ask.office.writing(ask.caller) as desk:
        sessions.end(desk, ask.session.secret)
        desk.note("Logout", "page")
    response = ask.go("/login")
    sessions.forget(response, sessions.SESSION_COOKIE)
    return response


def set_look(ask: Ask) -> Response:
    """Have pages light, dark, or as the browser is set."""
    response = RedirectResponse(_own_page(ask.field("here")), 303)
    sessions.set_look(response, ask.field("look"))
    return response


def _own_page(path: str) -> str:
    """Return an address of ours, the first page where it is none."""
    is_ours = path.startswith("/") and not path.startswith("//") and path.isprintable()
    return path if is_ours and "\\" not in path and len(path) < _LONGEST else "/"
