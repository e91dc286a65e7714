"""One run of a study, in whatever process it happens."""

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
from skyhop.study.directory import new_place, place_whole
from skyhop.study.metrics import MetricSet
from skyhop.study.others import OTHERS
from skyhop.study.workplace import Workplace


@dataclass(frozen=True)
class Recipe:
    """What all runs of a study have in common."""

    base: Mapping[str, Any]
    """The scenario that each run's overrides change."""
    origin: str
    engine: Literal["sim", "live", "linux", "predict", "video", "browser"]
    keep: Literal["series", "rows"]
    metrics: MetricSet


@dataclass(frozen=True)
class Task:
    """One run."""

    run_id: str
    sets: tuple[str, ...]
    path_id: str | None
    seed: int = 1
    """Of predictors; scenarios have theirs among the sets."""


@dataclass(frozen=True)
class Failure:
    """Why a run failed: one line."""

    run_id: str
    error: str


def execute(recipe: Recipe, task: Task, workplace: Workplace) -> Failure | None:
    """Run and measure a task in the study's directory; None when it is finished.

    Nothing is repeated: a run that is there only lacks a measurement. What fails leaves nothing.
    """
    place = workplace.root / "runs" / task.run_id
    staged = new_place(workplace.root / "unfinished")
    try:
        if (place / "flows.parquet").is_file():
            rows = recipe.metrics.rows(place)
        else:
            rows = _measured(recipe, task, workplace, staged)
        text = json.dumps(rows, ensure_ascii=False)
        (staged / f"rows-{recipe.metrics.digest}.json").write_text(text, "utf-8")
        place_whole(staged, place)
    except InterruptedRunError:
        # Half a run is none.
        raise KeyboardInterrupt from None
    except (SkyhopError, OSError) as error:
        return Failure(task.run_id, " ".join(str(error).split()))
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return None


def _measured(
    recipe: Recipe, task: Task, workplace: Workplace, staged: Path
) -> list[dict[str, Any]]:
    """Run a task and return its rows; what is kept of the run beside them is left in `staged`."""
    if recipe.engine in OTHERS:
        by_other, place = OTHERS[recipe.engine][1], Path(recipe.origin).parent
        asked_of = by_other.resolve(recipe.base, task.sets, recipe.origin)
        rows: list[dict[str, Any]] = by_other.rows_of(recipe.metrics, asked_of, task.seed, place)
        return rows
    from skyhop.engines import run_aside, summary_with

    asked = _core.Scenario.from_json(json.dumps(recipe.base), recipe.origin, list(task.sets))
    scenario, path = _over_shared_path(recipe, task, workplace, asked)
    if recipe.engine == "linux":
        from skyhop.linux import run_aside as run_in_guest

        run_in_guest(scenario, staged, asked)
    elif recipe.keep == "rows" and not recipe.metrics.needs_series:
        return recipe.metrics.rows_of(summary_with(recipe.engine, scenario, path))
    else:
        run_aside(recipe.engine, scenario, staged, path)
    rows = recipe.metrics.rows(staged)
    if recipe.keep == "rows":
        _empty(staged)
    else:
        text = toml_text(json.loads(asked.to_json()))
        (staged / "scenario.toml").write_text(text, "utf-8")
    return rows


def _over_shared_path(
    recipe: Recipe, task: Task, workplace: Workplace, asked: _core.Scenario
) -> tuple[_core.Scenario, _core.PathTrace | None]:
    """Return the scenario that is run, with its path where runs share it."""
    if task.path_id is None:
        return asked, None
    path, resolved = workplace.path(task.path_id, asked), json.loads(asked.to_json())["path"]
    if resolved["kind"] == "trace":
        return asked, path
    # So that its run.json can be run again without the constellation.
    trace = {
        "kind": "trace",
        "file": str(workplace.path_file(task.path_id).resolve()),
        "during_outage": resolved["during_outage"],
    }
    sets = [text for text in task.sets if not text.startswith(("path.", "path="))]
    # Relative names in the scenario are looked up beside `origin`, as when it was checked.
    text = json.dumps({**recipe.base, "path": trace})
    return _core.Scenario.from_json(text, recipe.origin, sets), path


def _empty(place: Path) -> None:
    for file in place.iterdir():
        file.unlink()
