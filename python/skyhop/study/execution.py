"""One run of a study, in whatever process it happens."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from skyhop import _core
from skyhop.data.toml import toml_text
from skyhop.errors import SkyhopError
from skyhop.study.directory import new_place, place_whole
from skyhop.study.metrics import MetricSet


@dataclass(frozen=True)
class Recipe:
    """What all runs of a study have in common."""

    base: Mapping[str, Any]
    """The scenario that each run's overrides change."""
    origin: str
    engine: Literal["sim", "live"]
    keep: Literal["series", "rows"]
    metrics: MetricSet


@dataclass(frozen=True)
class Task:
    """One run."""

    run_id: str
    sets: tuple[str, ...]
    path_id: str | None


@dataclass(frozen=True)
class Failure:
    """Why a run failed: one line."""

    run_id: str
    error: str


def execute(recipe: Recipe, task: Task, root: Path) -> Failure | None:
    """Run and measure a task below `root`, the study's directory; None when it is finished.

    Nothing is repeated: a run that is there only lacks a measurement. What fails leaves nothing.
    """
    from skyhop.engines import InterruptedRunError

    place = root / "runs" / task.run_id
    staged = new_place(root / "unfinished")
    try:
        made = place if (place / "flows.parquet").is_file() else staged
        if made is staged:
            _run(recipe, task, root, staged)
        rows = recipe.metrics.rows(made)
        if recipe.keep == "rows":
            _empty(staged)
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


def _run(recipe: Recipe, task: Task, root: Path, place: Path) -> None:
    from skyhop.data.places import position_of
    from skyhop.engines import run_with

    scenario = _core.Scenario.from_json(json.dumps(recipe.base), recipe.origin, list(task.sets))
    base, sets = dict(recipe.base), list(task.sets)
    resolved = json.loads(scenario.to_json())
    if task.path_id is not None:
        file = root / "paths" / f"{task.path_id}.parquet"
        with _alone(root / "unfinished" / f"{task.path_id}.lock"):
            if not file.is_file():
                _core.PathTrace.compute(scenario, position_of, _ignore).write(str(file))
        base["path"] = {
            "kind": "trace",
            "file": str(file.resolve()),
            "during_outage": resolved["path"]["during_outage"],
        }
        sets = [text for text in sets if not text.startswith("path.")]
    # Relative names in the scenario are looked up beside `origin`, as when it was checked.
    loaded = _core.Scenario.from_json(json.dumps(base), recipe.origin, sets)
    run_with(recipe.engine, loaded, place, force=True)
    (place / "scenario.toml").write_text(toml_text(resolved), "utf-8")


def _ignore(_done: int, _total: int) -> None:
    """Show nothing."""


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Let one process at a time in: the others wait for the path that it computes."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _empty(place: Path) -> None:
    for file in place.iterdir():
        file.unlink()
