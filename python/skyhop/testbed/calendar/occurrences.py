"""When a job runs: a cron line's times, one time, or the window in which its trigger is armed.

Cron lines are cronsim's (five fields, as Debian's cron reads them), in UTC. Which days one takes
is asked once a year and kept; the times of a day are the same on all of them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from skyhop.errors import InputError
from skyhop.testbed.job import Job
from skyhop.testbed.words import JobKind

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_S_NS = 1_000_000_000
_DAY_NS = 86_400 * _S_NS
_EPOCH = dt.date(1970, 1, 1).toordinal()
_LAST_NS = 2**63 - 1
"""The last instant that a job file can name, in the year 2262."""
_CRON_FIELDS = 5

HORIZON_NS = 1461 * _DAY_NS
"""How far ahead jobs without an end are compared: four years, a leap day among them."""


@dataclass(frozen=True, order=True, slots=True)
class Interval:
    """A half-open time: `start_ns` belongs to it, `end_ns` does not."""

    start_ns: int
    end_ns: int

    def meets(self, other: Interval) -> bool:
        """Return whether the two have an instant in common."""
        return self.start_ns < other.end_ns and other.start_ns < self.end_ns


@dataclass(frozen=True, slots=True)
class Booking:
    """Nodes that one run has for a time: an occurrence, a moved run, one that was triggered."""

    job: str
    run: str
    """Its id; "" where it is an occurrence that has none yet."""
    nodes: frozenset[str]
    """Its client and its server."""
    start_ns: int
    end_ns: int

    @property
    def interval(self) -> Interval:
        """When it is."""
        return Interval(self.start_ns, self.end_ns)


@dataclass(frozen=True)
class Plan:
    """A job that was accepted or shall be, and which of its occurrences no longer count."""

    key: str
    """What bookings and conflicts call it: unique among all users' jobs."""
    job: Job
    submitted_ns: int
    gone: frozenset[int] = frozenset()
    """Starts of occurrences that were moved or have ended: their nodes are free, or booked by
    a `Booking` of its own."""

    @property
    def nodes(self) -> frozenset[str]:
        """All nodes of an occurrence: a run on each client, all at once, and the server."""
        server = [self.job.server] if self.job.server is not None else []
        return frozenset([*self.job.nodes, *server])

    @property
    def length_ns(self) -> int:
        """How long its runs have the nodes."""
        return length_ns(self.job)

    @property
    def reserves(self) -> bool:
        """Whether it has nodes for itself: overhead at known times.

        A trigger reserves nothing: what it starts is a `Booking` when it starts.
        """
        return self.job.overhead and self.job.when.kind is not JobKind.TRIGGER


def length_ns(job: Job) -> int:
    """Return how long a run of the job has its nodes, in ns, at least 1."""
    return max(1, round(job.length_s * _S_NS))


def validity(job: Job, submitted_ns: int) -> Interval:
    """Return from when to when the job may have its nodes.

    Nothing runs before it was submitted; a job without an end has until 2262.
    """
    start_ns = max(job.when.start or 0, submitted_ns)
    return Interval(start_ns, _LAST_NS if job.when.end is None else job.when.end)


def occurrences(job: Job, from_ns: int, to_ns: int, *, submitted_ns: int) -> Iterator[Interval]:
    """Yield the job's occurrences that begin in [from_ns, to_ns), in order.

    Who wants those that are under way at `from_ns` too begins a length earlier. Of cron and at,
    [start, start + length) lies within the job's start and end. An `at` that has passed, or
    "now", begins when the job was submitted: whether the nodes are free then is the caller's
    matter. A trigger has one interval, its window, which reserves nothing.

    Raises:
        InputError: the cron line is none.
    """
    valid, length = validity(job, submitted_ns), length_ns(job)
    if job.when.kind is JobKind.TRIGGER:
        if from_ns <= valid.start_ns < to_ns and valid.start_ns + length <= valid.end_ns:
            yield valid
        return
    first, last = max(from_ns, valid.start_ns), min(to_ns - 1, valid.end_ns - length)
    if job.when.kind is JobKind.AT:
        start_ns = _at(job, submitted_ns)
        if first <= start_ns <= last:
            yield Interval(start_ns, start_ns + length)
        return
    for start_ns in _Cron.of(job.when.cron or "").between(first, last):
        yield Interval(start_ns, start_ns + length)


def starts(
    job: Job, from_ns: int, to_ns: int, *, submitted_ns: int, most: int
) -> NDArray[np.int64]:
    """Return when a cron or at job's occurrences in [from_ns, to_ns) begin.

    These are the starts of `occurrences` as an array, for those who compare many.

    Raises:
        InputError: the cron line is none, or there are more than `most`.
    """
    import numpy as np

    if job.when.kind is not JobKind.CRON:
        found = occurrences(job, from_ns, to_ns, submitted_ns=submitted_ns)
        return np.array([interval.start_ns for interval in found], np.int64)
    valid = validity(job, submitted_ns)
    first = max(from_ns, valid.start_ns)
    last = min(to_ns - 1, valid.end_ns - length_ns(job))
    return _Cron.of(job.when.cron or "").array(first, last, most)


def bookings_of(plan: Plan, from_ns: int, to_ns: int) -> Iterator[Booking]:
    """Yield what the plan's occurrences that begin in [from_ns, to_ns) book, in order.

    Raises:
        InputError: the cron line is none.
    """
    if not plan.reserves:
        return
    nodes = plan.nodes
    for one in occurrences(plan.job, from_ns, to_ns, submitted_ns=plan.submitted_ns):
        if one.start_ns not in plan.gone:
            yield Booking(plan.key, "", nodes, one.start_ns, one.end_ns)


def why_never(job: Job, submitted_ns: int) -> str | None:
    """Return why the job would never run, None where it has an occurrence.

    Raises:
        InputError: the cron line is none.
    """
    valid = validity(job, submitted_ns)
    if valid.start_ns + length_ns(job) > valid.end_ns:
        return "its length does not fit between its start, or now, and its end"
    if next(occurrences(job, 0, _LAST_NS, submitted_ns=submitted_ns), None) is not None:
        return None
    if job.when.kind is JobKind.AT:
        return '"at" and its length are not within its start and end'
    return f'no time of "{job.when.cron}" and its length are within its start and end'


def _at(job: Job, submitted_ns: int) -> int:
    at = job.when.at
    return submitted_ns if at is None or at == "now" else max(at, submitted_ns)


@dataclass(frozen=True)
class _Cron:
    """A cron line, taken apart: which days it takes, and when on each of them."""

    days: str
    """Its last three fields: day of month, month, day of week."""
    offsets_ns: tuple[int, ...]
    """Its times after midnight, in order."""

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(line: str) -> _Cron:
        """Read a cron line.

        Raises:
            InputError: it is none.
        """
        from cronsim import CronSim, CronSimError

        fields = line.split()
        if len(fields) != _CRON_FIELDS:
            raise InputError(
                f'cron: "{line}" has {len(fields)} fields, not five: minute, hour, day of month, '
                'month, day of week, such as "30 */6 * * *"'
            )
        try:
            cron = CronSim(line, dt.datetime(1970, 1, 1, tzinfo=dt.UTC))
        except (CronSimError, ValueError) as error:
            said = str(error).removeprefix("Bad ")
            raise InputError(f'cron: "{line}": its {said} is none; times are UTC') from None
        minutes = sorted(60 * hour + minute for hour in cron.hours for minute in cron.minutes)
        return _Cron(" ".join(fields[2:]), tuple(60 * _S_NS * minute for minute in minutes))

    def between(self, first_ns: int, last_ns: int) -> Iterator[int]:
        """Yield its times from the first to the last instant, both included."""
        if last_ns < first_ns:
            return
        for year in range(_year(first_ns), _year(last_ns) + 1):
            for day in _days_of(self.days, year):
                begin = day * _DAY_NS
                if begin + _DAY_NS <= first_ns:
                    continue
                if begin > last_ns:
                    return
                for offset in self.offsets_ns:
                    if first_ns <= begin + offset <= last_ns:
                        yield begin + offset

    def array(self, first_ns: int, last_ns: int, most: int) -> NDArray[np.int64]:
        """Return `between` as an array.

        Raises:
            InputError: there are more than `most`.
        """
        import numpy as np

        if last_ns < first_ns:
            return np.empty(0, np.int64)
        years = range(_year(first_ns), _year(last_ns) + 1)
        days = np.concatenate([_day_array(self.days, year) for year in years])
        days = days[(days >= first_ns // _DAY_NS) & (days <= last_ns // _DAY_NS)]
        if max(0, len(days) - 2) * len(self.offsets_ns) > most:
            raise InputError(f"more than {most:,} occurrences: give an earlier end")
        times = (days[:, None] * _DAY_NS + np.array(self.offsets_ns, np.int64)).ravel()
        times = times[(times >= first_ns) & (times <= last_ns)]
        if len(times) > most:
            raise InputError(f"more than {most:,} occurrences: give an earlier end")
        return times


def _year(instant_ns: int) -> int:
    return dt.date.fromordinal(_EPOCH + instant_ns // _DAY_NS).year


@lru_cache(maxsize=8192)
def _days_of(fields: str, year: int) -> tuple[int, ...]:
    """Return the days of a year that the fields take, counted from 1970."""
    from cronsim import CronSim

    cron = CronSim(f"0 0 {fields}", dt.datetime(1970, 1, 1, tzinfo=dt.UTC))
    first = dt.date(year, 1, 1).toordinal()
    dates = (dt.date.fromordinal(n) for n in range(first, dt.date(year, 12, 31).toordinal() + 1))
    taken = (date for date in dates if date.month in cron.months and cron.match_day(date))
    return tuple(date.toordinal() - _EPOCH for date in taken)


@lru_cache(maxsize=8192)
def _day_array(fields: str, year: int) -> NDArray[np.int64]:
    import numpy as np

    return np.array(_days_of(fields, year), np.int64)
