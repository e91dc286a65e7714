"""A terminal on the network, through starlink-grpc-core: everything is asked with a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import starlink_grpc  # type: ignore[import-untyped]

from skyhop.dish.readings import (
    Follower,
    Joined,
    ObstructionMap,
    Outage,
    obstruction_map_of,
    outages_of,
    sample_of,
)
from skyhop.errors import InputError, RunError

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from skyhop.telemetry.fields import Sample

ADDRESS = "192.168.100.1:9200"
"""Where every terminal is on its own network."""

_PORT = 9200
_LAST_PORT = 65_535
_MOST_BYTES = 64 << 20
_REFUSED = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED)
_T = TypeVar("_T")


@dataclass(frozen=True)
class Location:
    """Where a terminal is."""

    latitude_deg: float
    longitude_deg: float
    altitude_m: float


class Dish:
    """A terminal, which is asked when its methods are called.

    Args:
        address: HOST or HOST:PORT.
        timeout_s: how long each answer may take.
        now_ns: returns UTC in nanoseconds since 1970.

    Raises:
        InputError: the address cannot be one.

    Every method raises `RunError` in one line: nothing answers there, not in time, something else
    than a terminal does, or the terminal refuses.
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
        """Return it; leaving it closes the connection."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection; the next question opens it anew."""
        self._context.close()

    def status(self) -> Message:
        """Return what it says of itself now, a `DishGetStatusResponse`."""
        answer: Message = self._asked("its status", starlink_grpc.get_status)
        return answer

    def sample(self) -> Sample:
        """Return what it says of itself now as telemetry."""
        return sample_of(self.status(), self._now_ns())

    def history(self) -> Message:
        """Return its last seconds and its outages, a `DishGetHistoryResponse`."""
        answer: Message = self._asked("its history", starlink_grpc.get_history)
        return answer

    def new_rows(self) -> Joined:
        """Return the seconds that it has had since it was asked so last."""
        history = self.history()
        return self._follower.join(history, self._now_ns())

    def outages(self) -> list[Outage]:
        """Return its outages, in UTC."""
        return outages_of(self.history())

    def obstruction_map(self) -> ObstructionMap:
        """Return the sky as it has seen it."""
        message = self._asked("its obstruction map", starlink_grpc.get_obstruction_map)
        if message.num_rows * message.num_cols != len(message.snr) or not message.snr:
            raise RunError(
                f"{self.address}: an obstruction map of {message.num_rows} x {message.num_cols} "
                f"has {len(message.snr)} values: the terminal has none; ask again later"
            )
        return obstruction_map_of(message, self.status())

    def location(self) -> Location | None:
        """Return where it is; None where its owner does not allow that to be asked."""
        try:
            said = self._asked("its location", starlink_grpc.get_location)
        except _RefusedError as error:
            if error.code == grpc.StatusCode.PERMISSION_DENIED:
                return None
            raise
        return Location(said.lla.lat, said.lla.lon, said.lla.alt)

    def _asked(self, what: str, question: Callable[..., _T]) -> Any:
        """Return an answer, or say in one line why there is none."""
        try:
            return question(context=self._context)
        except grpc.RpcError as error:
            raise self._failure(what, error) from None
        except starlink_grpc.GrpcError:
            raise RunError(
                f"{self.address}: something answers there, but not a terminal: it does not know "
                "SpaceX.API.Device"
            ) from None
        except (AttributeError, ValueError, TypeError, KeyError):
            raise RunError(
                f"{self.address}: not a terminal, or one that says {what} in another way than "
                "starlink-grpc-core knows: install a newer one"
            ) from None

    def _failure(self, what: str, error: grpc.RpcError) -> RunError:
        code = error.code() if isinstance(error, grpc.Call) else None
        said = " ".join(str(error.details()).split()) if isinstance(error, grpc.Call) else ""
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            return RunError(f"{self.address}: no answer within {self._timeout_s:g} s")
        if code == grpc.StatusCode.UNAVAILABLE:
            return RunError(
                f"{self.address}: no terminal answers there ({_short(said)}); is this host behind "
                "one, or does --address have to name another?"
            )
        if code == grpc.StatusCode.UNIMPLEMENTED and starlink_grpc.imports_pending:
            return RunError(
                f"{self.address}: something answers there, but not a terminal: it has no reflection"
            )
        if code is not None and code in _REFUSED:
            return _RefusedError(f"{self.address}: the terminal refuses {what}: {said}", code)
        name = "" if code is None else f"{code.name.lower().replace('_', ' ')}: "
        return RunError(f"{self.address}: the terminal does not say {what}: {name}{said}")


class _RefusedError(RunError):
    def __init__(self, message: str, code: grpc.StatusCode) -> None:
        super().__init__(message)
        self.code = code


def checked_address(address: str) -> str:
    """Return HOST:PORT; the port is that of terminals where it is not given.

    Raises:
        InputError: it cannot be one.
    """
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(_PORT)
    known = port.isascii() and port.isdecimal() and 0 < int(port[:9]) <= _LAST_PORT
    if not host or not known or any(c.isspace() or c == "/" for c in host):
        raise InputError(f'"{address}" is not an address; expected HOST or HOST:PORT')
    return f"{host}:{port}"


def _short(said: str) -> str:
    """Return why a connection failed, without the addresses that were tried."""
    reason = said.rpartition(": ")[2] or said
    return reason.strip("() ") or "no reason given"


class _Context(starlink_grpc.ChannelContext):  # type: ignore[misc]
    """A connection in which every question has a time limit, and no proxy is in between."""

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
    """Gives each call a time limit; what starlink-grpc-core asks for itself is longer."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(details._replace(timeout=self._timeout_s), request)

    def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
        return continuation(details._replace(timeout=self._timeout_s), requests)
