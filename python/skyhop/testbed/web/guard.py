"""What holds for every request and answer: headers, and how much a request may bring."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skyhop.testbed.job import LONGEST_FILE_BYTES, LONGEST_INPUTS_BYTES

LARGEST_FORM = 512_000
"""Bytes of a request, with room for what a browser makes of a policy's letters."""
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
_UNLESS_SAID = {"content-security-policy": _POLICY, "cache-control": "no-store"}


class Guard:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
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
        elif _said_bytes(Headers(scope=scope)) > limit:
            await PlainTextResponse(_TOO_MUCH, 413)(scope, receive, guarded)
        else:
            await self._app(scope, _counted(receive, limit), guarded)


_TOO_MUCH = "this is more than a request may bring"


def _add_headers(headers: MutableHeaders) -> None:
    for name, value in _ALWAYS.items():
        headers[name] = value
    for name, value in _UNLESS_SAID.items():
        headers.setdefault(name, value)


def _said_bytes(headers: Headers) -> int:
    text = headers.get("content-length", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0  # noqa: PLR2004


def _counted(receive: Receive, limit: int) -> Receive:
    """Return `receive`, which ends a request that brings more than it said."""
    taken = 0

    async def counted() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > limit:
            raise HTTPException(413, _TOO_MUCH)
        return message

    return counted
