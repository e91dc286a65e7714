"""HTTPS server in the orchestrator's event loop: uvicorn with the certificates of clients.

The orchestrator handles the signals that end it itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from skyhop.errors import RunError

_LOG = logging.getLogger(__name__)
_KEEP_ALIVE_S = 75
"""Time in s for which an idle connection is kept: longer than clients keep theirs."""
_BACKLOG = 1024
_FILES_EVERY_S = 1.0
"""Interval in s at which a server looks for new keys and certificates."""
_PROBE_AFTER_S, _PROBE_EVERY_S, _PROBES, _UNSENT_MS = 20, 5, 2, 30_000
"""TCP keepalive and TCP_USER_TIMEOUT: a vanished client is noticed within about 30 s."""


class _Protocol(H11Protocol):
    """HTTP connection that passes the client's certificate on, as ASGI's TLS extension."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        certificate = tls and tls.getpeercert(binary_form=True)
        chain = [ssl.DER_cert_to_PEM_cert(certificate)] if certificate else []
        inner: ASGIApp = self.app

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            extensions = {**(scope.get("extensions") or {}), "tls": {"client_cert_chain": chain}}
            await inner({**scope, "extensions": extensions}, receive, send)

        self.app = app


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpsServer:
    """Uvicorn server of an ASGI application over TLS.

    Args:
        app: the application.
        key: file of the server's private key.
        certificate: file of the server's certificate.
        clients: file of the authority that signs the certificates that clients must have.
    """

    def __init__(self, app: Any, key: Path, certificate: Path, clients: Path | None = None) -> None:
        self._server = _Server(
            uvicorn.Config(
                app,
                http=_Protocol,
                ssl_keyfile=str(key),
                ssl_certfile=str(certificate),
                ssl_ca_certs=None if clients is None else str(clients),
                ssl_cert_reqs=ssl.CERT_NONE if clients is None else ssl.CERT_REQUIRED,
                log_config=None,
                log_level="warning",
                access_log=False,
                lifespan="off",
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=1,
                server_header=False,
                proxy_headers=False,
            )
        )
        self._files = [key, certificate, *([clients] if clients else [])]
        self._clients = clients
        self._serving: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None

    def start(self, listener: socket.socket) -> None:
        """Start serving on a bound socket."""
        self._serving = asyncio.create_task(self._server.serve([listener]))
        self._reading = asyncio.create_task(self._follow_files())

    async def stop(self) -> None:
        """Stop the server; requests in progress have one second to finish."""
        self._server.should_exit = True
        if self._reading is not None:
            self._reading.cancel()
        if self._serving is not None:
            await self._serving

    async def _follow_files(self) -> None:
        """Read key and certificates again when their files change; later connections use them.

        A former authority of clients stays in the running server's list; the orchestrator refuses
        the certificates that it has signed.
        """
        seen = _changed_ns(self._files)
        while True:
            await asyncio.sleep(_FILES_EVERY_S)
            now, context = _changed_ns(self._files), self._server.config.ssl
            if now == seen or context is None:
                continue
            try:
                context.load_cert_chain(self._files[1], self._files[0])
                if self._clients is not None:
                    context.load_verify_locations(self._clients)
                seen = now
            except (OSError, ValueError) as error:
                _LOG.warning("the server's certificate cannot be read: %s", error)


def _changed_ns(files: list[Path]) -> list[int]:
    """Return the times of the last change of files; 0 for a file that is missing."""
    return [each.stat().st_mtime_ns if each.exists() else 0 for each in files]


def bound(address: str) -> socket.socket:
    """Return a socket that listens at HOST:PORT; with port 0 the kernel chooses a port.

    Raises:
        RunError: the address cannot be bound.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Accepted connections inherit these options.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, _PROBE_AFTER_S),
        (socket.TCP_KEEPINTVL, _PROBE_EVERY_S),
        (socket.TCP_KEEPCNT, _PROBES),
        (socket.TCP_USER_TIMEOUT, _UNSENT_MS),
    ):
        listener.setsockopt(socket.IPPROTO_TCP, option, value)
    try:
        listener.bind((host, int(port)))
        listener.listen(_BACKLOG)
    except (OSError, ValueError, OverflowError) as error:
        listener.close()
        why = getattr(error, "strerror", None) or "not an address"
        raise RunError(f"{address}: cannot listen there: {why}") from None
    return listener
