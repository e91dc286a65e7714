"""Context of a process that executes runs: the study's directory, and a cache of shared paths.

One process computes a path and writes it to `paths/` for all processes. Each process reads a path
once, and caches the most recently used paths. Runs in a process share the path in memory; run
directories share its file.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skyhop import _core
from skyhop.data.places import position_of
from skyhop.data.progress import ignore_progress

_MOST_FRAMES = 100_000
"""Largest number of frames of all cached paths, about 30 MB; the last used path may exceed it."""


class WorkerContext:
    """Directory of a study in one process, with the process's cache of paths.

    Attributes:
        root: the study's directory.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        # Ordered by last use, the most recent last.
        self._paths: dict[str, _core.PathTrace] = {}

    def path_file(self, path_id: str) -> Path:
        """Return the file of a shared path; the file may not exist yet."""
        return self.root / "paths" / f"{path_id}.parquet"

    def path(self, path_id: str, scenario: _core.Scenario) -> _core.PathTrace:
        """Return the shared path of `scenario`; compute it if no process has done so yet.

        Raises:
            InputError: the path cannot be computed from the scenario.
            RunError: the path's file cannot be written.
        """
        path = self._paths.pop(path_id, None) or self._read(path_id, scenario)
        while self._paths and sum(map(len, self._paths.values())) + len(path) > _MOST_FRAMES:
            del self._paths[next(iter(self._paths))]
        self._paths[path_id] = path
        return path

    def _read(self, path_id: str, scenario: _core.Scenario) -> _core.PathTrace:
        file = self.path_file(path_id)
        with _exclusive_lock(self.root / "unfinished" / f"{path_id}.lock"):
            if not file.is_file():
                made = _core.PathTrace.compute(scenario, position_of, ignore_progress)
                made.write(str(file))
        # No limit on the size: the path was computed from a checked scenario.
        return _core.PathTrace.read(str(file), force_size=True)


@contextmanager
def _exclusive_lock(lock: Path) -> Iterator[None]:
    """Hold an exclusive file lock, so that other processes wait for the path being computed."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
