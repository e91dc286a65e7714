"""Time as an argument: processes of the testbed ask a `Clock`, and tests hand them their own."""

from __future__ import annotations

import selectors
import threading
import time
from typing import Protocol

Ready = list[tuple[selectors.SelectorKey, int]]
"""Files that are ready, each with its events, as selectors return them."""


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

    def select(self, selector: selectors.BaseSelector, seconds: float) -> Ready:
        """Wait until a registered file is ready, and no longer than `seconds`."""


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

    def select(self, selector: selectors.BaseSelector, seconds: float) -> Ready:
        """Wait until a registered file is ready, and no longer than `seconds`."""
        return selector.select(max(0.0, seconds))


SYSTEM_CLOCK: Clock = SystemClock()
