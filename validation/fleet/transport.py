"""Transport between simulated nodes and their orchestrator, without sockets: it counts bytes.

Requests and answers have the bytes that they have over HTTPS. Added are the headers of answers,
TLS records and TCP/IP headers, as constants.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import httpx

from skyhop.errors import SkyhopError
from skyhop_testbed import api
from skyhop_testbed.api import ApiError, ErrorKind, Operation
from skyhop_testbed.orchestrator.core import Orchestrator
from skyhop_testbed.orchestrator.handlers import call
from skyhop_testbed.orchestrator.node_orders import NodeOrders
from skyhop_testbed.orchestrator.request_context import Caller, RequestContext
from skyhop_testbed.orchestrator.schedules import Held
from skyhop_testbed.wire import Wire
from skyhop_testbed.words import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from validation.fleet.events import EventClock

ANSWER_HEADERS_BYTES = 106
"""Bytes of an answer's headers, as uvicorn writes them."""
RECORD_BYTES = 22
"""Bytes that TLS 1.3 adds to a record."""
PACKET_BYTES = 52
"""Bytes of IPv4 and TCP headers with time stamps."""
SEGMENT_BYTES = 1400
_NODE_OPERATIONS = [
    (o, re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", o.path))) for o in (api.CLAIM, api.REPORT)
]


def on_the_wire(size: int, records: int = 1) -> int:
    """Return the bytes of one message in IP packets: TLS, TCP and IP included."""
    size += records * RECORD_BYTES
    return size + max(records, -(-size // SEGMENT_BYTES)) * PACKET_BYTES


@dataclass
class Traffic:
    """Bytes of IP packets from and to one node, and its numbers of requests."""

    up_bytes: int = 0
    down_bytes: int = 0
    requests: int = 0

    def add_exchange(self, up_bytes: int, down_bytes: int, count: int = 1) -> None:
        """Count requests of one size with their answers; each side acknowledges the other's."""
        self.up_bytes += count * (on_the_wire(up_bytes, 2) + PACKET_BYTES)
        self.down_bytes += count * (on_the_wire(down_bytes, 2) + PACKET_BYTES)
        self.requests += count

    def add_line(self, size: int) -> None:
        """Count a line of the stream of orders, with its acknowledgement."""
        self.down_bytes += on_the_wire(size)
        self.up_bytes += PACKET_BYTES


def written_bytes() -> int:
    """Return the bytes that this process has written to files so far."""
    for line in Path("/proc/self/io").read_text("ascii").splitlines():
        if line.startswith("wchar"):
            return int(line.split()[1])
    return 0


class TimedOrchestrator(Orchestrator):
    """Orchestrator that measures its write transactions, and what they write."""

    longest_s = 0.0
    longest_at = ""
    busy_s = 0.0
    transactions = 0
    bytes_written = 0
    what = ""
    """Work of the caller, for the longest transaction."""

    @contextmanager
    def writing(self, caller: Caller) -> Iterator[RequestContext]:
        """Open a request context for writing, and measure it."""
        before, began = written_bytes(), perf_counter()
        with super().writing(caller) as ctx:
            yield ctx
        took_s = perf_counter() - began
        self.bytes_written += written_bytes() - before
        self.transactions += 1
        self.busy_s += took_s
        if took_s > self.longest_s:
            self.longest_s, self.longest_at = took_s, self.what


class Hub:
    """Orchestrator's side of the transport: who can reach it, and the streams of orders.

    Args:
        open_orchestrator: opens the orchestrator, also again after an outage.
        clock: the clock.
    """

    def __init__(
        self, open_orchestrator: Callable[[], TimedOrchestrator], clock: EventClock
    ) -> None:
        self._open, self._clock = open_orchestrator, clock
        self.orchestrator = open_orchestrator()
        self.is_away = False
        self.streams: dict[str, Stream] = {}
        self.held: dict[str, Held] = {}
        self.orchestrator.listen(self._notify)

    def stop(self) -> None:
        """Begin an outage: the orchestrator's process ends."""
        self.is_away = True
        self.orchestrator.close()
        for stream in [*self.streams.values()]:
            stream.end()

    def start(self) -> None:
        """End an outage: a new process opens the same directory."""
        before = self.orchestrator
        self.orchestrator = after = self._open()
        for name in ("longest_s", "longest_at", "busy_s", "transactions", "bytes_written"):
            setattr(after, name, getattr(before, name))
        self.held = {}
        after.listen(self._notify)
        self.is_away = False

    def _notify(self, names: set[str], _runs: set[str]) -> None:
        for name in sorted(names & self.streams.keys()):
            self.streams[name].plan(0.02)


class Stream:
    """Stream of orders to a node, with the part of `wire.Lines` that a link uses."""

    def __init__(
        self,
        hub: Hub,
        clock: EventClock,
        caller: Caller,
        asked: api.Follow,
        *,
        traffic: Traffic,
        deliver: Callable[[api.Order | None], None],
    ) -> None:
        self._hub, self._clock, self._caller = hub, clock, caller
        self._orders = NodeOrders(hub.orchestrator, caller, asked, hub.held)
        self._traffic, self._deliver = traffic, deliver
        self._is_open, self._planned_ns = True, 1 << 62
        self._opened_s = clock.monotonic_s()
        hub.streams[caller.name] = self
        self.plan(0.02)

    def plan(self, seconds: float) -> None:
        """Look for orders in `seconds` from now, unless that is planned already."""
        at_ns = self._clock.now_ns() + round(seconds * 1e9)
        if at_ns < self._planned_ns:
            self._planned_ns = at_ns
            self._clock.at(at_ns, lambda: self._look(at_ns))

    def _look(self, planned_ns: int) -> None:
        if not self._is_open or planned_ns != self._planned_ns:
            return
        self._planned_ns = 1 << 62
        self._hub.orchestrator.what = "orders"
        for order in self._orders.due():
            size = len(api.FOLLOW.adapter.dump_json(order, by_alias=True, exclude_unset=True)) + 1
            self._traffic.add_line(size)
            self._deliver(order)
        again_s = (self._orders.again_ns - self._clock.now_ns()) / 1e9
        if self._is_open:
            self.plan(max(1.0, again_s))

    def end(self) -> None:
        """End the stream, as the peer has vanished; tell the node."""
        if self._is_open:
            self.cancel()
            self._deliver(None)

    def cancel(self) -> None:
        """End the stream, and count the heartbeats that went over it."""
        if self._is_open:
            self._is_open = False
            beats = int((self._clock.monotonic_s() - self._opened_s) / api.HEARTBEAT_S)
            self._traffic.down_bytes += beats * on_the_wire(1)
            self._traffic.up_bytes += beats * PACKET_BYTES
            if self._hub.streams.get(self._caller.name) is self:
                del self._hub.streams[self._caller.name]


class HereTransport(httpx.BaseTransport):
    """Transport of a node's HTTP client, which calls the orchestrator's handlers."""

    def __init__(self, hub: Hub, caller: Caller) -> None:
        self._hub, self._caller = hub, caller
        self.traffic = Traffic()
        self.is_cut = False
        self.heartbeat = (0, 0)
        """Bytes of the last heartbeat and of its answer."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request as the orchestrator's HTTP server would."""
        if self.is_cut or self._hub.is_away:
            raise httpx.ConnectError("no answer", request=request)
        operation, fields = _route(request)
        content = body = request.content
        if request.headers.get("content-encoding") == api.PACKING:
            body = api.unpacked(content, api.LARGEST_REQUEST)
        message = api.read_request(operation, {**api.read_object(body), **fields})
        self._hub.orchestrator.what = operation.name
        try:
            made = call(self._hub.orchestrator, operation, self._caller, message)
        except SkyhopError as error:
            problem = api.Problem(error=ErrorKind.INTERNAL, message=str(error))
            return httpx.Response(503, content=problem.model_dump_json().encode())
        answer = operation.adapter.dump_json(made, by_alias=True, exclude_unset=True)
        head = len(request.method) + len(request.url.raw_path) + 12
        head += sum(len(key) + len(value) + 4 for key, value in request.headers.raw) + 2
        sizes = head + len(content), ANSWER_HEADERS_BYTES + len(answer)
        if isinstance(message, api.Batch) and not message.events:
            self.heartbeat = sizes
        self.traffic.add_exchange(*sizes)
        return httpx.Response(200, content=answer)


def _route(request: httpx.Request) -> tuple[Operation[Any, Any], dict[str, str]]:
    for operation, pattern in _NODE_OPERATIONS:
        found = pattern.fullmatch(request.url.path)
        if found and operation.method == request.method:
            return operation, found.groupdict()
    raise AssertionError(f"the simulation has no {request.method} {request.url.path}")


class HereWire(Wire):
    """Connection of a simulated node."""

    def __init__(
        self,
        hub: Hub,
        clock: EventClock,
        name: str,
        deliver: Callable[[api.Order | None], None],
    ) -> None:
        self._hub, self._clock, self._deliver = hub, clock, deliver
        self._caller = Caller(name, Role.NODE)
        self.transport = HereTransport(hub, self._caller)
        super().__init__(
            httpx.Client(base_url="https://orchestrator.example.org:7401", transport=self.transport)
        )

    def stream(self, operation: Operation[Any, Any], request: Any) -> Any:
        """Open the stream of orders."""
        if self.transport.is_cut or self._hub.is_away:
            raise ApiError(ErrorKind.UNREACHABLE, "no answer")
        assert operation is api.FOLLOW
        self.transport.traffic.add_exchange(300, ANSWER_HEADERS_BYTES)
        return Stream(
            self._hub,
            self._clock,
            self._caller,
            request,
            traffic=self.transport.traffic,
            deliver=self._deliver,
        )
