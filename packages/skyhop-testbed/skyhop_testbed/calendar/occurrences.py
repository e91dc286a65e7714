"""Occurrences of a job: the times of a cron line, a single time, or its trigger's window.

Cron lines have the syntax of cronsim (five fields, as in Debian's cron), in UTC. The days that a
line matches are computed and cached per year; the times within a day are the same on all matching
days.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from skyhop.errors import InputError
from skyhop_testbed.job import Job
from skyhop_testbed.words import JobKind

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_S_NS = 1_000_000_000
_DAY_NS = 86_400 * _S_NS
_EPOCH = dt.date(1970, 1, 1).toordinal()
_LAST_NS = 2**63 - 1
"""Last time that a job file can name, in ns: in the year 2262."""
_CRON_FIELDS = 5

HORIZON_NS = 1461 * _DAY_NS
"""Time in ns over which jobs without an end are compared: four years with a leap day."""


@dataclass(frozen=True, order=True, slots=True)
class Interval:
    """Half-open interval of time: [start_ns, end_ns)."""

    start_ns: int
    end_ns: int

    def overlaps(self, other: Interval) -> bool:
        """Return whether the two intervals overlap."""
        return self.start_ns < other.end_ns and other.start_ns < self.end_ns


@dataclass(frozen=True, slots=True)
class Booking:
    """Reservation of nodes for a time range, by an occurrence, a moved run or a triggered run."""

    job: str
    run: str
    """Id of the run; "" for an occurrence that has no run yet."""
    nodes: frozenset[str]
    """Client and server of the run."""
    start_ns: int
    end_ns: int

    @property
    def interval(self) -> Interval:
        """Time of the booking, [start_ns, end_ns)."""
        return Interval(self.start_ns, self.end_ns)


@dataclass(frozen=True)
class Plan:
    """Job in the calendar, without its occurrences that were moved or have ended."""

    key: str
    """Name of the job in bookings and conflicts, unique among all users' jobs."""
    job: Job
    submitted_ns: int
    gone: frozenset[int] = frozenset()
    """Starts of occurrences that were moved or have ended; their nodes are free, or reserved by a
    separate `Booking`."""

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes that an occurrence needs: all clients, with a run each, and the server."""
        server = [self.job.server] if self.job.server is not None else []
        return frozenset([*self.job.nodes, *server])

    @property
    def length_ns(self) -> int:
        """Time in ns for which a run occupies its nodes."""
        return self.job.length_ns

    @property
    def reserves(self) -> bool:
        """Whether the job reserves nodes: it is overhead, and its times are known.

        A job with a trigger reserves nothing; a run that the trigger starts becomes a `Booking` at
        its start.
        """
        return self.job.overhead and self.job.when.kind is not JobKind.TRIGGER


def validity(job: Job, submitted_ns: int) -> Interval:
    """Return the interval in which the job may run.

    It begins at the submission or later. Without an end it lasts until 2262.
    """
    start_ns = max(job.when.start or 0, submitted_ns)
    return Interval(start_ns, _LAST_NS if job.when.end is None else job.when.end)


def occurrences(job: Job, from_ns: int, to_ns: int, *, submitted_ns: int) -> Iterator[Interval]:
    """Yield the job's occurrences that begin in [from_ns, to_ns), in order.

    To include occurrences in progress at `from_ns`, callers subtract a run's length. For cron and
    at, [start, start + length) lies within the job's start and end. An `at` in the past, or "now",
    begins at the submission; the caller checks whether the nodes are free then. A trigger has one
    interval, its window, which reserves nothing.

    Raises:
        InputError: the cron line is wrong.
    """
    valid, length = validity(job, submitted_ns), job.length_ns
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
    """Return the starts of a cron or at job's occurrences in [from_ns, to_ns), as an array.

    Callers that compare many occurrences use it instead of `occurrences`.

    Raises:
        InputError: the cron line is wrong, or there are more than `most` occurrences.
    """
    import numpy as np

    if job.when.kind is not JobKind.CRON:
        found = occurrences(job, from_ns, to_ns, submitted_ns=submitted_ns)
        return np.array([interval.start_ns for interval in found], np.int64)
    valid = validity(job, submitted_ns)
    first = max(from_ns, valid.start_ns)
    last = min(to_ns - 1, valid.end_ns - job.length_ns)
    return _Cron.of(job.when.cron or "").array(first, last, most)


def may_meet(one: Plan, other: Plan) -> bool:
    """Return whether two plans overlap at some time of day, on whichever days they take place.

    If not, they never overlap: the times within a day are the same on all days of a plan. That
    decides most pairs of jobs with a few comparisons instead of years of occurrences.

    Raises:
        InputError: a cron line is wrong.
    """
    import numpy as np

    if one.length_ns + other.length_ns >= _DAY_NS:
        return True
    mine, theirs = (np.array(_times_of_day(each), np.int64) for each in (one, other))
    around = np.concatenate([theirs - _DAY_NS, theirs, theirs + _DAY_NS])
    low = np.searchsorted(around, mine - other.length_ns, "right")
    high = np.searchsorted(around, mine + one.length_ns, "left")
    return bool((high > low).any())


def _times_of_day(plan: Plan) -> tuple[int, ...]:
    """Return the starts of a plan's occurrences as ns after midnight, ascending."""
    when = plan.job.when
    if when.kind is JobKind.CRON:
        return _Cron.of(when.cron or "").offsets_ns
    return (_at(plan.job, plan.submitted_ns) % _DAY_NS,)


def bookings_of(plan: Plan, from_ns: int, to_ns: int) -> Iterator[Booking]:
    """Yield the bookings of the plan's occurrences that begin in [from_ns, to_ns), in order.

    Raises:
        InputError: the cron line is wrong.
    """
    if not plan.reserves:
        return
    nodes = plan.nodes
    for one in occurrences(plan.job, from_ns, to_ns, submitted_ns=plan.submitted_ns):
        if one.start_ns not in plan.gone:
            yield Booking(plan.key, "", nodes, one.start_ns, one.end_ns)


def why_never(job: Job, submitted_ns: int) -> str | None:
    """Return why the job would never run; `None` if it has at least one occurrence.

    Raises:
        InputError: the cron line is wrong.
    """
    valid = validity(job, submitted_ns)
    if valid.start_ns + job.length_ns > valid.end_ns:
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
    """Parsed cron line: the days that it matches, and its times on each of these days."""

    days: str
    """Last three fields of the line: day of month, month, day of week."""
    offsets_ns: tuple[int, ...]
    """Times of day as ns after midnight, ascending."""

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(line: str) -> _Cron:
        """Parse a cron line.

        Raises:
            InputError: the line is wrong; the message names the field.
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
            raise InputError(f'cron: "{line}": its {said} is wrong; times are UTC') from None
        minutes = sorted(60 * hour + minute for hour in cron.hours for minute in cron.minutes)
        return _Cron(" ".join(fields[2:]), tuple(60 * _S_NS * minute for minute in minutes))

    def between(self, first_ns: int, last_ns: int) -> Iterator[int]:
        """Yield the line's times in [first_ns, last_ns], in order."""
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
        """Return the times of `between` as an array.

        Raises:
            InputError: there are more than `most` times.
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
    """Return the days of a year that the fields match, as days since 1970-01-01."""
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
