"""Calendar page: reservations of the nodes, and free slots with links to submit a job."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import Response

from skyhop_testbed.calendar import Booking, Interval, Plan, bookings_of, free
from skyhop_testbed.orchestrator import nodes
from skyhop_testbed.orchestrator.planning import bookings
from skyhop_testbed.orchestrator.request_context import RequestContext
from skyhop_testbed.web import queries
from skyhop_testbed.web.page_request import PageRequest

DAYS = 7
_S_NS = 10**9
_MINUTE_NS, _DAY_NS = 60 * _S_NS, 86_400 * _S_NS
_MOST_SLOTS = 12
_AHEAD_DAYS = 1461
LENGTHS_MIN = (1, 5, 10, 30, 60, 240)


@dataclass(frozen=True)
class Slot:
    """Interval in which a node is free."""

    start_ns: int
    end_ns: int

    @property
    def length_s(self) -> float:
        """Length of the slot in seconds."""
        return (self.end_ns - self.start_ns) / _S_NS


@dataclass
class BookedJob:
    """Job with reservations on a day: their number, and the times of the first and the last."""

    name: str
    owner: str
    times: int
    first_ns: int
    last_ns: int


@dataclass(frozen=True)
class Day:
    """One day (UTC) of a node: reservations and free slots."""

    start_ns: int
    bars: Sequence[tuple[float, float]]
    """Reserved intervals: start and length in minutes of the day."""
    past_min: float
    """Minutes of the day that have passed."""
    slots: Sequence[Slot]
    slots_total: int
    free_s: float
    jobs: Sequence[BookedJob]


def show(request: PageRequest) -> Response:
    """Show a week of all nodes, or of one node with its free slots."""
    chosen = request.query("node")
    length_min = request.query_number("length", 5, 1, 31 * 1440)
    with request.reading() as ctx:
        if chosen:
            nodes.get(ctx, chosen)
        names = queries.names_of_nodes(ctx)
        first_ns = _first_day(request.query("from"), ctx.now_ns)
        weeks = {
            name: week(ctx, name, first_ns, length_min * _MINUTE_NS)
            for name in ([chosen] if chosen else names)
        }
        now_ns = ctx.now_ns
    today_ns = now_ns // _DAY_NS * _DAY_NS
    return request.render(
        "calendar.html",
        title=f"Calendar of {chosen}" if chosen else "Calendar",
        chosen=chosen,
        names=names,
        weeks=weeks,
        days=[first_ns + day * _DAY_NS for day in range(DAYS)],
        first=_date_text(first_ns),
        earlier=_date_text(max(first_ns - DAYS * _DAY_NS, today_ns)) if first_ns > today_ns else "",
        later=_date_text(first_ns + DAYS * _DAY_NS),
        length_min=length_min,
        lengths=LENGTHS_MIN,
        named=_date_text,
        weekday=_weekday,
    )


@dataclass(frozen=True)
class _Reservations:
    """Reservations of a node: repeating jobs (plans) and single runs (bookings)."""

    node: str
    plans: Sequence[Plan]
    booked: Sequence[Booking]

    def within(self, begin_ns: int, end_ns: int) -> list[Booking]:
        """Return the bookings that overlap a time range, in order of start."""
        taken = [
            each
            for each in self.booked
            if each.end_ns > begin_ns and each.start_ns < end_ns and self.node in each.nodes
        ]
        for plan in self.plans:
            begun = bookings_of(plan, max(0, begin_ns - plan.length_ns + 1), end_ns)
            taken += [each for each in begun if each.end_ns > begin_ns]
        return sorted(taken, key=lambda each: each.start_ns)

    def free(self, begin_ns: int, end_ns: int, shortest_ns: int) -> list[Slot]:
        """Return the free slots of at least `shortest_ns` in a time range, in order of start."""
        if begin_ns >= end_ns:
            return []
        nodes, interval = frozenset([self.node]), Interval(begin_ns, end_ns)
        found = free(self.plans, self.booked, nodes, interval, shortest_ns=shortest_ns)
        return [Slot(each.start_ns, each.end_ns) for each in found]


def week(ctx: RequestContext, node: str, first_ns: int, shortest_ns: int) -> list[Day]:
    """Return seven days of a node, starting at `first_ns`.

    Args:
        ctx: the request.
        node: name of the node.
        first_ns: beginning of the first day.
        shortest_ns: shortest free slot to show.
    """
    reserved = _Reservations(node, *bookings(ctx, [node]))
    keys = {*(plan.key for plan in reserved.plans), *(each.job for each in reserved.booked)}
    names = queries.names_of_jobs(ctx, keys)
    days = []
    for start_ns in range(first_ns, first_ns + DAYS * _DAY_NS, _DAY_NS):
        end_ns = start_ns + _DAY_NS
        begin_ns = min(max(start_ns, ctx.now_ns), end_ns)
        taken = reserved.within(begin_ns, end_ns)
        slots = reserved.free(begin_ns, end_ns, shortest_ns)
        days.append(
            Day(
                start_ns,
                _bars(taken, start_ns),
                (begin_ns - start_ns) / _MINUTE_NS,
                slots[:_MOST_SLOTS],
                len(slots),
                sum(slot.length_s for slot in slots),
                _by_job(taken, names),
            )
        )
    return days


def _bars(taken: Sequence[Booking], start_ns: int) -> list[tuple[float, float]]:
    """Return bookings as (start, length) in minutes of the day; close ones are merged.

    Bookings less than a minute apart share a bar.
    """
    bars: list[tuple[float, float]] = []
    for each in taken:
        begin = max(0.0, (each.start_ns - start_ns) / _MINUTE_NS)
        end = min(1440.0, (each.end_ns - start_ns) / _MINUTE_NS)
        if bars and begin - sum(bars[-1]) < 1:
            bars[-1] = (bars[-1][0], round(max(sum(bars[-1]), end) - bars[-1][0], 2))
        else:
            bars.append((round(begin, 2), round(max(end - begin, 1), 2)))
    return bars


def _by_job(taken: Sequence[Booking], names: dict[str, tuple[str, str]]) -> list[BookedJob]:
    found: dict[str, BookedJob] = {}
    for each in taken:
        name, owner = names.get(each.job, ("", ""))
        row = found.setdefault(each.job, BookedJob(name, owner, 0, each.start_ns, each.end_ns))
        row.times += 1
        row.last_ns = each.end_ns
    return list(found.values())


def _first_day(text: str, now_ns: int) -> int:
    """Return the beginning of a day in ns; today if the text is no date or a past one."""
    today_ns = now_ns // _DAY_NS * _DAY_NS
    try:
        day = dt.datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=dt.UTC)
    except ValueError:
        return today_ns
    start_ns = round(day.timestamp()) * _S_NS
    return min(max(start_ns, today_ns), today_ns + _AHEAD_DAYS * _DAY_NS)


def _date_text(day_ns: int) -> str:
    return dt.datetime.fromtimestamp(day_ns // _S_NS, dt.UTC).strftime("%Y-%m-%d")


def _weekday(day_ns: int) -> str:
    return dt.datetime.fromtimestamp(day_ns // _S_NS, dt.UTC).strftime("%a %d %b")
