"""The directory of a study: what is finished, what failed, and the dataset.

    results.parquet      the dataset
    report.html          the report, its figures beside it
    failures.json        runs that failed, each with its scenario
    study.json           the study as it was run
    runs/ID/             one run; it appears when it is finished, and whole
    paths/ID.parquet     paths that runs share

A run is made in `unfinished/` and moved into `runs/`: whatever is stopped at whatever moment,
`runs/` holds finished runs only.
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
from skyhop.errors import InputError, RunError
from skyhop.study.metrics import WARNINGS

if TYPE_CHECKING:
    import polars as pl

_MARK = "study.json"
_WORDS = ("flow_cc", WARNINGS)


class StudyDirectory:
    """A directory that holds a study's runs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs = root / "runs"
        self.paths = root / "paths"
        self.unfinished = root / "unfinished"

    @contextmanager
    def opened(self, description: Mapping[str, Any]) -> Iterator[None]:
        """Make or take up the directory, for one study at a time.

        Args:
            description: what study.json shall say.

        Raises:
            InputError: the directory holds something else, or is in use.
        """
        if self.root.exists() and not self.root.is_dir():
            raise InputError(f"{self.root}: is not a directory")
        if self.root.is_dir() and any(self.root.iterdir()) and not self._is_ours():
            raise InputError(f"{self.root}: not empty and no study: give another directory")
        for place in (self.root, self.runs, self.paths):
            place.mkdir(parents=True, exist_ok=True)
        with self._locked():
            # Nobody else is here: what is unfinished is left over from a run that was stopped.
            shutil.rmtree(self.unfinished, ignore_errors=True)
            self.unfinished.mkdir(exist_ok=True)
            text = json.dumps(description, indent=2, ensure_ascii=False)
            write_file(self.root / _MARK, text.encode())
            yield
            shutil.rmtree(self.unfinished, ignore_errors=True)

    def rows_file(self, run_id: str, digest: str) -> Path:
        """Return where the rows of a run are once it is finished and measured."""
        return self.runs / run_id / f"rows-{digest}.json"

    def take_over(self, run_id: str, digest: str, others: Sequence[StudyDirectory]) -> None:
        """Have a run that another study has finished, where one has: its files, by another name.

        One of which only other measurements were kept is of no use.

        Raises:
            RunError: its files cannot be had.
        """
        if (self.runs / run_id).is_dir():
            return
        for other in others:
            place = other.runs / run_id
            if (place / "flows.parquet").is_file() or other.rows_file(run_id, digest).is_file():
                staged = new_place(self.unfinished)
                _link_files(place, staged)
                place_whole(staged, self.runs / run_id)
                return

    def read_rows(self, run_id: str, digest: str) -> list[dict[str, Any]] | None:
        """Return the rows of a run, None where it is not finished.

        Raises:
            InputError: they are damaged.
        """
        file = self.rows_file(run_id, digest)
        try:
            rows: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))
            # Halves of letters, which JSON can write and nothing can print.
            json.dumps(rows, ensure_ascii=False).encode()
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError):
            rows = []
        # A run has a row, if only one about its link.
        if not (isinstance(rows, list) and rows and all(map(_is_row, rows))):
            raise InputError(f"{file}: is damaged: remove it, and its run is measured again")
        return rows

    def write_results(self, frame: pl.DataFrame) -> Path:
        """Write the dataset, whole or not at all."""
        place = self.root / "results.parquet"
        content = io.BytesIO()
        frame.write_parquet(content)
        write_file(place, content.getvalue())
        return place

    def write_failures(self, failures: Iterable[Mapping[str, Any]]) -> None:
        """Write what failed, or remove what an earlier run left."""
        found = list(failures)
        if found:
            text = json.dumps(found, indent=2, ensure_ascii=False)
            write_file(self.root / "failures.json", text.encode())
        else:
            (self.root / "failures.json").unlink(missing_ok=True)

    def is_study(self) -> bool:
        """Whether a study has been run there."""
        return (self.root / _MARK).is_file()

    def _is_ours(self) -> bool:
        # The lock is what a study that was stopped at once leaves.
        return self.is_study() or (self.root / _LOCK).is_file()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.root / _LOCK).open("w") as file:
            _lock(file, self.root)
            yield


_LOCK = ".lock"


def _lock(file: IO[str], root: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(f"{root}: another study is running there: wait, or stop it") from None


def _is_row(row: object) -> bool:
    """Whether a row holds what runs are measured as: figures, one word, warnings."""
    if not isinstance(row, dict) or not isinstance(row.get(WARNINGS), list):
        return False
    if not isinstance(row.get("flow"), int | None):
        return False
    figures = {name: value for name, value in row.items() if name not in _WORDS}
    return all(
        value is None or (isinstance(value, int | float) and abs(value) < _LARGEST)
        for value in figures.values()
    ) and all(isinstance(text, str) for text in [*row[WARNINGS], row.get("flow_cc") or ""])


_LARGEST = 2.0**63


def place_whole(staged: Path, place: Path) -> None:
    """Move a finished run into its place; where another has finished it meanwhile, that stays.

    Raises:
        RunError: it cannot be moved.
    """
    try:
        staged.rename(place)
    except OSError as error:
        if not place.is_dir():
            raise RunError(f"{place}: {error.strerror}") from error
        _add_files(staged, place)
        shutil.rmtree(staged)


def _add_files(staged: Path, place: Path) -> None:
    """Put the files of `staged` into the run that is there; each appears whole."""
    for file in sorted(staged.iterdir()):
        file.replace(place / file.name)


def _link_files(place: Path, staged: Path) -> None:
    """Give the files of a finished run another name each, or copy them where that cannot be.

    A finished run's files are replaced, never written to.
    """
    try:
        for file in sorted(place.iterdir()):
            try:
                (staged / file.name).hardlink_to(file)
            except OSError:
                shutil.copy2(file, staged / file.name)
    except OSError as error:
        raise RunError(f"{place}: {error.strerror}") from error


def new_place(parent: Path) -> Path:
    """Return a new directory below `parent`, whose name no other process has."""
    return Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent))
