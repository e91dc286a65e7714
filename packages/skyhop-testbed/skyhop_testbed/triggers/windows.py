"""Past values of a trigger's fields: the last updates of each, and the values in each window.

Sums are exact (integers in units of the smallest float), so that a mean does not depend on values
that have left the window. Minimum and maximum are kept in monotonic queues, percentiles in a sorted
list.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from skyhop.expressions.tree import Node, walk
from skyhop.telemetry.fields import Field
from skyhop_testbed.triggers.tree import Window, WindowFunction

_SMALLEST = 1 << 1074
"""Reciprocal of the smallest positive float; every float is a multiple of 1 / 2^1074."""
_STORED_UPDATES = 6
"""Number of updates that each field keeps: the current one and F_1 to F_5."""


def minimum_count(window: Window, period_ns: int) -> int:
    """Return the smallest number of values in a window for which its functions are not null.

    A window of updates must be full. A window of time must have half of the values that the field's
    period implies.
    """
    if window.span_ns is None:
        return window.updates or 1
    return max(1, math.ceil(window.span_ns / (2 * period_ns)))


@dataclass
class WindowValues:
    """Values in one window, oldest first, with the statistics that functions need."""

    window: Window
    is_sorted: bool = False
    """Whether to keep a sorted list of the values, for percentiles."""
    _all: deque[tuple[int, float]] = field(default_factory=deque)
    _sum: int = 0
    _least: deque[tuple[int, float]] = field(default_factory=deque)
    _most: deque[tuple[int, float]] = field(default_factory=deque)
    _in_order: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._all)

    def add(self, time_ns: int, value: float) -> None:
        """Add an update; if the window is full, drop the oldest one."""
        one = (time_ns, value)
        self._all.append(one)
        self._sum += _exact(value)
        while self._least and self._least[-1][1] >= value:
            self._least.pop()
        self._least.append(one)
        while self._most and self._most[-1][1] <= value:
            self._most.pop()
        self._most.append(one)
        if self.is_sorted:
            insort(self._in_order, value)
        if self.window.updates is not None and len(self._all) > self.window.updates:
            self._drop()

    def drop_until(self, until_ns: int) -> None:
        """Drop the values up to the time `until_ns`, inclusive."""
        while self._all and self._all[0][0] <= until_ns:
            self._drop()

    def _drop(self) -> None:
        one = self._all.popleft()
        self._sum -= _exact(one[1])
        for queue in (self._least, self._most):
            if queue[0] is one:
                queue.popleft()
        if self.is_sorted:
            del self._in_order[bisect_left(self._in_order, one[1])]

    @property
    def oldest(self) -> float:
        """Oldest value in the window."""
        return self._all[0][1]

    @property
    def least(self) -> float:
        """Minimum of the values."""
        return self._least[0][1]

    @property
    def most(self) -> float:
        """Maximum of the values."""
        return self._most[0][1]

    @property
    def total(self) -> int:
        """Sum of the values; if all are 0 or 1, the number of ones."""
        return self._sum // _SMALLEST

    @property
    def mean(self) -> float:
        """Mean of the values: an exact sum, rounded only once."""
        return self._sum / (len(self._all) * _SMALLEST)

    def percentile(self, percent: float) -> float:
        """Return a percentile, linearly interpolated between two values."""
        place = (len(self._in_order) - 1) * percent / 100
        low = math.floor(place)
        high = min(low + 1, len(self._in_order) - 1)
        below, above = self._in_order[low], self._in_order[high]
        return below if place == low else below + (above - below) * (place - low)


def _exact(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator * (_SMALLEST // denominator)


@dataclass
class FieldHistory:
    """Past values of one field, as many as a trigger needs."""

    used: Field
    longest_ns: int
    """Length of the longest window of time, in ns."""
    longest_updates: int
    """Number of updates in the longest window of updates."""
    windows: dict[Window, WindowValues]
    before: dict[Window, WindowValues]
    """Windows of `before_avg`, which end just before the current value."""
    history: deque[tuple[int, float | str]] = field(default_factory=deque)
    """Updates (time in ns, value) that windows and F_1 to F_5 need, oldest first."""

    @classmethod
    def of(cls, used: Field, tree: Node) -> FieldHistory:
        """Return an empty history with the windows that a tree has for a field."""
        overs = [
            part for part in walk(tree) if isinstance(part, WindowFunction) and part.field == used
        ]
        sizes = [part.window for part in overs]
        windows, before = (
            {
                window: WindowValues(window, is_sorted=_needs_sorting(overs, window))
                for window in {o.window for o in overs if (o.function == "before_avg") == lagging}
            }
            for lagging in (False, True)
        )
        return cls(
            used,
            max([0, *(w.span_ns for w in sizes if w.span_ns is not None)]),
            max([_STORED_UPDATES, *(w.updates + 1 for w in sizes if w.updates is not None)]),
            windows,
            before,
        )

    @property
    def period_ns(self) -> int:
        """Period of the field's updates in ns."""
        return round(self.used.period_s * 1e9)

    @property
    def last(self) -> tuple[int, float | str] | None:
        """Last update: time in ns and value."""
        return self.history[-1] if self.history else None

    def add(self, time_ns: int, value: float | str) -> None:
        """Add an update to the history and the windows; texts count as 0 in windows."""
        if self.history:
            then, previous = self.history[-1]
            for window, values in self.before.items():
                values.add(then, _as_number(previous))
                if window.span_ns is not None:
                    # The window is [t - span, t), so an update exactly at its beginning belongs to
                    # it.
                    values.drop_until(time_ns - window.span_ns - 1)
        self.history.append((time_ns, value))
        for values in self.windows.values():
            values.add(time_ns, _as_number(value))
        self.advance(time_ns)

    def advance(self, now_ns: int) -> None:
        """Drop values that have left all windows."""
        for window, values in self.windows.items():
            if window.span_ns is not None:
                values.drop_until(now_ns - window.span_ns)
        last_ns = self.history[-1][0] if self.history else now_ns
        limit_ns = last_ns - self.longest_ns
        while len(self.history) > self.longest_updates and self.history[0][0] < limit_ns:
            self.history.popleft()

    def as_json(self) -> list[list[int | float | str]]:
        """Return the history in JSON form."""
        return [[time_ns, value] for time_ns, value in self.history]

    def restore(self, history: Iterable[tuple[int, float | str]], now_ns: int) -> None:
        """Add a history that `as_json` returned; `now_ns` is the time of the last evaluation."""
        for time_ns, value in history:
            self.add(time_ns, value)
        self.advance(now_ns)


def _needs_sorting(overs: list[WindowFunction], window: Window) -> bool:
    return any(o.window == window and o.function in ("median", "p") for o in overs)


def _as_number(value: float | str) -> float:
    return 0.0 if isinstance(value, str) else float(value)
