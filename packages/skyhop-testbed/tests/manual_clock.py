"""A clock that a test turns: time passes only while the test says so, and threads take turns.

`ManualClock` is a `skyhop_testbed.clock.Clock`. The thread that creates one drives it: `advance`,
`until`, and every wait and sleep of that thread move the time to the next moment at which a thread
or a planned call is due. Other threads are of the class that `thread_class` returns. One of them
runs at a time, from one wait for the clock to its next, so that events have the same order in each
run of a test, however slow the machine is.
"""

from __future__ import annotations

import heapq
import itertools
import math
import selectors
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from skyhop_testbed.clock import Ready

S_NS = 1_000_000_000
BEGIN_NS = 1_796_083_200 * S_NS
"""Default start of the wall clock: 2026-12-01, midnight UTC."""
_HANG_S = 120.0
"""Longest real time that a thread may run until it waits for the clock again."""


class KilledError(BaseException):
    """Exception that is raised in a killed thread, at its wait for the clock."""


@dataclass
class _Parked:
    """Thread that waits for the clock."""

    thread: threading.Thread
    until_ns: int
    is_ready: Callable[[], object]
    is_released: bool = False
    is_killed: bool = False


@dataclass(order=True)
class _PlannedCall:
    """Call that is due at a time, in ns since the clock's start."""

    at_ns: int
    number: int
    do: Callable[[], object] = field(compare=False)


class ManualLock:
    """Lock whose waiting threads let other threads run."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock, self._is_held = clock, False

    def __enter__(self) -> None:
        """Acquire the lock; other threads run meanwhile."""
        while self._is_held:
            self._clock._wait(math.inf, lambda: not self._is_held)
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        """Release the lock for a waiting thread."""
        self._is_held = False


class ManualClock:
    """Wall clock and monotonic clock of a test.

    Args:
        begin_ns: UTC at the start, in nanoseconds since 1970.
    """

    def __init__(self, begin_ns: int = BEGIN_NS) -> None:
        self._begin_ns, self._elapsed_ns = begin_ns, 0
        self._turn = threading.Condition()
        self._parked: list[_Parked] = []
        self._running: threading.Thread | None = None
        self._driver = threading.current_thread()
        self._planned: list[_PlannedCall] = []
        self._numbers = itertools.count()

    # Methods of the protocol `Clock`.

    def now_ns(self) -> int:
        """Return UTC in nanoseconds since 1970."""
        return self._begin_ns + self._elapsed_ns

    def monotonic_s(self) -> float:
        """Return seconds since the clock was created."""
        return self._elapsed_ns / S_NS

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until an event is set, and no longer than `seconds`; return whether it is set."""
        self._wait(seconds, event.is_set)
        return event.is_set()

    def sleep(self, seconds: float) -> None:
        """Block the thread for `seconds` of this clock."""
        self._wait(seconds, lambda: False)

    def select(self, selector: selectors.BaseSelector, seconds: float) -> Ready:
        """Wait until a registered file is ready, and no longer than `seconds`."""
        self._wait(seconds, lambda: selector.select(0))
        return selector.select(0)

    # Methods for tests.

    def advance(self, seconds: float) -> None:
        """Advance the time, and run all threads and calls that become due."""
        self._drive(self._elapsed_ns + round(seconds * S_NS), lambda: False)

    def until(
        self,
        is_so: Callable[[], object],
        seconds: float = 120.0,
        why: Callable[[], object] = lambda: "",
    ) -> None:
        """Advance the time until a condition holds; fail the test after `seconds`."""
        self._drive(self._elapsed_ns + round(seconds * S_NS), is_so)
        if not is_so():
            pytest.fail(f"the condition does not hold within {seconds:g} s of the clock: {why()}")

    def at(self, seconds: float, do: Callable[[], object]) -> None:
        """Plan a call in `seconds` from now."""
        moment_ns = self._elapsed_ns + round(seconds * S_NS)
        heapq.heappush(self._planned, _PlannedCall(moment_ns, next(self._numbers), do))

    def set_wall(self, now_ns: int) -> None:
        """Set the wall clock, without effect on the monotonic clock."""
        self._begin_ns = now_ns - self._elapsed_ns

    def kill(self, *threads: threading.Thread) -> None:
        """End threads at their waits; without arguments, all threads."""
        while found := [p for p in self._parked if not threads or p.thread in threads]:
            for each in found:
                each.is_killed = True
                if threading.current_thread() is self._driver:
                    self._run(each)
            if threading.current_thread() is not self._driver:
                return

    def lock(self) -> ManualLock:
        """Return a lock for threads of this clock."""
        return ManualLock(self)

    def thread_class(self) -> type[threading.Thread]:
        """Return a replacement of `threading.Thread` whose threads use this clock."""
        clock = self

        class ClockThread(_THREAD):
            """Thread that runs when the clock schedules it."""

            def start(self) -> None:
                self._entry = _Parked(self, clock._elapsed_ns, lambda: True)
                clock._parked.append(self._entry)
                super().start()

            def run(self) -> None:
                try:
                    clock._await_release(self._entry)
                    super().run()
                except KilledError:
                    pass
                finally:
                    clock._end_turn()

            def join(self, timeout: float | None = None) -> None:
                clock._wait(math.inf if timeout is None else timeout, self._has_ended)
                if self._has_ended():
                    super().join()

            def is_alive(self) -> bool:
                return super().is_alive() and not self._has_ended()

            def _has_ended(self) -> bool:
                is_waiting = any(each.thread is self for each in clock._parked)
                return not is_waiting and clock._running is not self and self.ident is not None

        return ClockThread

    # Scheduling of threads.

    def _wait(self, seconds: float, is_ready: Callable[[], object]) -> None:
        if is_ready():
            return
        until_ns = self._elapsed_ns + min(math.ceil(max(0.0, min(seconds, 1e9)) * S_NS), 1 << 62)
        if threading.current_thread() is self._driver:
            self._drive(until_ns, is_ready)
            return
        entry = _Parked(threading.current_thread(), until_ns, is_ready)
        self._parked.append(entry)
        self._end_turn()
        self._await_release(entry)

    def _await_release(self, entry: _Parked) -> None:
        with self._turn:
            self._turn.wait_for(lambda: entry.is_released)
        if entry.is_killed:
            raise KilledError

    def _end_turn(self) -> None:
        with self._turn:
            self._running = None
            self._turn.notify_all()

    def _drive(self, until_ns: int, is_ready: Callable[[], object]) -> None:
        """Advance to each time at which a thread or call is due, at most to `until_ns`."""
        while True:
            self._settle()
            if is_ready() or self._elapsed_ns >= until_ns:
                return
            moments = [each.until_ns for each in self._parked]
            moments += [each.at_ns for each in self._planned[:1]]
            self._elapsed_ns = max(self._elapsed_ns, min(until_ns, *moments, until_ns))
            while self._planned and self._planned[0].at_ns <= self._elapsed_ns:
                heapq.heappop(self._planned).do()

    def _settle(self) -> None:
        """Run threads one after the other until none is due at the present time."""
        while due := next((each for each in self._parked if self._is_due(each)), None):
            self._run(due)

    def _is_due(self, parked: _Parked) -> bool:
        is_over = parked.until_ns <= self._elapsed_ns or parked.is_killed
        return is_over or bool(parked.is_ready())

    def _run(self, parked: _Parked) -> None:
        """Run a thread until it waits for the clock again, or ends."""
        with self._turn:
            self._parked.remove(parked)
            self._running, parked.is_released = parked.thread, True
            self._turn.notify_all()
            if not self._turn.wait_for(lambda: self._running is None, _HANG_S):
                pytest.fail(f"{parked.thread.name} blocks on something other than the clock")


_THREAD = threading.Thread
