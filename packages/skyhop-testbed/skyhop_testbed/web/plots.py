"""Inline SVG charts of the pages: lines over time and a distribution.

A `Chart` holds the data, and gives paths and ticks to the template. Each chart is drawn twice, for
wide and narrow screens, since text in an SVG scales with it.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

Numbers = Sequence[float | None]
_Place = Callable[[float], float]

_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 10, 24
_TICKS = 4
_STEPS_S = (10, 30, 60, 120, 300, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800)
_HOUR_S = 3600
_UNITS = ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s"))


@dataclass(frozen=True)
class Line:
    """Line of a chart, or an area between two lines."""

    name: str
    values: Numbers
    low: Numbers | None = None
    """Lower bound of the area; None for a line."""


@dataclass(frozen=True)
class ChartDrawing:
    """Chart drawn for one screen width, in pixels."""

    size: str
    """CSS class of the size: "wide" or "narrow"."""
    width: int
    height: int
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    paths: Sequence[tuple[str, str, int]]
    """SVG path data, CSS class ("area" or "line") and number of the colour, per line."""
    left: int = _LEFT
    right: int = _RIGHT
    top: int = _TOP
    bottom: int = _BOTTOM


@dataclass(frozen=True)
class Chart:
    """Chart of lines over a common horizontal axis."""

    title: str
    unit: str
    x: Sequence[float]
    """Times in seconds since 1970, or the values of the distribution."""
    lines: Sequence[Line]
    x_limits: tuple[float, float]
    y_limits: tuple[float, float] | None = None
    is_time: bool = True
    x_unit: str = ""
    min_upper_limit: float = 0.0
    """Smallest permitted upper limit of the vertical axis."""

    @property
    def is_empty(self) -> bool:
        """Whether all values of all lines are missing."""
        return all(value is None for line in self.lines for value in line.values)

    @property
    def sizes(self) -> list[ChartDrawing]:
        """The chart drawn for wide and for narrow screens."""
        return [self._drawing("wide", 600, 210), self._drawing("narrow", 340, 210)]

    def _drawing(self, size: str, width: int, height: int) -> ChartDrawing:
        values = [value for line in self.lines for value in line.values]
        low, high = self.y_limits or _limits([*values, self.min_upper_limit or None])
        across, up = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM
        begin, end = self.x_limits

        def at_x(value: float) -> float:
            return round(_LEFT + (value - begin) / max(end - begin, 1e-9) * across, 1)

        def at_y(value: float) -> float:
            share = min(max((value - low) / max(high - low, 1e-12), 0), 1)
            return round(_TOP + (1 - share) * up, 1)

        wanted = 3 if size == "narrow" else 7
        ticks = _times(begin, end, wanted) if self.is_time else _round(begin, end, wanted)
        paths = []
        for number, line in enumerate(self.lines):
            if line.low is not None:
                paths.append((_area(self.x, line, at_x, at_y), "area", number))
            else:
                paths.append((_path(self.x, line.values, at_x, at_y), "line", number))
        return ChartDrawing(
            size, width, height,
            [(at_x(value), text) for value, text in ticks],
            [(at_y(value), text) for value, text in _round(low, high, _TICKS)],
            paths,
        )  # fmt: skip


def in_unit(lines: Sequence[Line]) -> tuple[str, list[Line]]:
    """Return a suitable unit of rate for lines in bit/s, and the lines converted to it."""
    most = max((v for line in lines for v in line.values if v is not None), default=0.0)
    size, unit = next(((s, u) for s, u in _UNITS if most >= s), _UNITS[-1])
    scaled = [Line(e.name, [None if v is None else v / size for v in e.values]) for e in lines]
    return unit, scaled


def _limits(values: Iterable[float | None]) -> tuple[float, float]:
    """Return the limits of an axis from 0 to a round number above the largest value."""
    most = max((value for value in values if value is not None), default=1.0)
    step = _step(max(most, 1e-9) / _TICKS)
    return 0.0, step * math.ceil(max(most, 1e-9) / step)


def _step(about: float) -> float:
    size = 10.0 ** math.floor(math.log10(about))
    return next(size * part for part in (1, 2, 5, 10) if size * part >= about * 0.999)


def _round(low: float, high: float, count: int) -> list[tuple[float, str]]:
    step = _step(max(high - low, 1e-12) / count)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [(number * step, f"{number * step:.6g}") for number in range(first, last + 1)]


def _times(begin: float, end: float, count: int) -> list[tuple[float, str]]:
    step = next((s for s in _STEPS_S if (end - begin) / s <= count), _STEPS_S[-1])
    form = "%H:%M:%S" if step < _STEPS_S[2] else "%H:%M" if end - begin < 48 * _HOUR_S else "%m-%d"
    first = math.ceil(begin / step) * step
    return [
        (at, dt.datetime.fromtimestamp(at, dt.UTC).strftime(form))
        for at in range(int(first), int(end) + 1, step)
    ]


def _path(x: Sequence[float], values: Numbers, at_x: _Place, at_y: _Place) -> str:
    words = []
    is_on = False
    for place, value in zip(x, values, strict=True):
        if value is None:
            is_on = False
            continue
        words.append(f"{'L' if is_on else 'M'}{at_x(place)} {at_y(value)}")
        is_on = True
    return "".join(words)


def _area(x: Sequence[float], line: Line, at_x: _Place, at_y: _Place) -> str:
    both = [
        (place, high, low)
        for place, high, low in zip(x, line.values, line.low or (), strict=True)
        if high is not None and low is not None
    ]
    if not both:
        return ""
    upper = [f"{at_x(place)} {at_y(high)}" for place, high, _ in both]
    lower = [f"{at_x(place)} {at_y(low)}" for place, _, low in reversed(both)]
    return "M" + "L".join([*upper, *lower]) + "Z"
