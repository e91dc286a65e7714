"""A clock that a test turns: time passes only while the test says so, and threads take turns.

`ManualClock` is a `skyhop.testbed.clock.Clock`. The thread that makes one drives it: `advance`,
`until`, and every wait and sleep of that thread move the time to the next moment at which something
is due. Other threads are of the class that `thread_class` returns. One of them runs at a time, from
a wait for the clock to its next one, so that whatever happens comes in the same order each time,
however slow the machine is.
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

from skyhop.testbed.clock import Ready

S_NS = 1_000_000_000
BEGIN_NS = 1_796_083_200 * S_NS
"""2026-12-01, midnight UTC."""
_HANG_S = 120.0
"""Bounds how long a thread may take in real time until it waits for the clock again."""


class KilledError(BaseException):
    """The thread was killed: raised from where it waits."""


@dataclass
class _Parked:
    """A thread that waits for the clock."""

    thread: threading.Thread
    until_ns: int
    is_ready: Callable[[], object]
    is_released: bool = False
    is_killed: bool = False


@dataclass(order=True)
class _Planned:
    """What is done at a moment."""

    at_ns: int
    number: int
    do: Callable[[], object] = field(compare=False)


class ManualLock:
    """A lock; a thread that waits for it lets others take their turns."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock, self._is_held = clock, False

    def __enter__(self) -> None:
        """Take it."""
        while self._is_held:
            self._clock._wait(math.inf, lambda: not self._is_held)
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        """Give it back."""
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
        self._planned: list[_Planned] = []
        self._numbers = itertools.count()

    # What a clock does.

    def now_ns(self) -> int:
        """Return UTC in nanoseconds since 1970."""
        return self._begin_ns + self._elapsed_ns

    def monotonic_s(self) -> float:
        """Return seconds since the clock was made."""
        return self._elapsed_ns / S_NS

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until an event is set, and no longer than `seconds`; return whether it is set."""
        self._wait(seconds, event.is_set)
        return event.is_set()

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        self._wait(seconds, lambda: False)

    def select(self, selector: selectors.BaseSelector, seconds: float) -> Ready:
        """Wait until a registered file is ready, and no longer than `seconds`."""
        self._wait(seconds, lambda: selector.select(0))
        return selector.select(0)

    # What a test does.

    def advance(self, seconds: float) -> None:
        """Let time pass, and everything happen that is due meanwhile."""
        self._drive(self._elapsed_ns + round(seconds * S_NS), lambda: False)

    def until(
        self,
        is_so: Callable[[], object],
        seconds: float = 120.0,
        why: Callable[[], object] = lambda: "",
    ) -> None:
        """Let time pass until something is so; fail where it is not within `seconds`."""
        self._drive(self._elapsed_ns + round(seconds * S_NS), is_so)
        if not is_so():
            pytest.fail(f"not so within {seconds:g} s of the clock: {why()}")

    def at(self, seconds: float, do: Callable[[], object]) -> None:
        """Do something so many seconds from now."""
        moment_ns = self._elapsed_ns + round(seconds * S_NS)
        heapq.heappush(self._planned, _Planned(moment_ns, next(self._numbers), do))

    def set_wall(self, now_ns: int) -> None:
        """Set the wall clock, which the monotonic one does not notice."""
        self._begin_ns = now_ns - self._elapsed_ns

    def kill(self, *threads: threading.Thread) -> None:
        """End threads where they wait; without any, all of them."""
        while found := [p for p in self._parked if not threads or p.thread in threads]:
            for each in found:
                each.is_killed = True
                if threading.current_thread() is self._driver:
                    self._run(each)
            if threading.current_thread() is not self._driver:
                return

    def lock(self) -> ManualLock:
        """Return a lock for which threads of this clock wait."""
        return ManualLock(self)

    def thread_class(self) -> type[threading.Thread]:
        """Return a class of threads whose time is this clock's, to stand in `threading.Thread`."""
        clock = self

        class ClockThread(_THREAD):
            """A thread that runs when the clock lets it."""

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

    # How turns are taken.

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
        """Move the time to each next moment at which something is due, up to one."""
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
        """Let threads run, one after the other, until all of them wait for later."""
        while due := next((each for each in self._parked if self._is_due(each)), None):
            self._run(due)

    def _is_due(self, parked: _Parked) -> bool:
        is_over = parked.until_ns <= self._elapsed_ns or parked.is_killed
        return is_over or bool(parked.is_ready())

    def _run(self, parked: _Parked) -> None:
        """Let a thread run until it waits again, or ends."""
        with self._turn:
            self._parked.remove(parked)
            self._running, parked.is_released = parked.thread, True
            self._turn.notify_all()
            if not self._turn.wait_for(lambda: self._running is None, _HANG_S):
                pytest.fail(f"{parked.thread.name} waits for something else than the clock")


_THREAD = threading.Thread
