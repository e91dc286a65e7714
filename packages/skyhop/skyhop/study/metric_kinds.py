"""Kinds of metrics that a study file defines: each type has the keys of one kind."""

from __future__ import annotations

import ipaddress
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from skyhop.data.quantities import moment_s, seconds, size_bytes
from skyhop.study.keys import Duration, Length, Moment, Series, Size, StrictModel, Value


class MetricBase(StrictModel):
    """Base model with the keys that every metric has."""

    needs_series: ClassVar[bool] = True
    """Whether the metric needs the samples of a run, in addition to its summary."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    """Name of the metric in claims, panels and the dataset."""
    kind: str
    """Kind of the metric; it decides which of the other keys apply."""
    title: str | None = None
    """Title on the page; the name by default."""
    unit: str = ""
    """Unit of the value, for titles and column names."""
    origin: float | None = None
    """Least possible value, where axes begin: 1 for a ratio of a delay to the least delay. By
    default 0; for srtt_over_base, 1."""


class ExpressionMetric(MetricBase):
    """Value of an expression over other metrics of the same row."""

    needs_series = False

    kind: Literal["expression"]
    value: str
    """Expression that is computed from other metrics of the same row."""


class RelativeMetric(MetricBase):
    """Metric `of`, compared with its value in a reference run.

    The reference run has the same seed, and the axis values `to`.
    """

    needs_series = False

    kind: Literal["relative"]
    of: str
    """Metric that is compared."""
    to: dict[str, Value] = Field(min_length=1)
    """Axes and their values at the reference run."""
    by: Literal["ratio", "difference"] = "ratio"
    """Comparison: ratio to the reference value, or difference from it."""


class GridErrorMetric(MetricBase):
    """Distance in ms between an estimated handover grid and the true grid.

    A run with signal.source = "blind" estimates the grid. The true grid has a handover every
    `period`, the first one in each minute of UTC at `offset`. There is no value if the run found no
    grid.
    """

    needs_series = False

    kind: Literal["grid_error"]
    period: Duration = "15 s"
    """Period of the true handover grid."""
    offset: Duration = "12 s"
    """First moment of the true handover grid in each minute of UTC."""


class _BytesMetric(MetricBase):
    """Base model of metrics of the time in which a flow delivers bytes."""

    bytes: Size
    """Number of bytes, counted from the flow's start, whose arrival ends the measurement."""
    cut: Length | None = None
    """Resolution to which times are rounded down, such as "1 s"; times are exact by default."""
    from_: Length | None = Field(None, alias="from")
    """Time after the flow's start from which times count; by default they count from its start."""

    @model_validator(mode="after")
    def _has_bytes(self) -> Self:
        if size_bytes(self.bytes) <= 0:
            raise ValueError("expected `bytes` above 0 B")
        return self


class TimeToBytesMetric(_BytesMetric):
    """Time in s that a flow takes to deliver its first `bytes`."""

    kind: Literal["time_to_bytes"]


class RateOverBytesMetric(_BytesMetric):
    """Rate in Mbit/s at which a flow delivers its bytes from `after_bytes` to `bytes`."""

    kind: Literal["rate_over_bytes"]
    after_bytes: Size | None = None
    """Number of bytes, counted from the flow's start, whose arrival begins the measurement."""

    @model_validator(mode="after")
    def _has_bytes_in_order(self) -> Self:
        _check_bytes(self.after_bytes, self.bytes)
        if self.from_ is not None and self.after_bytes is not None:
            raise ValueError("`from` and `after_bytes` both say where the measurement begins")
        return self


class DissectionMetric(MetricBase):
    """One-way delay in ms of one segment of the route, or its share of the whole route in %.

    Probes measure the RTT to each of the `hops`, as in a traceroute.
    """

    kind: Literal["dissection"]
    segment: Literal["S1", "S2", "S3", "S4", "S5", "S6"]
    """Segment of a route: S1 host to terminal, S2 bent pipe, S3 to S5 operator, S6 Internet."""
    hops: list[str] = Field(min_length=1)
    """Addresses of the hops that answer the probes, nearest first; the last is the destination."""
    flows: list[int] | None = Field(None, min_length=1)
    """Ids of the probes, one per hop; by default the first probes of the run."""
    method: Literal["trace", "medians"] = "trace"
    """Computation of delays from RTTs: per trace, or from medians (docs/how-to/telemetry.md)."""
    share: bool = False
    """Whether the metric is the segment's share in % of the route's delay, not its delay in ms."""

    @model_validator(mode="after")
    def _has_a_probe_to_each_hop(self) -> Self:
        for hop in self.hops:
            ipaddress.ip_address(hop)
        if len(self.flows or self.hops) != len(self.hops):
            raise ValueError("expected as many `flows` as `hops`")
        return self


class StatisticMetric(MetricBase):
    """Base model of statistics over the values in a window."""

    stat: str = Field("mean", pattern=r"^(mean|min|max|sd|median|p[0-9]{1,2})$")
    """Statistic over the values: mean, min, max, sd, median, or p0 to p99."""
    from_: Moment | None = Field(None, alias="from")
    """Start of the window: "2 s" after the period's start, "-1 s" before its end, "75 %" of it."""
    until: Moment | None = None
    """End of the window, written like `from`."""
    ddof: Literal[0, 1] = 1
    """Delta degrees of freedom: a standard deviation over n values divides by n - ddof."""
    pool: bool = False
    """Whether each run stores count, mean and squared deviations of its values, so that the values
    of all runs can be pooled: for `stat="pooled_mean"` and `stat="pooled_sd"` in claims, and
    `spread = "pooled"` in panels."""
    above: float | None = None
    """Exclusive lower bound: the metric becomes the share in % of the values that are greater than
    `above` and, if `upto` is given, at most `upto`."""
    upto: float | None = None
    """Inclusive upper bound: the metric becomes the share in % of the values that are at most
    `upto` and, if `above` is given, greater than `above`."""

    @model_validator(mode="after")
    def _has_bounds_in_order(self) -> Self:
        if self.above is not None and self.upto is not None and self.above >= self.upto:
            raise ValueError("expected `above` below `upto`")
        for moment in (self.from_, self.until):
            moment_s(moment or "0 s", 0.0, 1.0)
        if self.from_ and self.until and _is_not_before(self.from_, self.until):
            raise ValueError("expected `from` before `until`")
        return self


class ProbeMetric(StatisticMetric):
    """Statistic of the RTTs in ms that the run's first probe measured."""

    kind: Literal["probe"]


class GapMetric(StatisticMetric):
    """Statistic of the begin, end or length in ms of gaps between deliveries.

    Of the gaps that lie within `window` of a moment of the true handover grid, the `largest` ones
    count. The grid has a handover every `period`, the first one in each minute of UTC at `offset`.
    """

    kind: Literal["gap"]
    window: Duration = "5 s"
    """Time around a handover in which a gap must lie."""
    period: Duration = "15 s"
    """Period of the true handover grid."""
    offset: Duration = "12 s"
    """First moment of the true handover grid in each minute of UTC."""
    edge: Literal["begin", "end", "length"]
    """Property of a gap: its begin or end in ms relative to the handover, or its length in ms."""
    largest: int = Field(30, ge=1)
    """Number of gaps that count; they are the largest ones."""
    clock: Duration = "0 s"
    """Largest error of the receiver's clock. The error is drawn with the run's seed, uniformly
    between -clock and +clock."""


class _SeriesMetric(StatisticMetric):
    """Base model of statistics over the samples of a series."""

    series: Literal[Series, "base_rtt", "srtt_over_base"] = "goodput"
    """Sampled quantity; base_rtt: mean base RTT of the sample's second. srtt_over_base: ratio of
    srtt to it."""
    bin: Length | None = None
    """Length in time of the bins whose means are used; without it, the samples are used."""


class _FlowMetric(_SeriesMetric):
    """Base model of statistics over the samples of one flow."""

    within: Literal["run", "flow", "bytes"] = "run"
    """Period that `from` and `until` refer to: the run, the flow's lifetime, or the time in which
    the flow's bytes from `after_bytes` to `bytes` arrived."""
    bytes: Size | None = None
    """Number of bytes, counted from the flow's start, whose arrival ends the period."""
    after_bytes: Size | None = None
    """Number of bytes, counted from the flow's start, whose arrival begins the period."""

    @model_validator(mode="after")
    def _has_dependent_keys_together(self) -> Self:
        if (self.within == "bytes") != (self.bytes is not None):
            raise ValueError('within = "bytes" goes with `bytes`, and needs it')
        if self.after_bytes is not None and self.bytes is None:
            raise ValueError("`after_bytes` needs `bytes`")
        if self.bytes is not None:
            _check_bytes(self.after_bytes, self.bytes)
        return self


class SamplesMetric(_FlowMetric):
    """Statistic of the samples of a flow in a window; with `bin`, of their means over bins."""

    kind: Literal["samples"]


class TransientMetric(_FlowMetric):
    """Statistic of the samples of a flow during `window` after each event `after`."""

    kind: Literal["transient"]
    after: Literal["end", "intermediate", "reroute", "restored", "change", "outage", "rise"] = "end"
    """Event; outage: any of the others with an outage; rise: the base RTT grows by the share `rise`
    in a second."""
    window: Duration = "5 s"
    """Time after each event."""
    skip: Duration = "0 s"
    """Time after each event whose samples are left out; less than `window`."""
    rise: float | None = Field(None, gt=0)
    """Relative growth of the base RTT that is an event for after = "rise": 0.1 means 10 %."""

    @model_validator(mode="after")
    def _has_an_event(self) -> Self:
        if (self.after == "rise") != (self.rise is not None):
            raise ValueError('after = "rise" goes with `rise`, and needs it')
        if seconds(self.skip) >= seconds(self.window):
            raise ValueError("expected `skip` below `window`")
        return self


class FlowsMetric(_SeriesMetric):
    """Statistic over bins of one value that `over` combines from the values of several flows.

    Without `bin`, the means of the flows over the whole window are combined.
    """

    kind: Literal["flows"]
    over: Literal["min/max", "one/others", "sum/sum", "sum", "mean", "jain"]
    """Function that combines the values of several flows into one value.

    min/max: ratio of the smallest value to the greatest. one/others: ratio of the value of flow
    `flow` to the greatest value of the other flows. sum/sum: ratio of the sum over `flows` to the
    sum over `against`. jain: Jain's fairness index.
    """
    flow: int | None = Field(None, ge=0)
    """Id of the flow that over = "one/others" compares with the others."""
    flows: list[int] | None = Field(None, min_length=1)
    """Ids of the flows to combine, by default all TCP flows."""
    against: list[int] | None = Field(None, min_length=1)
    """Ids of the flows in the denominator of over = "sum/sum"."""
    least: float | None = None
    """Lower bound: a smaller value of a flow in a bin is replaced by this value."""
    truncate: bool = False
    """Whether each flow's values are truncated to whole numbers before they are combined."""

    @model_validator(mode="after")
    def _has_the_flows_to_combine(self) -> Self:
        if (self.over == "one/others") != (self.flow is not None):
            raise ValueError('`flow` goes with over = "one/others", and only with it')
        if self.flow is not None and self.flows is not None and self.flow not in self.flows:
            raise ValueError("expected `flow` to be one of `flows`")
        if (self.over == "sum/sum") != (self.against is not None):
            raise ValueError('`against` goes with over = "sum/sum", and only with it')
        if self.against is not None and set(self.flows or self.against) & set(self.against):
            raise ValueError('over = "sum/sum" needs `flows`, none of them in `against`')
        return self


FlowMetric: TypeAlias = SamplesMetric | TransientMetric
"""Metric whose values are the samples of one flow, or their means over bins."""
BinsMetric: TypeAlias = FlowMetric | FlowsMetric | GapMetric
"""Metric of flows whose values panels can show as a distribution."""
BytesMetric: TypeAlias = TimeToBytesMetric | RateOverBytesMetric
"""Metric of the time in which a flow delivers bytes."""
SampledMetric: TypeAlias = (
    FlowMetric | ProbeMetric | FlowsMetric | BytesMetric | DissectionMetric | GapMetric
)
"""Metric that is computed from the samples of a run."""
RunMetric: TypeAlias = ExpressionMetric | SampledMetric | GridErrorMetric
"""Metric that is computed from a single run."""
Metric = Annotated[RunMetric | RelativeMetric, Field(discriminator="kind")]


def _check_bytes(after: str | None, size: str) -> None:
    if size_bytes(after or "0 B") >= size_bytes(size):
        raise ValueError("expected `after_bytes` below `bytes`")


def _is_not_before(begin: str, end: str) -> bool:
    """Return whether the moment `begin` is at or after the moment `end` in a period of any length.

    False for moments that cannot be compared: one counts from the start of the period and the
    other from its end, or only one is a percentage.
    """
    alike = begin.strip().endswith("%") == end.strip().endswith("%")
    alike &= begin.strip().startswith("-") == end.strip().startswith("-")
    return alike and moment_s(begin, 0.0, 1.0) >= moment_s(end, 0.0, 1.0)
