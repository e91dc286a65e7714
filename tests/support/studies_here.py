"""Execution of studies' runs in the test's process, for logic tests, which start no process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from skyhop.study import running
from skyhop.study.execution import Failure, Recipe, Task, execute
from skyhop.study.worker_context import WorkerContext

Runner = Callable[[Recipe, Iterator[Task], Path, int], Iterator[Failure | None]]


def install(is_logic: Callable[[], bool]) -> None:
    """Make studies execute their runs in this process, one by one, during logic tests."""
    side_by_side: Runner = running.run_locally

    def run(
        recipe: Recipe, tasks: Iterator[Task], root: Path, jobs: int
    ) -> Iterator[Failure | None]:
        here = is_logic()
        return _run_here(recipe, tasks, root) if here else side_by_side(recipe, tasks, root, jobs)

    running.run_locally = run


def _run_here(recipe: Recipe, tasks: Iterator[Task], root: Path) -> Iterator[Failure | None]:
    context = WorkerContext(root)
    for task in tasks:
        yield execute(recipe, task, context)
