"""Quantities of scenario and study files as numbers: "150 Mbit/s", "20 ms"."""

from __future__ import annotations

import re

from skyhop import _core
from skyhop.errors import InputError

DURATION = r"^\s*[0-9.]+\s*(ns|us|ms|s|min|h)\s*$"
"""How study files write durations, for their schema; what one is worth, the core knows."""

MOMENT = r"^\s*(-?[0-9.]+\s*(ns|us|ms|s|min|h)|[0-9]+(\.[0-9]+)?\s*%)\s*$"
"""A moment of something that lasts: after its begin, before its end ("-1 s"), or "75 %" of it."""

SIZE = r"^\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([kMG]?)B\s*$"
"""How study files write numbers of bytes, in decimal."""

_SIZE_BYTES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_RATE_MBPS = {"": 1e-6, "k": 1e-3, "M": 1.0, "G": 1e3}
_NUMBER = re.compile(r"\s*([-+]?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?)")


def mbps_or_none(text: object) -> float | None:
    """Return a rate in Mbit/s, None where `text` is not one."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([kMG]?)(?:bit/s|bps)\s*", str(text))
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


def moment_s(text: str, begin_s: float, end_s: float) -> float:
    """Return when a moment of what lasts from `begin_s` to `end_s` is, in seconds.

    Raises:
        ValueError: `text` is not a moment.
    """
    text = text.strip()
    if text.endswith("%"):
        return begin_s + (end_s - begin_s) * float(text[:-1]) / 100
    return end_s - seconds(text[1:]) if text.startswith("-") else begin_s + seconds(text)


def size_bytes(text: str) -> float:
    """Return a number of bytes ("50 MB").

    Raises:
        ValueError: `text` is not one.
    """
    found = re.fullmatch(SIZE, text)
    if found is None:
        raise ValueError(f'"{text}" is not a number of bytes; expected for example "50 MB"')
    return float(found[1]) * _SIZE_BYTES[found[2]]


def leading_number(value: object) -> float | None:
    """Return the number that a value is or begins with ("0.3 s": 0.3), None without one."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    found = _NUMBER.match(str(value))
    return float(found[1]) if found else None
