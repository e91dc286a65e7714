"""Transport between simulated nodes and their orchestrator, without sockets: it counts bytes.

Requests and answers have the bytes that they have over HTTPS. Added are the first line and the
headers of uvicorn's answers, TLS records and TCP/IP headers, as constants.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from skyhop.errors import SkyhopError
from skyhop_testbed import api
from skyhop_testbed.api import ApiError, ErrorKind, Operation
from skyhop_testbed.orchestrator.core import Orchestrator
from skyhop_testbed.orchestrator.handlers import call
from skyhop_testbed.orchestrator.node_orders import NodeOrders
from skyhop_testbed.orchestrator.request_context import Caller, RequestContext
from skyhop_testbed.orchestrator.schedules import Held
from skyhop_testbed.protocol import PACKING_SINCE, TRUST_HEADER, Peer, own_headers
from skyhop_testbed.wire import PACKED_FROM_BYTES, Wire
from skyhop_testbed.words import EventKind, Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from validation.fleet.events import EventClock

Q = TypeVar("Q", bound=api.Request)
A = TypeVar("A")
_SERVER_HEADERS_BYTES = 106
"""Bytes of an answer's first line and headers, as uvicorn writes them."""
RECORD_BYTES = 22
"""Bytes that TLS 1.3 adds to a record."""
PACKET_BYTES = 52
"""Bytes of IPv4 and TCP headers with time stamps."""
SEGMENT_BYTES = 1400
EMPTY, HEALTH = "heartbeat", "heartbeat with a health report"
"""Work of the orchestrator for the two kinds of heartbeats, of which only a few are simulated."""


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


_IO = Path("/proc/self/io").open("rb", buffering=0)  # noqa: SIM115 (open as long as the process)


def written_bytes() -> int:
    """Return the bytes that this process has written to files so far."""
    _IO.seek(0)
    return int(_IO.read(200).partition(b"wchar: ")[2].partition(b"\n")[0])


@dataclass
class Work:
    """Write transactions of one kind: their number, time and bytes."""

    count: int = 0
    cpu_s: float = 0.0
    longest_cpu_s: float = 0.0
    longest_s: float = 0.0
    """Longest time on the wall clock, which depends on what else the machine does."""
    bytes_written: int = 0

    def add(self, cpu_s: float, wall_s: float, bytes_written: int) -> None:
        """Add one transaction with its CPU time, its time on the wall clock, and its bytes."""
        self.count += 1
        self.cpu_s += cpu_s
        self.longest_cpu_s = max(self.longest_cpu_s, cpu_s)
        self.longest_s = max(self.longest_s, wall_s)
        self.bytes_written += bytes_written


class TimedOrchestrator(Orchestrator):
    """Orchestrator that measures its write transactions, and what they write.

    Args:
        directory: its directory.
        clock: the clock.
        work: write transactions by the work for which they are made; new ones are added.
    """

    what = "opening"
    """Work of the caller."""

    def __init__(self, directory: Path, clock: EventClock, work: dict[str, Work]) -> None:
        self.work = work
        super().__init__(directory, ["localhost"], clock=clock)

    @contextmanager
    def writing(self, caller: Caller) -> Iterator[RequestContext]:
        """Open a request context for writing, and measure it."""
        before, began_s, began_cpu_s = written_bytes(), perf_counter(), thread_time()
        with super().writing(caller) as ctx:
            yield ctx
        took_s, took_cpu_s = perf_counter() - began_s, thread_time() - began_cpu_s
        self.work[self.what].add(took_cpu_s, took_s, written_bytes() - before)


class Hub:
    """Orchestrator's side of the transport: who can reach it, and the streams of orders.

    Args:
        directory: the orchestrator's directory.
        clock: the clock.
    """

    def __init__(self, directory: Path, clock: EventClock) -> None:
        self._directory, self._clock = directory, clock
        self.work: dict[str, Work] = defaultdict(Work)
        self.counted = {EMPTY: 0, HEALTH: 0}
        """Heartbeats that were counted without a call of the orchestrator."""
        self.is_away = False
        self._open_orchestrator()
        self.streams: dict[str, Stream] = {}

    def _open_orchestrator(self) -> None:
        self.orchestrator = TimedOrchestrator(self._directory, self._clock, self.work)
        self.held: dict[str, Held] = {}
        self.orchestrator.listen(self._notify)
        headers = {**own_headers(), TRUST_HEADER: self.orchestrator.authority.trust}
        self.peer = Peer.of_headers(headers)
        own_bytes = sum(len(key) + len(value) + 4 for key, value in headers.items())
        self.answer_headers_bytes = _SERVER_HEADERS_BYTES + own_bytes

    def stop(self) -> None:
        """Begin an outage: the orchestrator's process ends."""
        self.is_away = True
        self.orchestrator.close()
        for stream in [*self.streams.values()]:
            stream.end()

    def start(self) -> None:
        """End an outage: a new process opens the same directory."""
        self._open_orchestrator()
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


class HereWire(Wire):
    """Connection of a simulated node, which calls the orchestrator's handlers."""

    def __init__(
        self,
        hub: Hub,
        clock: EventClock,
        name: str,
        deliver: Callable[[api.Order | None], None],
    ) -> None:
        self._hub, self._clock, self._deliver = hub, clock, deliver
        self._caller = Caller(name, Role.NODE)
        self.traffic = Traffic()
        self.is_cut = False
        self.heartbeats = {EMPTY: (0, 0), HEALTH: (0, 0)}
        """Bytes of the last heartbeat of each kind, and of its answer."""
        super().__init__(_http())
        self.peer = hub.peer

    def call(
        self,
        operation: Operation[Q, A],
        request: Q,
        timeout_s: float = 0.0,  # noqa: ARG002 (answers take no time)
        *,
        is_packed: bool = False,
    ) -> A:
        """Send a request; return its answer."""
        self._check_reachable()
        path, values = self._path_and_values(operation, request)
        body = json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()
        is_packed &= self.peer.highest >= PACKING_SINCE and len(body) > PACKED_FROM_BYTES
        content = zlib.compress(body) if is_packed else body
        read = api.unpacked(content, api.LARGEST_REQUEST) if is_packed else content
        fields = {name: getattr(request, name) for name in operation.path_fields}
        message = api.read_request(operation, {**api.read_object(read), **fields})
        what = _work_of(operation, message)
        self._hub.orchestrator.what = what
        try:
            made = call(self._hub.orchestrator, operation, self._caller, message)
        except SkyhopError as error:
            raise ApiError(ErrorKind.INTERNAL, str(error)) from None
        answer = operation.adapter.dump_json(made, by_alias=True, exclude_unset=True)
        head = _head_bytes(self._http, operation.method, is_packed=is_packed)
        sizes = (
            head + len(path) + len(str(len(content))) + len(content),
            self._hub.answer_headers_bytes + len(answer),
        )
        self.traffic.add_exchange(*sizes)
        if what in self.heartbeats:
            self.heartbeats[what] = sizes
        return operation.adapter.validate_json(answer)

    def count_heartbeats(self, what: str, count: int) -> None:
        """Count heartbeats with the size of the last one, without a call of the orchestrator."""
        up, down = self.heartbeats[what]
        if count > 0 and up:
            self.traffic.add_exchange(up, down, count)
            self._hub.counted[what] += count

    def stream(self, operation: Operation[Any, Any], request: Any) -> Any:
        """Open the stream of orders."""
        self._check_reachable()
        assert operation is api.FOLLOW
        self.traffic.add_exchange(300, self._hub.answer_headers_bytes)
        return Stream(
            self._hub,
            self._clock,
            self._caller,
            request,
            traffic=self.traffic,
            deliver=self._deliver,
        )

    def _check_reachable(self) -> None:
        if self.is_cut or self._hub.is_away:
            raise ApiError(ErrorKind.UNREACHABLE, "no answer")


def _work_of(operation: Operation[Any, Any], message: Any) -> str:
    """Return the name of the orchestrator's work for a request."""
    if operation is not api.REPORT:
        return "claim"
    kinds = {event.kind for event in message.events}
    if not kinds:
        return EMPTY
    return HEALTH if kinds == {EventKind.HEALTH} else "report"


@cache
def _http() -> httpx.Client:
    """Return the client that tells which headers requests have; it sends nothing."""
    return httpx.Client(base_url="https://orchestrator.example.org:7401")


@cache
def _head_bytes(http: httpx.Client, method: str, *, is_packed: bool) -> int:
    """Return the bytes of a request's first line and headers, without its path and its length."""
    packing = {"content-encoding": api.PACKING} if is_packed else {}
    headers = {"content-type": "application/json", **packing}
    request = http.build_request(method, "/", headers=headers, content=b"0")
    head = len(request.method) + len(" / HTTP/1.1\r\n") + len("\r\n")
    head += sum(len(key) + len(value) + 4 for key, value in request.headers.raw)
    return head - len("/") - len("1")
