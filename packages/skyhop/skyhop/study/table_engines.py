"""Study engines whose runs are not a single scenario: prediction, video and browser."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import NamedTuple

from skyhop.study import browsers, films, prediction
from skyhop.study.file import StudyFile


class TableEngine(NamedTuple):
    """Engine whose runs are configured by a table of the study file, in place of [scenario]."""

    table: str
    """Name of the table in the study file."""
    module: ModuleType
    """Module that makes the runs.

    The module has `METRICS`; `LAYOUT`, the version of its results; `resolve`, which checks a run's
    configuration; `config_dict`, its JSON values; `input_files`, the files that it reads;
    `run_rows`, which makes its rows; `IS_LIVE`, whether runs take real time and this machine's
    kernel; and `NEEDS_CORE`, whether results depend on the compiled core.
    """


TABLE_ENGINES: Mapping[str, TableEngine] = {
    "predict": TableEngine("prediction", prediction),
    "video": TableEngine("video", films),
    "browser": TableEngine("browser", browsers),
}
"""Table engines by the `engine` of the study file."""


def is_live(engine: str) -> bool:
    """Return whether an engine's runs take real time; only one of them may run at a time."""
    return engine == "live" or (engine in TABLE_ENGINES and TABLE_ENGINES[engine].module.IS_LIVE)


def engine_module(study: StudyFile) -> ModuleType | None:
    """Return the module of a study's table engine; None if its runs are scenarios."""
    found = TABLE_ENGINES.get(study.engine)
    return None if found is None else found.module
