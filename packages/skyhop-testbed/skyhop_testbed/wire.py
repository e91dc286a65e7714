"""Caller of the orchestrator's API over HTTPS, for users' clients and for agents.

A `Wire` is safe to use from several threads. Each call is bounded in time: the peer must accept the
connection, and then send or take bytes, within the call's timeout. A stream ends with an error when
no line and no heartbeat arrives in time, so that a vanished orchestrator is noticed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import zlib
from collections.abc import Iterator
from typing import Any, Generic
from urllib.parse import quote

import httpx
from pydantic import ValidationError

from skyhop_testbed.api import (
    HEARTBEAT_S,
    PACKING,
    A,
    ApiError,
    ErrorKind,
    Operation,
    Problem,
    Q,
    lines_of,
)
from skyhop_testbed.protocol import PACKING_SINCE, Peer, fields_since, own_headers
from skyhop_testbed.proxies import environment_proxy

_TIMEOUT_S = 30.0
_SILENCE_S = HEARTBEAT_S + 10.0
"""Time in s without a line after which the peer of a stream counts as vanished."""
_IDLE_S = 60.0
"""Time in s for which an idle connection is kept; the server keeps it longer."""
_LONGEST_LINE = 80_000_000
PACKED_FROM_BYTES = 300
"""Length of a body above which `call` compresses it if it may."""


def client_context(authority_pem: bytes, identity_pem: bytes | None = None) -> ssl.SSLContext:
    """Return the TLS settings of a client that trusts one certificate authority only.

    Args:
        authority_pem: the authority's certificate.
        identity_pem: private key and certificate of the client, if the server asks for them.

    Raises:
        ValueError: a certificate or the key cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority_pem.decode("ascii"))
    if identity_pem is not None:
        # OpenSSL reads the key from a file; this one is in memory.
        with os.fdopen(os.memfd_create("identity", os.MFD_CLOEXEC), "wb") as file:
            file.write(identity_pem)
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    return context


def open_http(address: str, context: ssl.SSLContext, proxy: str | None = None) -> httpx.Client:
    """Return an HTTP client for HOST:PORT; it connects at the first request.

    Args:
        address: host and port.
        context: TLS settings; TLS goes through a proxy unread.
        proxy: URL of an HTTP proxy that knows CONNECT; by default the environment's, if any.
    """
    limits = httpx.Limits(keepalive_expiry=_IDLE_S)
    through = proxy or environment_proxy(address)
    return httpx.Client(
        base_url=f"https://{address}",
        verify=context,
        limits=limits,
        proxy=through,
        trust_env=False,
    )


class Lines(Generic[A]):
    """Answers of a stream, as they arrive; `cancel` ends it from any thread."""

    def __init__(self, operation: Operation[Any, A], response: httpx.Response) -> None:
        self._operation, self._response = operation, response

    def __iter__(self) -> Iterator[A]:
        with _translated(), contextlib.closing(self._response):
            for line in lines_of(self._response.iter_raw(), _LONGEST_LINE):
                if line.startswith(b'{"error":'):
                    raise _problem(line)
                if line:
                    yield self._operation.adapter.validate_json(line)

    def cancel(self) -> None:
        """End the stream: a thread that waits for its next line gets an error."""
        with contextlib.suppress(OSError):
            stream = self._response.extensions["network_stream"]
            stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


class Wire:
    """Connection to one port of an orchestrator.

    Args:
        http: the client of the port, from `open_http`.
        token: token of a user.

    All methods raise `ApiError` if the request is refused, fails or is not answered.
    """

    def __init__(self, http: httpx.Client, token: str | None = None) -> None:
        self._http = http
        self.peer = Peer()
        """Version and protocols of the orchestrator, as its last answer states them."""
        http.headers.update(own_headers())
        http.event_hooks["response"].append(self._note_peer)
        if token is not None:
            http.headers["authorization"] = f"Bearer {token}"

    def close(self) -> None:
        """Close all connections to the port."""
        self._http.close()

    def _note_peer(self, response: httpx.Response) -> None:
        self.peer = Peer.of_headers(response.headers)

    def call(
        self,
        operation: Operation[Q, A],
        request: Q,
        timeout_s: float = _TIMEOUT_S,
        *,
        is_packed: bool = False,
    ) -> A:
        """Send a request; return its answer.

        With `is_packed` a long body is compressed, if the peer reads that.
        """
        with _translated():
            built = self._request(operation, request, timeout_s)
            is_read = self.peer.highest >= PACKING_SINCE
            if is_packed and is_read and len(built.content) > PACKED_FROM_BYTES:
                headers = {"content-type": "application/json", "content-encoding": PACKING}
                built = self._http.build_request(
                    built.method,
                    built.url,
                    headers=headers,
                    content=zlib.compress(built.content),
                    timeout=timeout_s,
                )
            response = _checked(self._http.send(built))
            return operation.adapter.validate_json(response.content)

    def upload(
        self, operation: Operation[Q, A], request: Q, pieces: Iterator[bytes], timeout_s: float
    ) -> A:
        """Send a request whose body is a stream of pieces (`api.frame`); return its answer."""
        with _translated():
            built = self._request(operation, request, timeout_s, pieces)
            response = _checked(self._http.send(built))
            return operation.adapter.validate_json(response.content)

    def download(
        self, operation: Operation[Q, bytes], request: Q, timeout_s: float = _TIMEOUT_S
    ) -> Iterator[bytes]:
        """Yield the bytes of a file as they arrive."""
        with _translated():
            built = self._request(operation, request, timeout_s)
            with contextlib.closing(_checked(self._http.send(built, stream=True))) as response:
                yield from response.iter_raw()

    def stream(self, operation: Operation[Q, A], request: Q) -> Lines[A]:
        """Begin a stream of answers."""
        with _translated():
            built = self._request(operation, request, _SILENCE_S)
            return Lines(operation, _checked(self._http.send(built, stream=True)))

    def _request(
        self,
        operation: Operation[Q, Any],
        request: Q,
        timeout_s: float,
        pieces: Iterator[bytes] | None = None,
    ) -> httpx.Request:
        path, values = self._path_and_values(operation, request)
        more: dict[str, Any] = {"params": values} if operation.has_query else {"json": values}
        if pieces is not None:
            more = {"content": pieces}
        return self._http.build_request(operation.method, path, timeout=timeout_s, **more)

    def _path_and_values(
        self, operation: Operation[Q, Any], request: Q
    ) -> tuple[str, dict[str, Any]]:
        """Return the path of a request, and the fields that are not in the path."""
        values = request.model_dump(mode="json", by_alias=True, exclude_unset=True)
        for name, protocol in fields_since(type(request)).items():
            # An orchestrator refuses a request with a field that it does not know.
            if protocol > self.peer.highest:
                values.pop(name, None)
        path = operation.path
        for name in operation.path_fields:
            value = str(values.pop(name))
            if not value or "/" in value or value in (".", ".."):
                raise ApiError(ErrorKind.NOT_FOUND, f"there is no {name} {value[:40]}".rstrip())
            path = path.replace(f"{{{name}}}", quote(value, safe=""))
        return path, values


def _checked(response: httpx.Response) -> httpx.Response:
    """Return a response; raise the error that it holds, if any."""
    if response.is_success:
        return response
    with contextlib.closing(response):
        raise _problem(response.read())


def _problem(content: bytes) -> ApiError:
    try:
        found = Problem.model_validate_json(content)
    except ValidationError:
        return ApiError(ErrorKind.INTERNAL, "its answer is not a testbed's")
    return ApiError(found.error, " ".join(found.message.split()))


_NOT_YET_VALID, _EXPIRED = 9, 10
"""OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""


def _certificate_fault(error: BaseException | None) -> str:
    """Return why the peer's certificate was refused, and what to do; "" for other errors."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    if error is None:
        return ""
    if error.verify_code == _NOT_YET_VALID:
        return "its certificate is not valid yet: this machine's clock is slow"
    if error.verify_code == _EXPIRED:
        return "its certificate has expired, or this machine's clock is fast"
    if error.verify_message.startswith(("Hostname mismatch", "IP address mismatch")):
        return f"its certificate is for another name: {error.verify_message}"
    return (
        "its certificate is of an authority that is not trusted here: if the testbed has rotated "
        "its authority, get a new invitation and enrol again, or as a user get a new credential"
    )


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Turn errors of HTTP and of damaged answers into `ApiError`."""
    try:
        yield
    except httpx.ProxyError as error:
        raise ApiError(ErrorKind.UNREACHABLE, f"the HTTP proxy refuses: {error}") from None
    except httpx.TimeoutException as error:
        raise ApiError(ErrorKind.TIMEOUT, f"no answer in time ({type(error).__name__})") from None
    except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, OSError) as error:
        said = _certificate_fault(error) or str(error) or type(error).__name__
        raise ApiError(ErrorKind.UNREACHABLE, said) from None
    except (ValidationError, ValueError) as error:
        said = f"its answer cannot be read: {type(error).__name__}"
        raise ApiError(ErrorKind.INTERNAL, said) from None
