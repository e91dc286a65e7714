"""What a trigger keeps of the past: of each field its last updates, of each window its own values.

Sums are exact (integers of the smallest float), so that a mean does not depend on what has passed
through the window; the least and largest are monotonic queues, percentiles a sorted list.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from skyhop.telemetry.fields import Field
from skyhop.testbed.triggers.tree import Node, Over, Window, walk

_SMALLEST = 1 << 1074
"""Every float is a multiple of 1 / 2^1074."""
_KEPT = 6
"""Updates that each field keeps: the current one and F_1 to F_5."""


def least_count(window: Window, period_ns: int) -> int:
    """Return how many values a window has to have to be known.

    In updates all of them; in time half of those that the field's period would give.
    """
    if window.span_ns is None:
        return window.updates or 1
    return max(1, math.ceil(window.span_ns / (2 * period_ns)))


@dataclass
class Values:
    """The values in one window, oldest first, and what functions ask of them."""

    window: Window
    is_sorted: bool = False
    """Whether percentiles are asked for."""
    _all: deque[tuple[int, float]] = field(default_factory=deque)
    _sum: int = 0
    _least: deque[tuple[int, float]] = field(default_factory=deque)
    _most: deque[tuple[int, float]] = field(default_factory=deque)
    _in_order: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._all)

    def add(self, time_ns: int, value: float) -> None:
        """Take an update in."""
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

    def forget(self, until_ns: int) -> None:
        """Drop what is not later than this."""
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
        """The first of the values."""
        return self._all[0][1]

    @property
    def least(self) -> float:
        """The least of the values."""
        return self._least[0][1]

    @property
    def most(self) -> float:
        """The largest of the values."""
        return self._most[0][1]

    @property
    def total(self) -> int:
        """How many of the values are not 0 where all are 0 or 1."""
        return self._sum // _SMALLEST

    @property
    def mean(self) -> float:
        """The mean, rounded once."""
        return self._sum / (len(self._all) * _SMALLEST)

    def percentile(self, percent: float) -> float:
        """Return the percentile, between two values in proportion."""
        place = (len(self._in_order) - 1) * percent / 100
        low = math.floor(place)
        high = min(low + 1, len(self._in_order) - 1)
        below, above = self._in_order[low], self._in_order[high]
        return below if place == low else below + (above - below) * (place - low)


def _exact(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator * (_SMALLEST // denominator)


@dataclass
class Past:
    """What a trigger keeps of one field."""

    used: Field
    longest_ns: int
    """Of its windows in time."""
    longest_updates: int
    """Of its windows in updates."""
    windows: dict[Window, Values]
    before: dict[Window, Values]
    """Windows that end before the current value."""
    history: deque[tuple[int, float | str]] = field(default_factory=deque)
    """As many updates as windows and F_1 to F_5 need, oldest first."""

    @classmethod
    def of(cls, used: Field, tree: Node) -> Past:
        """Return an empty past for what a tree asks of a field."""
        overs = [part for part in walk(tree) if isinstance(part, Over) and part.field == used]
        sizes = [part.window for part in overs]
        windows, before = (
            {
                window: Values(window, is_sorted=_wants_order(overs, window))
                for window in {o.window for o in overs if (o.function == "before_avg") == lagging}
            }
            for lagging in (False, True)
        )
        return cls(
            used,
            max([0, *(w.span_ns for w in sizes if w.span_ns is not None)]),
            max([_KEPT, *(w.updates + 1 for w in sizes if w.updates is not None)]),
            windows,
            before,
        )

    @property
    def period_ns(self) -> int:
        """How often the field is updated."""
        return round(self.used.period_s * 1e9)

    @property
    def last(self) -> tuple[int, float | str] | None:
        """The last update."""
        return self.history[-1] if self.history else None

    def add(self, time_ns: int, value: float | str) -> None:
        """Take an update in; texts are counted as 0."""
        if self.history:
            then, previous = self.history[-1]
            for window, values in self.before.items():
                values.add(then, _as_number(previous))
                if window.span_ns is not None:
                    # [t - span, t): an update at its beginning still belongs to it.
                    values.forget(time_ns - window.span_ns - 1)
        self.history.append((time_ns, value))
        for values in self.windows.values():
            values.add(time_ns, _as_number(value))
        self.advance(time_ns)

    def advance(self, now_ns: int) -> None:
        """Forget what no window reaches any more."""
        for window, values in self.windows.items():
            if window.span_ns is not None:
                values.forget(now_ns - window.span_ns)
        last_ns = self.history[-1][0] if self.history else now_ns
        limit_ns = last_ns - self.longest_ns
        while len(self.history) > self.longest_updates and self.history[0][0] < limit_ns:
            self.history.popleft()

    def as_json(self) -> list[list[int | float | str]]:
        """Return the history for a file."""
        return [[time_ns, value] for time_ns, value in self.history]

    def fill(self, history: Iterable[tuple[int, float | str]], now_ns: int) -> None:
        """Take in what `as_json` wrote, up to the last evaluation."""
        for time_ns, value in history:
            self.add(time_ns, value)
        self.advance(now_ns)


def _wants_order(overs: list[Over], window: Window) -> bool:
    return any(o.window == window and o.function in ("median", "p") for o in overs)


def _as_number(value: float | str) -> float:
    return 0.0 if isinstance(value, str) else float(value)
