"""What one process of a study works with: the study's directory, and the paths that its runs share.

A path is made once for all processes, and lies in `paths/`; each reads it once, and keeps what it
used last. Runs over it share it in memory, and their directories share its file.
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
"""Of the paths that are kept, beside the one used last: some 30 MB."""


class Workplace:
    """A study's directory as one process sees it.

    Attributes:
        root: the directory.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        # The one used last is the last.
        self._paths: dict[str, _core.PathTrace] = {}

    def path_file(self, path_id: str) -> Path:
        """Return where a shared path lies."""
        return self.root / "paths" / f"{path_id}.parquet"

    def path(self, path_id: str, scenario: _core.Scenario) -> _core.PathTrace:
        """Return a shared path, that of `scenario`; it is made if nobody has made it yet.

        Raises:
            InputError: the scenario has no such path.
            RunError: its file cannot be written.
        """
        path = self._paths.pop(path_id, None) or self._read(path_id, scenario)
        while self._paths and sum(map(len, self._paths.values())) + len(path) > _MOST_FRAMES:
            del self._paths[next(iter(self._paths))]
        self._paths[path_id] = path
        return path

    def _read(self, path_id: str, scenario: _core.Scenario) -> _core.PathTrace:
        file = self.path_file(path_id)
        with _alone(self.root / "unfinished" / f"{path_id}.lock"):
            if not file.is_file():
                made = _core.PathTrace.compute(scenario, position_of, ignore_progress)
                made.write(str(file))
        # The scenario that it was made from has been checked.
        return _core.PathTrace.read(str(file), force_size=True)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Let one process at a time in: the others wait for the path that it makes."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
