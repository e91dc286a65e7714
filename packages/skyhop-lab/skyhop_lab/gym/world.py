"""Worlds: scenarios in which some keys are drawn at random for each episode.

A world file is a scenario with `[[draw]]` tables, each of which sets keys of the scenario:

    [[draw]]
    key = "link.rate"
    range = { from = 2, to = 100, scale = "log", unit = "Mbit/s" }

    [[draw]]
    key = "path.start"
    moment = { from = "2025-03-20T00:00:00Z", to = "2025-03-21T00:00:00Z", step = "10 min" }

    [[draw]]
    weights = [2, 1]
    [draw.points]
    alone = {}
    "with cubic" = { flow = [{ cc = "policy" }, { cc = "cubic" }] }

The draws happen in this order; a later draw may overwrite a key that an earlier one has set.
"""

from __future__ import annotations

import json
import math
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from pydantic import Field, ValidationError, model_validator

from skyhop import _core
from skyhop.data.places import position_of
from skyhop.data.progress import ignore_progress
from skyhop.data.quantities import seconds
from skyhop.data.scenarios import is_seedless
from skyhop.data.toml import toml_value
from skyhop.errors import InputError
from skyhop.study.file import read_table
from skyhop.study.key_errors import first_error
from skyhop.study.keys import StrictModel, Value

Source: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]

_MOST_PATHS = 512
"""Number of computed paths that are kept in memory, so that later episodes over the same path begin
immediately.
"""


class NumberRange(StrictModel):
    """Number that is drawn uniformly between two bounds, or log-uniformly on a log scale."""

    from_: float = Field(alias="from")
    to: float
    scale: Literal["linear", "log"] = "linear"
    whole: bool = False
    """Whether the number is rounded to an integer."""
    unit: str = ""
    """Unit that is appended to the number."""

    @model_validator(mode="after")
    def _has_valid_bounds(self) -> NumberRange:
        if self.to < self.from_:
            raise ValueError("expected `to` not below `from`")
        if self.scale == "log" and self.from_ <= 0:
            raise ValueError("a log scale begins above 0")
        return self

    def draw(self, generator: np.random.Generator) -> Value:
        """Draw a number; return it with its unit, in the form of scenarios."""
        low, high = self.from_, self.to
        if self.scale == "log":
            number = math.exp(generator.uniform(math.log(low), math.log(high)))
        else:
            number = generator.uniform(low, high)
        value: Value = round(number) if self.whole else float(f"{number:.6g}")
        return f"{value:.9g} {self.unit}" if self.unit else value


class MomentRange(StrictModel):
    """Time drawn between two times, in steps.

    A path that begins at the same time is computed once.
    """

    from_: datetime = Field(alias="from")
    to: datetime
    step: str = "1 min"

    @model_validator(mode="after")
    def _has_valid_bounds(self) -> MomentRange:
        if self.to < self.from_:
            raise ValueError("expected `to` not below `from`")
        if seconds(self.step) <= 0:
            raise ValueError("expected a `step` above 0 s")
        return self

    def draw(self, generator: np.random.Generator) -> Value:
        """Draw a time; return it in the form of scenarios: RFC 3339 in UTC."""
        step_s = seconds(self.step)
        count = int((self.to - self.from_).total_seconds() // step_s) + 1
        moment = self.from_ + timedelta(seconds=step_s * int(generator.integers(count)))
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        return moment.isoformat().replace("+00:00", "Z")


class Drawing(StrictModel):
    """One random choice: a value for one key of the scenario, or one of several sets of keys."""

    key: str | None = None
    """Dotted key of the scenario, such as `link.rate`."""
    values: list[Value] | None = Field(None, min_length=1)
    range: NumberRange | None = None
    moment: MomentRange | None = None
    points: dict[str, dict[str, Any]] | None = Field(None, min_length=1)
    """Keys and values that each point sets, by the point's label."""
    weights: list[float] | None = None
    """Relative probability of each of `values` or `points`; by default all are equal."""

    @model_validator(mode="after")
    def _is_one_kind(self) -> Drawing:
        kinds = ("values", "range", "moment", "points")
        given = [kind for kind in kinds if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError("expected one of `values`, `range`, `moment` and `points`")
        if (self.key is None) != (self.points is not None):
            raise ValueError("expected `key` with all but `points`")
        several = self.values or self.points
        if self.weights is None:
            return self
        if several is None or len(self.weights) != len(several):
            raise ValueError("expected as many `weights` as `values` or `points`")
        if min(self.weights) < 0 or sum(self.weights) <= 0:
            raise ValueError("expected `weights` of 0 or more, one of them above 0")
        return self

    def draw(self, generator: np.random.Generator) -> tuple[Value, dict[str, Any]]:
        """Draw a value; return it, and the scenario's keys to set with their values."""
        if self.points is not None:
            label = list(self.points)[self._index(len(self.points), generator)]
            return label, self.points[label]
        if self.values is not None:
            value = self.values[self._index(len(self.values), generator)]
        else:
            one = self.range or self.moment
            assert one is not None, "validated by _is_one_kind"
            value = one.draw(generator)
        return value, {str(self.key): value}

    def _index(self, count: int, generator: np.random.Generator) -> int:
        if self.weights is None:
            return int(generator.integers(count))
        odds = np.asarray(self.weights) / sum(self.weights)
        return int(generator.choice(count, p=odds))


@dataclass(frozen=True)
class DrawnExperiment:
    """Experiment for one episode, with the values drawn for it."""

    experiment: _core.Experiment
    values: dict[str, Value]
    """Drawn values by key; for a draw without a key, the label of the point by `points.N`, where N
    is the draw's index.
    """


class World:
    """Distribution of scenarios, from which each episode draws one."""

    def __init__(self, content: Mapping[str, Any], origin: str, sets: Sequence[str] = ()) -> None:
        """Check the content of a world file.

        `origin` names the world in error messages; relative file names are relative to its folder.

        Raises:
            InputError: a key of a draw is wrong.
        """
        self.origin, self._sets = origin, tuple(sets)
        self._scenario = {key: value for key, value in content.items() if key != "draw"}
        drawings = content.get("draw", [])
        if not isinstance(drawings, list):
            raise InputError(f"{origin}: draw: expected [[draw]], a list of tables")
        self.drawings = [_drawing(one, origin, index) for index, one in enumerate(drawings)]
        self._paths: OrderedDict[str, _core.PathTrace] = OrderedDict()

    @cached_property
    def _text(self) -> str:
        try:
            return json.dumps(self._scenario, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"{self.origin}: holds a value that no scenario can have: {error}"
            ) from None

    def draw(self, generator: np.random.Generator) -> DrawnExperiment:
        """Draw the experiment of an episode.

        Raises:
            InputError: the drawn scenario is invalid; the message names the drawn values.
        """
        values: dict[str, Value] = {}
        sets = []
        for index, drawing in enumerate(self.drawings):
            value, settings = drawing.draw(generator)
            values[drawing.key or f"points.{index}"] = value
            sets += [f"{key}={toml_value(one)}" for key, one in settings.items()]
        seed = int(generator.integers(1 << 31))
        sets += [*self._sets, f"run.seed={seed}"]
        try:
            scenario = _core.Scenario.from_json(self._text, self.origin, sets)
            path = self._path(scenario)
            experiment = _core.Experiment.build(scenario, position_of, ignore_progress, path)
        except InputError as error:
            drawn = ", ".join(f"{key} = {value}" for key, value in values.items())
            raise InputError(f"{error}{f' (where {drawn} was drawn)' if drawn else ''}") from None
        return DrawnExperiment(experiment, {**values, "seed": seed})

    def _path(self, scenario: _core.Scenario) -> _core.PathTrace | None:
        """Return the path of a constellation from the cache; `None` for other kinds of paths.

        Other kinds are cheap to compute.
        """
        resolved = json.loads(scenario.to_json())
        if resolved["path"]["kind"] != "constellation":
            return None
        path, run = resolved["path"], resolved["run"]
        seed = None if is_seedless(path) else run["seed"]
        key = json.dumps([path, run["duration"], seed], sort_keys=True)
        if key not in self._paths:
            self._paths[key] = _core.PathTrace.compute(scenario, position_of, ignore_progress)
            if len(self._paths) > _MOST_PATHS:
                self._paths.popitem(last=False)
        self._paths.move_to_end(key)
        return self._paths[key]


Worlds: TypeAlias = Source | World | list[Source | World]
"""One world, or several worlds, each of which is used equally often."""


def read_world(source: Source | World, sets: Sequence[str] = ()) -> World:
    """Read and check a world.

    Args:
        source: the world file, its content as a dictionary, or a `World`, returned unchanged.
        sets: overrides of the scenario, each "KEY=VALUE", which take precedence over draws.

    Raises:
        InputError: the file cannot be read, or a key is wrong.
    """
    if isinstance(source, World):
        return source
    if isinstance(source, Mapping):
        return World(source, "the world", sets)
    return World(read_table(Path(source)), os.fspath(source), sets)


def _drawing(content: object, origin: str, index: int) -> Drawing:
    try:
        return Drawing.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{origin}: draw.{index}.{first_error(error, Drawing)}") from None
