"""Directory of a study: its finished runs, its failures, and its dataset.

    results.parquet      the dataset
    report.html          the report, with its figures in the same directory
    failures.json        runs that failed, each with its scenario
    study.json           the study as it was run
    runs/ID/             one finished run; the directory appears with all of its files
    paths/ID.parquet     paths that runs share

A run is written to `unfinished/` and then moved to `runs/`, so that `runs/` holds finished runs
only, even if a process is killed.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from skyhop.data.files import write_file
from skyhop.data.marks import Mark
from skyhop.errors import InputError, RunError
from skyhop.study.metrics import QUEUES, WARNINGS

if TYPE_CHECKING:
    import polars as pl

_DESCRIPTION = "study.json"
"""File that describes the study; its keys mark a directory as one of a study."""
_KEYS = ("skyhop", "core", "origin", "study")
_UNFINISHED = Mark("unfinished runs of a study; the next run of the study removes this directory")
_TEXT_COLUMNS = ("flow_cc", WARNINGS, QUEUES)
"""Keys of a row whose values are text; all others are numbers."""


class StudyDirectory:
    """Directory of one study; it need not exist yet.

    Attributes:
        root: the directory itself.
        runs: finished runs, a directory each.
        paths: paths that runs share, a Parquet file each.
        unfinished: runs in progress; it exists only while the study runs.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs = root / "runs"
        self.paths = root / "paths"
        self.unfinished = root / "unfinished"

    @contextmanager
    def opened(self, description: Mapping[str, Any]) -> Iterator[None]:
        """Create or reopen the directory, and lock it against other processes.

        Args:
            description: content of study.json.

        Raises:
            InputError: the directory has other content, or another process runs a study in it.
        """
        if self.root.exists() and not self.root.is_dir():
            raise InputError(f"{self.root}: is not a directory")
        if self.root.is_dir() and any(self.root.iterdir()) and not self._may_use():
            raise InputError(
                f"{self.root}: holds other files than a study's: give another directory"
            )
        for place in (self.root, self.runs, self.paths):
            place.mkdir(parents=True, exist_ok=True)
        with self._locked():
            # This process holds the lock, so unfinished runs are from a process that was killed.
            self._remove_unfinished()
            _UNFINISHED.make_own(self.unfinished)
            text = json.dumps(description, indent=2, ensure_ascii=False)
            write_file(self.root / _DESCRIPTION, text.encode())
            yield
            self._remove_unfinished()

    def rows_file(self, run_id: str, digest: str) -> Path:
        """Return the file with a run's rows for the metrics of this digest; it may not exist."""
        return self.runs / run_id / f"rows-{digest}.json"

    def link_finished_run(self, run_id: str, digest: str, others: Sequence[StudyDirectory]) -> None:
        """Hard-link the files of a run that one of the `others` has finished into this directory.

        A finished run is skipped if it has neither its tables nor rows for this digest.

        Raises:
            RunError: the run's files can be neither linked nor copied.
        """
        if (self.runs / run_id).is_dir():
            return
        for other in others:
            place = other.runs / run_id
            if (place / "flows.parquet").is_file() or other.rows_file(run_id, digest).is_file():
                staged = new_directory(self.unfinished)
                _link_files(place, staged)
                move_into_place(staged, self.runs / run_id)
                return

    def read_rows(self, run_id: str, digest: str) -> list[dict[str, Any]] | None:
        """Return the rows of a run; None if it is not finished.

        Raises:
            InputError: the file with the rows is damaged.
        """
        file = self.rows_file(run_id, digest)
        try:
            rows: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))
            # Encoding finds lone surrogates, which JSON can hold and UTF-8 cannot.
            json.dumps(rows, ensure_ascii=False).encode()
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError):
            rows = []
        # Each run has at least one row: a run without flows has a row about its link.
        if not (isinstance(rows, list) and rows and all(map(_is_row, rows))):
            raise InputError(
                f"{file}: is damaged: remove it, and the next run of the study measures it again"
            )
        return rows

    def write_results(self, frame: pl.DataFrame) -> Path:
        """Write the dataset to results.parquet, atomically; return the file."""
        place = self.root / "results.parquet"
        content = io.BytesIO()
        frame.write_parquet(content)
        write_file(place, content.getvalue())
        return place

    def write_failures(self, failures: Iterable[Mapping[str, Any]]) -> None:
        """Write the failed runs to failures.json; remove the file if no run failed."""
        found = list(failures)
        if found:
            text = json.dumps(found, indent=2, ensure_ascii=False)
            write_file(self.root / "failures.json", text.encode())
        else:
            (self.root / "failures.json").unlink(missing_ok=True)

    def is_study(self) -> bool:
        """Return whether a study was run in this directory: it has the study.json of one."""
        try:
            description = json.loads((self.root / _DESCRIPTION).read_bytes())
        except (OSError, ValueError, RecursionError):
            return False
        return isinstance(description, dict) and all(key in description for key in _KEYS)

    def _may_use(self) -> bool:
        """Return whether the directory is a study's, or of one that was killed at its start."""
        return self.is_study() or all(map(self._is_of_a_start, self.root.iterdir()))

    def _is_of_a_start(self, entry: Path) -> bool:
        if entry == self.unfinished:
            return _UNFINISHED.may_be_on(entry)
        if entry.name == _LOCK:
            return entry.is_file() and entry.stat().st_size == 0
        return entry in (self.runs, self.paths) and entry.is_dir() and not any(entry.iterdir())

    def _remove_unfinished(self) -> None:
        if self.unfinished.is_dir():
            _UNFINISHED.remove(self.unfinished, self.unfinished.iterdir())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.root / _LOCK).open("a") as file:
            _lock(file, self.root)
            yield


_LOCK = ".lock"


def _lock(file: IO[str], root: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(
            f"{root}: another process runs a study there: wait for it, or stop it"
        ) from None


def _is_row(row: object) -> bool:
    """Return whether a row has the right types: numbers, a text in `flow_cc`, and warnings."""
    if not isinstance(row, dict) or not isinstance(row.get(WARNINGS), list):
        return False
    if not isinstance(row.get("flow"), int | None) or not _are_queues(row.get(QUEUES, {})):
        return False
    figures = {name: value for name, value in row.items() if name not in _TEXT_COLUMNS}
    return all(
        value is None or (isinstance(value, int | float) and abs(value) < _FIGURE_LIMIT)
        for value in figures.values()
    ) and all(isinstance(text, str) for text in [*row[WARNINGS], row.get("flow_cc") or ""])


def _are_queues(queues: object) -> bool:
    """Return whether the sizes of a run's queues have the right types."""
    if not isinstance(queues, dict):
        return False
    sides = list(queues.values())
    return all(isinstance(side, dict) for side in sides) and all(
        isinstance(queue, dict)
        and all(isinstance(queue.get(key, 0), int | float) for key in _QUEUE_NUMBERS)
        for side in sides
        for queue in side.values()
    )


_QUEUE_NUMBERS = ("bytes", "packets", "rate_bps", "base_rtt_us")
_FIGURE_LIMIT = 2.0**63
"""Bound on the magnitude of a row's numbers, so that they fit into the dataset's columns."""


def move_into_place(staged: Path, place: Path) -> None:
    """Rename the directory of a finished run to `place`; if `place` exists, add the files to it.

    Raises:
        RunError: the directory cannot be renamed.
    """
    try:
        staged.rename(place)
    except OSError as error:
        if not place.is_dir():
            raise RunError(f"{place}: {error.strerror}") from error
        _add_files(staged, place)
        shutil.rmtree(staged)


def _add_files(staged: Path, place: Path) -> None:
    """Move the files of `staged` into an existing run, each atomically."""
    for file in sorted(staged.iterdir()):
        file.replace(place / file.name)


def _link_files(place: Path, staged: Path) -> None:
    """Hard-link the files of a finished run into `staged`, or copy them across file systems.

    Links are safe because files of finished runs are replaced, never written to.
    """
    try:
        for file in sorted(place.iterdir()):
            try:
                (staged / file.name).hardlink_to(file)
            except OSError:
                shutil.copy2(file, staged / file.name)
    except OSError as error:
        raise RunError(f"{place}: {error.strerror}") from error


def new_directory(parent: Path) -> Path:
    """Create a directory with a unique name in `parent`, and return it."""
    return Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent))
