"""Execution of a study's runs on a Ray cluster, with the same rows as on one machine.

A worker may be on another machine. It executes a run in a scratch directory and returns the run's
files; the parent process writes them into the study's directory.
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
from skyhop.errors import InputError, RunError, described
from skyhop.study.directory import move_into_place, new_directory
from skyhop.study.execution import Failure, Recipe, Task, execute
from skyhop.study.worker_context import WorkerContext

_Result = Failure | dict[str, bytes]


def run_on_ray(
    recipe: Recipe, tasks: Iterator[Task], root: Path, jobs: int
) -> Iterator[Failure | None]:
    """Run the tasks, `jobs` at a time, and yield one outcome per task as it ends.

    The cluster is the one that RAY_ADDRESS names, or one with `jobs` processors on this machine.

    Raises:
        InputError: ray is not installed.
        RunError: the cluster does not start, or cannot be reached.
    """
    ray = _start_ray(jobs)
    shared = ray.put(recipe)
    remote = ray.remote(max_retries=3)(_run)
    pending: dict[Any, Task] = {}
    try:
        while _submit(pending, tasks, jobs, lambda task: remote.remote(shared, task)):
            (done, *_), _ = ray.wait(list(pending), num_returns=1)
            task = pending.pop(done)
            yield _store_result(ray, done, task, root)
    finally:
        ray.shutdown()


def _start_ray(jobs: int) -> Any:
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise InputError(
            "--engine ray: ray is not installed: run pip install 'ray>=2.40', or leave --engine out"
        ) from None
    settings = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": jobs}
    try:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR", **settings)
    # Ray raises bare exceptions if its processes do not start in time.
    except Exception as error:
        raise RunError(f"--engine ray: {described(error)}") from error
    return ray


def _submit(pending: dict[Any, Task], tasks: Iterator[Task], jobs: int, start: Any) -> bool:
    while len(pending) < jobs:
        task = next(tasks, None)
        if task is None:
            break
        pending[start(task)] = task
    return bool(pending)


def _store_result(ray: Any, done: Any, task: Task, root: Path) -> Failure | None:
    try:
        result: _Result = ray.get(done)
    except ray.exceptions.RayError as error:
        return Failure(task.run_id, described(error))
    if isinstance(result, Failure):
        return result
    staged = new_directory(root / "unfinished")
    for name, content in result.items():
        (staged / name).write_bytes(content)
    move_into_place(staged, root / "runs" / task.run_id)
    return None


def _run(recipe: Recipe, task: Task) -> _Result:
    """Execute a task in the worker's scratch directory; return the run's files by name."""
    context = _worker_context()
    failure = execute(recipe, task, context)
    if failure is not None:
        return failure
    place = context.root / "runs" / task.run_id
    files = {file.name: file.read_bytes() for file in place.iterdir()}
    shutil.rmtree(place)
    return files


@cache
def _worker_context() -> WorkerContext:
    """Return the context of this process, which caches the paths that its runs share."""
    return WorkerContext(_scratch().path)


@cache
def _scratch() -> Scratch:
    place = Scratch()
    for part in ("runs", "paths", "unfinished"):
        (place.path / part).mkdir()
    return place
