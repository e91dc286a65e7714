"""Which jobs exclude each other.

Two jobs conflict if both are overhead, have a node in common, as client or server, and an
occurrence a of one and b of the other overlap: a.start < b.end and b.start < a.end. Touching is no
conflict. Compared are four years from when both jobs are valid. A cron job whose gaps are shorter
than its length conflicts with itself. Kernel requests change nothing but the run's own namespace,
so that they are no reason of their own.

A job with several clients and a server would be that many runs on the server at one time: it is
refused where its times are fixed and it is overhead. Triggers fire on each client by themselves,
and find the server free or busy then.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skyhop.errors import InputError
from skyhop.testbed.calendar.occurrences import (
    HORIZON_NS,
    Booking,
    Interval,
    Plan,
    occurrences,
    starts,
    validity,
    why_never,
)
from skyhop.testbed.words import JobKind

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_OCCURRENCES = 1_000_000
"""A job that has more in the time that is compared is refused."""
USUAL_LIMIT = 100
"""How many conflicts are listed; all are counted."""


@dataclass(frozen=True, order=True)
class Conflict:
    """Two occurrences that cannot both be."""

    mine: Interval
    """Of the job that is checked."""
    theirs: Interval
    other: str
    """Whose the second is: a job's key, the checked one's own where it meets itself."""
    run: str
    """The run's id, "" of an occurrence."""
    nodes: tuple[str, ...]
    """What both want, in the alphabet's order."""

    def __str__(self) -> str:
        whose = f"job {self.other}" + (f", run {self.run}" if self.run else "")
        return (
            f"{_text(self.mine)} meets {_text(self.theirs)} of {whose} on {', '.join(self.nodes)}"
        )


@dataclass(frozen=True)
class Findings:
    """What a check came to."""

    conflicts: tuple[Conflict, ...]
    """The first of them by time, as many as were asked for."""
    total: int
    """How many there are."""
    first: Interval | None
    """The job's next occurrence, of a trigger its window; None where it has none left."""

    def refuse(self) -> None:
        """Do nothing if there is no conflict.

        Raises:
            InputError: there are; it names the first.
        """
        if self.total:
            more = f", and {self.total - 1:,} more" if self.total > 1 else ""
            raise InputError(
                f"{self.conflicts[0]}{more}: choose other times, other nodes, or ask for the next "
                "free slot (skyhop testbed next)"
            )


def check(
    plan: Plan,
    others: Iterable[Plan],
    booked: Iterable[Booking] = (),
    *,
    now_ns: int,
    limit: int = USUAL_LIMIT,
) -> Findings:
    """Return what stands in a job's way.

    Args:
        plan: the job that shall be accepted; `others` do not hold it.
        others: the jobs that were accepted, of any nodes.
        booked: moved and triggered runs of overhead that have not ended.
        now_ns: nothing before it is looked at, but what is under way is.
        limit: how many conflicts are listed.

    Raises:
        InputError: the job can never run, has more than `MOST_OCCURRENCES` occurrences, is
            several overhead runs on one server at a time, or its cron line is none.
    """
    never = why_never(plan.job, max(plan.submitted_ns, now_ns))
    if never is not None:
        raise InputError(f"job {plan.job.id} would never run: {never}")
    _refuse_crowd(plan)
    if not plan.reserves:
        # A window that is open has begun before now.
        from_ns = 0 if plan.job.when.kind is JobKind.TRIGGER else now_ns
        times = occurrences(plan.job, from_ns, 2**63 - 1, submitted_ns=plan.submitted_ns)
        return Findings((), 0, next(times, None))
    begin_ns = max(now_ns, validity(plan.job, plan.submitted_ns).start_ns)
    mine = _Times.of(plan, begin_ns)
    found = _Found(limit)
    mine.meet_themselves(found)
    for other in others:
        shared = plan.nodes & other.nodes if other.reserves else frozenset()
        if shared:
            both_ns = max(begin_ns, validity(other.job, other.submitted_ns).start_ns)
            then = mine if both_ns == begin_ns else _Times.of(plan, both_ns)
            then.meet(_Times.of(other, both_ns), shared, found)
    for booking in booked:
        shared = plan.nodes & booking.nodes
        if shared and booking.end_ns > now_ns:
            is_near = booking.end_ns <= begin_ns + HORIZON_NS
            then = mine if is_near else _Times.of(plan, max(begin_ns, booking.start_ns))
            then.meet_booking(booking, shared, found)
    first = next(iter(mine.intervals(0, 1)), None)
    return Findings(tuple(sorted(found.conflicts)[:limit]), found.total, first)


def _refuse_crowd(plan: Plan) -> None:
    if plan.reserves and plan.job.server is not None and len(plan.job.nodes) > 1:
        raise InputError(
            f"job {plan.job.id}: {len(plan.job.nodes)} overhead runs at a time on the server "
            f"{plan.job.server}: give a job for each node, at other times, or overhead = false"
        )


class _Found:
    """Conflicts as they are found: all counted, of each pair the first ones kept."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self.conflicts: list[Conflict] = []

    def add(self, total: int, first: Iterator[Conflict]) -> None:
        """Count a pair's conflicts, and keep the first of them, which come in order."""
        self.total += total
        self.conflicts += [one for one, _ in zip(first, range(self.limit), strict=False)]
        if len(self.conflicts) > 100 * max(1, self.limit):
            self.conflicts = sorted(self.conflicts)[: self.limit]


@dataclass(frozen=True)
class _Times:
    """A plan's occurrences in the four years that are compared."""

    plan: Plan
    starts: NDArray[np.int64]
    """In order, of equal length."""
    length_ns: int

    @staticmethod
    def of(plan: Plan, begin_ns: int) -> _Times:
        import numpy as np

        length = plan.length_ns
        # What is under way at the beginning has its nodes.
        begin, end = max(0, begin_ns - length + 1), begin_ns + HORIZON_NS
        try:
            times = starts(
                plan.job, begin, end, submitted_ns=plan.submitted_ns, most=MOST_OCCURRENCES
            )
        except InputError as error:
            raise InputError(f"job {plan.job.id}: {error}") from None
        if plan.gone:
            times = times[~np.isin(times, np.array(sorted(plan.gone), np.int64))]
        return _Times(plan, times, length)

    def intervals(self, low: int, high: int) -> Iterator[Interval]:
        """Yield the occurrences of these indices."""
        for start in self.starts[low:high].tolist():
            yield Interval(start, start + self.length_ns)

    def meet_themselves(self, found: _Found) -> None:
        """Find occurrences that begin before an earlier one has ended."""
        import numpy as np

        index = np.arange(len(self.starts))
        until = np.searchsorted(self.starts, self.starts + self.length_ns, "left")
        counts = until - index - 1
        if counts.any():
            low, high = index + 1, until
            pairs = self._pairs(self, low, high, self.plan.nodes)
            found.add(int(counts.sum()), pairs)

    def meet(self, other: _Times, shared: frozenset[str], found: _Found) -> None:
        """Find what of the other's times overlaps these."""
        import numpy as np

        if not len(self.starts) or not len(other.starts):
            return
        # Of the other's, those overlap that begin after mine less their length, before my end.
        low = np.searchsorted(other.starts, self.starts - other.length_ns, "right")
        high = np.searchsorted(other.starts, self.starts + self.length_ns, "left")
        total = int((high - low).sum())
        if total:
            found.add(total, self._pairs(other, low, high, shared))

    def _pairs(
        self,
        other: _Times,
        low: NDArray[np.int64],
        high: NDArray[np.int64],
        shared: frozenset[str],
    ) -> Iterator[Conflict]:
        nodes = tuple(sorted(shared))
        for i in (high > low).nonzero()[0].tolist():
            (mine,) = self.intervals(i, i + 1)
            for theirs in other.intervals(int(low[i]), int(high[i])):
                yield Conflict(mine, theirs, other.plan.key, "", nodes)

    def meet_booking(self, booking: Booking, shared: frozenset[str], found: _Found) -> None:
        """Find which of these times a booking overlaps."""
        import numpy as np

        low = int(np.searchsorted(self.starts, booking.start_ns - self.length_ns, "right"))
        high = int(np.searchsorted(self.starts, booking.end_ns, "left"))
        nodes = tuple(sorted(shared))
        found.add(
            max(0, high - low),
            (
                Conflict(mine, booking.interval, booking.job, booking.run, nodes)
                for mine in self.intervals(low, high)
            ),
        )


def _text(interval: Interval) -> str:
    """Return an interval for people: "2026-12-01 10:00 to 10:30 UTC"."""
    begin, end = (
        dt.datetime.fromtimestamp(ns // 1_000_000_000, dt.UTC)
        for ns in (interval.start_ns, interval.end_ns)
    )
    form = "%H:%M" if begin.second == end.second == 0 else "%H:%M:%S"
    day = "" if end.date() == begin.date() else "%Y-%m-%d "
    return f"{begin.strftime('%Y-%m-%d ' + form)} to {end.strftime(day + form)} UTC"
