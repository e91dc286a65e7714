"""Kinds of panels on the page of a study: each type has the keys of one kind."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from skyhop.data.quantities import size_bytes
from skyhop.study.keys import Choice, Duration, Length, Series, Size, Spread, StrictModel, Value

_MOST_STEPS = 1000
"""Largest number of points of a panel's line."""


class _Panel(StrictModel):
    """Base model with the keys that every panel has."""

    title: str
    """Title of the panel."""
    where: Choice = {}
    """Axes and the values of each axis that the panel shows; all values by default."""
    note: str = ""
    """Note below the panel."""


class _DistributionPanel(_Panel):
    """Base model of panels that show the distribution of a metric, its bins, or a series."""

    metric: str | None = None
    """Metric that is shown, with one value per run."""
    bins_of: str | None = None
    """Metric of kind samples or flows; the panel shows its bins, those of all runs together."""
    series: Series | None = None
    """Sampled quantity that is shown, as means over bins of length `bin`."""
    bin: Duration = "1 s"
    """Length in time of the bins of `series`."""

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if sum(given is not None for given in (self.metric, self.bins_of, self.series)) != 1:
            raise ValueError(
                "expected either `metric`, of whole runs, `bins_of`, of a metric's bins, "
                "or `series`, of samples"
            )
        return self


class TablePanel(_Panel):
    """Means with confidence intervals, next to the published values."""

    kind: Literal["table"]
    metrics: list[str] = Field(min_length=1)
    """Metrics, one column each."""
    by: list[str] = Field(min_length=1)
    """Axes; each combination of their values is a row."""
    spread: Spread = "interval"
    """Measure of spread next to the means."""


class ComparisonPanel(_Panel):
    """Comparison of a metric at each value of the axis `by` with its value at a reference value.

    It has a t-test, p values with Bonferroni's correction, and Cohen's d. If standard deviations
    were published, it also has Cohen's d with these.
    """

    kind: Literal["comparison"]
    metric: str
    """Metric that is compared."""
    by: str
    """Axis whose values are compared."""
    against: Value
    """Reference value of the axis `by`, with which its other values are compared."""
    each: list[str] = []
    """Axes; the comparison is repeated at each combination of their values."""
    test: Literal["welch", "student", "both"] = "welch"
    """Test: Welch's t-test, Student's t-test (which assumes equal variances), or both."""


class BarsPanel(_Panel):
    """Mean and confidence interval as bars along `x`, one colour per value of `hue`."""

    kind: Literal["bars"]
    metric: str
    """Metric that is drawn."""
    x: str
    """Axis along the abscissa."""
    hue: str | None = None
    """Axis whose values have a colour each."""
    spread: Spread = "interval"
    """Spread next to the means."""


class BoxPanel(_DistributionPanel):
    """Distribution over runs, or over the samples of runs, as boxes along `x`."""

    kind: Literal["box"]
    x: str
    """Axis along the abscissa."""
    hue: str | None = None
    """Axis whose values have a colour each."""


class CdfPanel(_DistributionPanel):
    """Share of runs, or of their samples, at or below each value: one line per value of `hue`."""

    kind: Literal["cdf"]
    hue: str
    """Axis whose values have a colour each."""


class LinesPanel(_Panel):
    """Mean along a numeric axis `x`: one line per value of `hue`."""

    kind: Literal["lines"]
    metric: str
    """Metric that is drawn."""
    x: str
    """Axis along the abscissa."""
    hue: str | None = None
    """Axis whose values have a colour each."""
    spread: Spread = "interval"
    """Spread next to the means."""


class TransferPanel(_Panel):
    """Mean time in s that a flow takes to deliver its first bytes, by number of bytes."""

    kind: Literal["transfer"]
    upto: Size
    """Largest number of bytes on the x axis."""
    step: Size
    """Number of bytes between two points of a line."""
    hue: str | None = None
    """Axis whose values have a colour each."""
    cut: Length | None = None
    """Resolution to which times are rounded down; times are exact by default."""
    from_: Length | None = Field(None, alias="from")
    """Time after a flow's start from which times count; by default they count from its start."""
    spread: Literal["interval", "sd", "none"] = "interval"
    """Spread next to the means."""

    @model_validator(mode="after")
    def _is_a_line(self) -> Self:
        count = size_bytes(self.upto) / max(size_bytes(self.step), 1)
        if not 1 <= count <= _MOST_STEPS:
            raise ValueError(f"expected `upto` to be 1 to {_MOST_STEPS} of `step`")
        return self


class ScatterPanel(_Panel):
    """Scatter plot of two metrics, a point per run and flow."""

    kind: Literal["scatter"]
    x: str
    """Metric along the abscissa."""
    y: str
    """Metric along the ordinate."""
    hue: str | None = None
    """Axis whose values have a colour each."""
    per: Literal["flow", "run"] = "flow"
    """Meaning of a point: one flow, or one run with the means over its flows."""
    ellipses: bool = False
    """Whether to draw an ellipse of one standard deviation (n - 1) around each hue's mean."""
    zero: bool = True
    """Whether both axes begin at the least possible values of their metrics, such as 0."""


class HeatmapPanel(_Panel):
    """Mean of a metric at the values of two axes, as colour."""

    kind: Literal["heatmap"]
    metric: str
    """Metric that is drawn."""
    x: str
    """Axis along the abscissa."""
    y: str
    """Axis along the ordinate."""


class Mark(StrictModel):
    """Link on a map, such as a measured one: a place, or a line if it has one coordinate only."""

    name: str
    """Name that is written at the mark."""
    x: Value | None = None
    """Place along the abscissa: a value of the axis, or a number between two of its values."""
    y: Value | None = None
    """Place along the ordinate, in the forms of `x`."""

    @model_validator(mode="after")
    def _has_a_place(self) -> Self:
        if self.x is None and self.y is None:
            raise ValueError("expected `x`, `y` or both")
        return self


class MapPanel(_Panel):
    """Region of two axes in which a claim holds: means as colours about the value `turn`.

    A line separates cells whose means are on different sides of `turn`, and cells whose 95 %
    interval contains `turn` are marked.
    """

    kind: Literal["map"]
    metrics: list[str] = Field(min_length=1)
    """Metrics, one map each."""
    x: str
    """Axis along the abscissa."""
    y: str
    """Axis along the ordinate."""
    by: str | None = None
    """Axis; each of its values has maps of its own."""
    turn: float
    """Value of the metrics from which on the claim holds."""
    groups: list[Value] = []
    """Values of `y` that begin a group of rows, such as links of another kind."""
    marks: list[Mark] = []
    """Links whose place on the map is known."""


class SeriesPanel(_Panel):
    """Samples of the chosen runs over time, with the path's handovers."""

    kind: Literal["series"]
    series: list[Literal[Series, "base_rtt"]] = Field(min_length=1)
    """Sampled quantities, one chart each."""
    hue: str
    """Axis whose values have a colour each."""
    bin: Duration | None = None
    """Length in time of bins whose means are drawn; without it, the samples are drawn."""
    from_: Duration | None = Field(None, alias="from")
    """Start of the drawn period, in time since the run's start."""
    until: Duration | None = None
    """End of the drawn period, in time since the run's start."""
    runs: Literal["first", "mean"] = "first"
    """Drawn curve of each hue: its first run, or the mean of its runs ± one standard deviation."""

    @model_validator(mode="after")
    def _has_bins_to_average(self) -> Self:
        if self.runs == "mean" and self.bin is None:
            raise ValueError('runs = "mean" needs `bin`')
        return self


Panel = Annotated[
    TablePanel
    | ComparisonPanel
    | BarsPanel
    | BoxPanel
    | CdfPanel
    | LinesPanel
    | TransferPanel
    | ScatterPanel
    | HeatmapPanel
    | MapPanel
    | SeriesPanel,
    Field(discriminator="kind"),
]
