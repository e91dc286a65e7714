"""HTTP server of a terminal's metrics, whose limits keep one caller from locking others out."""

from __future__ import annotations

import logging
import socket
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from skyhop.errors import RunError
from skyhop_testbed.dish.metrics import DishMetrics

if TYPE_CHECKING:
    from collections.abc import Callable
    from wsgiref.simple_server import WSGIServer

    from skyhop_testbed.dish.client import Dish

MOST_OF_CALLER, MOST = 16, 64
"""Most open connections of one address, and of all addresses together."""
LONGEST_S = 30.0
"""Time in s after which a connection ends, whatever its caller does."""
_SHARED_S = 0.5
"""Time in s for which scrapes share the terminal's answers."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Connection:
    """Open connection: its socket, its caller's address, and when it was accepted (monotonic)."""

    socket: socket.socket
    caller: str
    since_s: float


class Connections:
    """Open connections of a server; of too many, the oldest ends.

    Args:
        monotonic_s: clock in s.
    """

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._open: list[_Connection] = []
        self._lock = threading.Lock()

    def add(self, accepted: socket.socket, caller: str) -> None:
        """Add a connection; end the oldest of its caller, or of all, if there are too many."""
        with self._lock:
            own = [one for one in self._open if one.caller == caller]
            if len(own) >= MOST_OF_CALLER:
                self._end(own[0], "too many of its caller")
            elif len(self._open) >= MOST:
                self._end(self._open[0], "too many")
            self._open.append(_Connection(accepted, caller, self._monotonic_s()))

    def remove(self, closed: socket.socket) -> None:
        """Forget a connection that is closed."""
        with self._lock:
            self._open = [one for one in self._open if one.socket is not closed]

    def end_old(self) -> None:
        """End the connections that have lasted for `LONGEST_S`."""
        with self._lock:
            begin_s = self._monotonic_s() - LONGEST_S
            for one in [one for one in self._open if one.since_s <= begin_s]:
                self._end(one, "too long")

    def _end(self, connection: _Connection, why: str) -> None:
        """End a connection; its thread then gets an error or the end of the request."""
        _LOG.debug("connection ended", extra={"caller": connection.caller, "why": why})
        self._open.remove(connection)
        try:
            connection.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            _LOG.debug("connection was closed already")


class _Server(ThreadingWSGIServer):
    """HTTP server with a thread per connection, within the limits of `Connections`."""

    request_queue_size = 128

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._connections = Connections()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a request in a thread of its own."""
        self._connections.add(request, client_address[0])
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget and close a connection."""
        self._connections.remove(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End old connections; the server calls this twice a second."""
        self._connections.end_old()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log the failure of a connection, such as one that the limits have ended."""
        _LOG.debug("request failed", exc_info=True)


class _Handler(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Print nothing about a request."""


def start_server(dish: Dish, host: str, port: int) -> WSGIServer:
    """Start to serve a terminal's metrics over HTTP, in threads.

    Args:
        dish: the terminal.
        host: address of this machine.
        port: port; with 0, the kernel chooses a free one.

    Raises:
        RunError: the address cannot be bound.
    """
    registry = CollectorRegistry()
    registry.register(DishMetrics(dish, _SHARED_S))
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        kind = type("_ServerOfFamily", (_Server,), {"address_family": family})
        server: WSGIServer = make_server(host, port, make_wsgi_app(registry), kind, _Handler)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or "not an address"
        raise RunError(f"--listen {host}:{port}: cannot listen there: {why}") from None
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
