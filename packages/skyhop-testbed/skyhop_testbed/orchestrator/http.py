"""HTTP side of the API: routes from the table of operations, requests, answers and errors.

`make_app` is independent of the orchestrator; its `act` authenticates the caller and does the work.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from skyhop.errors import InputError, SkyhopError
from skyhop_testbed import api
from skyhop_testbed.api import ErrorKind, Operation
from skyhop_testbed.orchestrator.request_context import (
    ConflictError,
    DeniedError,
    NotFoundError,
    TooOftenError,
    UnknownCallerError,
)

_LOG = logging.getLogger(__name__)
_LARGEST_OF_UNKNOWN = 64 << 10
STATUS: tuple[tuple[type[SkyhopError], ErrorKind, int], ...] = (
    (UnknownCallerError, ErrorKind.UNAUTHENTICATED, 401),
    (DeniedError, ErrorKind.DENIED, 403),
    (TooOftenError, ErrorKind.TOO_OFTEN, 429),
    (NotFoundError, ErrorKind.NOT_FOUND, 404),
    (ConflictError, ErrorKind.CONFLICT, 409),
    (InputError, ErrorKind.INVALID, 400),
    (SkyhopError, ErrorKind.INTERNAL, 503),
)
"""Kind of an error and HTTP status by exception, for the API and the web pages."""

Act = Callable[[Operation[Any, Any], Request], Awaitable[Any]]
"""Function that answers a request: with a message, or an iterator of bytes or of messages."""


def make_app(
    operations: Iterable[Operation[Any, Any]],
    act: Act,
    headers: Callable[[], Mapping[str, str]] = dict,
) -> Starlette:
    """Return the ASGI application that serves operations; all answers have the `headers`."""

    def endpoint(operation: Operation[Any, Any]) -> Callable[[Request], Any]:
        answer = _endpoint(operation, act)

        async def with_headers(http: Request) -> Response:
            response: Response = await answer(http)
            response.headers.update(headers())
            return response

        return with_headers

    routes = [Route(o.path, endpoint(o), methods=[o.method]) for o in operations]

    async def unknown(_http: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _refusal(ErrorKind.NOT_FOUND, error.status_code, "there is no such operation here")

    app = Starlette(routes=routes, exception_handlers={HTTPException: unknown})
    app.router.redirect_slashes = False
    return app


def _endpoint(operation: Operation[Any, Any], act: Act) -> Callable[[Request], Any]:
    async def answer(http: Request) -> Response:
        try:
            made = await act(operation, http)
            if operation.lines:
                # An error before the first line has a status of its own.
                first = await anext(made, None)
                return StreamingResponse(_lines(operation, first, made), media_type="text/plain")
            if operation.answer is bytes:
                return StreamingResponse(made, media_type="application/octet-stream")
            return Response(_dumped(operation, made), media_type="application/json")
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:
            return _refusal(*_described(operation, error))

    return answer


async def _lines(
    operation: Operation[Any, Any], first: object, more: AsyncIterator[Any]
) -> AsyncIterator[bytes]:
    """Yield answers as lines; `None` is a heartbeat. An error is the last line."""
    async with contextlib.aclosing(more):  # type: ignore[type-var]
        try:
            yield _line(operation, first)
            async for each in more:
                yield _line(operation, each)
        except Exception as error:
            kind, _, message = _described(operation, error)
            yield api.Problem(error=kind, message=message).model_dump_json().encode() + b"\n"


def _line(operation: Operation[Any, Any], message: object) -> bytes:
    return b"\n" if message is None else _dumped(operation, message) + b"\n"


def _dumped(operation: Operation[Any, Any], message: object) -> bytes:
    return operation.adapter.dump_json(message, by_alias=True, exclude_unset=True)


def _described(operation: Operation[Any, Any], error: Exception) -> tuple[ErrorKind, int, str]:
    """Return kind, status and message of an error; an unexpected one is only logged in detail."""
    if not isinstance(error, SkyhopError):
        _LOG.error("%s: %s: %s", operation.name, type(error).__name__, error, exc_info=error)
        said = f"internal error in {operation.name}: see the testbed's log"
        return ErrorKind.INTERNAL, 500, said
    _, kind, status = next(row for row in STATUS if isinstance(error, row[0]))
    if kind is ErrorKind.INTERNAL:
        _LOG.error("%s", error)
    return kind, status, str(error)


def _refusal(kind: ErrorKind, status: int, message: str) -> Response:
    content = api.Problem(error=kind, message=message).model_dump_json()
    return Response(content, status, media_type="application/json")


async def read_message(operation: Operation[Any, Any], http: Request) -> Any:
    """Read a request from path, query and body.

    Raises:
        InputError: the request is too large or no JSON, or a field is wrong.
    """
    values: dict[str, object] = {}
    if operation.has_query:
        fields = operation.request.model_fields
        for name in http.query_params:
            found = http.query_params.getlist(name)
            is_list = name in fields and fields[name].annotation == list[str]
            values[name] = found if is_list else found[-1]
    elif not operation.uploads:
        # A caller without a credential sends no more than an invitation.
        most = _LARGEST_OF_UNKNOWN if operation.roles == api.INVITED else api.LARGEST_REQUEST
        values = api.read_object(await _body(http, most) or b"{}")
    return api.read_request(operation, {**values, **http.path_params})


async def _body(http: Request, most: int) -> bytes:
    content = bytearray()
    async for piece in http.stream():
        content += piece
        if len(content) > most:
            raise InputError(f"a request is larger than {most:,} bytes")
    encoding = http.headers.get("content-encoding", "")
    if encoding == api.PACKING:
        return api.unpacked(bytes(content), most)
    if encoding not in ("", "identity"):
        raise InputError(f"content encoding {encoding[:20]!a}: expected {api.PACKING}, or none")
    return bytes(content)
