"""Quantities of scenario and study files as numbers: "150 Mbit/s", "20 ms"."""

from __future__ import annotations

import re

from skyhop import _core
from skyhop.errors import InputError

DURATION = r"^\s*[0-9.]+\s*(ns|us|ms|s|min|h)\s*$"
"""Pattern of durations in study files, for their JSON Schema; the core converts them."""

MOMENT = r"^\s*(-?[0-9.]+\s*(ns|us|ms|s|min|h)|[0-9]+(\.[0-9]+)?\s*%)\s*$"
"""Pattern of a moment of a period: time after its start, before its end ("-1 s"), or "75 %"."""

SIZE = r"^\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([kMG]?)B\s*$"
"""Pattern of numbers of bytes in study files, with decimal prefixes."""

_SIZE_BYTES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_RATE_MBPS = {"": 1e-6, "k": 1e-3, "M": 1.0, "G": 1e3}
_NUMBER = re.compile(r"\s*([-+]?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?)")


def mbps_or_none(text: object) -> float | None:
    """Parse a rate to Mbit/s; None if `text` is not a rate."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([kMG]?)(?:bit/s|bps)\s*", str(text))
    return float(found[1]) * _RATE_MBPS[found[2]] if found else None


def seconds_or_none(text: object) -> float | None:
    """Parse a duration to seconds; None if `text` is not a duration."""
    try:
        return _core.duration_s("", str(text))
    except InputError:
        return None


def seconds(text: str) -> float:
    """Parse a duration such as "20 ms" to seconds.

    Raises:
        ValueError: `text` is not a duration.
    """
    found = seconds_or_none(text)
    if found is None:
        raise ValueError(f'"{text}" is not a duration; expected for example "20 ms"')
    return found


def moment_s(text: str, begin_s: float, end_s: float) -> float:
    """Parse a moment (`MOMENT`) of the period from `begin_s` to `end_s`; return it in seconds.

    Raises:
        ValueError: `text` is not a moment.
    """
    text = text.strip()
    if text.endswith("%"):
        return begin_s + (end_s - begin_s) * float(text[:-1]) / 100
    return end_s - seconds(text[1:]) if text.startswith("-") else begin_s + seconds(text)


def size_bytes(text: str) -> float:
    """Parse a number of bytes ("50 MB").

    Raises:
        ValueError: `text` is not a number of bytes.
    """
    found = re.fullmatch(SIZE, text)
    if found is None:
        raise ValueError(f'"{text}" is not a number of bytes; expected for example "50 MB"')
    return float(found[1]) * _SIZE_BYTES[found[2]]


def leading_number(value: object) -> float | None:
    """Return the number that a value is or starts with ("0.3 s": 0.3); None if there is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    found = _NUMBER.match(str(value))
    return float(found[1]) if found else None
