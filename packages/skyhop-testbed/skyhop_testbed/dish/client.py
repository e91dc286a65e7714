"""Client of a terminal on the network, by starlink-grpc-core, with a time limit on every call."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import starlink_grpc  # type: ignore[import-untyped]

from skyhop.errors import InputError, RunError
from skyhop.telemetry.obstruction import ObstructionMap
from skyhop_testbed.dish.readings import (
    Follower,
    NewRows,
    Outage,
    obstruction_map_of,
    outages_of,
    sample_of,
)

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from skyhop.telemetry.fields import Sample

ADDRESS = "192.168.100.1:9200"
"""Address that every terminal has in its own network."""

_PORT = 9200
_LAST_PORT = 65_535
_MOST_BYTES = 64 << 20
_REFUSED = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED)
_BARE_IPV6 = re.compile(r"[0-9a-fA-F]*:[0-9a-fA-F]*:[0-9a-fA-F:.]*")
_NOT_HTTP2 = "HTTP/2"
"""Word in gRPC's reason if another protocol answers, such as HTTP/1."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class Location:
    """Position of a terminal, as the terminal reports it."""

    latitude_deg: float
    longitude_deg: float
    altitude_m: float


class Dish:
    """Terminal on the network; each method sends a request.

    Args:
        address: HOST or HOST:PORT.
        timeout_s: time limit of each request in s.
        now_ns: clock, UTC in nanoseconds since 1970.

    Raises:
        InputError: the address is malformed.

    Every method raises a `RunError` of one line if there is no answer within the time limit, if the
    answering program is not a terminal, or if the terminal refuses the request.
    """

    def __init__(
        self,
        address: str = ADDRESS,
        timeout_s: float = 5.0,
        *,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.address = checked_address(address)
        self._timeout_s, self._now_ns = timeout_s, now_ns
        self._context = _Context(self.address, timeout_s)
        self._follower = Follower()

    def __enter__(self) -> Dish:
        """Return the terminal itself; the end of the `with` block closes the connection."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection to the terminal."""
        self.close()

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        self._context.close()

    def status(self) -> Message:
        """Return the current status, a `DishGetStatusResponse`."""
        answer: Message = self._request("its status", starlink_grpc.get_status)
        return answer

    def sample(self) -> Sample:
        """Return the current status as a sample of telemetry."""
        return sample_of(self.status(), self._now_ns())

    def history(self) -> Message:
        """Return the history (last seconds and outages), a `DishGetHistoryResponse`."""
        answer: Message = self._request("its history", starlink_grpc.get_history)
        return answer

    def new_rows(self) -> NewRows:
        """Return the seconds of the history that are new since the previous call."""
        history = self.history()
        return self._follower.join(history, self._now_ns())

    def outages(self) -> list[Outage]:
        """Return the terminal's outages, with times in UTC."""
        return outages_of(self.history())

    def obstruction_map(self) -> ObstructionMap:
        """Return the terminal's obstruction map."""
        message = self._request("its obstruction map", starlink_grpc.get_obstruction_map)
        if message.num_rows * message.num_cols != len(message.snr) or not message.snr:
            raise RunError(
                f"{self.address}: an obstruction map of {message.num_rows} x {message.num_cols} "
                f"has {len(message.snr)} values: the terminal has none; ask again later"
            )
        return obstruction_map_of(message, self.status())

    def location(self) -> Location | None:
        """Return the terminal's position; None if its owner has not allowed this request."""
        try:
            answer = self._request("its location", starlink_grpc.get_location)
        except _RefusedError as error:
            if error.code == grpc.StatusCode.PERMISSION_DENIED:
                return None
            raise
        return Location(answer.lla.lat, answer.lla.lon, answer.lla.alt)

    def _request(self, what: str, request: Callable[..., _T]) -> Any:
        """Send a request and return the answer; convert failures to a `RunError`."""
        try:
            return request(context=self._context)
        except grpc.RpcError as error:
            raise self._failure(what, error) from None
        except starlink_grpc.GrpcError:
            raise RunError(
                f"{self.address}: something answers there, but not a terminal: it does not know "
                "SpaceX.API.Device"
            ) from None
        except (AttributeError, ValueError, TypeError, KeyError):
            raise RunError(
                f"{self.address}: not a terminal, or one that reports {what} in a form that "
                "starlink-grpc-core does not know: install a newer starlink-grpc-core"
            ) from None

    def _failure(self, what: str, error: grpc.RpcError) -> RunError:
        code = error.code() if isinstance(error, grpc.Call) else None
        reason = " ".join(str(error.details()).split()) if isinstance(error, grpc.Call) else ""
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            return RunError(f"{self.address}: no answer within {self._timeout_s:g} s")
        if code == grpc.StatusCode.UNAVAILABLE and _NOT_HTTP2 in reason:
            return RunError(
                f"{self.address}: something answers there, but not a terminal: it does not speak "
                "gRPC"
            )
        if code == grpc.StatusCode.UNAVAILABLE:
            return RunError(
                f"{self.address}: no terminal answers there ({_short(reason)}); is this host "
                "behind one, or does --address have to name another?"
            )
        if code == grpc.StatusCode.UNIMPLEMENTED and starlink_grpc.imports_pending:
            return RunError(
                f"{self.address}: something answers there, but not a terminal: it has no reflection"
            )
        if code is not None and code in _REFUSED:
            return _RefusedError(f"{self.address}: the terminal refuses {what}: {reason}", code)
        name = "" if code is None else f"{code.name.lower().replace('_', ' ')}: "
        return RunError(f"{self.address}: the terminal does not say {what}: {name}{reason}")


class _RefusedError(RunError):
    def __init__(self, message: str, code: grpc.StatusCode) -> None:
        super().__init__(message)
        self.code = code


def checked_address(address: str) -> str:
    """Return an address as HOST:PORT; the default port is that of terminals.

    Raises:
        InputError: the address is malformed.
    """
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(_PORT)
    if _BARE_IPV6.fullmatch(address):
        raise InputError(
            f'"{address}": an IPv6 address stands in brackets, such as [fe80::1]:{_PORT}'
        )
    known = port.isascii() and port.isdecimal() and 0 < int(port[:9]) <= _LAST_PORT
    if not host or not known or any(c.isspace() or c == "/" for c in host):
        raise InputError(f'"{address}" is not an address; expected HOST or HOST:PORT')
    return f"{host}:{port}"


def _short(details: str) -> str:
    """Return the reason why a connection failed, without the addresses that gRPC tried."""
    reason = details.rpartition(": ")[2] or details
    return reason.strip("()[] ") or "no reason given"


class _Context(starlink_grpc.ChannelContext):  # type: ignore[misc]
    """gRPC connection with a time limit on every call and without a proxy."""

    def __init__(self, address: str, timeout_s: float) -> None:
        super().__init__(address)
        self.channel: grpc.Channel | None = None
        self._timeout_s = timeout_s

    def get_channel(self) -> tuple[grpc.Channel, bool]:
        if self.channel is not None:
            return self.channel, True
        options = [
            ("grpc.enable_http_proxy", 0),
            ("grpc.max_receive_message_length", _MOST_BYTES),
        ]
        plain = grpc.insecure_channel(self.target, options)
        channel = grpc.intercept_channel(plain, _Deadline(self._timeout_s))
        self.channel = channel
        return channel, False


class _Deadline(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[type-arg]
    grpc.StreamStreamClientInterceptor,  # type: ignore[type-arg]
):
    """gRPC interceptor that sets the time limit of each call; starlink-grpc-core's is longer."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(details._replace(timeout=self._timeout_s), request)

    def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
        return continuation(details._replace(timeout=self._timeout_s), requests)
