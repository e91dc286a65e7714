"""Conversion of GPS time, which terminals use for outages: time since 1980 without leap seconds."""

from __future__ import annotations

SECOND_NS = 10**9

_EPOCH_S = 315_964_800
"""Epoch of GPS time, 1980-01-06 00:00:00 UTC, in seconds since 1970."""
_LEAP_S = 18
"""Seconds by which GPS time is ahead of UTC since 2017; there were no terminals before 2017, and no
leap second has been announced since."""

_AHEAD_NS = (_EPOCH_S - _LEAP_S) * SECOND_NS


def utc_of_gps_ns(gps_ns: int) -> int:
    """Convert GPS time (ns since 1980) to UTC (ns since 1970)."""
    return gps_ns + _AHEAD_NS


def gps_of_utc_ns(utc_ns: int) -> int:
    """Convert UTC (ns since 1970) to GPS time (ns since 1980)."""
    return utc_ns - _AHEAD_NS
