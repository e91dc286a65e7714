"""Runs on a Ray cluster: the same work in Ray's workers, the same rows.

A worker may be on another machine. It runs in a directory of its own and sends the run back, and
the parent puts it into the study's directory.
"""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from skyhop.data.files import Scratch
from skyhop.errors import InputError, RunError
from skyhop.study.directory import new_place, place_whole
from skyhop.study.execution import Failure, Recipe, Task, execute
from skyhop.study.workplace import Workplace

_Result = Failure | dict[str, bytes]


def run_on_ray(
    recipe: Recipe, tasks: Iterator[Task], root: Path, jobs: int
) -> Iterator[Failure | None]:
    """Yield one outcome per task, as they end, `jobs` at a time.

    Uses the cluster that RAY_ADDRESS names, else one of `jobs` processors on this machine.

    Raises:
        InputError: ray is not installed.
        RunError: the cluster does not come up, or cannot be reached.
    """
    ray = _ray(jobs)
    shared = ray.put(recipe)
    remote = ray.remote(max_retries=3)(_run)
    waiting: dict[Any, Task] = {}
    try:
        while _fill(waiting, tasks, jobs, lambda task: remote.remote(shared, task)):
            (done, *_), _ = ray.wait(list(waiting), num_returns=1)
            task = waiting.pop(done)
            yield _taken(ray, done, task, root)
    finally:
        ray.shutdown()


def _ray(jobs: int) -> Any:
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise InputError(
            "--engine ray: ray is not installed: pip install 'skyhop[ray]', or leave --engine out"
        ) from None
    settings = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": jobs}
    try:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR", **settings)
    # Ray raises bare exceptions where its processes do not come up in time.
    except Exception as error:
        raise RunError(f"--engine ray: {' '.join(str(error).split())}") from error
    return ray


def _fill(waiting: dict[Any, Task], tasks: Iterator[Task], jobs: int, start: Any) -> bool:
    while len(waiting) < jobs:
        task = next(tasks, None)
        if task is None:
            break
        waiting[start(task)] = task
    return bool(waiting)


def _taken(ray: Any, done: Any, task: Task, root: Path) -> Failure | None:
    try:
        result: _Result = ray.get(done)
    except ray.exceptions.RayError as error:
        return Failure(task.run_id, " ".join(str(error).split()))
    if isinstance(result, Failure):
        return result
    staged = new_place(root / "unfinished")
    for name, content in result.items():
        (staged / name).write_bytes(content)
    place_whole(staged, root / "runs" / task.run_id)
    return None


def _run(recipe: Recipe, task: Task) -> _Result:
    """Run on this machine, and return the run's files."""
    workplace = _workplace()
    failure = execute(recipe, task, workplace)
    if failure is not None:
        return failure
    place = workplace.root / "runs" / task.run_id
    files = {file.name: file.read_bytes() for file in place.iterdir()}
    shutil.rmtree(place)
    return files


@cache
def _workplace() -> Workplace:
    """Return this process's own, which keeps the paths that its runs share."""
    return Workplace(_place().path)


@cache
def _place() -> Scratch:
    place = Scratch()
    for part in ("runs", "paths", "unfinished"):
        (place.path / part).mkdir()
    return place
