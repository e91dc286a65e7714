"""Sessions in cookies, and CSRF tokens of forms.

A session is a 256-bit secret, which the orchestrator stores as a hash with its user and expiry. The
CSRF token of a form is an HMAC with the session's secret as key, so that only a holder of the
cookie can make one. On the log-in page, where there is no session yet, a separate cookie holds the
key.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from skyhop_testbed.orchestrator.page_port import SESSION_S
from skyhop_testbed.orchestrator.request_context import Caller

SESSION_COOKIE, LOGIN_COOKIE, THEME_COOKIE = "__Host-skyhop", "__Host-skyhop-login", "skyhop-look"
THEMES = ("light", "dark")
CSRF_HEADER = "x-csrf-token"
_LOGIN_S = 3600
_YEAR_S = 365 * 86_400
_LONGEST_SECRET = 200


@dataclass(frozen=True)
class Session:
    """Valid session of a logged-in user."""

    secret: str
    caller: Caller

    @property
    def csrf(self) -> str:
        """CSRF token of the session's forms."""
        return csrf_of(self.secret)


def csrf_of(secret: str) -> str:
    """Return the CSRF token (HMAC-SHA-256, hexadecimal) for a cookie's secret."""
    return hmac.new(secret.encode(), b"skyhop form", hashlib.sha256).hexdigest()


def is_csrf(secret: str, given: str) -> bool:
    """Return whether a CSRF token matches a cookie's secret, in constant time."""
    return hmac.compare_digest(csrf_of(secret).encode(), given.encode())


def is_same_origin(request: Request) -> bool:
    """Return whether a request comes from one of these pages, by `Sec-Fetch-Site` and `Origin`.

    Because of the pages' `referrer-policy: no-referrer`, browsers may send the origin "null".
    """
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site not in (None, "same-origin", "none"):
        return False
    ours = (None, f"https://{request.headers.get('host', '')}")
    return origin in ours or (origin == "null" and site == "same-origin")


def cookie(request: Request, name: str) -> str:
    """Return a cookie's value, or "" if it is absent, too long or not ASCII."""
    value = request.cookies.get(name, "")
    return value if len(value) <= _LONGEST_SECRET and value.isascii() else ""


def set_session(response: Response, secret: str) -> None:
    """Set the session cookie, valid for 12 hours."""
    _set(response, SESSION_COOKIE, secret, SESSION_S)


def set_login(response: Response, secret: str) -> None:
    """Set the cookie with the CSRF key of the log-in form, valid for an hour."""
    _set(response, LOGIN_COOKIE, secret, _LOGIN_S)


def forget(response: Response, name: str) -> None:
    """Delete a cookie in the browser."""
    _set(response, name, "", 0)


def set_theme(response: Response, theme: str) -> None:
    """Set the cookie of the colour theme; delete it to follow the browser's setting."""
    if theme in THEMES:
        _set(response, THEME_COOKIE, theme, _YEAR_S)
    else:
        _set(response, THEME_COOKIE, "", 0)


def _set(response: Response, name: str, value: str, seconds: int) -> None:
    response.set_cookie(
        name, value, max_age=seconds, path="/", secure=True, httponly=True, samesite="strict"
    )
