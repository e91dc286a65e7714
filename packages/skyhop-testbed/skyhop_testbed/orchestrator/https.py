"""HTTPS server in an event loop: uvicorn with limits, deadlines, and the certificates of clients.

uvicorn bounds the size of a request's head and the time of an idle connection. This module adds
what it lacks: limits on connections before their TLS handshake, and deadlines of the handshake, of
a request's head and body, and of a client that takes nothing of a response. The orchestrator
handles the signals that end it itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from skyhop.errors import RunError
from skyhop_testbed.orchestrator.connections import Budget, Cause, Limits, Place, Stage

_LOG = logging.getLogger(__name__)
_BACKLOG = 1024
_FILES_EVERY_S = 1.0
"""Interval in s at which a server looks for new keys and certificates."""
_PROBE_AFTER_S, _PROBE_EVERY_S, _PROBES, _UNSENT_MS = 20, 5, 2, 30_000
"""TCP keepalive and TCP_USER_TIMEOUT: a vanished client is noticed within about 30 s."""
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_BACK_OFF_S = 1.0
"""Wait in s after the system has refused a descriptor or memory for a new connection."""
_BURST_S = 2.0
"""Time in s of the permitted rate of new connections that may come at once."""


class _Protocol(H11Protocol):
    """HTTP connection with deadlines; passes the client's certificate on, as ASGI's TLS extension.

    `place` and `budget` are set before the connection begins.
    """

    place: Place
    budget: Budget
    _timer: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _awaited: Cause | None = None
    _begun_s = _heard_s = 0.0
    _body_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.place.end = transport.abort
        tls = transport.get_extra_info("ssl_object")
        certificate = tls and tls.getpeercert(binary_form=True)
        chain = [ssl.DER_cert_to_PEM_cert(certificate)] if certificate else []
        inner: ASGIApp = self.app

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            extensions = {**(scope.get("extensions") or {}), "tls": {"client_cert_chain": chain}}
            await inner({**scope, "extensions": extensions}, receive, send)

        self.app = app
        if not self.place.is_held or (
            certificate
            and not self.budget.identify(self.place, hashlib.sha256(certificate).hexdigest())
        ):
            transport.abort()
            return
        self.budget.set_stage(self.place, Stage.WAITING)
        self._await(Cause.HEAD, self.budget.limits.head_s)

    def data_received(self, data: bytes) -> None:
        self._heard_s = self.loop.time()
        self._body_bytes += len(data)
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._await(None)
        self.resume_writing()
        super().connection_lost(exc)
        self.budget.release(self.place)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(
                self.budget.limits.stalled_s, self._expire, Cause.STALLED
            )

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _watch(self) -> None:
        """Set the deadline for the next bytes of the client, by the state of the request."""
        theirs, ours = self.conn.their_state, self.conn.our_state
        is_idle = theirs is h11.IDLE and ours is h11.IDLE
        self.budget.set_stage(self.place, Stage.WAITING if is_idle else Stage.BUSY)
        if theirs is h11.SEND_BODY:
            self._await(Cause.BODY, self.budget.limits.body_silence_s)
        elif is_idle and self.conn.trailing_data[0]:
            self._await(Cause.HEAD, self.budget.limits.head_s)
        else:
            self._await(None)

    def _await(self, what: Cause | None, seconds: float = 0.0) -> None:
        """Begin to wait for a part of a request; a wait for the same part continues."""
        if what is self._awaited:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._awaited = what
        if what is not None:
            self._begun_s = self._heard_s = self.loop.time()
            self._body_bytes = 0
            self._timer = self.loop.call_later(seconds, self._check, what, seconds)

    def _check(self, what: Cause, seconds: float) -> None:
        """End the connection at a deadline; a body that arrives fast enough gets more time."""
        now_s, limits = self.loop.time(), self.budget.limits
        if what is Cause.BODY:
            # While the server itself reads nothing, the client is not late.
            is_silent = not self.flow.read_paused and now_s - self._heard_s >= seconds
            least = limits.least_body_bytes_per_s * (now_s - self._begun_s)
            if not is_silent and self._body_bytes >= least:
                rest_s = max(self._heard_s + seconds - now_s, seconds / 4)
                self._timer = self.loop.call_later(rest_s, self._check, what, seconds)
                return
        self._expire(what)

    def _expire(self, cause: Cause) -> None:
        _LOG.debug("connection of %s ended: %s", self.client and self.client[0], cause.value)
        self.budget.release(self.place, cause)
        self.transport.abort()


class _Acceptor:
    """Acceptance of connections of one listening socket, within a budget.

    uvicorn closes it like a server of asyncio.
    """

    def __init__(
        self, listener: socket.socket, make: Callable[[], _Protocol], tls: ssl.SSLContext | None,
        budget: Budget,
    ) -> None:  # fmt: skip
        self._listener, self._make, self._tls, self._budget = listener, make, tls, budget
        self._handshakes = set[asyncio.Task[None]]()
        listener.setblocking(False)
        self._task = asyncio.create_task(self._accept())

    def close(self) -> None:
        """Accept no more connections, and end those that are not complete."""
        self._task.cancel()
        # Another process may hold the socket too, so that closing it here would not end events.
        asyncio.get_running_loop().remove_reader(self._listener)
        for each in list(self._handshakes):
            each.cancel()

    async def wait_closed(self) -> None:
        """Wait until no connection is being accepted."""
        await asyncio.gather(self._task, *self._handshakes, return_exceptions=True)

    async def _accept(self) -> None:
        loop, rate = asyncio.get_running_loop(), self._budget.limits.new_per_s
        credit, updated_s = _BURST_S * rate, loop.time()
        while True:
            try:
                accepted, address = await loop.sock_accept(self._listener)
            except OSError as error:
                # asyncio retries what concerns one connection only; anything else may pass.
                if error.errno in _NO_ROOM:
                    _LOG.error("cannot accept a connection: %s", error.strerror)
                await asyncio.sleep(_BACK_OFF_S)
                continue
            self._begin(accepted, address)
            now_s = loop.time()
            credit = min(_BURST_S * rate, credit + (now_s - updated_s) * rate) - 1
            updated_s = now_s
            if credit < 0:
                await asyncio.sleep(-credit / rate)

    def _begin(self, accepted: socket.socket, address: Any) -> None:
        host = str(address[0]) if isinstance(address, tuple) else ""
        place = self._budget.admit(host, lambda: task.cancel())  # noqa: PLW0108
        if place is None:
            accepted.close()
            return
        task = asyncio.create_task(self._shake(accepted, place))
        self._handshakes.add(task)

        def finished(done: asyncio.Task[None]) -> None:
            self._handshakes.discard(done)
            error = None if done.cancelled() else done.exception()
            if done.cancelled() or error is not None:
                _LOG.debug("handshake with %s failed: %s", host, error or "ended")
                self._budget.release(place, Cause.HANDSHAKE)
                accepted.close()

        task.add_done_callback(finished)

    async def _shake(self, accepted: socket.socket, place: Place) -> None:
        def made() -> _Protocol:
            protocol = self._make()
            protocol.place, protocol.budget = place, self._budget
            return protocol

        limits, more = self._budget.limits, {}
        if self._tls is not None:
            more["ssl_handshake_timeout"] = limits.handshake_s
            more["ssl_shutdown_timeout"] = limits.handshake_s
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(made, accepted, ssl=self._tls, **more)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, budget: Budget) -> None:
        super().__init__(config)
        self._budget = budget

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections within the budget, in place of asyncio's server."""
        await self.lifespan.startup()
        make = self._protocol
        self.servers = [
            _Acceptor(each, make, self.config.ssl, self._budget)  # type: ignore[misc]
            for each in sockets or []
        ]
        self.started = True

    def _protocol(self) -> _Protocol:
        return _Protocol(self.config, self.server_state, self.lifespan.state)


class HttpsServer:
    """Uvicorn server of an ASGI application over TLS.

    Args:
        app: the application.
        key: file of the server's private key; None for HTTP without TLS, to processes of this
            machine.
        certificate: file of the server's certificate.
        clients: file of the authority that signs the certificates that clients must have.
        limits: limits and deadlines of its connections.
    """

    def __init__(
        self,
        app: Any,
        key: Path | None = None,
        certificate: Path | None = None,
        clients: Path | None = None,
        limits: Limits | None = None,
    ) -> None:
        limits = limits or Limits()
        self.budget = Budget(limits, asyncio.get_running_loop().time)
        config = uvicorn.Config(
            app,
            http=_Protocol,
            ssl_keyfile=None if key is None else str(key),
            ssl_certfile=None if certificate is None else str(certificate),
            ssl_ca_certs=None if clients is None else str(clients),
            ssl_cert_reqs=ssl.CERT_NONE if clients is None else ssl.CERT_REQUIRED,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_keep_alive=round(limits.idle_s),
            timeout_graceful_shutdown=1,
            server_header=False,
            proxy_headers=False,
        )
        self._server = _Server(config, self.budget)
        self._files = [each for each in (key, certificate, clients) if each is not None]
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
