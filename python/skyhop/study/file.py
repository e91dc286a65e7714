"""The study file: which scenarios to run, what to measure, and what is claimed about it.

The types below are the schema (docs/study.schema.json); `docs/studies.md` explains them with
examples. Everything that can be told without running is checked on reading.
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
"""What a key of the scenario is set to; a table takes the place of the whole table there."""
Choice: TypeAlias = dict[str, Value | list[Value]]
"""Which runs: axis names, or `seed` and `flow`, each with the value or values to take."""


_MOST_VALUES = 10_000
"""Of one range."""
MOST_DRAWS = 1_000_000
"""Of all values of one axis."""


class Strict(BaseModel):
    """What knows its keys, and takes no numbers without end."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False
    )


class Range(Strict):
    """Evenly spaced values: `from` to `to` inclusive, by `step` or `count` of them."""

    from_: float = Field(alias="from")
    to: float
    step: float | None = Field(None, gt=0)
    count: int | None = Field(None, ge=2)
    scale: Literal["linear", "log"] = "linear"
    unit: str = ""
    """What is written behind each number, such as "%" or "s"."""

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
            raise ValueError("a log scale takes `count` and begins above 0")
        return self


Duration = Annotated[str, Field(pattern=DURATION)]
Moment = Annotated[str, Field(pattern=MOMENT)]
"""When in a run or of a flow: "20 s" after its begin, "-1 s" before its end, "75 %" of it."""
Size = Annotated[str, Field(pattern=SIZE)]


class Draw(Strict):
    """A value that is drawn for each change, by a function of Python's `random`."""

    law: Literal["randint", "uniform"]
    low: float
    high: float
    digits: int | None = Field(None, ge=0, le=15)
    """uniform: rounded to so many places."""
    unit: str = ""
    key: Literal["rtt", "rate", "loss", "outage"] | None = None
    """What changes; without it, the value is drawn and put aside."""
    link: str | None = None
    """Of which of the scenario's links; of the path where not given."""

    @model_validator(mode="after")
    def _can_be_drawn(self) -> Draw:
        if self.high < self.low:
            raise ValueError("expected `high` not below `low`")
        if self.law == "randint" and not (self.low.is_integer() and self.high.is_integer()):
            raise ValueError("randint draws whole numbers: expected whole `low` and `high`")
        return self


class Changes(Strict):
    """The scenario's `[[change]]`s, drawn with the axis's value as seed, or rows of a file.

    The file is CSV: a column called like the axis, with its value, `at`, and some of `link`, `rtt`,
    `rate`, `loss` and `outage`.
    """

    draw: list[Draw] | None = Field(None, min_length=1)
    """In this order at each change."""
    first: Duration = "0 s"
    every: Duration | None = None
    count: int | None = Field(None, ge=1)
    csv: str | None = None

    @model_validator(mode="after")
    def _is_one_kind(self) -> Changes:
        if (self.draw is None) == (self.csv is None):
            raise ValueError("expected either `draw` or `csv`")
        if (self.draw is None) != (self.every is None) or (self.draw is None) != (
            self.count is None
        ):
            raise ValueError("`every` and `count` go with `draw`, which needs them")
        # So that what is no duration is found here.
        for duration in (self.first, self.every):
            seconds(duration or "0 s")
        return self


class Axis(Strict):
    """One thing that varies: a key with values or a range, or labelled points of several keys."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    key: str | None = None
    """The scenario's key by its dotted path, such as `flow.0.cc`."""
    values: list[Value] | None = Field(None, min_length=1)
    range: Range | None = None
    points: dict[str, dict[str, Setting]] | None = Field(None, min_length=1)
    """Label: the keys that it sets; `path = { kind = "trace", … }` sets a whole table."""
    changes: Changes | None = None
    """Instead of a key: what changes in the scenario at each of the values, which are seeds."""
    csv: str | None = None
    """Instead of values: rows of a file, each a value of this axis that sets keys (`listed`)."""
    zip: str | None = None
    """Axes of one zip go in step; all others are crossed."""

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
            raise ValueError("rows of a file say themselves what they go with: `csv` has no `zip`")
        return self


Series: TypeAlias = Literal["goodput", "cwnd", "srtt", "throughput", "retransmit_share"]
"""What is sampled of a flow.

goodput: payload that arrived in order. throughput: what the link of [path] delivered in the flow's
direction, in whatever order, of all flows, and as its rate counts. retransmit_share: how many
packets the flow sent again, in % of how many full ones that link delivered.
"""
Spread: TypeAlias = Literal["interval", "sd", "pooled"]
"""What stands beside means over runs.

interval: the mean's 95 % interval. sd: the runs' standard deviation, n - 1. pooled: mean and
standard deviation over the bins of all runs together, of metrics that say `pool = true`.
"""


class Metric(Strict):
    """A figure of each run, computed from other metrics or from the run's samples.

    kind = "expression": `value` from the metrics of the same row. kind = "samples": `stat` of the
    samples of `series` between `from` and `until`, as means over `bin`. kind = "transient": the
    same, but only during `window` after each event of the kind `after`. kind = "probe": `stat` of
    the round trips (ms) of a run's first probe. kind = "dissection": what the probes of a run that
    turn round one behind the other, as those of a traceroute, say about a `segment`. kind =
    "grid_error": how
    far, in ms, the handover grid that a run with signal.source = "blind" has found at its end is
    from the true one, every `period` from the UTC second `offset` on; none where it found no grid.
    kind = "flows": `stat` of what the flows amount to together (`over`) in each bin; without `bin`,
    what their means over the whole window amount to. kind = "time_to_bytes": how long, in s, a flow
    takes for its first `bytes`; kind = "rate_over_bytes": the rate, in Mbit/s, from `after_bytes`
    to `bytes`. kind = "relative": the metric `of` over what it is in the run with the same seed at
    the values `to` of axes, or less that.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    kind: Literal[
        "expression", "samples", "transient", "probe", "grid_error", "flows", "time_to_bytes",
        "rate_over_bytes", "relative", "dissection", "gap",
    ]  # fmt: skip
    title: str | None = None
    unit: str = ""
    value: str | None = None
    series: Literal[
        "goodput", "cwnd", "srtt", "throughput", "retransmit_share", "srtt_over_base"
    ] = "goodput"
    """srtt_over_base: srtt over the mean base RTT of the same second; the others: `Series`."""
    stat: str = Field("mean", pattern=r"^(mean|min|max|sd|median|p[0-9]{1,2})$")
    bin: Duration | None = None
    from_: Moment | None = Field(None, alias="from")
    until: Moment | None = None
    after: Literal["end", "intermediate", "reroute", "restored", "change", "rise"] = "end"
    """rise: the base RTT has become `rise` longer, from one second to the next."""
    window: Duration = "5 s"
    period: Duration = "15 s"
    offset: Duration = "12 s"
    # What follows came later: `LATER_METRIC_KEYS`.
    within: Literal["run", "flow", "bytes"] = "run"
    """What `from` and `until` are moments of; bytes: of the time in which a flow's bytes from
    `after_bytes` to `bytes` arrived."""
    ddof: Literal[0, 1] = 1
    """What a standard deviation over bins, of one run or of all, takes from their number."""
    pool: bool = False
    """Also keep what it takes to pool the bins of all runs: `stat="pooled_mean"`, `spread`."""
    over: Literal["min/max", "one/others", "sum/sum", "sum", "mean", "jain"] | None = None
    """one/others: the flow `flow` over the greatest of the others.

    sum/sum: the sum of `flows` over that of `against`.
    """
    flow: int | None = Field(None, ge=0)
    flows: list[int] | None = Field(None, min_length=1)
    """The ids of those that count; all TCP flows where not given."""
    against: list[int] | None = Field(None, min_length=1)
    least: float | None = None
    """A flow that has less in a bin counts as having so much."""
    truncate: bool = False
    """Cut each flow's bins to whole numbers first."""
    bytes: Size | None = None
    after_bytes: Size | None = None
    cut: Duration | None = None
    """Cut times to whole ones of it first, such as "1 s"."""
    skip: Duration = "0 s"
    """How much of each event's `window` does not count, from the event on."""
    rise: float | None = Field(None, gt=0)
    """With after = "rise", by which part of itself the base RTT grows: 0.1 for a tenth."""
    above: float | None = None
    """Instead of the values themselves: which share of them, in %, is above this …"""
    upto: float | None = None
    """… and at most that."""
    of: str | None = None
    to: dict[str, Value] | None = Field(None, min_length=1)
    by: Literal["ratio", "difference"] = "ratio"
    segment: Literal["S1", "S2", "S3", "S4", "S5", "S6"] | None = None
    """Of `skyhop dissect`: S1 host to terminal, S2 bent pipe, S3 to S5 operator, S6 Internet."""
    hops: list[str] | None = Field(None, min_length=1)
    """The addresses at which the probes `flows` turn round, nearest first; the last is reached."""
    method: Literal["trace", "medians"] = "trace"
    """From round trips to delays by trace, or of medians (docs/telemetry.md)."""
    edge: Literal["begin", "end", "length"] | None = None
    largest: int = Field(30, ge=1)
    """How many gaps count."""
    clock: Duration = "0 s"
    """By how much the receiver's clock may be wrong: drawn evenly from the seed, either way."""
    share: bool = False
    """Its share of the sum of all segments, in %, instead of its delay of one direction, in ms."""

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
        for key, kind in _NEEDED:
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
    def _has_both_of_what_goes_together(self) -> Metric:
        if (self.after == "rise") != (self.rise is not None):
            raise ValueError('after = "rise" goes with `rise`, and needs it')
        if (self.within == "bytes") != (self.kind in _OF_FLOW and self.bytes is not None):
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
        if self.from_ and self.until and _comes_late(self.from_, self.until):
            raise ValueError("expected `from` before `until`")
        if self.bytes and size_bytes(self.after_bytes or "0 B") >= size_bytes(self.bytes):
            raise ValueError("expected `after_bytes` below `bytes`")
        return self

    @property
    def needs_series(self) -> bool:
        """Whether it needs the samples of a run, beyond its summary."""
        return self.kind not in ("expression", "grid_error", "relative")


_OF_FLOW = ("samples", "transient")
_OF_BINS = (*_OF_FLOW, "flows")
_OF_VALUES = (*_OF_BINS, "probe", "gap")
_OF_BYTES = ("time_to_bytes", "rate_over_bytes")
_KINDS_OF_KEYS: dict[str, tuple[str, ...]] = {
    "within": _OF_FLOW,
    **dict.fromkeys(("ddof", "pool", "above", "upto"), _OF_VALUES),
    **dict.fromkeys(("over", "flow", "against", "least", "truncate"), ("flows",)),
    "flows": ("flows", "dissection"),
    **dict.fromkeys(("segment", "hops", "method", "share"), ("dissection",)),
    "bytes": (*_OF_FLOW, *_OF_BYTES),
    "cut": _OF_BYTES,
    **dict.fromkeys(("skip", "rise"), ("transient",)),
    "after_bytes": (*_OF_FLOW, "rate_over_bytes"),
    **dict.fromkeys(("of", "to", "by"), ("relative",)),
    **dict.fromkeys(("edge", "largest", "clock"), ("gap",)),
}
_NEEDED = (
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
"""Keys that metrics were given later: where they are not used, what is measured is as before."""


def _comes_late(begin: str, end: str) -> bool:
    """Whether a moment is not before another, whatever they are moments of."""
    alike = begin.strip().endswith("%") == end.strip().endswith("%")
    alike &= begin.strip().startswith("-") == end.strip().startswith("-")
    return alike and moment_s(begin, 0.0, 1.0) >= moment_s(end, 0.0, 1.0)


class Published(Strict):
    """Values that others published: rows of the values of the axes `by`, and the figure."""

    metric: str
    stat: Literal["mean", "sd"] = "mean"
    """sd: the standard deviation over their runs."""
    by: list[str] = Field(min_length=1)
    values: list[list[Value]] = Field(min_length=1)


class Claim(Strict):
    """Something to check: an expression over the results, such as `goodput(cc="bbr") > 100`."""

    text: str
    check: str | None = None
    each: dict[str, list[Value]] = {}
    """Check once for each of these values; the claim holds when all of them do."""
    cannot_be_told: str = ""
    """Instead of a check: why there can be none. With `policy`: why not without that one."""
    policy: str = ""
    """The learned sender that it is about, whose card is given as the study is run."""
    note: str = ""
    """What a reader should know about it."""

    @model_validator(mode="after")
    def _is_checked_or_says_why_not(self) -> Claim:
        has_why = bool(self.cannot_be_told.strip())
        if self.policy and (self.check is None or not has_why):
            raise ValueError("`policy` goes with `check`, and with why it `cannot_be_told` without")
        if not self.policy and (self.check is None) != has_why:
            raise ValueError("expected either `check`, or why it `cannot_be_told`")
        if self.check is None and self.each:
            raise ValueError("`each` goes with `check`")
        return self


class _Panel(Strict):
    """What every panel has."""

    title: str
    where: Choice = {}
    note: str = ""


class _SpreadPanel(_Panel):
    """What is shown of each run: a metric, the bins that it is of, or a series's over `bin`."""

    metric: str | None = None
    bins_of: str | None = None
    """A metric of samples or flows: what it is a statistic of, of all runs together."""
    series: Series | None = None
    bin: Duration = "1 s"

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if sum(given is not None for given in (self.metric, self.bins_of, self.series)) != 1:
            raise ValueError(
                "expected either `metric`, of whole runs, `bins_of`, of a metric's bins, "
                "or `series`, of samples"
            )
        return self


class TablePanel(_Panel):
    """Means with confidence intervals, and the published values beside."""

    kind: Literal["table"]
    metrics: list[str] = Field(min_length=1)
    by: list[str] = Field(min_length=1)
    spread: Spread = "interval"


class ComparisonPanel(_Panel):
    """Each value of the axis `by` against one of them: a t-test, Bonferroni, Cohen's d.

    Where standard deviations were published, the difference stands in those, too.
    """

    kind: Literal["comparison"]
    metric: str
    by: str
    against: Value
    each: list[str] = []
    test: Literal["welch", "student", "both"] = "welch"
    """student: as if both samples varied alike."""


class BarsPanel(_Panel):
    """Mean and confidence interval as bars along `x`, one colour per `hue`."""

    kind: Literal["bars"]
    metric: str
    x: str
    hue: str | None = None
    spread: Spread = "interval"


class BoxPanel(_SpreadPanel):
    """The spread over runs, or over the samples of runs, as boxes along `x`."""

    kind: Literal["box"]
    x: str
    hue: str | None = None


class CdfPanel(_SpreadPanel):
    """Which share of runs, or of their samples, stays at or below a value, a line per `hue`."""

    kind: Literal["cdf"]
    hue: str


class LinesPanel(_Panel):
    """The mean along a numeric axis `x`, a line per `hue`."""

    kind: Literal["lines"]
    metric: str
    x: str
    hue: str | None = None
    spread: Spread = "interval"


class TransferPanel(_Panel):
    """How long a flow takes for its first bytes, the mean along how many, a line per `hue`."""

    kind: Literal["transfer"]
    upto: Size
    step: Size
    hue: str | None = None
    cut: Duration | None = None
    """Cut times to whole ones of it first."""
    spread: Literal["interval", "sd"] = "interval"

    @model_validator(mode="after")
    def _is_a_line(self) -> Self:
        count = size_bytes(self.upto) / max(size_bytes(self.step), 1)
        if not 1 <= count <= _MOST_STEPS:
            raise ValueError(f"expected `upto` to be 1 to {_MOST_STEPS} of `step`")
        if self.cut and seconds(self.cut) <= 0:
            raise ValueError("expected `cut` above 0 s")
        return self


_MOST_STEPS = 1000
"""Of one panel's lines."""


class ScatterPanel(_Panel):
    """One point per run and flow."""

    kind: Literal["scatter"]
    x: str
    y: str
    hue: str | None = None
    per: Literal["flow", "run"] = "flow"
    """run: one point per run, the mean over its flows."""
    ellipses: bool = False
    """Of one standard deviation (n - 1) around the mean of each hue's points."""
    zero: bool = True
    """Whether axes begin at zero."""


class HeatmapPanel(_Panel):
    """The mean as colour over two axes."""

    kind: Literal["heatmap"]
    metric: str
    x: str
    y: str


class SeriesPanel(_Panel):
    """Samples of the chosen runs over time, with the path's handovers."""

    kind: Literal["series"]
    series: list[
        Literal["goodput", "cwnd", "srtt", "throughput", "retransmit_share", "base_rtt"]
    ] = Field(min_length=1)
    hue: str
    bin: Duration | None = None
    from_: Duration | None = Field(None, alias="from")
    until: Duration | None = None
    runs: Literal["first", "mean"] = "first"
    """mean: of each bin over all runs of a hue, with the standard deviation (n - 1) around it."""

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


class StudyFile(Strict):
    """A study file, as written."""

    title: str
    question: str
    source: str = ""
    """The publication whose figures stand beside."""
    notes: list[str] = []
    engine: Literal["sim", "live", "linux", "elements", "predict", "video", "browser"] = "sim"
    """elements: nothing is run; two snapshots of element sets that the user gives are compared.

    predict: each run trains a predictor and tests it, as [prediction] says. video: each plays a
    film over what was measured, as [video] says. browser: each plays one in a real browser over a
    live run, as [browser] says.
    """
    repeats: int = Field(1, ge=1)
    """Runs per point; their seeds count up from `[run] seed`."""
    keep: Literal["series", "rows"] = "series"
    """What stays of a run: its whole directory, or only its rows of the dataset."""
    base: str | None = None
    """A scenario file, instead of `[scenario]`."""
    scenario: dict[str, Any] | None = None
    prediction: dict[str, Any] | None = None
    """Keys of `prediction.Prediction`, with engine = "predict"; axes set the others."""
    video: dict[str, Any] | None = None
    """Keys of `films.Video`, with engine = "video", likewise."""
    browser: dict[str, Any] | None = None
    """Keys of `browsers.Browser`, with engine = "browser", likewise."""
    axis: list[Axis] = []
    exclude: list[Choice] = []
    metric: list[Metric] = []
    published: list[Published] = []
    claim: list[Claim] = []
    panel: list[Panel] = []

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
                    raise ValueError(f'engine = "{self.engine}" takes metrics of expressions alone')
            return self
        if (self.base is None) == (self.scenario is None):
            raise ValueError("expected either `base`, a scenario file, or a [scenario]")
        return self


RESERVED = frozenset({"run", "seed", "flow", "flow_cc", "stat", "virtual_s", "warnings"})
"""Names that neither axes nor metrics can have."""


def read_study_file(file: str | os.PathLike[str]) -> StudyFile:
    """Read a study file.

    Raises:
        InputError: it cannot be read, or a key is wrong; one line that names file and key.
    """
    file = Path(file)
    study = parse_study(_toml(file), str(file))
    return study.model_copy(update={"axis": [_beside(axis, file.parent) for axis in study.axis]})


def _beside(axis: Axis, place: Path) -> Axis:
    """Return an axis whose file is named from anywhere."""
    if axis.csv is not None:
        return axis.model_copy(update={"csv": str(place / axis.csv)})
    if axis.changes is None or axis.changes.csv is None:
        return axis
    named = axis.changes.model_copy(update={"csv": str(place / axis.changes.csv)})
    return axis.model_copy(update={"changes": named})


def read_scenario_table(file: Path) -> dict[str, Any]:
    """Read a scenario file as a dictionary, unchecked.

    Raises:
        InputError: it cannot be read.
    """
    return _toml(file)


def parse_study(content: dict[str, Any], origin: str) -> StudyFile:
    """Check the content of a study file; `origin` is what errors call it.

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
        # Scenarios travel as JSON, which goes as deep as Python does.
        json.dumps(content, default=str)
    except OSError as error:
        raise InputError(f"{file}: cannot read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{file}: is no TOML: it is no text in UTF-8") from None
    except RecursionError:
        raise InputError(f"{file}: is nested too deeply") from None
    return content


def first_error(error: ValidationError) -> str:
    """Return one line: the key and what was expected."""
    first = error.errors(include_url=False)[0]
    # A union's branches are no keys of the file.
    location = [str(step) for step in first["loc"] if step not in _BRANCHES]
    key = ".".join(location)
    if first["type"] == "extra_forbidden":
        expected = ", ".join(_keys_beside(first["loc"]))
        return f"{key}: unknown key; expected one of {expected}"
    message = _plainly(first)
    given = first["input"]
    told = f" (it is {given!r})" if isinstance(given, str | int | float) else ""
    return f"{key}: {message}{told}" if key else message


def _plainly(error: ErrorDetails) -> str:
    """Return what is wrong in the words of the file."""
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


def _keys_beside(location: tuple[int | str, ...]) -> list[str]:
    """List the keys that the section around `location` knows."""
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
