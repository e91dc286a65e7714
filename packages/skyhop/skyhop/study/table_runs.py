"""Base class of kinds of runs that a table of the study file configures, in place of a scenario."""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from skyhop.data.toml import read_toml, toml_override, toml_value
from skyhop.errors import InputError
from skyhop.study.execution import Recipe, Task
from skyhop.study.file import StudyFile
from skyhop.study.key_errors import first_error
from skyhop.study.metric_kinds import ExpressionMetric, RelativeMetric
from skyhop.study.metrics import WARNINGS
from skyhop.study.plan import Study
from skyhop.study.run_ids import FileDigests, PlannedRun, core_digest, digest
from skyhop.study.run_kinds import RunKind, check_tables
from skyhop.study.worker_context import WorkerContext

Config = TypeVar("Config")
"""Configuration of one run."""
_Table = TypeVar("_Table", bound=BaseModel)


class TableKind(RunKind, Generic[Config]):
    """Kind of runs that the table `table` of the study file configures.

    A subclass sets the attributes below, and implements the abstract methods.
    """

    engine: str
    table: str
    model: type[BaseModel]
    """Type of the table, after the overrides of the axes."""
    layout: int
    """Version of the results; after an increase, studies repeat their finished runs."""
    needs_core: bool
    """Whether results depend on the compiled core."""

    @abstractmethod
    def resolve(self, base: Mapping[str, Any], sets: Sequence[str], origin: str) -> Config:
        """Return the configuration of a run: the study's table with the axes' overrides.

        Raises:
            InputError: a key of the table is wrong.
        """

    @abstractmethod
    def config_dict(self, config: Config) -> dict[str, Any]:
        """Return the configuration of a run as JSON values; the run's id is a hash of it."""

    @abstractmethod
    def input_files(self, config: Config) -> Sequence[str]:
        """Return the names of the files that a run reads."""

    @abstractmethod
    def row(self, config: Config, seed: int, study_dir: Path) -> tuple[dict[str, Any], list[str]]:
        """Make the run of a seed, and return its row and warnings.

        Raises:
            InputError: a file or a library is missing, or the configuration is wrong.
            RunError: the run failed.
        """

    def base(self, file: StudyFile, origin: str) -> tuple[dict[str, Any], str]:
        """Return the study's table, and the study's file."""
        check_tables(file, self, origin)
        if file.base or file.scenario:
            raise InputError(f'{origin}: engine = "{self.engine}" takes no scenario')
        if not all(isinstance(m, ExpressionMetric | RelativeMetric) for m in file.metric):
            raise InputError(
                f'{origin}: engine = "{self.engine}" takes metrics of kind "expression" or '
                '"relative" only'
            )
        return getattr(file, self.table), origin

    def plan(self, study: Study) -> Iterator[PlannedRun]:
        """Yield the runs of a study: for each point, one run per seed."""
        study_dir, digests = Path(study.origin).parent, FileDigests()
        for point in study.points:
            own = (f"{key}={toml_value(value)}" for key, value in point.sets.items())
            sets = (*own, *map(toml_override, study.sets))
            config = self.resolve(study.base, sets, study.origin)
            resolved = self.config_dict(config)
            files = {
                name: digests.of({"data": str(find_data(name, study_dir))}, Path())
                for name in self.input_files(config)
            }
            for seed in range(1, study.file.repeats + 1):
                what = {self.table: resolved, "seed": seed, "files": files,
                        "engine": self.engine, "layout": self.layout}  # fmt: skip
                if self.is_live:
                    what |= {"kernel": os.uname().release}
                if self.needs_core:
                    what |= {"core": core_digest()}
                yield PlannedRun(
                    digest(what), point.labels, seed, sets, None, {**resolved, "seed": seed}
                )

    def prepare(self, study: Study, runs: Sequence[PlannedRun]) -> None:
        """Do nothing, because each run makes itself what it needs."""

    def run(
        self, recipe: Recipe, task: Task, _context: WorkerContext, _staged: Path
    ) -> list[dict[str, Any]]:
        """Execute a run and return its row; it keeps no files."""
        config = self.resolve(recipe.base, task.sets, recipe.origin)
        row, warnings = self.row(config, task.seed, Path(recipe.origin).parent)
        return [{**recipe.metrics.with_expressions({"flow": None, **row}), WARNINGS: warnings}]


def validated_table(
    model: type[_Table], base: Mapping[str, Any], sets: Sequence[str], where: str
) -> _Table:
    """Return a study's table with the axes' overrides, checked; `where` names it in messages.

    Raises:
        InputError: a key of the table is wrong.
    """
    content = dict(base)
    for text in sets:
        content |= read_toml(text, where)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{where}.{first_error(error, model)}") from None


def json_values(table: BaseModel) -> dict[str, Any]:
    """Return a table as JSON values."""
    content: dict[str, Any] = json.loads(table.model_dump_json())
    return content


def find_data(name: str, study_dir: Path) -> Path:
    """Return the path of data, relative to the study's directory or else the current one."""
    place = study_dir / name
    return place if place.exists() else Path(name)
