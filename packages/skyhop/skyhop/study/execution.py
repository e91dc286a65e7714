"""Execution of one run of a study, in this process or in a worker."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from skyhop.data.scenarios import forces_size
from skyhop.errors import InterruptedRunError, SkyhopError, described
from skyhop.study.directory import move_into_place, new_directory
from skyhop.study.metrics import MetricSet
from skyhop.study.run_kinds import run_kind
from skyhop.study.worker_context import WorkerContext


@dataclass(frozen=True)
class Recipe:
    """Settings that all runs of a study share; each worker receives them once."""

    base: Mapping[str, Any]
    """Scenario, or table of the engine, to which each run's overrides are applied."""
    origin: str
    engine: str
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
            rows = recipe.metrics.rows(place, force_size=forces_size(recipe.base))
        else:
            rows = run_kind(recipe.engine).run(recipe, task, context, staged)
        text = json.dumps(rows, ensure_ascii=False)
        (staged / f"rows-{recipe.metrics.digest}.json").write_text(text, "utf-8")
        move_into_place(staged, place)
    except InterruptedRunError:
        # An interrupted run is incomplete: discard it.
        raise KeyboardInterrupt from None
    except (SkyhopError, OSError) as error:
        return Failure(task.run_id, described(error))
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return None
