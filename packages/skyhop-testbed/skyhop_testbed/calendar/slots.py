"""Free slots of nodes, and the booking that occupies a time.

Callers pass the accepted jobs (`Plan`), and the runs whose times differ from their job's
occurrences (`Booking`: moved or triggered runs). Only overhead runs reserve nodes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from skyhop_testbed.calendar.occurrences import HORIZON_NS, Booking, Interval, Plan, bookings_of


def nearest_slot(
    plans: Iterable[Plan],
    booked: Iterable[Booking],
    nodes: frozenset[str],
    *,
    length_ns: int,
    from_ns: int,
    end_ns: int | None = None,
) -> int | None:
    """Return the earliest start, at `from_ns` or later, at which all nodes are free for the length.

    Args:
        plans: the accepted jobs, including a moved run's own job if it has other occurrences.
        booked: runs that occupy nodes at other times than their job's occurrences.
        nodes: the client and the server.
        length_ns: length of the run.
        from_ns: earliest start.
        end_ns: latest end of the run; the job's own end.

    Returns:
        The start in ns; `None` if no slot is free before the end, or within four years.
    """
    limit_ns = from_ns + HORIZON_NS if end_ns is None else end_ns
    start_ns = from_ns
    for booking in _overlapping(plans, booked, nodes, from_ns, limit_ns):
        if booking.start_ns >= start_ns + length_ns:
            break
        start_ns = max(start_ns, booking.end_ns)
        if start_ns + length_ns > limit_ns:
            break
    return start_ns if start_ns + length_ns <= limit_ns else None


def first_overlap(
    plans: Iterable[Plan],
    booked: Iterable[Booking],
    nodes: frozenset[str],
    interval: Interval,
) -> Booking | None:
    """Return the first booking of any of the nodes that overlaps an interval; `None` if free.

    Agents call it before a triggered run starts, to know whether the run ends before the next
    reservation.
    """
    overlapping = _overlapping(plans, booked, nodes, interval.start_ns, interval.end_ns)
    return next((one for one in overlapping if one.interval.overlaps(interval)), None)


def free(
    plans: Iterable[Plan],
    booked: Iterable[Booking],
    nodes: frozenset[str],
    interval: Interval,
    *,
    shortest_ns: int = 1,
) -> Iterator[Interval]:
    """Yield the parts of `interval` in which all nodes are free, in order.

    Parts that are shorter than `shortest_ns` are left out.
    """
    begin = interval.start_ns
    for one in _overlapping(plans, booked, nodes, interval.start_ns, interval.end_ns):
        if one.start_ns - begin >= shortest_ns:
            yield Interval(begin, one.start_ns)
        begin = max(begin, one.end_ns)
    if interval.end_ns - begin >= shortest_ns:
        yield Interval(begin, interval.end_ns)


def _overlapping(
    plans: Iterable[Plan],
    booked: Iterable[Booking],
    nodes: frozenset[str],
    from_ns: int,
    to_ns: int,
) -> Iterator[Booking]:
    """Yield the bookings of any of the nodes that overlap [from_ns, to_ns), in order of start."""
    singles = [b for b in booked if b.nodes & nodes and b.end_ns > from_ns and b.start_ns < to_ns]
    times = [
        bookings_of(plan, max(0, from_ns - plan.length_ns + 1), to_ns)
        for plan in plans
        if plan.reserves and plan.nodes & nodes
    ]
    return heapq.merge(sorted(singles, key=_start), *times, key=_start)


def _start(booking: Booking) -> int:
    return booking.start_ns
