"""What an emulated terminal asks for its answers, and what sources are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from skyhop.dish import device_pb2
from skyhop.dish.device_pb2 import DishOutage


class Source(Protocol):
    """What a terminal says at a moment; `now_ns` is UTC and never goes back."""

    def status(self, now_ns: int) -> device_pb2.DishGetStatusResponse:
        """Return what it says of itself."""

    def history(self, now_ns: int) -> device_pb2.DishGetHistoryResponse:
        """Return its rings and outages."""

    def obstruction_map(self, now_ns: int) -> device_pb2.DishGetObstructionMapResponse:
        """Return the sky as it has seen it."""

    def clear_obstruction_map(self, now_ns: int) -> None:
        """Forget what it has seen of the sky."""

    def reboot(self, now_ns: int) -> None:
        """Start anew: it counts its seconds from 0 again, and forgets its outages."""

    def stow(self, now_ns: int, *, stowed: bool) -> None:
        """Lie down, or get up again."""


@dataclass(frozen=True)
class Cut:
    """A time in which nothing passed, in ns since the feed's begin."""

    begin_ns: int
    end_ns: int
    cause: DishOutage.Cause.ValueType


@dataclass(frozen=True)
class Second:
    """What a terminal measured in a second."""

    drop_rate: float
    """Of its pings, 0 to 1."""
    latency_ms: float | None
    """The mean of those that came back; null where none did."""
    downlink_bps: float = 0.0
    uplink_bps: float = 0.0
    cuts: tuple[Cut, ...] = ()
    """In order."""
    serving_deg: tuple[float, float] | None = None
    """Azimuth and elevation of the satellite that served it, where that is known."""
    obstructed: bool = False
    """Whether something stood before it."""


class Feed(Protocol):
    """What happens to a terminal."""

    lag_s: int
    """How long after its end a second is known at the latest."""

    def is_known(self, index: int) -> bool:
        """Return whether a second is known before that; only of those that are over."""

    def second(self, index: int) -> Second:
        """Return what happened from `index` to `index` + 1 s after the begin."""
