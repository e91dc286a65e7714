"""Kinds of runs: what the engines of studies do differently, and the table of all engines.

Another package adds a kind by an entry point of the group `skyhop.run_kinds`: its name is the
engine, its value an object with the attributes and methods of `RunKind`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from skyhop.errors import InputError
from skyhop.install import how_to_install

if TYPE_CHECKING:
    from skyhop.study.execution import Recipe, Task
    from skyhop.study.file import StudyFile
    from skyhop.study.metrics import MetricInfo
    from skyhop.study.plan import Study
    from skyhop.study.run_ids import PlannedRun
    from skyhop.study.worker_context import WorkerContext


class RunKind(Protocol):
    """Kind of the runs of a study, which the study's engine selects."""

    metrics: Sequence[MetricInfo]
    """Built-in metrics of the rows."""
    table: str | None = None
    """Table of the study file that only this engine has."""
    is_live: bool = False
    """Whether runs take real time; only one of them may run at a time."""
    compares_elements: bool = False
    """Whether the study compares two snapshots of element sets, and has no runs."""

    def base(self, file: StudyFile, origin: str) -> tuple[dict[str, Any], str]:
        """Return the scenario or table whose keys the axes set, and the file that it is in.

        Raises:
            InputError: the study has keys that do not go with the engine.
        """

    def plan(self, study: Study) -> Iterator[PlannedRun]:
        """Yield the runs of a study: for each point, one run per seed.

        Raises:
            InputError: the configuration of a point is invalid.
        """

    def prepare(self, study: Study, runs: Sequence[PlannedRun]) -> None:
        """Do once what all runs need before the first of them starts.

        Raises:
            InputError: something that the runs need is wrong.
        """

    def run(
        self, recipe: Recipe, task: Task, context: WorkerContext, staged: Path
    ) -> list[dict[str, Any]]:
        """Execute a run and return its rows; write the files that are kept to `staged`.

        Raises:
            InputError: the run's configuration is wrong.
            RunError: the run failed.
        """


_GROUP = "skyhop.run_kinds"
_BUILT_IN = {
    "sim": "skyhop.study.scenario_runs:SIM",
    "live": "skyhop.study.scenario_runs:LIVE",
    "linux": "skyhop.study.scenario_runs:LINUX",
    "elements": "skyhop.study.elements:ELEMENTS",
    "predict": "skyhop.study.prediction:PREDICT",
    "telemetry": "skyhop.study.telemetry:TELEMETRY",
    "video": "skyhop.study.films:VIDEO",
}
"""Kinds of this package by engine; each is imported at its first use."""
_PACKAGES = {"browser": "skyhop-lab"}
"""Packages of the other engines that a study file can name."""


class _RunKinds(Mapping[str, RunKind]):
    """Table of kinds by engine, which reads entry points only for engines of other packages."""

    def __getitem__(self, engine: str) -> RunKind:
        if engine in _BUILT_IN:
            found = [EntryPoint(engine, _BUILT_IN[engine], _GROUP)]
        else:
            found = list(entry_points(group=_GROUP, name=engine))
        if not found:
            raise KeyError(engine)
        kind: RunKind = found[0].load()
        return kind

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys((*_BUILT_IN, *entry_points(group=_GROUP).names))

    def __len__(self) -> int:
        return len(list(iter(self)))


RUN_KINDS: Mapping[str, RunKind] = _RunKinds()
"""Kinds of runs by the `engine` of the study file."""


def run_kind(engine: str) -> RunKind:
    """Return the kind of runs of an engine.

    Raises:
        InputError: the package with the engine is not installed.
    """
    if engine not in RUN_KINDS:
        package = _PACKAGES[engine]
        raise InputError(
            f"the engine {engine} comes with {package}, which is not installed: "
            f"run {how_to_install(package)}"
        )
    return RUN_KINDS[engine]


def check_tables(file: StudyFile, kind: RunKind, origin: str) -> None:
    """Check that a study has the table of its own engine, and no table of another engine.

    Raises:
        InputError: a table is missing, or goes with another engine.
    """
    for name, is_given in file.engine_tables.items():
        if is_given != (name == kind.table):
            engines = [engine for engine, other in RUN_KINDS.items() if other.table == name]
            engine = f'engine = "{engines[0]}"' if engines else "another engine"
            raise InputError(f"{origin}: [{name}] goes with {engine}, which needs it")
