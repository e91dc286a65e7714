"""Server of an emulated terminal: gRPC without TLS and with reflection, like real terminals."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, NoReturn

import grpc
from grpc_reflection.v1alpha import reflection

from skyhop.errors import RunError
from skyhop_lab.dish.device import Device, RefusedError
from skyhop_testbed.dish import device_pb2, device_pb2_grpc

LISTEN = "127.0.0.1:9200"

_THREADS = 64
_MOST_STREAMS = 32
"""Most concurrent streams, each of which takes a thread; the other threads are for requests."""
_MOST_STREAMS_OF_CALLER = 8
_IDLE_S = 30.0
"""Time after which a stream without a message ends."""
_LONGEST_CONNECTION_MS = 600_000
"""Time after which a connection ends, so that a request that never arrives ends too."""
_TICK_S = 1.0
_GRACE_S = 0.5


class Server:
    """gRPC server that answers requests until it is stopped.

    Args:
        device: emulated terminal that handles the requests.
        listen: HOST:PORT; port 0 chooses a free port.
        clock: function that returns the time in ns since 1970 (UTC); by default the machine's.

    Raises:
        RunError: the server cannot listen on that address.

    Attributes:
        address: address on which the server listens, HOST:PORT.
    """

    def __init__(
        self, device: Device, listen: str = LISTEN, clock: Callable[[], int] = time.time_ns
    ) -> None:
        self._servicer = _Servicer(device, clock)
        self._streams = _Streams()
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS),
            interceptors=[self._streams],
            # Requests beyond the threads are refused at once, not queued.
            maximum_concurrent_rpcs=_THREADS,
            options=[
                # With SO_REUSEPORT, a second server at the same address would get half of the
                # requests.
                ("grpc.so_reuseport", 0),
                ("grpc.max_concurrent_streams", _THREADS // 4),
                ("grpc.max_connection_age_ms", _LONGEST_CONNECTION_MS),
                ("grpc.max_connection_age_grace_ms", round(_IDLE_S * 1000)),
            ],
        )
        device_pb2_grpc.add_DeviceServicer_to_server(self._servicer, self._server)
        services = [device_pb2.DESCRIPTOR.services_by_name["Device"].full_name]
        reflection.enable_server_reflection([*services, reflection.SERVICE_NAME], self._server)
        try:
            port = self._server.add_insecure_port(listen)
        except RuntimeError:
            port = 0
        if not port:
            raise RunError(f"--listen {listen}: cannot listen there: {_why_not(listen)}")
        self.address = f"{listen.rpartition(':')[0]}:{port}"
        self._stopped = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="terminal", daemon=True)

    def start(self) -> None:
        """Start to answer requests."""
        self._server.start()
        self._ticker.start()

    def stop(self) -> None:
        """Stop the server; requests in progress get half a second to finish."""
        self._stopped.set()
        self._server.stop(_GRACE_S).wait()
        self._ticker.join()

    def __enter__(self) -> Server:
        """Start to answer requests."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the server and its thread."""
        self.stop()

    def _tick(self) -> None:
        while not self._stopped.wait(_TICK_S):
            self._servicer.tick()
            self._streams.end_idle()


def _why_not(listen: str) -> str:
    """Return why an address cannot be bound, which gRPC does not say."""
    host, _, port = listen.rpartition(":")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.bind(address)
    except OSError as error:
        return error.strerror or str(error)
    return "the address is in use, or not one of this machine"


def scaled_clock(speed: float, begin_ns: int) -> Callable[[], int]:
    """Return a clock that starts at `begin_ns` and runs at `speed` times the machine's speed."""
    started_ns = time.monotonic_ns()
    return lambda: begin_ns + round((time.monotonic_ns() - started_ns) * speed)


class _Stream:
    """Stream of one caller: its last message, and the call to end it."""

    def __init__(self, caller: str, context: grpc.ServicerContext) -> None:
        self.caller = caller
        self.context = context
        self.last_s = time.monotonic()

    def end(self) -> None:
        """End the stream; its caller gets the status CANCELLED."""
        self.context.cancel()  # type: ignore[no-untyped-call]

    def noting(self, requests: Iterator[Any]) -> Iterator[Any]:
        """Yield the requests, and note the time of each."""
        for request in requests:
            self.last_s = time.monotonic()
            yield request


class _Streams(grpc.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs alone
    """Limits of streams, of the device and of reflection, so that none locks others out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: list[_Stream] = []

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        """Return the handler of a call, for a stream with limits."""
        handler = continuation(handler_call_details)
        if handler is None or not handler.request_streaming:
            return handler

        def serve(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            stream = self._begin(context)
            try:
                yield from handler.stream_stream(stream.noting(requests), context)
            finally:
                with self._lock:
                    if stream in self._running:
                        self._running.remove(stream)

        return grpc.stream_stream_rpc_method_handler(
            serve, handler.request_deserializer, handler.response_serializer
        )

    def end_idle(self) -> None:
        """End the streams whose callers have sent nothing for a while."""
        before_s = time.monotonic() - _IDLE_S
        with self._lock:
            idle = [stream for stream in self._running if stream.last_s < before_s]
        for stream in idle:
            stream.end()

    def _begin(self, context: grpc.ServicerContext) -> _Stream:
        # The peer is "ipv4:ADDRESS:PORT"; the port differs between a caller's connections.
        stream = _Stream(context.peer().rpartition(":")[0], context)
        with self._lock:
            leaving = self._leaving(stream.caller)
            if leaving is not None:
                self._running.remove(leaving)
            self._running.append(stream)
        if leaving is not None:
            leaving.end()
        return stream

    def _leaving(self, caller: str) -> _Stream | None:
        """Return the stream that makes room for one of `caller`; None if there is room.

        It is the longest silent one of this caller, or of the caller that has most.
        """
        counts = Counter(stream.caller for stream in self._running)
        if counts[caller] >= _MOST_STREAMS_OF_CALLER:
            of = caller
        elif len(self._running) >= _MOST_STREAMS:
            of = counts.most_common(1)[0][0]
        else:
            return None
        return min((s for s in self._running if s.caller == of), key=lambda s: s.last_s)


class _Servicer(device_pb2_grpc.DeviceServicer):
    """gRPC servicer that passes requests to the device, one at a time."""

    def __init__(self, device: Device, clock: Callable[[], int]) -> None:
        self._device, self._clock = device, clock
        self._lock = threading.Lock()

    def tick(self) -> None:
        with self._lock:
            self._device.tick(self._clock())

    def Handle(  # noqa: N802 (the protocol's name)
        self, request: device_pb2.Request, context: grpc.ServicerContext
    ) -> device_pb2.Response:
        """Answer a single request."""
        try:
            with self._lock:
                return self._device.handle(request, self._clock())
        except RefusedError as error:
            _refuse(context, error)

    def Stream(  # noqa: N802 (the protocol's name)
        self, request_iterator: Iterator[device_pb2.ToDevice], context: grpc.ServicerContext
    ) -> Iterator[device_pb2.FromDevice]:
        """Answer a stream of requests in their order."""
        for message in request_iterator:
            answer = device_pb2.FromDevice()
            if message.WhichOneof("message") == "health_check":
                answer.health_check.SetInParent()
            else:
                answer.response.CopyFrom(self.Handle(message.request, context))
            yield answer


def _refuse(context: grpc.ServicerContext, error: RefusedError) -> NoReturn:
    context.abort(grpc.StatusCode[error.refusal.value], str(error))
    raise AssertionError("abort raises")
