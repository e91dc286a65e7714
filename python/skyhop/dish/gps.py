"""GPS's clock, by which terminals date their outages: seconds since 1980 without leap seconds."""

from __future__ import annotations

SECOND_NS = 10**9

_EPOCH_S = 315_964_800
"""1980-01-06 00:00:00 UTC, since 1970."""
_LEAP_S = 18
"""How far GPS's clock is ahead of UTC since 2017; there were no terminals before, and no leap
second was announced after."""

_AHEAD_NS = (_EPOCH_S - _LEAP_S) * SECOND_NS


def utc_of_gps_ns(gps_ns: int) -> int:
    """Return a moment in UTC, ns since 1970."""
    return gps_ns + _AHEAD_NS


def gps_of_utc_ns(utc_ns: int) -> int:
    """Return a moment on GPS's clock, ns since 1980."""
    return utc_ns - _AHEAD_NS
