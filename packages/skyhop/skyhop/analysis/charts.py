"""View models of charts over selections of runs, as the panels of a study show them.

Each view model also has its numbers as a frame, `data`, which is written as CSV with the figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import polars as pl

from skyhop.analysis.statistics import Ellipse
from skyhop.analysis.styles import Style
from skyhop.analysis.timeline import EventStrip, Panel
from skyhop.data.arrays import FloatArray


@dataclass(frozen=True)
class Hue:
    """Style of marks in a chart, and the axis value that the style stands for."""

    label: str
    style: Style
    index: int
    """Index among the hues of the chart."""


@dataclass(frozen=True)
class Levels:
    """Axis of a chart with named values at positions 0, 1, 2, …."""

    names: Sequence[str]
    title: str
    """Title of the axis; empty if the names need no title."""


@dataclass(frozen=True)
class Bar:
    """Mean with its confidence interval, and the published value."""

    x: float
    mean: float
    low: float | None
    high: float | None
    published: float | None
    hue: Hue


@dataclass(frozen=True)
class BarChart:
    """Bars of equal width along an axis of named values."""

    what: str
    unit: str
    levels: Levels
    width: float
    bars: Sequence[Bar]
    data: pl.DataFrame
    pooled: str = ""
    """Note on the runs and samples behind each mark."""
    origin: float = 0.0
    """Value at which bars begin: 0, or 1 for a ratio whose least value is 1."""


@dataclass(frozen=True)
class Boxes:
    """Boxes of one hue: positions on the axis, and the values that each box summarises."""

    hue: Hue
    xs: Sequence[float]
    values: Sequence[FloatArray]


@dataclass(frozen=True)
class BoxChart:
    """Distribution of values at each level, as boxes."""

    what: str
    unit: str
    levels: Levels
    width: float
    boxes: Sequence[Boxes]
    has_hues: bool
    data: pl.DataFrame
    pooled: str = ""
    """Note on the runs and samples behind each mark."""


@dataclass(frozen=True)
class EcdfCurve:
    """Empirical distribution of a hue: sorted values and the share at or below each, shape (n,)."""

    hue: Hue
    values: FloatArray
    shares: FloatArray


@dataclass(frozen=True)
class EcdfChart:
    """Empirical distributions, one curve per hue."""

    what: str
    unit: str
    curves: Sequence[EcdfCurve]
    nearly_all: float
    """Value below which nearly all samples of every curve are; the axis may end at twice this."""
    data: pl.DataFrame
    pooled: str = ""
    """Note on the runs and samples behind each mark."""


@dataclass(frozen=True)
class MeanLine:
    """Line of means along an axis, with the bounds of their confidence intervals."""

    hue: Hue
    xs: Sequence[float]
    means: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]


@dataclass(frozen=True)
class LineChart:
    """Means along an axis of numbers, one line per hue."""

    what: str
    unit: str
    levels: Levels
    xs: Sequence[float]
    """Positions of the levels on the axis."""
    is_log: bool
    lines: Sequence[MeanLine]
    data: pl.DataFrame
    pooled: str = ""
    """Note on the runs and samples behind each mark."""
    origin: float = 0.0
    """Value at which the y axis begins unless a mean is lower: 0, or 1 for ratios of at least 1."""


@dataclass(frozen=True)
class Points:
    """Points of one hue, shape (n,) each."""

    hue: Hue
    xs: FloatArray
    ys: FloatArray
    ellipse: Ellipse | None = None
    """Ellipse of one standard deviation; None if the panel does not show it."""


@dataclass(frozen=True)
class ScatterChart:
    """One point per run, or per run and flow."""

    x_title: str
    what: str
    unit: str
    points: Sequence[Points]
    data: pl.DataFrame
    pooled: str = ""
    """Note on the runs and samples behind each mark."""
    from_zero: bool = True
    """Whether the axes begin at the metrics' origins; otherwise they span the points' range."""
    origin: tuple[float, float] = (0.0, 0.0)
    """Origins of x and y: 0, or 1 for a ratio whose least value is 1."""


@dataclass(frozen=True)
class HeatChart:
    """Means at the values of two axes: grid of shape (rows, columns), NaN without a value."""

    title: str
    columns: Levels
    rows: Sequence[str]
    grid: FloatArray
    data: pl.DataFrame
    pooled: str = ""
    """Note on the runs and samples behind each mark."""
    row_breaks: Sequence[int] = ()
    """Indices of rows before which a line separates groups."""
    column_breaks: Sequence[int] = ()
    """Indices of columns before which a line separates groups."""
    top: float | None = None
    """Value at the end of the colour scale; greater values have the same colour."""


@dataclass(frozen=True)
class SeriesChart:
    """Samples of a few runs over the same time, and the handovers of each path."""

    begin_s: float
    end_s: float
    strips: Sequence[tuple[str, EventStrip]]
    """Events of each path, with the names of the lines whose runs used the path."""
    panels: Sequence[Panel]
    data: pl.DataFrame
    pooled: str = ""
    """Note on the runs and samples behind each mark."""


Chart: TypeAlias = (
    BarChart | BoxChart | EcdfChart | LineChart | ScatterChart | HeatChart | SeriesChart
)


def named(what: str, unit: str) -> str:
    """Return the title of a quantity, with its unit (if any) in brackets."""
    return f"{what} ({unit})" if unit else what
