"""Clock of a simulation by discrete events: time moves to the next planned call."""

from __future__ import annotations

import heapq
import itertools
import selectors
import threading
from collections.abc import Callable

from skyhop_testbed.clock import Ready

S = 1_000_000_000
BEGIN_NS = 1_798_761_600 * S
"""Start of simulations: 2027-01-01 00:00 UTC."""


class EventClock:
    """Clock that stands still while code runs, and moves from event to event.

    It has one thread; a wait ends at once.
    """

    def __init__(self) -> None:
        self._now_ns = BEGIN_NS
        self._events: list[tuple[int, int, Callable[[], object]]] = []
        self._numbers = itertools.count()

    def now_ns(self) -> int:
        """Return UTC in nanoseconds since 1970."""
        return self._now_ns

    def monotonic_s(self) -> float:
        """Return the simulated time in s."""
        return self._now_ns / S

    def wait(self, event: threading.Event, seconds: float) -> bool:  # noqa: ARG002
        """Return whether an event is set."""
        return event.is_set()

    def sleep(self, seconds: float) -> None:
        """Return at once: the time passes between events."""

    def select(self, selector: selectors.BaseSelector, seconds: float) -> Ready:  # noqa: ARG002
        """Return the files that are ready."""
        return selector.select(0)

    def at(self, at_ns: int, do: Callable[[], object]) -> None:
        """Plan a call; calls at the same time are made in the order in which they were planned."""
        heapq.heappush(self._events, (max(at_ns, self._now_ns), next(self._numbers), do))

    def after(self, seconds: float, do: Callable[[], object]) -> None:
        """Plan a call in `seconds` from now."""
        self.at(self._now_ns + round(seconds * S), do)

    def run_until(self, end_ns: int) -> int:
        """Make all calls that are planned before a time; return how many there were."""
        count = 0
        while self._events and self._events[0][0] < end_ns:
            self._now_ns, _, do = heapq.heappop(self._events)
            do()
            count += 1
        self._now_ns = end_ns
        return count
