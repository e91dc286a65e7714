"""Clock as an argument: code of the testbed takes a `Clock`, and tests pass a manual one."""

from __future__ import annotations

import selectors
import threading
import time
from typing import Protocol

Ready = list[tuple[selectors.SelectorKey, int]]
"""Ready files, each with its selector key and events, as `selectors` return them."""


class Clock(Protocol):
    """Source of wall and monotonic time, and of waiting."""

    def now_ns(self) -> int:
        """Return UTC in nanoseconds since 1970."""

    def monotonic_s(self) -> float:
        """Return monotonic time in seconds from an arbitrary origin.

        The wall clock does not affect it.
        """

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until an event is set, but at most `seconds`; return whether the event is set."""

    def sleep(self, seconds: float) -> None:
        """Block the thread for `seconds`."""

    def select(self, selector: selectors.BaseSelector, seconds: float) -> Ready:
        """Wait until a registered file is ready, but at most `seconds`; return the ready files."""


class SystemClock:
    """Clock that reads the machine's clocks and really waits."""

    def now_ns(self) -> int:
        """Return UTC in nanoseconds since 1970."""
        return time.time_ns()

    def monotonic_s(self) -> float:
        """Return the kernel's monotonic clock in seconds."""
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until an event is set, but at most `seconds`; return whether the event is set."""
        return event.wait(seconds)

    def sleep(self, seconds: float) -> None:
        """Block the thread for `seconds`."""
        time.sleep(seconds)

    def select(self, selector: selectors.BaseSelector, seconds: float) -> Ready:
        """Wait until a registered file is ready, but at most `seconds`; return the ready files."""
        return selector.select(max(0.0, seconds))


SYSTEM_CLOCK: Clock = SystemClock()
