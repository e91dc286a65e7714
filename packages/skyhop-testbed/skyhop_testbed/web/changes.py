"""Changes that users make on the pages: calls of the orchestrator, which alone writes."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from skyhop.errors import InputError, RunError, SkyhopError
from skyhop_testbed.api import A, ApiError, ErrorKind, Operation, Q
from skyhop_testbed.orchestrator.page_port import SESSION_HEADER
from skyhop_testbed.orchestrator.request_context import (
    ConflictError,
    DeniedError,
    NotFoundError,
    TooOftenError,
    UnknownCallerError,
)

_TIMEOUT_S = 60.0


class Changes(Protocol):
    """Performs operations of the API for the user of a session."""

    def perform(self, operation: Operation[Q, A], secret: str, request: Q) -> A:
        """Perform an operation for the user of the session with this secret.

        Raises:
            SkyhopError: the operation was refused or failed, and nothing was changed.
        """


class RemoteChanges:
    """Changes through the orchestrator's Unix socket; safe to use from several threads.

    Args:
        socket: path of the socket.
    """

    def __init__(self, socket: Path) -> None:
        import httpx

        self._transport = httpx.HTTPTransport(uds=str(socket))

    def perform(self, operation: Operation[Q, A], secret: str, request: Q) -> A:
        """Perform an operation for the user of the session with this secret.

        Raises:
            SkyhopError: the operation was refused or failed; if no answer comes, it may also have
                been performed.
        """
        import httpx

        from skyhop_testbed.wire import Wire

        http = httpx.Client(
            base_url="http://orchestrator",
            headers={SESSION_HEADER: secret},
            transport=self._transport,
            trust_env=False,
        )
        try:
            return Wire(http).call(operation, request, _TIMEOUT_S)
        except ApiError as error:
            raise _error(error) from None


def _error(error: ApiError) -> SkyhopError:
    """Return the orchestrator's exception of an error of its API."""
    said = str(error)
    if error.kind is ErrorKind.CONFLICT:
        return ConflictError(said, [])
    kinds: dict[ErrorKind, type[SkyhopError]] = {
        ErrorKind.UNAUTHENTICATED: UnknownCallerError,
        ErrorKind.DENIED: DeniedError,
        ErrorKind.NOT_FOUND: NotFoundError,
        ErrorKind.TOO_OFTEN: TooOftenError,
        ErrorKind.INVALID: InputError,
    }
    made = kinds.get(error.kind)
    if made is not None:
        return made(said)
    if error.kind in (ErrorKind.UNREACHABLE, ErrorKind.TIMEOUT):
        return RunError(f"the orchestrator does not answer now; try again in a minute ({said})")
    return RunError(said)
