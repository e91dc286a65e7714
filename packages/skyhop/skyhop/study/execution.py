"""Execution of one run of a study, in this process or in a worker."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from skyhop import _core
from skyhop.data.toml import toml_text
from skyhop.errors import InterruptedRunError, SkyhopError
from skyhop.study.directory import move_into_place, new_directory
from skyhop.study.metrics import MetricSet
from skyhop.study.table_engines import TABLE_ENGINES
from skyhop.study.worker_context import WorkerContext


@dataclass(frozen=True)
class Recipe:
    """Settings that all runs of a study share; each worker receives them once."""

    base: Mapping[str, Any]
    """Scenario, or table of the engine, to which each run's overrides are applied."""
    origin: str
    engine: Literal["sim", "live", "linux", "predict", "video", "browser"]
    keep: Literal["series", "rows"]
    metrics: MetricSet


@dataclass(frozen=True)
class Task:
    """Run to execute: its id, its overrides (each KEY=VALUE), and the id of its shared path."""

    run_id: str
    sets: tuple[str, ...]
    path_id: str | None
    seed: int = 1
    """Seed of a run of a table engine; the seed of a scenario is one of its overrides."""


@dataclass(frozen=True)
class Failure:
    """Failed run, with the error message in one line."""

    run_id: str
    error: str


def execute(recipe: Recipe, task: Task, context: WorkerContext) -> Failure | None:
    """Run a task and write its rows into the study's directory; return None or the failure.

    If the run's tables exist, only its metrics are computed again. A failed run leaves no files.
    """
    place = context.root / "runs" / task.run_id
    staged = new_directory(context.root / "unfinished")
    try:
        if (place / "flows.parquet").is_file():
            rows = recipe.metrics.rows(place)
        else:
            rows = _run_and_measure(recipe, task, context, staged)
        text = json.dumps(rows, ensure_ascii=False)
        (staged / f"rows-{recipe.metrics.digest}.json").write_text(text, "utf-8")
        move_into_place(staged, place)
    except InterruptedRunError:
        # An interrupted run is incomplete: discard it.
        raise KeyboardInterrupt from None
    except (SkyhopError, OSError) as error:
        return Failure(task.run_id, " ".join(str(error).split()))
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return None


def _run_and_measure(
    recipe: Recipe, task: Task, context: WorkerContext, staged: Path
) -> list[dict[str, Any]]:
    """Run a task and return its rows; write the run's files that are kept to `staged`."""
    if recipe.engine in TABLE_ENGINES:
        engine, place = TABLE_ENGINES[recipe.engine].module, Path(recipe.origin).parent
        config = engine.resolve(recipe.base, task.sets, recipe.origin)
        rows: list[dict[str, Any]] = engine.run_rows(recipe.metrics, config, task.seed, place)
        return rows
    from skyhop.engines import run_for_summary, run_into

    requested = _core.Scenario.from_json(json.dumps(recipe.base), recipe.origin, list(task.sets))
    scenario, path = _with_shared_path(recipe, task, context, requested)
    if recipe.engine == "linux":
        from skyhop.linux import run_into as run_in_guest

        run_in_guest(scenario, staged, requested)
    elif recipe.keep == "rows" and not recipe.metrics.needs_series:
        return recipe.metrics.rows_of(run_for_summary(recipe.engine, scenario, path))
    else:
        run_into(recipe.engine, scenario, staged, path)
    rows = recipe.metrics.rows(staged)
    if recipe.keep == "rows":
        _remove_files(staged)
    else:
        text = toml_text(json.loads(requested.to_json()))
        (staged / "scenario.toml").write_text(text, "utf-8")
    return rows


def _with_shared_path(
    recipe: Recipe, task: Task, context: WorkerContext, requested: _core.Scenario
) -> tuple[_core.Scenario, _core.PathTrace | None]:
    """Return the scenario to run, and its path if several runs share the path."""
    if task.path_id is None:
        return requested, None
    path, resolved = context.path(task.path_id, requested), json.loads(requested.to_json())["path"]
    if resolved["kind"] == "trace":
        return requested, path
    # With the path as a file, run.json can be run again without computing the constellation.
    trace = {
        "kind": "trace",
        "file": str(context.path_file(task.path_id).resolve()),
        "during_outage": resolved["during_outage"],
    }
    sets = [text for text in task.sets if not text.startswith(("path.", "path="))]
    # Relative file names in the scenario resolve against `origin`, as in the first check.
    text = json.dumps({**recipe.base, "path": trace})
    return _core.Scenario.from_json(text, recipe.origin, sets), path


def _remove_files(place: Path) -> None:
    for file in place.iterdir():
        file.unlink()
