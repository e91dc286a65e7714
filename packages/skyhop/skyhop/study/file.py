"""Types of the study file: the scenarios to run, the metrics to measure, the claims to check.

The types below are its JSON Schema (docs/study.schema.json); `docs/reference/study-file.md`
explains them with examples. Reading a file checks everything that needs no run.
"""

from __future__ import annotations

import ipaddress
import json
import os
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from skyhop.data.quantities import DURATION, MOMENT, SIZE, moment_s, seconds, size_bytes
from skyhop.data.toml import read_toml
from skyhop.errors import InputError

Value: TypeAlias = bool | int | float | str
Setting: TypeAlias = Value | list[Value] | dict[str, Any]
"""Value of a scenario key; a table given here replaces the scenario's whole table."""
Choice: TypeAlias = dict[str, Value | list[Value]]
"""Selection of runs: names of axes, `seed` or `flow`, each with the value or values to select."""


_MOST_VALUES = 10_000
"""Largest number of values of one range."""
MOST_DRAWS = 1_000_000
"""Largest number of draws of one axis."""


class StrictModel(BaseModel):
    """Base model: unknown keys and infinite numbers are errors."""

    # The docstring of each key becomes its description in the JSON Schema and in the reference.
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


class Range(StrictModel):
    """Evenly spaced values: `from` to `to` inclusive, by `step` or `count` of them."""

    from_: float = Field(alias="from")
    """First value of the range."""
    to: float
    """Last value of the range, included."""
    step: float | None = Field(None, gt=0)
    """Distance between values; instead of `count`."""
    count: int | None = Field(None, ge=2)
    """Number of values; instead of `step`."""
    scale: Literal["linear", "log"] = "linear"
    """Spacing of the values: equal differences, or equal ratios."""
    unit: str = ""
    """Unit that follows each number, such as "%" or "s"."""

    @model_validator(mode="after")
    def _is_one_way(self) -> Range:
        if (self.step is None) == (self.count is None):
            raise ValueError("expected either `step` or `count`")
        if self.to < self.from_:
            raise ValueError("expected `to` not below `from`")
        count = self.count or (self.to - self.from_) / (self.step or 1.0)
        if count > _MOST_VALUES:
            raise ValueError(f"{count:.4g} values are too many; expected at most {_MOST_VALUES:,}")
        if self.scale == "log" and (self.step is not None or self.from_ <= 0):
            raise ValueError("a log scale needs `count`, and `from` above 0")
        return self


Duration = Annotated[str, Field(pattern=DURATION)]
Moment = Annotated[str, Field(pattern=MOMENT)]
"""Time in a run or flow: "20 s" after its start, "-1 s" before its end, "75 %" of its length."""
Size = Annotated[str, Field(pattern=SIZE)]


class Draw(StrictModel):
    """Random value that is drawn for each change by a function of Python's `random`."""

    law: Literal["randint", "uniform"]
    """Function of Python's `random` that draws the value."""
    low: float
    """Smallest value that is drawn."""
    high: float
    """Largest value that is drawn."""
    digits: int | None = Field(None, ge=0, le=15)
    """Number of decimals to which a value of `uniform` is rounded."""
    unit: str = ""
    """Unit that follows the number."""
    key: Literal["rtt", "rate", "loss", "outage"] | None = None
    """Key of the change that is set to the drawn value; without it, the value is discarded."""
    link: str | None = None
    """Name of the scenario's link that changes; by default the link of [path]."""

    @model_validator(mode="after")
    def _can_be_drawn(self) -> Draw:
        if self.high < self.low:
            raise ValueError("expected `high` not below `low`")
        if self.law == "randint" and not (self.low.is_integer() and self.high.is_integer()):
            raise ValueError("randint draws whole numbers: expected whole `low` and `high`")
        return self


class Changes(StrictModel):
    """`[[change]]` entries of the scenario that depend on the value of an axis.

    They are drawn at random with the axis's value as seed (`draw`), or they are the rows of a CSV
    file (`csv`). A column of the file has the name of the axis: a row applies at the axis value in
    that column. The column `at` holds the time of the change. The columns `link`, `rtt`, `rate`,
    `loss` and `outage` are optional, and are those of a `[[change]]`.
    """

    draw: list[Draw] | None = Field(None, min_length=1)
    """Values to draw at each change, in this order."""
    first: Duration = "0 s"
    """Time of the first change."""
    every: Duration | None = None
    """Time between two changes."""
    count: int | None = Field(None, ge=1)
    """Total number of changes."""
    csv: str | None = None
    """CSV file with the changes, instead of `draw`, `first`, `every` and `count`."""

    @model_validator(mode="after")
    def _is_one_kind(self) -> Changes:
        if (self.draw is None) == (self.csv is None):
            raise ValueError("expected either `draw` or `csv`")
        if (self.draw is None) != (self.every is None) or (self.draw is None) != (
            self.count is None
        ):
            raise ValueError("`every` and `count` go with `draw`, which needs them")
        # Parsing raises an error here if a text is no duration.
        for duration in (self.first, self.every):
            seconds(duration or "0 s")
        return self


class Axis(StrictModel):
    """Axis of a study: values of one key, labelled points of several keys, or rows of a file."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    """Name of the axis in claims, panels and the dataset."""
    key: str | None = None
    """The scenario's key by its dotted path, such as `flow.0.cc`."""
    values: list[Value] | None = Field(None, min_length=1)
    """Values of the key."""
    range: Range | None = None
    """Evenly spaced values of the key, instead of `values`."""
    points: dict[str, dict[str, Setting]] | None = Field(None, min_length=1)
    """Labelled points, instead of `key`: for each label, the scenario keys that it sets.

    `path = { kind = "trace", … }` sets a whole table.
    """
    changes: Changes | None = None
    """Changes of the scenario over time, instead of `key`: for each value of this axis, they are
    drawn with the value as seed, or read from the rows of a file that belong to the value."""
    csv: str | None = None
    """CSV file whose rows are the values of this axis, instead of `values`.

    The column with the name of this axis holds its values. A column with the name of another axis
    holds the value of that axis at which the row applies. Every further column is a scenario key
    that the row sets.
    """
    zip: str | None = None
    """Name of a group of axes that advance together; axes without a group are crossed."""

    @model_validator(mode="after")
    def _is_one_kind(self) -> Axis:
        kinds = ("values", "range", "points", "csv")
        given = [name for name in kinds if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("expected one of `values`, `range`, `points` and `csv`")
        sets_keys = self.points is not None or self.csv is not None
        if (self.key is None) != (sets_keys or self.changes is not None):
            raise ValueError(
                "`values` and `range` need a `key` or `changes`, `points` and `csv` have none"
            )
        if self.changes is not None and sets_keys:
            raise ValueError("`changes` go with `values` or a `range`, not with `points` or `csv`")
        if self.csv is not None and self.zip is not None:
            raise ValueError(
                "`csv` takes no `zip`: the rows say to which values of other axes they belong"
            )
        return self


Series: TypeAlias = Literal["goodput", "cwnd", "srtt", "throughput", "retransmit_share"]
"""Sampled quantity of a flow.

goodput: payload that arrived in order, in Mbit/s. cwnd: congestion window in packets. srtt:
smoothed RTT in ms. throughput: rate in Mbit/s at which the link of [path] delivered packets of all
flows, headers included, in the direction of this flow. retransmit_share: packets that the flow
retransmitted, in % of the packets that this link delivered (counted as full-sized packets).
"""
Spread: TypeAlias = Literal["interval", "sd", "pooled"]
"""Measure of spread that is shown next to means over runs.

interval: 95 % confidence interval of the mean. sd: standard deviation over runs (n - 1). pooled:
mean and standard deviation over the bins of all runs together, for metrics with `pool = true`.
"""


class Metric(StrictModel):
    """Number that is computed for each run, from its samples or from other metrics.

    expression: the expression `value`, computed from other metrics of the same row.

    samples: statistic `stat` of the samples of `series` between `from` and `until`; with `bin`, of
    their means over bins of that length.

    transient: like samples, but only of the samples during `window` after each event `after`.

    probe: statistic `stat` of the RTTs in ms that the run's first probe measured.

    flows: `over` combines the values of several flows into one value per bin, and `stat` is the
    statistic over the bins; without `bin`, the means of the flows over the whole window are
    combined.

    time_to_bytes: time in s that a flow takes to deliver its first `bytes`.

    rate_over_bytes: rate in Mbit/s at which a flow delivers its bytes from `after_bytes` to
    `bytes`.

    relative: the metric `of`, compared with its value in a reference run. The reference run has the
    same seed, and the axis values `to`. `by` chooses the ratio or the difference.

    dissection: one-way delay in ms of one `segment` of the route, or its share in % of the whole
    route, from probes to each of the `hops` as in a traceroute.

    grid_error: distance in ms between the handover grid that a run with signal.source = "blind"
    estimated and the true grid. The true grid has a handover every `period`, the first one in each
    minute of UTC at `offset`. There is no value if the run found no grid.

    gap: statistic `stat` of the begin, end or length (`edge`) in ms of gaps between deliveries. Of
    the gaps that lie within `window` of a moment of the true grid, the `largest` ones count.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    """Name of the metric in claims, panels and the dataset."""
    kind: Literal[
        "expression", "samples", "transient", "probe", "grid_error", "flows", "time_to_bytes",
        "rate_over_bytes", "relative", "dissection", "gap",
    ]  # fmt: skip
    """Kind of the metric; it decides which of the other keys apply."""
    title: str | None = None
    """Title on the page; the name by default."""
    unit: str = ""
    """Unit of the value, for titles and column names."""
    value: str | None = None
    """Expression that is computed from other metrics of the same row, for kind = "expression"."""
    series: Literal[
        "goodput", "cwnd", "srtt", "throughput", "retransmit_share", "srtt_over_base"
    ] = "goodput"
    """Sampled quantity; srtt_over_base: ratio of srtt to the mean base RTT of the same second."""
    stat: str = Field("mean", pattern=r"^(mean|min|max|sd|median|p[0-9]{1,2})$")
    """Statistic over the samples or bins: mean, min, max, sd, median, or p0 to p99."""
    bin: Duration | None = None
    """Length in time of the bins whose means are used; without it, the samples are used."""
    from_: Moment | None = Field(None, alias="from")
    """Start of the window: "2 s" after the period's start, "-1 s" before its end, "75 %" of it."""
    until: Moment | None = None
    """End of the window, written like `from`."""
    after: Literal["end", "intermediate", "reroute", "restored", "change", "rise"] = "end"
    """Event for kind = "transient"; rise: the base RTT grows by the share `rise` in a second."""
    window: Duration = "5 s"
    """Time after each event; for kind = "gap", time around a handover in which a gap must lie."""
    period: Duration = "15 s"
    """Period of the true handover grid, for grid_error and gap."""
    offset: Duration = "12 s"
    """First moment of the true handover grid in each minute of UTC, for grid_error and gap."""
    # Later versions added the keys below: `LATER_METRIC_KEYS`.
    within: Literal["run", "flow", "bytes"] = "run"
    """Period that `from` and `until` refer to: the run, the flow's lifetime, or the time in which
    the flow's bytes from `after_bytes` to `bytes` arrived."""
    ddof: Literal[0, 1] = 1
    """Delta degrees of freedom: a standard deviation over n bins divides by n - ddof."""
    pool: bool = False
    """Whether each run stores count, mean and squared deviations of its bins, so that the bins of
    all runs can be pooled: for `stat="pooled_mean"` and `stat="pooled_sd"` in claims, and
    `spread = "pooled"` in panels."""
    over: Literal["min/max", "one/others", "sum/sum", "sum", "mean", "jain"] | None = None
    """Function with which kind = "flows" combines the values of several flows into one value.

    min/max: ratio of the smallest value to the greatest. one/others: ratio of the value of flow
    `flow` to the greatest value of the other flows. sum/sum: ratio of the sum over `flows` to the
    sum over `against`. jain: Jain's fairness index.
    """
    flow: int | None = Field(None, ge=0)
    """Id of the flow that over = "one/others" compares with the others."""
    flows: list[int] | None = Field(None, min_length=1)
    """Ids of the flows to combine, by default all TCP flows; for dissection, ids of the probes."""
    against: list[int] | None = Field(None, min_length=1)
    """Ids of the flows in the denominator of over = "sum/sum"."""
    least: float | None = None
    """Lower bound: a smaller value of a flow in a bin is replaced by this value."""
    truncate: bool = False
    """Whether each flow's values are truncated to whole numbers before they are combined."""
    bytes: Size | None = None
    """Number of bytes, counted from the flow's start, whose arrival ends the window."""
    after_bytes: Size | None = None
    """Number of bytes, counted from the flow's start, whose arrival begins the window."""
    cut: Duration | None = None
    """Resolution to which times are rounded down, such as "1 s"; times are exact by default."""
    skip: Duration = "0 s"
    """Time after each event whose samples are left out; less than `window`."""
    rise: float | None = Field(None, gt=0)
    """Relative growth of the base RTT that is an event for after = "rise": 0.1 means 10 %."""
    above: float | None = None
    """Exclusive lower bound: the metric becomes the share in % of the values that are greater than
    `above` and, if `upto` is given, at most `upto`."""
    upto: float | None = None
    """Inclusive upper bound: the metric becomes the share in % of the values that are at most
    `upto` and, if `above` is given, greater than `above`."""
    of: str | None = None
    """Metric that kind = "relative" compares."""
    to: dict[str, Value] | None = Field(None, min_length=1)
    """Axes and their values at the reference run of kind = "relative"."""
    by: Literal["ratio", "difference"] = "ratio"
    """Comparison of kind = "relative": ratio to the reference value, or difference from it."""
    segment: Literal["S1", "S2", "S3", "S4", "S5", "S6"] | None = None
    """Segment of a route: S1 host to terminal, S2 bent pipe, S3 to S5 operator, S6 Internet."""
    hops: list[str] | None = Field(None, min_length=1)
    """Addresses of the hops that answer the probes, nearest first; the last is the destination."""
    method: Literal["trace", "medians"] = "trace"
    """Computation of delays from RTTs: per trace, or from medians (docs/how-to/telemetry.md)."""
    edge: Literal["begin", "end", "length"] | None = None
    """Property of a gap: its begin or end in ms relative to the handover, or its length in ms."""
    largest: int = Field(30, ge=1)
    """Number of gaps that count; they are the largest ones."""
    clock: Duration = "0 s"
    """Largest error of the receiver's clock. The error is drawn with the run's seed, uniformly
    between -clock and +clock."""
    share: bool = False
    """Whether the metric is the segment's share in % of the route's delay, not its delay in ms."""

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> Metric:
        if (self.kind == "expression") != (self.value is not None):
            raise ValueError('`value` goes with kind = "expression", and only with it')
        for key, kinds in _KINDS_OF_KEYS.items():
            if (
                self.kind not in kinds
                and getattr(self, key) != type(self).model_fields[key].default
            ):
                raise ValueError(f"`{key}` goes with kind = {' or '.join(map(json.dumps, kinds))}")
        for key, kind in _REQUIRED_KEYS:
            if self.kind == kind and getattr(self, key) is None:
                raise ValueError(f'kind = "{kind}" needs `{key}`')
        if (self.over == "one/others") != (self.flow is not None):
            raise ValueError('`flow` goes with over = "one/others", and only with it')
        if self.flow is not None and self.flows is not None and self.flow not in self.flows:
            raise ValueError("expected `flow` to be one of `flows`")
        if (self.over == "sum/sum") != (self.against is not None):
            raise ValueError('`against` goes with over = "sum/sum", and only with it')
        if self.against is not None and set(self.flows or self.against) & set(self.against):
            raise ValueError('over = "sum/sum" needs `flows`, none of them in `against`')
        return self

    @model_validator(mode="after")
    def _has_a_probe_to_each_hop(self) -> Metric:
        for hop in self.hops or ():
            ipaddress.ip_address(hop)
        if self.hops is not None and len(self.flows or self.hops) != len(self.hops):
            raise ValueError("expected as many `flows` as `hops`")
        return self

    @model_validator(mode="after")
    def _has_dependent_keys_together(self) -> Metric:
        if (self.after == "rise") != (self.rise is not None):
            raise ValueError('after = "rise" goes with `rise`, and needs it')
        if (self.within == "bytes") != (self.kind in _FLOW_KINDS and self.bytes is not None):
            raise ValueError('within = "bytes" goes with `bytes`, and needs it')
        if self.after_bytes is not None and self.bytes is None:
            raise ValueError("`after_bytes` needs `bytes`")
        if self.above is not None and self.upto is not None and self.above >= self.upto:
            raise ValueError("expected `above` below `upto`")
        return self

    @model_validator(mode="after")
    def _begins_before_it_ends(self) -> Metric:
        for moment in (self.from_, self.until):
            moment_s(moment or "0 s", 0.0, 1.0)
        for name in ("bin", "cut"):
            if seconds(getattr(self, name) or "1 s") <= 0:
                raise ValueError(f"expected `{name}` above 0 s")
        if self.kind == "transient" and seconds(self.skip) >= seconds(self.window):
            raise ValueError("expected `skip` below `window`")
        if self.from_ and self.until and _is_not_before(self.from_, self.until):
            raise ValueError("expected `from` before `until`")
        if self.bytes and size_bytes(self.after_bytes or "0 B") >= size_bytes(self.bytes):
            raise ValueError("expected `after_bytes` below `bytes`")
        return self

    @property
    def needs_series(self) -> bool:
        """Whether the metric needs the samples of a run, in addition to its summary."""
        return self.kind not in ("expression", "grid_error", "relative")


_FLOW_KINDS = ("samples", "transient")
_BIN_KINDS = (*_FLOW_KINDS, "flows")
_VALUE_KINDS = (*_BIN_KINDS, "probe", "gap")
_BYTE_KINDS = ("time_to_bytes", "rate_over_bytes")
_KINDS_OF_KEYS: dict[str, tuple[str, ...]] = {
    "within": _FLOW_KINDS,
    **dict.fromkeys(("ddof", "pool", "above", "upto"), _VALUE_KINDS),
    **dict.fromkeys(("over", "flow", "against", "least", "truncate"), ("flows",)),
    "flows": ("flows", "dissection"),
    **dict.fromkeys(("segment", "hops", "method", "share"), ("dissection",)),
    "bytes": (*_FLOW_KINDS, *_BYTE_KINDS),
    "cut": _BYTE_KINDS,
    **dict.fromkeys(("skip", "rise"), ("transient",)),
    "after_bytes": (*_FLOW_KINDS, "rate_over_bytes"),
    **dict.fromkeys(("of", "to", "by"), ("relative",)),
    **dict.fromkeys(("edge", "largest", "clock"), ("gap",)),
}
_REQUIRED_KEYS = (
    ("over", "flows"),
    ("bytes", "time_to_bytes"),
    ("bytes", "rate_over_bytes"),
    ("of", "relative"),
    ("to", "relative"),
    ("segment", "dissection"),
    ("hops", "dissection"),
    ("edge", "gap"),
)
LATER_METRIC_KEYS = frozenset(_KINDS_OF_KEYS)
"""Keys of metrics that were added in later versions of the study file.

The digest of a metric leaves out keys that have their defaults, so that older runs stay valid.
"""


def _is_not_before(begin: str, end: str) -> bool:
    """Return whether the moment `begin` is at or after the moment `end` in a period of any length.

    False for moments that cannot be compared: one counts from the start of the period and the
    other from its end, or only one is a percentage.
    """
    alike = begin.strip().endswith("%") == end.strip().endswith("%")
    alike &= begin.strip().startswith("-") == end.strip().startswith("-")
    return alike and moment_s(begin, 0.0, 1.0) >= moment_s(end, 0.0, 1.0)


class Published(StrictModel):
    """Published values of a metric: one row per combination of values of the axes `by`."""

    metric: str
    """Metric of the study with whose results the published values are compared."""
    stat: Literal["mean", "sd"] = "mean"
    """Published statistic: the mean, or the standard deviation over runs."""
    by: list[str] = Field(min_length=1)
    """Axes that identify a row: their values are the first columns of each row of `values`."""
    values: list[list[Value]] = Field(min_length=1)
    """Rows, each with one value per axis of `by`, then the published value."""


class Claim(StrictModel):
    """Claim to check: an expression over the results, such as `goodput(cc="bbr") > 100`."""

    text: str
    """The claim in words."""
    check: str | None = None
    """Expression that is true if the claim holds."""
    each: dict[str, list[Value]] = {}
    """Axes and some of their values; the claim must hold at each combination of these values."""
    cannot_be_told: str = ""
    """Reason why the claim cannot be checked; with `policy`, why not if its card is not given."""
    policy: str = ""
    """Name of the learned sender in the claim; the user gives its card with `--policy`."""
    note: str = ""
    """Note for readers of the page."""

    @model_validator(mode="after")
    def _is_checked_or_says_why_not(self) -> Claim:
        has_why = bool(self.cannot_be_told.strip())
        if self.policy and (self.check is None or not has_why):
            raise ValueError(
                "`policy` needs `check`, and `cannot_be_told`: the reason without that sender"
            )
        if not self.policy and (self.check is None) != has_why:
            raise ValueError("expected either `check`, or the reason `cannot_be_told`")
        if self.check is None and self.each:
            raise ValueError("`each` goes with `check`")
        return self


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
    cut: Duration | None = None
    """Resolution to which times are rounded down; times are exact by default."""
    spread: Literal["interval", "sd"] = "interval"
    """Spread next to the means."""

    @model_validator(mode="after")
    def _is_a_line(self) -> Self:
        count = size_bytes(self.upto) / max(size_bytes(self.step), 1)
        if not 1 <= count <= _MOST_STEPS:
            raise ValueError(f"expected `upto` to be 1 to {_MOST_STEPS} of `step`")
        if self.cut and seconds(self.cut) <= 0:
            raise ValueError("expected `cut` above 0 s")
        return self


_MOST_STEPS = 1000
"""Largest number of points of a panel's line."""


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
    """Whether both axes of the plot begin at zero."""


class HeatmapPanel(_Panel):
    """Mean of a metric at the values of two axes, as colour."""

    kind: Literal["heatmap"]
    metric: str
    """Metric that is drawn."""
    x: str
    """Axis along the abscissa."""
    y: str
    """Axis along the ordinate."""


class SeriesPanel(_Panel):
    """Samples of the chosen runs over time, with the path's handovers."""

    kind: Literal["series"]
    series: list[
        Literal["goodput", "cwnd", "srtt", "throughput", "retransmit_share", "base_rtt"]
    ] = Field(min_length=1)
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
    | SeriesPanel,
    Field(discriminator="kind"),
]


class StudyFile(StrictModel):
    """Content of a study file."""

    title: str
    """Title of the page."""
    question: str
    """Question that the study answers."""
    source: str = ""
    """Publication whose values are shown next to the study's own results."""
    notes: list[str] = []
    """Notes for readers of the page."""
    engine: Literal["sim", "live", "linux", "elements", "predict", "video", "browser"] = "sim"
    """Engine of the runs.

    elements: no runs; the study compares two snapshots of element sets that the user gives.
    predict: each run trains a predictor and tests it, as [prediction] says. video: each run plays a
    film over a measured rate, as [video] says. browser: each run plays a film in a real browser
    over a live run, as [browser] says.
    """
    repeats: int = Field(1, ge=1)
    """Runs per point; their seeds count up from `[run] seed`."""
    keep: Literal["series", "rows"] = "series"
    """Part of each run that is kept: series is its whole directory, rows only its dataset rows."""
    base: str | None = None
    """Scenario file whose keys the axes vary, instead of `[scenario]`."""
    scenario: dict[str, Any] | None = None
    """Scenario whose keys the axes vary."""
    prediction: dict[str, Any] | None = None
    """Table for engine = "predict": data and model to train; axes may set keys of this table."""
    video: dict[str, Any] | None = None
    """Table for engine = "video": data and film to play; axes may set keys of this table."""
    browser: dict[str, Any] | None = None
    """Table for engine = "browser": scenario and film; axes may set keys of this table."""
    axis: list[Axis] = []
    """Axes of the study, each a varied key; every combination of their values is run."""
    exclude: list[Choice] = []
    """Combinations to leave out, each given by axes and their values."""
    metric: list[Metric] = []
    """Metrics in addition to the built-in ones."""
    published: list[Published] = []
    """Published values, to compare the study's results with."""
    claim: list[Claim] = []
    """Claims that the study checks."""
    panel: list[Panel] = []
    """Panels of the page."""

    @model_validator(mode="after")
    def _has_a_base(self) -> StudyFile:
        if self.engine == "elements":
            if self.base or self.scenario or self.axis or self.metric:
                raise ValueError('engine = "elements" takes no scenario, axes or metrics')
            return self
        tables = {"predict": "prediction", "video": "video", "browser": "browser"}
        for engine, name in tables.items():
            if (self.engine == engine) != (getattr(self, name) is not None):
                raise ValueError(f'[{name}] goes with engine = "{engine}", which needs it')
        if self.engine in tables:
            if self.base or self.scenario:
                raise ValueError(f'engine = "{self.engine}" takes no scenario')
            for metric in self.metric:
                if metric.kind not in ("expression", "relative"):
                    raise ValueError(
                        f'engine = "{self.engine}" takes metrics of kind "expression" or '
                        '"relative" only'
                    )
            return self
        if (self.base is None) == (self.scenario is None):
            raise ValueError("expected either `base`, a scenario file, or a [scenario]")
        return self


RESERVED = frozenset({"run", "seed", "flow", "flow_cc", "stat", "virtual_s", "warnings"})
"""Names that neither axes nor metrics can have."""


def read_study_file(file: str | os.PathLike[str]) -> StudyFile:
    """Read and check a study file.

    Raises:
        InputError: the file cannot be read, or a key is wrong; one line names file and key.
    """
    file = Path(file)
    study = parse_study(_toml(file), str(file))
    return study.model_copy(
        update={"axis": [_with_absolute_csv(axis, file.parent) for axis in study.axis]}
    )


def _with_absolute_csv(axis: Axis, directory: Path) -> Axis:
    """Return the axis with the path of its CSV file resolved against `directory`."""
    if axis.csv is not None:
        return axis.model_copy(update={"csv": str(directory / axis.csv)})
    if axis.changes is None or axis.changes.csv is None:
        return axis
    changes = axis.changes.model_copy(update={"csv": str(directory / axis.changes.csv)})
    return axis.model_copy(update={"changes": changes})


def read_scenario_table(file: Path) -> dict[str, Any]:
    """Read a scenario file as a dictionary, without checking its keys.

    Raises:
        InputError: the file cannot be read.
    """
    return _toml(file)


def parse_study(content: dict[str, Any], origin: str) -> StudyFile:
    """Check the content of a study file; `origin` names it in error messages.

    Raises:
        InputError: a key is wrong.
    """
    try:
        return StudyFile.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{origin}: {first_error(error)}") from None


def _toml(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text("utf-8")
        content = read_toml(text, str(file))
        # The core takes scenarios as JSON; `dumps` raises RecursionError for deep nesting.
        json.dumps(content, default=str)
    except OSError as error:
        raise InputError(f"{file}: cannot read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{file}: is no TOML: its text is not UTF-8") from None
    except RecursionError:
        raise InputError(f"{file}: is nested too deeply") from None
    return content


def first_error(error: ValidationError) -> str:
    """Return the first error in one line: the key, and what was expected."""
    first = error.errors(include_url=False)[0]
    # pydantic's locations also contain the branches of unions, which are not keys of the file.
    location = [str(step) for step in first["loc"] if step not in _BRANCHES]
    key = ".".join(location)
    if first["type"] == "extra_forbidden":
        expected = ", ".join(_known_keys(first["loc"]))
        return f"{key}: unknown key; expected one of {expected}"
    message = _plain_message(first)
    given = first["input"]
    actual = f" (it is {given!r})" if isinstance(given, str | int | float) else ""
    return f"{key}: {message}{actual}" if key else message


def _plain_message(error: ErrorDetails) -> str:
    """Return a validation error's message in terms of TOML rather than of Python."""
    if error["loc"] and error["loc"][-1] in _VALUES:
        others = ", a list of those, or a table" if "points" in error["loc"] else ""
        return f"expected a number, text, true or false{others}"
    kind = error["type"].removesuffix("_type").removesuffix("_parsing").removesuffix("_from_float")
    if kind == "missing":
        return "is missing"
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}"
    if kind == "literal_error":
        return f"expected {error.get('ctx', {}).get('expected', 'another word')}"
    return error["msg"].removeprefix("Value error, ")


_EXPECTED = {
    "bool": "true or false", "dict": "a table", "float": "a number", "int": "a whole number",
    "list": "a list", "model": "a table", "model_attributes": "a table", "string": "text",
}  # fmt: skip
_VALUES = frozenset(
    {"bool", "int", "float", "str", "list[union[bool,int,float,str]]", "dict[str,any]"}
)
_BRANCHES = _VALUES | {
    name
    for model in typing.get_args(typing.get_args(Panel)[0])
    for name in typing.get_args(model.model_fields["kind"].annotation)
}


def _known_keys(location: tuple[int | str, ...]) -> list[str]:
    """Return the keys of the table that contains `location`, sorted."""
    model: type[BaseModel] = StudyFile
    for step in location[:-1]:
        model = _inner_model(model, step)
    names = (field.alias or name for name, field in model.model_fields.items())
    return sorted(names)


def _inner_model(model: type[BaseModel], step: int | str) -> type[BaseModel]:
    field = model.model_fields.get(str(step))
    found = _models_in(field.annotation) if field is not None else []
    if len(found) == 1:
        return found[0]
    if model is StudyFile and field is None:
        for panel in _models_in(Panel):
            if typing.get_args(panel.model_fields["kind"].annotation) == (step,):
                return panel
    return model


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for part in typing.get_args(annotation) for model in _models_in(part)]
