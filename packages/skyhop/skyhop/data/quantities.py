"""Units, and quantities of scenario and study files as numbers: "150 Mbit/s", "20 ms"."""

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

_PREFIX = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_TIME = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_RATE = {"bit/s": 1.0, "bps": 1.0, "byte/s": 8.0, "B/s": 8.0}

UNITS: dict[str, tuple[str, float]] = {
    "": ("ratio", 1.0),
    "%": ("ratio", 0.01),
    **{unit: ("time", factor) for unit, factor in _TIME.items()},
    **{p + u: ("rate", f * factor) for p, f in _PREFIX.items() for u, factor in _RATE.items()},
    "mm": ("length", 1e-3),
    "m": ("length", 1.0),
    "km": ("length", 1e3),
    "m/s": ("speed", 1.0),
    "km/h": ("speed", 1 / 3.6),
    "Pa": ("pressure", 1.0),
    "hPa": ("pressure", 100.0),
    "kPa": ("pressure", 1000.0),
    "deg": ("angle", 1.0),
    "K": ("temperature", 1.0),
    "W": ("power", 1.0),
    "/s": ("frequency", 1.0),
    "/min": ("frequency", 1 / 60),
    "/h": ("frequency", 1 / 3600),
}
"""Dimension of each unit of telemetry and triggers, and its factor to the dimension's base unit."""
_NUMBER = re.compile(r"\s*([-+]?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?)")


def in_unit(value: float, unit: str, into: str) -> float | None:
    """Return a value in another unit; `None` if the units have different dimensions."""
    (mine, factor), (theirs, base) = UNITS[unit], UNITS[into]
    if mine != theirs:
        return None
    # The larger factor divided by the smaller is exact for powers of ten.
    return value * (factor / base) if factor >= base else value / (base / factor)


def mbps_or_none(text: object) -> float | None:
    """Parse a rate to Mbit/s; None if `text` is not a rate."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([kMG]?)(?:bit/s|bps)\s*", str(text))
    return float(found[1]) * (_PREFIX[found[2]] / 1e6) if found else None


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
    return float(found[1]) * _PREFIX[found[2]]


def leading_number(value: object) -> float | None:
    """Return the number that a value is or starts with ("0.3 s": 0.3); None if there is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    found = _NUMBER.match(str(value))
    return float(found[1]) if found else None
