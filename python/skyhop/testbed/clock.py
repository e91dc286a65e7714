"""Time as an argument: the testbed's processes ask a `Clock`, and tests hand them one that they turn."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Wall clock, monotonic clock, and waiting by them."""

    def now_ns(self) -> int:
        """Return UTC in nanoseconds since 1970."""

    def monotonic_s(self) -> float:
        """Return seconds since some moment, which no setting of the wall clock changes."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until an event is set, and no longer than `seconds`; return whether it is set."""

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""


class SystemClock:
    """The machine's own clocks."""

    def now_ns(self) -> int:
        """Return UTC in nanoseconds since 1970."""
        return time.time_ns()

    def monotonic_s(self) -> float:
        """Return the kernel's monotonic clock in seconds."""
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until an event is set, and no longer than `seconds`; return whether it is set."""
        return event.wait(seconds)

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        time.sleep(seconds)


SYSTEM_CLOCK: Clock = SystemClock()
