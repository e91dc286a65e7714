"""Who may run when: what a job's times are, which jobs stand in each other's way, where room is.

`occurrences` are a job's times, `conflicts` the rule by which jobs exclude each other, `slots` the
nearest time that is free. All of it is arithmetic over integers, nanoseconds since 1970 (UTC), in
half-open intervals: what ends as another begins does not meet it. Nothing here reads a clock.
"""

from skyhop.testbed.calendar.conflicts import Conflict, Findings, check
from skyhop.testbed.calendar.occurrences import (
    Booking,
    Interval,
    Plan,
    bookings_of,
    occurrences,
    why_never,
)
from skyhop.testbed.calendar.slots import free, in_the_way, nearest_slot

__all__ = [
    "Booking",
    "Conflict",
    "Findings",
    "Interval",
    "Plan",
    "bookings_of",
    "check",
    "free",
    "in_the_way",
    "nearest_slot",
    "occurrences",
    "why_never",
]
