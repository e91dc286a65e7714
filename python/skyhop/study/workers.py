"""Runs side by side in processes of this machine.

Each worker has a pipe of its own, so that the parent knows which run a worker had that died: the
run is tried again, the others go on. A worker whose parent dies ends at once.
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
from skyhop.study.workplace import Workplace

_ATTEMPTS = 3
"""How often a run may take its worker down before it counts as failed."""

_READY = "ready"

_PR_SET_PDEATHSIG = 1
"""Of linux/prctl.h."""

CONTEXT: SpawnContext = multiprocessing.get_context("spawn")
"""How processes are started: a fork would copy locks that other threads hold."""


def run_locally(
    recipe: Recipe, tasks: Iterator[Task], root: Path, jobs: int
) -> Iterator[Failure | None]:
    """Yield one outcome per task, as they end, `jobs` at a time; nothing outlives the iteration."""
    check_processes(jobs + 1)
    team = _Team(recipe, root, jobs)
    try:
        yield from team.outcomes(tasks)
    finally:
        team.stop()


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection
    task: Task | None = None
    ready: bool = False
    """Whether it has begun to work: one that ends before will not do better the next time."""


class _Team:
    def __init__(self, recipe: Recipe, root: Path, jobs: int) -> None:
        self._recipe = recipe
        self._root = root
        self._jobs = jobs
        self._workers: list[_Worker] = []
        self._again: list[Task] = []
        self._attempts: Counter[str] = Counter()

    def outcomes(self, tasks: Iterator[Task]) -> Iterator[Failure | None]:
        while self._feed(tasks):
            ready = set(wait([worker.pipe for worker in self._workers]))
            for worker in [w for w in self._workers if w.pipe in ready]:
                try:
                    outcome: Failure | str | None = worker.pipe.recv()
                except (EOFError, OSError):
                    yield from self._bury(worker)
                    continue
                if isinstance(outcome, str):
                    worker.ready = True
                    continue
                worker.task = None
                yield outcome

    def stop(self) -> None:
        """End all workers now; what they were at leaves nothing."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()
        self._workers.clear()

    def _feed(self, tasks: Iterator[Task]) -> bool:
        """Give every idle worker a task; False when all is done."""
        idle = [worker for worker in self._workers if worker.task is None]
        while idle or len(self._workers) < self._jobs:
            task = self._again.pop() if self._again else next(tasks, None)
            if task is None:
                break
            worker = idle.pop() if idle else self._hire()
            worker.task = task
            try:
                worker.pipe.send(task)
            except OSError:
                # It has died while idle: `outcomes` finds that, and the task is tried again.
                continue
        return any(worker.task is not None for worker in self._workers)

    def _hire(self) -> _Worker:
        ours, theirs = CONTEXT.Pipe()
        process = CONTEXT.Process(target=_work, args=(theirs, self._recipe, self._root))
        process.start()
        theirs.close()
        worker = _Worker(process, ours)
        self._workers.append(worker)
        return worker

    def _bury(self, worker: _Worker) -> Iterator[Failure]:
        """Take a dead worker away; its task is tried again, or has failed."""
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
            self._again.append(worker.task)
        else:
            how = _ending(worker.process.exitcode)
            yield Failure(worker.task.run_id, f"its process {how}, {_ATTEMPTS} times in a row")


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with status {code}"


def _work(pipe: Connection, recipe: Recipe, root: Path) -> None:
    """Do tasks until the parent has none or is gone."""
    # Ctrl-C goes to the whole group; the parent decides what ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    pipe.send(_READY)
    workplace = Workplace(root)
    while True:
        try:
            task: Task = pipe.recv()
        except EOFError:
            return
        pipe.send(execute(recipe, task, workplace))


def end_with_parent() -> None:
    """Have this process, one of `CONTEXT`, end with its parent, however that ends.

    The kernel does so also in the middle of a run; the thread, where the parent was faster.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_outlive_nobody, daemon=True).start()


def _outlive_nobody() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
