"""Parallel execution of a study's runs in worker processes of this machine.

Each worker has its own pipe, so that the parent knows which run a dead worker was executing. The
parent retries that run, and the other workers continue. A worker exits at once when its parent
dies.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path

from skyhop.data.processes import check_processes
from skyhop.errors import RunError
from skyhop.study.execution import Failure, Recipe, Task, execute
from skyhop.study.worker_context import WorkerContext

_ATTEMPTS = 3
"""Number of workers that a run may crash before it counts as failed."""

_READY = "ready"
"""First message of a worker; the worker sends it after importing its modules."""

_PR_SET_PDEATHSIG = 1
"""Option of prctl(2) that sets the parent-death signal (linux/prctl.h)."""

CONTEXT: SpawnContext = multiprocessing.get_context("spawn")
"""Start method of worker processes; a fork would copy locks that other threads hold."""


def run_locally(
    recipe: Recipe, tasks: Iterator[Task], root: Path, jobs: int
) -> Iterator[Failure | None]:
    """Run the tasks, `jobs` at a time, and yield one outcome per task as it ends.

    No worker outlives the iteration.
    """
    check_processes(jobs + 1)
    pool = _WorkerPool(recipe, root, jobs)
    try:
        yield from pool.outcomes(tasks)
    finally:
        pool.stop()


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection
    task: Task | None = None
    ready: bool = False
    """Whether the worker has started; a worker that exits before is not replaced."""


class _WorkerPool:
    def __init__(self, recipe: Recipe, root: Path, jobs: int) -> None:
        self._recipe = recipe
        self._root = root
        self._jobs = jobs
        self._workers: list[_Worker] = []
        self._retries: list[Task] = []
        self._attempts: Counter[str] = Counter()

    def outcomes(self, tasks: Iterator[Task]) -> Iterator[Failure | None]:
        while self._assign_tasks(tasks):
            ready = set(wait([worker.pipe for worker in self._workers]))
            for worker in [w for w in self._workers if w.pipe in ready]:
                try:
                    outcome: Failure | str | None = worker.pipe.recv()
                except (EOFError, OSError):
                    yield from self._remove_dead(worker)
                    continue
                if isinstance(outcome, str):
                    worker.ready = True
                    continue
                worker.task = None
                yield outcome

    def stop(self) -> None:
        """Kill all workers; their unfinished runs leave no results."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()
        self._workers.clear()

    def _assign_tasks(self, tasks: Iterator[Task]) -> bool:
        """Give every idle worker a task; return whether any task is in progress."""
        idle = [worker for worker in self._workers if worker.task is None]
        while idle or len(self._workers) < self._jobs:
            task = self._retries.pop() if self._retries else next(tasks, None)
            if task is None:
                break
            worker = idle.pop() if idle else self._start_worker()
            worker.task = task
            try:
                worker.pipe.send(task)
            except OSError:
                # The worker died while idle: `outcomes` notices, and tries the task again.
                continue
        return any(worker.task is not None for worker in self._workers)

    def _start_worker(self) -> _Worker:
        ours, theirs = CONTEXT.Pipe()
        process = CONTEXT.Process(target=_worker_main, args=(theirs, self._recipe, self._root))
        process.start()
        theirs.close()
        worker = _Worker(process, ours)
        self._workers.append(worker)
        return worker

    def _remove_dead(self, worker: _Worker) -> Iterator[Failure]:
        """Remove a dead worker; queue its task again, or yield it as failed."""
        worker.process.join()
        worker.pipe.close()
        self._workers.remove(worker)
        if not worker.ready and (worker.process.exitcode or 0) > 0:
            raise RunError(
                "processes for the runs cannot start, as the message above says; a script that "
                'runs studies is a file and begins with if __name__ == "__main__":'
            )
        if worker.task is None:
            return
        self._attempts[worker.task.run_id] += 1
        if self._attempts[worker.task.run_id] < _ATTEMPTS:
            self._retries.append(worker.task)
        else:
            ending = _exit_text(worker.process.exitcode)
            yield Failure(worker.task.run_id, f"its process {ending}, {_ATTEMPTS} times in a row")


def _exit_text(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with status {code}"


def _worker_main(pipe: Connection, recipe: Recipe, root: Path) -> None:
    """Execute tasks in a worker process until the parent closes the pipe."""
    # Ctrl-C signals the whole process group; the parent decides which workers to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    pipe.send(_READY)
    context = WorkerContext(root)
    while True:
        try:
            task: Task = pipe.recv()
        except EOFError:
            return
        pipe.send(execute(recipe, task, context))


def end_with_parent() -> None:
    """Make this process, which was started with `CONTEXT`, exit when its parent exits.

    The kernel kills this process even in the middle of a run. If the parent exited before the call
    of prctl(2), the kernel does not, and the thread ends this process.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_exit_after_parent, daemon=True).start()


def _exit_after_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
