"""Who asks: sessions in cookies, tokens in forms, and how often something may be tried.

A session is a secret of 256 bits, kept by the orchestrator as a hash, with a user and an end. A
form's token is made of the session's secret: who does not have the cookie cannot make one. Before
there is a session, a cookie of its own takes that place on the page to log in.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections import OrderedDict
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from skyhop.testbed.orchestrator import people
from skyhop.testbed.orchestrator.desk import Caller, Desk
from skyhop.testbed.web import queries

SESSION_COOKIE, LOGIN_COOKIE, LOOK_COOKIE = "__Host-skyhop", "__Host-skyhop-login", "skyhop-look"
SESSION_S = 12 * 3600
LOOKS = ("light", "dark")
CSRF_HEADER = "x-csrf-token"
_LOGIN_S = 3600
_YEAR_S = 365 * 86_400
_LONGEST_SECRET = 200
_MINUTE_NS = 60_000_000_000
_MOST_KNOWN = 10_000


@dataclass(frozen=True)
class Session:
    """One that is good."""

    secret: str
    caller: Caller

    @property
    def csrf(self) -> str:
        """What its forms hold."""
        return csrf_of(self.secret)


def csrf_of(secret: str) -> str:
    """Return the token of forms that belong to a cookie's secret."""
    return hmac.new(secret.encode(), b"skyhop form", hashlib.sha256).hexdigest()


def is_csrf(secret: str, given: str) -> bool:
    """Return whether a form belongs to a cookie's secret."""
    return hmac.compare_digest(csrf_of(secret).encode(), given.encode())


def is_from_here(request: Request) -> bool:
    """Return whether a request can come from one of our own pages, by what the browser says.

    Pages that tell nobody where one comes from (`referrer-policy`) have the origin "null".
    """
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site not in (None, "same-origin", "none"):
        return False
    ours = (None, f"https://{request.headers.get('host', '')}")
    return origin in ours or (origin == "null" and site == "same-origin")


def cookie(request: Request, name: str) -> str:
    """Return a cookie that can be one of ours, "" without one."""
    value = request.cookies.get(name, "")
    return value if len(value) <= _LONGEST_SECRET and value.isascii() else ""


def begin(desk: Desk) -> str:
    """Make a session for the caller; return its secret."""
    end_ns = desk.now_ns + SESSION_S * 1_000_000_000
    return people.issue(
        desk, people.SESSION, of_user=desk.caller.name, expires_ns=end_ns, label="page"
    )


def end(desk: Desk, secret: str) -> None:
    """Delete a session of the caller."""
    key = queries.key_of_secret(desk, secret)
    if key is not None:
        people.revoke(desk, desk.caller.name, key)


def set_session(response: Response, secret: str) -> None:
    """Have the browser keep a session."""
    _set(response, SESSION_COOKIE, secret, SESSION_S)


def set_login(response: Response, secret: str) -> None:
    """Have the browser keep what binds the form to log in."""
    _set(response, LOGIN_COOKIE, secret, _LOGIN_S)


def forget(response: Response, name: str) -> None:
    """Have the browser forget a cookie."""
    _set(response, name, "", 0)


def set_look(response: Response, look: str) -> None:
    """Have the browser keep whether it is to be light or dark; else its own setting counts."""
    if look in LOOKS:
        _set(response, LOOK_COOKIE, look, _YEAR_S)
    else:
        _set(response, LOOK_COOKIE, "", 0)


def _set(response: Response, name: str, value: str, seconds: int) -> None:
    response.set_cookie(
        name, value, max_age=seconds, path="/", secure=True, httponly=True, samesite="strict"
    )


class Limit:
    """How often something may be tried in a minute, by whom it is."""

    def __init__(self, per_minute: float) -> None:
        self._per_minute = per_minute
        self._left: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._lock = threading.Lock()

    def takes(self, who: str, now_ns: int, per_minute: float | None = None) -> bool:
        """Count one try, and return whether it is among those that are allowed."""
        most = self._per_minute if per_minute is None else per_minute
        with self._lock:
            left, at_ns = self._left.pop(who, (most, now_ns))
            left = min(most, left + max(0, now_ns - at_ns) / _MINUTE_NS * most)
            is_taken = left >= 1
            self._left[who] = (left - is_taken, now_ns)
            if len(self._left) > _MOST_KNOWN:
                self._left.popitem(last=False)
        return is_taken
