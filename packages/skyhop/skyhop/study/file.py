"""Types of the study file: the scenarios to run, the metrics to measure, the claims to check.

The types below are its JSON Schema (docs/study.schema.json); `docs/reference/study-file.md`
explains them with examples. Reading a file checks everything that needs no run.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import Field, ValidationError, model_validator

from skyhop.data.quantities import seconds
from skyhop.data.toml import read_toml
from skyhop.errors import InputError
from skyhop.study.key_errors import first_error
from skyhop.study.keys import Choice, Duration, Setting, StrictModel, Value
from skyhop.study.metric_kinds import Metric
from skyhop.study.panel_kinds import Panel

_MOST_VALUES = 10_000
"""Largest number of values of one range."""
MOST_DRAWS = 1_000_000
"""Largest number of draws of one axis."""


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

    `path = { kind = "trace", … }` sets a whole table, `change = [{ at = "12 s", … }]` a whole list.
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


CAUSES = {
    "unexplained": "not explained",
    "model": "skyhop's model",
    "encoding": "how the claim is put",
    "environment": "the paper's environment",
    "paper": "the claim itself",
    "data": "data not public",
}
"""Causes of a claim that does not hold or cannot be told, by their keys in a study file."""
Cause: TypeAlias = Literal["unexplained", "model", "encoding", "environment", "paper", "data"]


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
    cause: Cause | None = None
    """Why the claim does not hold or cannot be told; shown only with such a verdict.

    unexplained: no cause is found. model: skyhop's model lacks or simplifies it. encoding: `check`
    asks for something else than the paper. environment: the paper's environment differs from its
    description. paper: the paper contradicts itself or measured data. data: not public.
    """
    why: str = ""
    """The cause in a sentence: what decides the claim, or what was tried."""
    shown_by: str = ""
    """Axis value, claim or study that shows the cause."""

    @property
    def cause_text(self) -> str:
        """The cause with its sentence and what shows it, as text; empty if there is none."""
        if self.cause is None:
            return ""
        shown = f" (shown by {self.shown_by})" if self.shown_by else ""
        return f"Cause: {CAUSES[self.cause]}. {self.why.rstrip('.')}{shown}."

    @model_validator(mode="after")
    def _cause_has_a_reason(self) -> Claim:
        if (self.cause is None) == bool(self.why.strip()):
            raise ValueError("`cause` and `why`, its sentence, go together")
        if self.shown_by and self.cause is None:
            raise ValueError("`shown_by` goes with `cause`")
        return self

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
    engine: Literal[
        "sim", "live", "linux", "elements", "predict", "telemetry", "video", "browser"
    ] = "sim"
    """Engine of the runs.

    elements: no runs; the study compares two snapshots of element sets that the user gives.
    predict: each run trains a predictor and tests it, as [prediction] says. telemetry: each run
    describes measured data, as [telemetry] says. video: each run plays a film over a measured rate,
    as [video] says. browser: each run plays a film in a real browser over a live run, as [browser]
    says.
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
    telemetry: dict[str, Any] | None = None
    """Table for engine = "telemetry": data to describe; axes may set keys of this table."""
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

    @property
    def engine_tables(self) -> dict[str, bool]:
        """Tables of engines without scenarios by name, and whether the file has each."""
        names = ("prediction", "telemetry", "video", "browser")
        return {name: getattr(self, name) is not None for name in names}


RESERVED = frozenset({"run", "seed", "flow", "flow_cc", "stat", "virtual_s", "warnings", "queues"})
"""Names that neither axes nor metrics can have."""


def read_study_file(file: str | os.PathLike[str]) -> StudyFile:
    """Read and check a study file.

    Raises:
        InputError: the file cannot be read, or a key is wrong; one line names file and key.
    """
    file = Path(file)
    study = parse_study(read_table(file), str(file))
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


def parse_study(content: dict[str, Any], origin: str) -> StudyFile:
    """Check the content of a study file; `origin` names it in error messages.

    Raises:
        InputError: a key is wrong.
    """
    try:
        return StudyFile.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{origin}: {first_error(error, StudyFile)}") from None


def read_table(file: Path) -> dict[str, Any]:
    """Read the file of a scenario or study as a dictionary, without checking its keys.

    Raises:
        InputError: the file cannot be read.
    """
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
