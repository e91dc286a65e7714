"""Worlds: scenarios of which something is drawn for each episode.

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
    "beside cubic" = { flow = [{ cc = "policy" }, { cc = "cubic" }] }

They are drawn in their order, which matters: a later one may set what an earlier one has set.
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
from skyhop.data.toml import toml_value
from skyhop.errors import InputError
from skyhop.study.file import Strict, Value, first_error, read_scenario_table

Source: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]

_MOST_PATHS = 512
"""So many computed paths are kept: an episode of a known path begins at once."""


class Between(Strict):
    """A number between two, each as likely; on a log scale, each factor as likely."""

    from_: float = Field(alias="from")
    to: float
    scale: Literal["linear", "log"] = "linear"
    whole: bool = False
    """Rounded to a whole number."""
    unit: str = ""
    """What is written behind the number."""

    @model_validator(mode="after")
    def _goes_up(self) -> Between:
        if self.to < self.from_:
            raise ValueError("expected `to` not below `from`")
        if self.scale == "log" and self.from_ <= 0:
            raise ValueError("a log scale begins above 0")
        return self

    def drawn(self, source: np.random.Generator) -> Value:
        """Return one, as the scenario writes it."""
        low, high = self.from_, self.to
        if self.scale == "log":
            number = math.exp(source.uniform(math.log(low), math.log(high)))
        else:
            number = source.uniform(low, high)
        value: Value = round(number) if self.whole else float(f"{number:.6g}")
        return f"{value:.9g} {self.unit}" if self.unit else value


class Moment(Strict):
    """A moment between two, by steps: paths that begin at the same are computed once."""

    from_: datetime = Field(alias="from")
    to: datetime
    step: str = "1 min"

    @model_validator(mode="after")
    def _goes_up(self) -> Moment:
        if self.to < self.from_:
            raise ValueError("expected `to` not below `from`")
        if seconds(self.step) <= 0:
            raise ValueError("expected a `step` above 0 s")
        return self

    def drawn(self, source: np.random.Generator) -> Value:
        """Return one, as the scenario writes it."""
        step_s = seconds(self.step)
        count = int((self.to - self.from_).total_seconds() // step_s) + 1
        moment = self.from_ + timedelta(seconds=step_s * int(source.integers(count)))
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        return moment.isoformat().replace("+00:00", "Z")


class Drawing(Strict):
    """One thing that is drawn: a key of the scenario, or one of several points of keys."""

    key: str | None = None
    """The scenario's key by its dotted path, such as `link.rate`."""
    values: list[Value] | None = Field(None, min_length=1)
    range: Between | None = None
    moment: Moment | None = None
    points: dict[str, dict[str, Any]] | None = Field(None, min_length=1)
    """Label: the keys that it sets."""
    weights: list[float] | None = None
    """How likely each of `values` or `points` is beside the others; equally where not given."""

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

    def drawn(self, source: np.random.Generator) -> tuple[Value, dict[str, Any]]:
        """Return what was drawn, and which keys of the scenario are set to what."""
        if self.points is not None:
            label = list(self.points)[self._place(len(self.points), source)]
            return label, self.points[label]
        if self.values is not None:
            value = self.values[self._place(len(self.values), source)]
        else:
            one = self.range or self.moment
            assert one is not None, "checked when it was made"
            value = one.drawn(source)
        return value, {str(self.key): value}

    def _place(self, count: int, source: np.random.Generator) -> int:
        if self.weights is None:
            return int(source.integers(count))
        odds = np.asarray(self.weights) / sum(self.weights)
        return int(source.choice(count, p=odds))


@dataclass(frozen=True)
class Drawn:
    """An episode's scenario, with what was drawn for it."""

    experiment: _core.Experiment
    values: dict[str, Value]
    """By key; points by `points` and their place among the drawings."""


class World:
    """Scenarios that are drawn, one for each episode."""

    def __init__(self, content: Mapping[str, Any], origin: str, sets: Sequence[str] = ()) -> None:
        """Check it; `origin` is what errors call it, and beside which relative names are looked up.

        Raises:
            InputError: a key is wrong, or no scenario at all can be drawn.
        """
        self.origin, self._sets = origin, tuple(sets)
        self._scenario = {key: value for key, value in content.items() if key != "draw"}
        drawings = content.get("draw", [])
        if not isinstance(drawings, list):
            raise InputError(f"{origin}: draw: expected [[draw]], a list of tables")
        self.drawings = [_checked(one, origin, place) for place, one in enumerate(drawings)]
        self._paths: OrderedDict[str, _core.PathTrace] = OrderedDict()

    @cached_property
    def _text(self) -> str:
        try:
            return json.dumps(self._scenario, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"{self.origin}: holds what no scenario can: {error}") from None

    def draw(self, source: np.random.Generator) -> Drawn:
        """Draw an episode.

        Raises:
            InputError: what was drawn is no scenario; the message says what that was.
        """
        values: dict[str, Value] = {}
        sets = []
        for place, drawing in enumerate(self.drawings):
            value, settings = drawing.drawn(source)
            values[drawing.key or f"points.{place}"] = value
            sets += [f"{key}={toml_value(one)}" for key, one in settings.items()]
        seed = int(source.integers(1 << 31))
        sets += [*self._sets, f"run.seed={seed}"]
        try:
            scenario = _core.Scenario.from_json(self._text, self.origin, sets)
            path = self._path(scenario)
            experiment = _core.Experiment.build(scenario, position_of, ignore_progress, path)
        except InputError as error:
            told = ", ".join(f"{key} = {value}" for key, value in values.items())
            raise InputError(f"{error}{f' (where {told} was drawn)' if told else ''}") from None
        return Drawn(experiment, {**values, "seed": seed})

    def _path(self, scenario: _core.Scenario) -> _core.PathTrace | None:
        """Return the path of a constellation, computed once; others take no time."""
        resolved = json.loads(scenario.to_json())
        if resolved["path"]["kind"] != "constellation":
            return None
        what = json.dumps([resolved["path"], resolved["run"]["duration"]], sort_keys=True)
        if what not in self._paths:
            self._paths[what] = _core.PathTrace.compute(scenario, position_of, ignore_progress)
            if len(self._paths) > _MOST_PATHS:
                self._paths.popitem(last=False)
        self._paths.move_to_end(what)
        return self._paths[what]


Worlds: TypeAlias = Source | World | list[Source | World]
"""A world, or several, each of which has as many places as the others."""


def read_world(source: Source | World, sets: Sequence[str] = ()) -> World:
    """Return the world of a file, or of its content.

    Args:
        source: the file, its content as a dictionary, or what is read already.
        sets: overrides of the scenario, each "KEY=VALUE", which nothing that is drawn changes.

    Raises:
        InputError: it cannot be read, or a key is wrong.
    """
    if isinstance(source, World):
        return source
    if isinstance(source, Mapping):
        return World(source, "the world", sets)
    return World(read_scenario_table(Path(source)), os.fspath(source), sets)


def _checked(content: object, origin: str, place: int) -> Drawing:
    try:
        return Drawing.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{origin}: draw.{place}.{first_error(error)}") from None
