"""View models of charts over selections of runs, as the panels of a study show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from skyhop.analysis.statistics import Ellipse
from skyhop.analysis.styles import Style
from skyhop.analysis.timeline import EventStrip, Panel
from skyhop.data.arrays import BoolArray, FloatArray


@dataclass(frozen=True)
class Chart:
    """Chart over selections of runs."""

    data: pl.DataFrame
    """Numbers of the chart, which are written as CSV with the figure."""
    pooled: str
    """Note on the runs and samples behind each mark."""


@dataclass(frozen=True)
class MetricChart(Chart):
    """Chart of one quantity."""

    what: str
    unit: str


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
class Mean:
    """Mean over runs at one value of an axis, its confidence interval, and the published value."""

    x: float
    hue: Hue
    mean: float
    low: float | None
    high: float | None
    runs: int
    published: float | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """Lower and upper end of the interval; without an interval, both are the mean."""
        return (
            self.mean if self.low is None else self.low,
            self.mean if self.high is None else self.high,
        )

    def row(self) -> dict[str, float | None]:
        """Return the numbers by the names of their columns in the chart's data."""
        return {name: getattr(self, name) for name in ("mean", "low", "high", "runs", "published")}


@dataclass(frozen=True)
class Points:
    """Points of one hue, shape (n,) each."""

    hue: Hue
    xs: FloatArray
    ys: FloatArray
    ellipse: Ellipse | None = None
    """Ellipse of one standard deviation; None if the panel does not show it."""


@dataclass(frozen=True)
class Boxes:
    """Boxes of one hue: positions on the axis, and the values that each box summarises."""

    hue: Hue
    xs: Sequence[float]
    values: Sequence[FloatArray]


@dataclass(frozen=True)
class BarChart(MetricChart):
    """Bars of equal width along an axis of named values."""

    levels: Levels
    width: float
    bars: Sequence[Mean]
    origin: float = 0.0
    """Value at which bars begin: 0, or 1 for a ratio whose least value is 1."""


@dataclass(frozen=True)
class BoxChart(MetricChart):
    """Distribution of values at each level, as boxes."""

    levels: Levels
    width: float
    boxes: Sequence[Boxes]
    origin: float = 0.0
    """Value at which the axis begins unless a value is lower: 0, or 1 for ratios of at least 1."""


@dataclass(frozen=True)
class EcdfChart(MetricChart):
    """Empirical distributions: per hue the sorted values, and the share at or below each."""

    curves: Sequence[Points]
    nearly_all: float
    """Value below which nearly all samples of every curve are; the axis may end at twice this."""
    origin: float = 0.0
    """Value at which the axis begins unless a value is lower: 0, or 1 for ratios of at least 1."""


@dataclass(frozen=True)
class LineChart(MetricChart):
    """Means along an axis of numbers, one line per hue."""

    levels: Levels
    xs: Sequence[float]
    """Positions of the levels on the axis."""
    lines: Sequence[Sequence[Mean]]
    """Points of each line from left to right; they have the same hue."""
    is_log: bool = False
    origin: float = 0.0
    """Value at which the y axis begins unless a mean is lower: 0, or 1 for ratios of at least 1."""


@dataclass(frozen=True)
class ScatterChart(MetricChart):
    """One point per run, or per run and flow."""

    x_title: str
    points: Sequence[Points]
    from_zero: bool = True
    """Whether the axes begin at the metrics' origins; otherwise they span the points' range."""
    origin: tuple[float, float] = (0.0, 0.0)
    """Origins of x and y: 0, or 1 for a ratio whose least value is 1."""


@dataclass(frozen=True)
class HeatChart(MetricChart):
    """Means at the values of two axes: grid of shape (rows, columns), NaN without a value."""

    columns: Levels
    rows: Sequence[str]
    grid: FloatArray
    row_breaks: Sequence[int] = ()
    """Indices of rows before which a line separates groups."""
    column_breaks: Sequence[int] = ()
    """Indices of columns before which a line separates groups."""
    top: float | None = None
    """Value at the end of the colour scale; greater values have the same colour."""


@dataclass(frozen=True)
class MapCells:
    """Means of one metric at the values of two axes, shape (rows, columns), NaN without runs."""

    title: str
    grid: FloatArray
    is_sure: BoolArray
    """Whether the 95 % interval of each mean lies on one side of the value where a claim turns."""


@dataclass(frozen=True)
class MapMark:
    """Place of a link on a map, in indices of columns and rows; None for all of them."""

    name: str
    column: float | None
    row: float | None


@dataclass(frozen=True)
class MapChart(Chart):
    """Maps of where a claim holds, which have the same axes and colours."""

    maps: Sequence[Sequence[MapCells]]
    """Rows of maps; each row has the same number of maps."""
    columns: Levels
    rows: Levels
    turn: float
    """Value from which on the claim holds."""
    row_breaks: Sequence[int]
    """Indices of rows before which a gap separates groups."""
    marks: Sequence[MapMark]


@dataclass(frozen=True)
class SeriesChart(Chart):
    """Samples of a few runs over the same time, and the handovers of each path."""

    begin_s: float
    end_s: float
    strips: Sequence[tuple[str, EventStrip]]
    """Events of each path, with the names of the lines whose runs used the path."""
    panels: Sequence[Panel]


def named(what: str, unit: str) -> str:
    """Return the title of a quantity, with its unit (if any) in brackets."""
    return f"{what} ({unit})" if unit else what
