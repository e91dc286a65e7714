"""View models of charts over selections of runs: what a panel of a study shows.

Each has the numbers that it shows as a frame too, `data`, to be written beside the picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import polars as pl

from skyhop.analysis.looks import Look
from skyhop.analysis.statistics import Ellipse
from skyhop.analysis.timeline import EventStrip, Panel
from skyhop.data.arrays import FloatArray


@dataclass(frozen=True)
class Hue:
    """One look of a chart, and what it stands for."""

    label: str
    look: Look
    index: int
    """Which of the hues."""


@dataclass(frozen=True)
class Levels:
    """An axis of named values, at 0, 1, 2, …."""

    names: Sequence[str]
    title: str
    """Empty where the names speak for themselves."""


@dataclass(frozen=True)
class Bar:
    """A mean with its confidence interval, and what was published."""

    x: float
    mean: float
    low: float | None
    high: float | None
    published: float | None
    hue: Hue


@dataclass(frozen=True)
class BarChart:
    """Bars of one width along levels."""

    what: str
    unit: str
    levels: Levels
    width: float
    bars: Sequence[Bar]
    data: pl.DataFrame
    pooled: str = ""
    """What was taken together, in words."""


@dataclass(frozen=True)
class Boxes:
    """The boxes of a hue: where they stand, and the values of each."""

    hue: Hue
    xs: Sequence[float]
    values: Sequence[FloatArray]


@dataclass(frozen=True)
class BoxChart:
    """The spread of values along levels."""

    what: str
    unit: str
    levels: Levels
    width: float
    boxes: Sequence[Boxes]
    has_hues: bool
    data: pl.DataFrame
    pooled: str = ""
    """What was taken together, in words."""


@dataclass(frozen=True)
class ShareCurve:
    """Which share of values stays at or below a value, shape (n,) each."""

    hue: Hue
    values: FloatArray
    shares: FloatArray


@dataclass(frozen=True)
class ShareChart:
    """Shares of values, a curve per hue."""

    what: str
    unit: str
    curves: Sequence[ShareCurve]
    nearly_all: float
    """What nearly all values of every curve stay below."""
    data: pl.DataFrame
    pooled: str = ""
    """What was taken together, in words."""


@dataclass(frozen=True)
class MeanLine:
    """Means along an axis with the bounds of their confidence intervals."""

    hue: Hue
    xs: Sequence[float]
    means: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]


@dataclass(frozen=True)
class LineChart:
    """Means along an axis of numbers, a line per hue."""

    what: str
    unit: str
    levels: Levels
    xs: Sequence[float]
    """Where the levels stand."""
    is_log: bool
    lines: Sequence[MeanLine]
    data: pl.DataFrame
    pooled: str = ""
    """What was taken together, in words."""


@dataclass(frozen=True)
class Points:
    """The points of a hue, shape (n,) each."""

    hue: Hue
    xs: FloatArray
    ys: FloatArray
    ellipse: Ellipse | None = None
    """Of one standard deviation, where it is shown."""


@dataclass(frozen=True)
class ScatterChart:
    """One point per run, or per run and flow."""

    x_title: str
    what: str
    unit: str
    points: Sequence[Points]
    data: pl.DataFrame
    pooled: str = ""
    """What was taken together, in words."""
    from_zero: bool = True
    """Whether axes begin at zero."""


@dataclass(frozen=True)
class HeatChart:
    """Means over two axes: grid (rows, columns), NaN where there is none."""

    title: str
    columns: Levels
    rows: Sequence[str]
    grid: FloatArray
    data: pl.DataFrame
    pooled: str = ""
    """What was taken together, in words."""


@dataclass(frozen=True)
class SeriesChart:
    """A few runs over the same time, and the handovers of each path."""

    begin_s: float
    end_s: float
    strips: Sequence[tuple[str, EventStrip]]
    """With the names of the lines that go over that path."""
    panels: Sequence[Panel]
    data: pl.DataFrame
    pooled: str = ""
    """What was taken together, in words."""


Chart: TypeAlias = (
    BarChart | BoxChart | ShareChart | LineChart | ScatterChart | HeatChart | SeriesChart
)


def named(what: str, unit: str) -> str:
    """Return a quantity with its unit, where it has one."""
    return f"{what} ({unit})" if unit else what
