"""Conflicts between jobs.

Two jobs conflict if both are overhead, share a node (as client or server), and an occurrence a of
one and b of the other overlap: a.start < b.end and b.start < a.end. Intervals that only touch do
not conflict. The comparison covers four years, starting when both jobs are valid. A cron job with
gaps shorter than its length conflicts with itself. Kernel requests change only the run's own
namespace, so they cause no conflict.

A job with several clients and one server would occupy the server with as many runs at once; it is
refused if it is overhead at fixed times. Triggers fire independently on each client, and the server
may then be free or busy.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skyhop.errors import InputError
from skyhop_testbed.calendar.occurrences import (
    HORIZON_NS,
    Booking,
    Interval,
    Plan,
    may_meet,
    occurrences,
    starts,
    validity,
    why_never,
)
from skyhop_testbed.words import JobKind

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_OCCURRENCES = 1_000_000
"""Upper limit on a job's occurrences in the compared time; a job with more is refused."""
DEFAULT_LIMIT = 100
"""Default upper limit on listed conflicts; the total counts all of them."""


@dataclass(frozen=True, order=True)
class Conflict:
    """Two overlapping occurrences that need the same nodes."""

    mine: Interval
    """Occurrence of the checked job."""
    theirs: Interval
    other: str
    """Key of the other job; the checked job's own key if it conflicts with itself."""
    run: str
    """Id of the other job's run; "" for an occurrence that has no run yet."""
    nodes: tuple[str, ...]
    """Nodes that both occurrences need, in alphabetical order."""

    def __str__(self) -> str:
        whose = f"job {self.other}" + (f", run {self.run}" if self.run else "")
        return (
            f"{_text(self.mine)} overlaps {_text(self.theirs)} of {whose} "
            f"on {', '.join(self.nodes)}"
        )


@dataclass(frozen=True)
class Findings:
    """Result of checking a job against the calendar."""

    conflicts: tuple[Conflict, ...]
    """Earliest conflicts, at most `limit` of `check`."""
    total: int
    """Number of all conflicts."""
    first: Interval | None
    """Next occurrence of the job, or its trigger's window; `None` if none is left."""

    def raise_if_conflicting(self) -> None:
        """Raise an error if the job has conflicts.

        Raises:
            InputError: there are conflicts; the message names the first.
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
    limit: int = DEFAULT_LIMIT,
) -> Findings:
    """Find the conflicts of a job with other jobs, with runs, and with itself.

    Args:
        plan: the job to be accepted, which is not among `others`.
        others: the accepted jobs, of any nodes.
        booked: moved and triggered overhead runs that have not ended.
        now_ns: the time; occurrences that have ended are ignored, those in progress count.
        limit: upper limit on listed conflicts.

    Raises:
        InputError: the job can never run, has more than `MOST_OCCURRENCES` occurrences, puts
            several overhead runs on one server at a time, or its cron line is wrong.
    """
    never = why_never(plan.job, max(plan.submitted_ns, now_ns))
    if never is not None:
        raise InputError(f"job {plan.job.id} would never run: {never}")
    _refuse_crowded_server(plan)
    if not plan.reserves:
        # A trigger's window that is open now began in the past.
        from_ns = 0 if plan.job.when.kind is JobKind.TRIGGER else now_ns
        times = occurrences(plan.job, from_ns, 2**63 - 1, submitted_ns=plan.submitted_ns)
        return Findings((), 0, next(times, None))
    begin_ns = max(now_ns, validity(plan.job, plan.submitted_ns).start_ns)
    mine = _Times.of(plan, begin_ns)
    found = _ConflictCollector(limit)
    mine.add_self_overlaps(found)
    for other in others:
        shared = plan.nodes & other.nodes if other.reserves else frozenset()
        if shared and may_meet(plan, other):
            both_ns = max(begin_ns, validity(other.job, other.submitted_ns).start_ns)
            then = mine if both_ns == begin_ns else _Times.of(plan, both_ns)
            then.add_overlaps(_Times.of(other, both_ns), shared, found)
    for booking in booked:
        shared = plan.nodes & booking.nodes
        if shared and booking.end_ns > now_ns:
            is_near = booking.end_ns <= begin_ns + HORIZON_NS
            then = mine if is_near else _Times.of(plan, max(begin_ns, booking.start_ns))
            then.add_booking_overlaps(booking, shared, found)
    first = next(iter(mine.intervals(0, 1)), None)
    return Findings(tuple(sorted(found.conflicts)[:limit]), found.total, first)


def _refuse_crowded_server(plan: Plan) -> None:
    if plan.reserves and plan.job.server is not None and len(plan.job.nodes) > 1:
        raise InputError(
            f"job {plan.job.id}: {len(plan.job.nodes)} overhead runs at a time on the server "
            f"{plan.job.server}: submit a job per node, at different times, or set overhead = false"
        )


class _ConflictCollector:
    """Collector of conflicts: counts all, and keeps the first ones of each pair of jobs."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self.conflicts: list[Conflict] = []

    def add(self, total: int, first: Iterator[Conflict]) -> None:
        """Add `total` conflicts of a pair of jobs.

        Keep the first of them, which are in order of time.
        """
        self.total += total
        self.conflicts += [one for one, _ in zip(first, range(self.limit), strict=False)]
        if len(self.conflicts) > 100 * max(1, self.limit):
            self.conflicts = sorted(self.conflicts)[: self.limit]


@dataclass(frozen=True)
class _Times:
    """Occurrences of a plan in the four years that are compared."""

    plan: Plan
    starts: NDArray[np.int64]
    """Ascending start times in ns; all occurrences have the same length."""
    length_ns: int

    @staticmethod
    def of(plan: Plan, begin_ns: int) -> _Times:
        import numpy as np

        length = plan.length_ns
        # An occurrence that began earlier and is still in progress occupies its nodes too.
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
        """Yield the occurrences with indices in [low, high)."""
        for start in self.starts[low:high].tolist():
            yield Interval(start, start + self.length_ns)

    def add_self_overlaps(self, found: _ConflictCollector) -> None:
        """Find occurrences that begin before an earlier one of the same plan has ended."""
        import numpy as np

        index = np.arange(len(self.starts))
        until = np.searchsorted(self.starts, self.starts + self.length_ns, "left")
        counts = until - index - 1
        if counts.any():
            low, high = index + 1, until
            pairs = self._pairs(self, low, high, self.plan.nodes)
            found.add(int(counts.sum()), pairs)

    def add_overlaps(
        self, other: _Times, shared: frozenset[str], found: _ConflictCollector
    ) -> None:
        """Find overlaps with the occurrences of another plan."""
        import numpy as np

        if not len(self.starts) or not len(other.starts):
            return
        # Occurrences overlap if mine.start - their length < their start < mine.end.
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

    def add_booking_overlaps(
        self, booking: Booking, shared: frozenset[str], found: _ConflictCollector
    ) -> None:
        """Find the occurrences that overlap with a booking."""
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
    """Return an interval as text, such as "2026-12-01 10:00 to 10:30 UTC"."""
    begin, end = (
        dt.datetime.fromtimestamp(ns // 1_000_000_000, dt.UTC)
        for ns in (interval.start_ns, interval.end_ns)
    )
    form = "%H:%M" if begin.second == end.second == 0 else "%H:%M:%S"
    day = "" if end.date() == begin.date() else "%Y-%m-%d "
    return f"{begin.strftime('%Y-%m-%d ' + form)} to {end.strftime(day + form)} UTC"
