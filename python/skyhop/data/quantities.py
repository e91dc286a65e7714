"""Quantities of scenario and study files as numbers: "150 Mbit/s", "20 ms"."""

from __future__ import annotations

import re

from skyhop import _core
from skyhop.errors import InputError

DURATION = r"^\s*[0-9.]+\s*(ns|us|ms|s|min|h)\s*$"
"""How study files write durations, for their schema; what one is worth, the core knows."""

_RATE_MBPS = {"": 1e-6, "k": 1e-3, "M": 1.0, "G": 1e3}
_NUMBER = re.compile(r"\s*([-+]?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?)")


def mbps_or_none(text: object) -> float | None:
    """Return a rate in Mbit/s, None where `text` is not one."""
    found = re.fullmatch(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([kMG]?)(?:bit/s|bps)\s*", str(text))
    return float(found[1]) * _RATE_MBPS[found[2]] if found else None


def seconds_or_none(text: object) -> float | None:
    """Return a duration in seconds, None where `text` is not one."""
    try:
        return _core.duration_s("", str(text))
    except InputError:
        return None


def seconds(text: str) -> float:
    """Return a duration in seconds.

    Raises:
        ValueError: `text` is not a duration.
    """
    found = seconds_or_none(text)
    if found is None:
        raise ValueError(f'"{text}" is not a duration; expected for example "20 ms"')
    return found


def leading_number(value: object) -> float | None:
    """Return the number that a value is or begins with ("0.3 s": 0.3), None without one."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    found = _NUMBER.match(str(value))
    return float(found[1]) if found else None
