"""Units of fields and numbers in triggers, and their conversion.

Only constants with a unit are converted: into the unit of the operand to which they are added or
with which they are compared. Fields keep their own units.
"""

from __future__ import annotations

_TIME = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_PREFIX = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_RATE = {f"{p}{u}": f for p, f in _PREFIX.items() for u in ("bit/s", "bps")}
_BYTES = {f"{p}{u}": 8 * f for p, f in _PREFIX.items() for u in ("byte/s", "B/s")}

UNITS: dict[str, tuple[str, float]] = {
    "": ("ratio", 1.0),
    "%": ("ratio", 0.01),
    **{unit: ("time", factor) for unit, factor in _TIME.items()},
    **{unit: ("rate", factor) for unit, factor in {**_RATE, **_BYTES}.items()},
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
"""Dimension of each unit, and its factor to the dimension's base unit."""


def converted(value: float, unit: str, into: str) -> float | None:
    """Return a value in another unit; `None` if the units have different dimensions."""
    (mine, factor), (theirs, base) = UNITS[unit], UNITS[into]
    if mine != theirs:
        return None
    # The larger factor divided by the smaller is exact for powers of ten.
    return value * (factor / base) if factor >= base else value / (base / factor)


def product(unit: str | None, other: str | None, factor: float | None) -> str | None:
    """Return the unit of a product; `None` if that unit is not in `UNITS`.

    Args:
        unit: unit of the first factor.
        other: unit of the second factor.
        factor: value of the second factor, if it is a constant without a unit; 8 converts bytes
            to bits.
    """
    if factor is not None:
        return "bit/s" if unit == "byte/s" and factor == 8 else unit  # noqa: PLR2004
    if unit == "":
        return other
    return unit if other == "" else None


def quotient(unit: str | None, other: str | None, factor: float | None) -> str | None:
    """Return the unit of a quotient; `None` if it is not in `UNITS`."""
    if factor is not None:
        return "byte/s" if unit == "bit/s" and factor == 8 else unit  # noqa: PLR2004
    if unit is not None and unit == other:
        return ""
    return unit if other == "" else None
