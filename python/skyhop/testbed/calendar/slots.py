"""Where there is room: the nearest free time, and what stands in the way of one.

Who asks gives the accepted jobs (`Plan`), and the runs that stand elsewhere than their job's
times (`Booking`: moved, or triggered). Only overhead books nodes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from skyhop.testbed.calendar.occurrences import HORIZON_NS, Booking, Interval, Plan, bookings_of


def nearest_slot(
    plans: Iterable[Plan],
    booked: Iterable[Booking],
    nodes: frozenset[str],
    *,
    length_ns: int,
    from_ns: int,
    end_ns: int | None = None,
) -> int | None:
    """Return the earliest t >= from_ns at which all nodes are free for the length.

    Args:
        plans: the accepted jobs, the one that is moved among them where it has other occurrences.
        booked: runs that have nodes besides.
        nodes: the client and the server.
        length_ns: of the run.
        from_ns: not earlier than this.
        end_ns: t + length_ns is not later than this; the job's own end.

    Returns:
        None where there is no room before the end, or in four years.
    """
    limit_ns = from_ns + HORIZON_NS if end_ns is None else end_ns
    start_ns = from_ns
    for booking in _taken(plans, booked, nodes, from_ns, limit_ns):
        if booking.start_ns >= start_ns + length_ns:
            break
        start_ns = max(start_ns, booking.end_ns)
        if start_ns + length_ns > limit_ns:
            break
    return start_ns if start_ns + length_ns <= limit_ns else None


def in_the_way(
    plans: Iterable[Plan],
    booked: Iterable[Booking],
    nodes: frozenset[str],
    interval: Interval,
) -> Booking | None:
    """Return the first booking that overlaps a time on any of the nodes, None where it is free.

    It is asked before a triggered run starts: does its length fit before what is reserved next?
    """
    taken = _taken(plans, booked, nodes, interval.start_ns, interval.end_ns)
    return next((one for one in taken if one.interval.meets(interval)), None)


def free(
    plans: Iterable[Plan],
    booked: Iterable[Booking],
    nodes: frozenset[str],
    interval: Interval,
    *,
    shortest_ns: int = 1,
) -> Iterator[Interval]:
    """Yield, in order, the times within the interval at which all nodes are free."""
    begin = interval.start_ns
    for one in _taken(plans, booked, nodes, interval.start_ns, interval.end_ns):
        if one.start_ns - begin >= shortest_ns:
            yield Interval(begin, one.start_ns)
        begin = max(begin, one.end_ns)
    if interval.end_ns - begin >= shortest_ns:
        yield Interval(begin, interval.end_ns)


def _taken(
    plans: Iterable[Plan],
    booked: Iterable[Booking],
    nodes: frozenset[str],
    from_ns: int,
    to_ns: int,
) -> Iterator[Booking]:
    """Yield the bookings of any of the nodes that meet [from_ns, to_ns), by their start."""
    singles = [b for b in booked if b.nodes & nodes and b.end_ns > from_ns and b.start_ns < to_ns]
    times = [
        bookings_of(plan, max(0, from_ns - plan.length_ns + 1), to_ns)
        for plan in plans
        if plan.reserves and plan.nodes & nodes
    ]
    return heapq.merge(sorted(singles, key=_start), *times, key=_start)


def _start(booking: Booking) -> int:
    return booking.start_ns
