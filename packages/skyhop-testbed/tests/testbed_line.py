"""Orchestrator in the test process: real operations, roles and messages, no socket and TLS."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
from testbed_harness import StandingClock, enrolled

from skyhop_testbed import api, wire
from skyhop_testbed.cli import testbed_admin
from skyhop_testbed.client import Credential, Testbed
from skyhop_testbed.orchestrator.core import Orchestrator
from skyhop_testbed.orchestrator.service import Service
from skyhop_testbed.serve import BoundPorts
from skyhop_testbed.wire import Wire

ADDRESS = "in-process.test:1"
_PEER = ("192.0.2.50", 40_000)


class Line(httpx.BaseTransport):
    """Transport that calls an ASGI application in a loop that runs only meanwhile.

    Args:
        loop: the application's loop.
        app: the application.
        certificate: the client's certificate, PEM; "" for none.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, app: Any, certificate: str = "") -> None:
        self._loop, self._app, self._certificate = loop, app, certificate

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; return the response once its head has arrived."""
        chain = [self._certificate] if self._certificate else []
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "path": request.url.path,
            "raw_path": request.url.raw_path,
            "root_path": "",
            "scheme": "https",
            "query_string": request.url.query,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "client": _PEER,
            "server": ("in-process.test", 1),
            "extensions": {"tls": {"client_cert_chain": chain}},
        }
        exchange = _Exchange(self._loop, self._app, scope, request.read())
        head = exchange.next()
        return httpx.Response(head["status"], headers=head["headers"], stream=exchange)


class _Exchange(httpx.SyncByteStream):
    """Request and its response; the application goes on only when the next piece is wanted."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, app: Any, scope: dict[str, Any], content: bytes
    ) -> None:
        self._loop = loop
        self._requests = [{"type": "http.request", "body": content, "more_body": False}]
        self._sent = asyncio.Queue[Any]()
        self._wanted = asyncio.Semaphore(0)
        self._task = loop.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        return self._requests.pop() if self._requests else await asyncio.Event().wait()

    async def _send(self, message: Any) -> None:
        self._sent.put_nowait(message)
        await self._wanted.acquire()

    def next(self) -> Any:
        """Run the loop until the application sends a message."""

        async def wait() -> Any:
            waiting = asyncio.ensure_future(self._sent.get())
            await asyncio.wait({self._task, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                waiting.cancel()
                self._task.result()
            return waiting.result()

        return self._loop.run_until_complete(wait())

    def __iter__(self) -> Iterator[bytes]:
        more = True
        while more:
            self._wanted.release()
            message = self.next()
            more = message.get("more_body", False)
            yield message.get("body", b"")

    def close(self) -> None:
        """End the exchange, as a client that hangs up does."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)


@dataclass
class Local:
    """Orchestrator in this process, with the interface of `testbed_harness.Served`."""

    orchestrator: Orchestrator
    clock: StandingClock
    loop: asyncio.AbstractEventLoop
    service: Service
    silences: list[float] = field(default_factory=list)
    """Durations in s for which followers waited in vain for an order."""
    users: str = "users"
    agents: str = "agents"

    @property
    def directory(self) -> Path:
        """Directory of the orchestrator's state."""
        return self.orchestrator.directory

    def testbed(self, path: Path | None = None) -> Testbed:
        """Return a user's client of the orchestrator; by default the administrator's."""
        return Testbed(Credential.read(path or self.directory / "admin.json"))

    def wire(self, where: str, identity_pem: bytes | None = None, token: str | None = None) -> Wire:
        """Return a connection to the users' port, or with a certificate to the agents' port."""
        certificate = (identity_pem or b"").partition(b"-----BEGIN CERTIFICATE-----")
        pem = b"".join(certificate[1:]).decode()
        app = self.service.app(of_nodes=where == self.agents)
        line = Line(self.loop, app, pem)
        return Wire(httpx.Client(base_url=f"https://{ADDRESS}", transport=line), token)

    def enrol(self, node: str, token: str) -> bytes:
        """Enrol a node; return its key and certificate."""
        return enrolled(self.wire(self.users), node, token)

    def agent(self, node: str) -> Wire:
        """Return a new node's connection to the agents' port."""
        with self.testbed() as testbed:
            testbed.put_node(api.PutNode(name=node))
            identity_pem = self.enrol(node, testbed.invitation(node)["token"])
        return self.wire(self.agents, identity_pem)


@contextlib.contextmanager
def local(directory: Path) -> Iterator[Local]:
    """Give a new orchestrator; credentials that name it lead to it, those of others elsewhere."""
    clock = StandingClock()
    orchestrator = Orchestrator(directory, ["localhost"], clock=clock)
    testbed_admin.write_addresses(orchestrator, ADDRESS.partition(":")[0], BoundPorts(1, 1, 1))
    testbed_admin.write_first_credential(orchestrator, ADDRESS)
    loop = asyncio.new_event_loop()
    silences: list[float] = []

    async def wait(event: asyncio.Event, seconds: float) -> None:
        # What threads have told is taken in; nothing else can happen meanwhile.
        for _ in range(5):
            await asyncio.sleep(0)
        if not event.is_set():
            silences.append(seconds)
            clock.sleep(seconds)

    async def begin() -> Service:
        return Service(orchestrator, wait)

    made = Local(orchestrator, clock, loop, loop.run_until_complete(begin()), silences)
    elsewhere: Callable[..., httpx.Client] = wire.open_http

    def open_http(address: str, context: ssl.SSLContext, proxy: str | None = None) -> httpx.Client:
        if address != ADDRESS:
            return elsewhere(address, context, proxy)
        line = Line(loop, made.service.app(of_nodes=False))
        return httpx.Client(base_url=f"https://{ADDRESS}", transport=line)

    try:
        with mock.patch.object(wire, "open_http", open_http):
            yield made
    finally:
        made.service.close()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        orchestrator.close()
