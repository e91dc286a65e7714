"""An emulated terminal on the network: gRPC without TLS and with reflection, as real ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import NoReturn

import grpc
from grpc_reflection.v1alpha import reflection

from skyhop.dish import device_pb2, device_pb2_grpc
from skyhop.dish.emulate.device import Device, RefusedError
from skyhop.errors import RunError

LISTEN = "127.0.0.1:9200"

_THREADS = 8
_TICK_S = 1.0
_GRACE_S = 0.5


class Server:
    """A terminal that answers until it is stopped.

    Args:
        device: what answers.
        listen: HOST:PORT; a port of 0 is any that is free.
        clock: the time in ns, UTC; the machine's where not given.

    Raises:
        RunError: it cannot listen there.

    Attributes:
        address: where it listens, HOST:PORT.
    """

    def __init__(
        self, device: Device, listen: str = LISTEN, clock: Callable[[], int] = time.time_ns
    ) -> None:
        self._servicer = _Servicer(device, clock)
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS),
            # Two terminals at one address would take turns.
            options=[("grpc.so_reuseport", 0)],
        )
        device_pb2_grpc.add_DeviceServicer_to_server(self._servicer, self._server)
        services = [device_pb2.DESCRIPTOR.services_by_name["Device"].full_name]
        reflection.enable_server_reflection([*services, reflection.SERVICE_NAME], self._server)
        try:
            port = self._server.add_insecure_port(listen)
        except RuntimeError:
            port = 0
        if not port:
            raise RunError(
                f"--listen {listen}: cannot listen there; is something else, or is it not an "
                "address of this machine?"
            )
        self.address = f"{listen.rpartition(':')[0]}:{port}"
        self._stopped = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="terminal", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._server.start()
        self._ticker.start()

    def stop(self) -> None:
        """End it; what is being answered is."""
        self._stopped.set()
        self._server.stop(_GRACE_S).wait()
        self._ticker.join()

    def __enter__(self) -> Server:
        """Begin to answer."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        self.stop()

    def _tick(self) -> None:
        while not self._stopped.wait(_TICK_S):
            self._servicer.tick()


def scaled_clock(speed: float, begin_ns: int) -> Callable[[], int]:
    """Return a clock that goes `speed` times as fast as the machine's from `begin_ns` on."""
    started_ns = time.monotonic_ns()
    return lambda: begin_ns + round((time.monotonic_ns() - started_ns) * speed)


class _Servicer(device_pb2_grpc.DeviceServicer):
    """Hands requests to the device, one at a time."""

    def __init__(self, device: Device, clock: Callable[[], int]) -> None:
        self._device, self._clock = device, clock
        self._lock = threading.Lock()

    def tick(self) -> None:
        with self._lock:
            self._device.tick(self._clock())

    def Handle(  # noqa: N802 (the protocol's name)
        self, request: device_pb2.Request, context: grpc.ServicerContext
    ) -> device_pb2.Response:
        """Answer a request."""
        try:
            with self._lock:
                return self._device.handle(request, self._clock())
        except RefusedError as error:
            _refuse(context, error)

    def Stream(  # noqa: N802 (the protocol's name)
        self, request_iterator: Iterator[device_pb2.ToDevice], context: grpc.ServicerContext
    ) -> Iterator[device_pb2.FromDevice]:
        """Answer requests as they come."""
        for asked in request_iterator:
            answer = device_pb2.FromDevice()
            if asked.WhichOneof("message") == "health_check":
                answer.health_check.SetInParent()
            else:
                answer.response.CopyFrom(self.Handle(asked.request, context))
            yield answer


def _refuse(context: grpc.ServicerContext, error: RefusedError) -> NoReturn:
    context.abort(grpc.StatusCode[error.refusal.value], str(error))
    raise AssertionError("abort raises")
