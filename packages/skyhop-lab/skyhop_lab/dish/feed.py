"""Interfaces of an emulated terminal: sources of its answers, and feeds of measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from skyhop_testbed.dish import device_pb2
from skyhop_testbed.dish.device_pb2 import DishOutage


class AnswerSource(Protocol):
    """Source of a terminal's answers; `now_ns` is in ns since 1970 (UTC), and never decreases."""

    def status(self, now_ns: int) -> device_pb2.DishGetStatusResponse:
        """Return the status at a time."""

    def history(self, now_ns: int) -> device_pb2.DishGetHistoryResponse:
        """Return the history (ring buffers and outages) at a time."""

    def obstruction_map(self, now_ns: int) -> device_pb2.DishGetObstructionMapResponse:
        """Return the obstruction map at a time."""

    def clear_obstruction_map(self, now_ns: int) -> None:
        """Delete all observations from the obstruction map."""

    def reboot(self, now_ns: int) -> None:
        """Reboot the terminal: its seconds count from 0 again, and its outages are deleted."""

    def stow(self, now_ns: int, *, stowed: bool) -> None:
        """Stow or unstow the terminal; a stowed terminal has no connection."""


@dataclass(frozen=True)
class Interruption:
    """Period in which no packet passed, in ns since the feed's start."""

    begin_ns: int
    end_ns: int
    cause: DishOutage.Cause.ValueType


@dataclass(frozen=True)
class Second:
    """Measurements of a terminal in one second."""

    drop_rate: float
    """Share of lost pings, 0 to 1."""
    latency_ms: float | None
    """Mean RTT of the answered pings; None if no ping was answered."""
    downlink_bps: float = 0.0
    uplink_bps: float = 0.0
    interruptions: tuple[Interruption, ...] = ()
    """Interruptions within the second, ordered by time."""
    serving_deg: tuple[float, float] | None = None
    """Azimuth and elevation of the serving satellite in degrees; None if not known."""
    obstructed: bool = False
    """Whether an obstacle hid the serving satellite."""


class Feed(Protocol):
    """Source of the measurements, second by second, that an emulated terminal reports."""

    lag_s: int
    """Longest time in s from the end of a second until its measurements are known."""

    def is_known(self, index: int) -> bool:
        """Return whether the measurements of a past second are known, before `lag_s` has passed."""

    def second(self, index: int) -> Second:
        """Return the measurements from `index` to `index` + 1 s after the feed's start."""
