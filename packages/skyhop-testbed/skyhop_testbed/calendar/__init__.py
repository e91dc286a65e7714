"""Calendar of jobs: their occurrences, conflicts between jobs, and free slots.

`occurrences` computes a job's times, `conflicts` applies the rule by which jobs exclude each other,
and `slots` finds the nearest free time. All times are integers, nanoseconds since 1970 (UTC), in
half-open intervals: an interval that ends as another begins does not overlap it. No code here reads
a clock.
"""

from skyhop_testbed.calendar.conflicts import Conflict, Findings, check
from skyhop_testbed.calendar.occurrences import (
    Booking,
    Interval,
    Plan,
    bookings_of,
    occurrences,
    why_never,
)
from skyhop_testbed.calendar.slots import first_overlap, free, nearest_slot

__all__ = [
    "Booking",
    "Conflict",
    "Findings",
    "Interval",
    "Plan",
    "bookings_of",
    "check",
    "first_overlap",
    "free",
    "nearest_slot",
    "occurrences",
    "why_never",
]
