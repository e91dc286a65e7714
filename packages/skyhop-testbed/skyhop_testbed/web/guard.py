"""ASGI middleware: security headers of every response, and limits on a request's size."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skyhop_testbed.job import LONGEST_FILE_BYTES, LONGEST_INPUTS_BYTES

LARGEST_FORM = 512_000
"""Upper limit on a request body in bytes, with room for the percent-encoding of a policy's text."""
LARGEST_JOB = LONGEST_INPUTS_BYTES + LARGEST_FORM + 4 * LONGEST_FILE_BYTES
_WITH_FILES = ("/submit", "/jobs/")
_LONGEST_ADDRESS = 4_000
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_ALWAYS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "strict-transport-security": "max-age=31536000",
    "x-frame-options": "DENY",
}
_DEFAULT_HEADERS = {"content-security-policy": _POLICY, "cache-control": "no-store"}


class Guard:
    """ASGI middleware that adds headers and refuses requests that are too large."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request, and pass it to the inner application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add_headers(MutableHeaders(scope=message))
            await send(message)

        limit = LARGEST_JOB if scope["path"].startswith(_WITH_FILES) else LARGEST_FORM
        if len(scope["path"]) + len(scope.get("query_string", b"")) > _LONGEST_ADDRESS:
            await PlainTextResponse("the address is too long", 414)(scope, receive, guarded)
        elif _declared_bytes(Headers(scope=scope)) > limit:
            await PlainTextResponse(_TOO_MUCH, 413)(scope, receive, guarded)
        else:
            await self._app(scope, _counted(receive, limit), guarded)


_TOO_MUCH = "the request is too large"


def _add_headers(headers: MutableHeaders) -> None:
    for name, value in _ALWAYS.items():
        headers[name] = value
    for name, value in _DEFAULT_HEADERS.items():
        headers.setdefault(name, value)


def _declared_bytes(headers: Headers) -> int:
    text = headers.get("content-length", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0  # noqa: PLR2004


def _counted(receive: Receive, limit: int) -> Receive:
    """Return a `receive` that raises an HTTP error once the body exceeds the limit.

    The header `content-length` may be absent or wrong, so the actual bytes are counted.
    """
    taken = 0

    async def counted() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > limit:
            raise HTTPException(413, _TOO_MUCH)
        return message

    return counted
