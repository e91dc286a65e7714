"""The study file: which scenarios to run, what to measure, and what is claimed about it.

The types below are the schema (docs/study.schema.json); `docs/studies.md` explains them with
examples. Everything that can be told without running is checked on reading.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from skyhop.data.quantities import DURATION, seconds
from skyhop.errors import InputError

Value: TypeAlias = bool | int | float | str
Setting: TypeAlias = Value | list[Value] | dict[str, Any]
"""What a key of the scenario is set to; a table takes the place of the whole table there."""
Choice: TypeAlias = dict[str, Value | list[Value]]
"""Which runs: axis names, or `seed` and `flow`, each with the value or values to take."""


_MOST_VALUES = 10_000
"""Of one range."""


class _Strict(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False
    )


class Range(_Strict):
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


class Axis(_Strict):
    """One thing that varies: a key with values or a range, or labelled points of several keys."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    key: str | None = None
    """The scenario's key by its dotted path, such as `flow.0.cc`."""
    values: list[Value] | None = Field(None, min_length=1)
    range: Range | None = None
    points: dict[str, dict[str, Setting]] | None = Field(None, min_length=1)
    """Label: the keys that it sets; `path = { kind = "trace", … }` sets a whole table."""
    zip: str | None = None
    """Axes of one zip go in step; all others are crossed."""

    @model_validator(mode="after")
    def _is_one_kind(self) -> Axis:
        given = [name for name in ("values", "range", "points") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("expected one of `values`, `range` and `points`")
        if (self.key is None) != (given == ["points"]):
            raise ValueError("`values` and `range` need a `key`, `points` have none")
        return self


Duration = Annotated[str, Field(pattern=DURATION)]


class Metric(_Strict):
    """A figure of each run, computed from other metrics or from the run's samples.

    kind = "expression": `value` from the metrics of the same row. kind = "samples": `stat` of the
    samples of `series` between `from` and `until`, as means over `bin`. kind = "transient": the
    same, but only during `window` after each event of the kind `after`. kind = "grid_error": how
    far, in ms, the handover grid that a run with signal.source = "blind" has found at its end is
    from the true one, every `period` from the UTC second `offset` on; none where it found no grid.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    kind: Literal["expression", "samples", "transient", "grid_error"]
    title: str | None = None
    unit: str = ""
    value: str | None = None
    series: Literal["goodput", "cwnd", "srtt"] = "goodput"
    stat: str = Field("mean", pattern=r"^(mean|min|max|sd|median|p[0-9]{1,2})$")
    bin: Duration | None = None
    from_: Duration | None = Field(None, alias="from")
    until: Duration | None = None
    after: Literal["end", "intermediate", "reroute", "restored", "change"] = "end"
    window: Duration = "5 s"
    period: Duration = "15 s"
    offset: Duration = "12 s"

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> Metric:
        if (self.kind == "expression") != (self.value is not None):
            raise ValueError('`value` goes with kind = "expression", and only with it')
        if self.from_ and self.until and seconds(self.from_) >= seconds(self.until):
            raise ValueError("expected `from` before `until`")
        return self


class Published(_Strict):
    """Values that others published: rows of the values of the axes `by`, and the figure."""

    metric: str
    by: list[str] = Field(min_length=1)
    values: list[list[Value]] = Field(min_length=1)


class Claim(_Strict):
    """Something to check: an expression over the results, such as `goodput(cc="bbr") > 100`."""

    text: str
    check: str
    each: dict[str, list[Value]] = {}
    """Check once for each of these values; the claim holds when all of them do."""
    note: str = ""
    """What a reader should know about it."""


class _Panel(_Strict):
    """What every panel has."""

    title: str
    where: Choice = {}
    note: str = ""


class _SpreadPanel(_Panel):
    """What is shown of each run: a metric, or the samples of a series as means over `bin`."""

    metric: str | None = None
    series: Literal["goodput", "cwnd", "srtt"] | None = None
    bin: Duration = "1 s"

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if (self.metric is None) == (self.series is None):
            raise ValueError("expected either `metric`, of whole runs, or `series`, of samples")
        return self


class TablePanel(_Panel):
    """Means with confidence intervals, and the published values beside."""

    kind: Literal["table"]
    metrics: list[str] = Field(min_length=1)
    by: list[str] = Field(min_length=1)


class ComparisonPanel(_Panel):
    """Each value of the axis `by` against one of them: Welch's t, Bonferroni, Cohen's d."""

    kind: Literal["comparison"]
    metric: str
    by: str
    against: Value
    each: list[str] = []


class BarsPanel(_Panel):
    """Mean and confidence interval as bars along `x`, one colour per `hue`."""

    kind: Literal["bars"]
    metric: str
    x: str
    hue: str | None = None


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


class ScatterPanel(_Panel):
    """One point per run and flow."""

    kind: Literal["scatter"]
    x: str
    y: str
    hue: str | None = None


class HeatmapPanel(_Panel):
    """The mean as colour over two axes."""

    kind: Literal["heatmap"]
    metric: str
    x: str
    y: str


class SeriesPanel(_Panel):
    """Samples of the chosen runs over time, with the path's handovers."""

    kind: Literal["series"]
    series: list[Literal["goodput", "cwnd", "srtt", "base_rtt"]] = Field(min_length=1)
    hue: str
    bin: Duration | None = None
    from_: Duration | None = Field(None, alias="from")
    until: Duration | None = None


Panel = Annotated[
    TablePanel
    | ComparisonPanel
    | BarsPanel
    | BoxPanel
    | CdfPanel
    | LinesPanel
    | ScatterPanel
    | HeatmapPanel
    | SeriesPanel,
    Field(discriminator="kind"),
]


class StudyFile(_Strict):
    """A study file, as written."""

    title: str
    question: str
    source: str = ""
    """The publication whose figures stand beside."""
    notes: list[str] = []
    engine: Literal["sim", "live", "elements"] = "sim"
    """elements: nothing is run; two snapshots of element sets that the user gives are compared."""
    repeats: int = Field(1, ge=1)
    """Runs per point; their seeds count up from `[run] seed`."""
    keep: Literal["series", "rows"] = "series"
    """What stays of a run: its whole directory, or only its rows of the dataset."""
    base: str | None = None
    """A scenario file, instead of `[scenario]`."""
    scenario: dict[str, Any] | None = None
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
    return parse_study(_toml(file), str(file))


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
        raise InputError(f"{origin}: {_first_error(error)}") from None


_TOO_DEEP = re.compile(r"""(?<![\w"'-])(?:[\w"'-]+\s*\.\s*){100}""")


def _toml(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text("utf-8")
        # The reader of TOML takes memory with the square of that.
        if _TOO_DEEP.search(text):
            raise RecursionError
        content = tomllib.loads(text)
        # Scenarios travel as JSON, which goes as deep as Python does.
        json.dumps(content, default=str)
    except OSError as error:
        raise InputError(f"{file}: cannot read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{file}: not TOML: {error}") from None
    except RecursionError:
        raise InputError(f"{file}: is nested too deeply") from None
    return content


def _first_error(error: ValidationError) -> str:
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
