"""What the service has changed and not undone yet, on the disk before it is made."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

FILE = "changes.jsonl"
Change = dict[str, Any]
"""Its `kind`, and what undoing it needs; the same change undone twice is undone."""


class Changes:
    """The journal of changes.

    Args:
        directory: the service's own.
        undo: undoes a change, or finds that it is not there.
    """

    def __init__(self, directory: Path, undo: Callable[[Change], None]) -> None:
        self._file = directory / FILE
        self._undo = undo
        self._lock = threading.Lock()
        self._open: list[tuple[int, str, Change]] = []
        self._next = 0
        self._descriptor = os.open(
            self._file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )

    def undo_what_was_left(self) -> list[str]:
        """Undo what a killed service left, the last first; return a line on each.

        What cannot be undone now stays in the journal, for the next start.
        """
        said = []
        self._open = self._left()
        for entry in reversed(list(self._open)):
            _, run, change = entry
            what = f"{change.get('kind')} {change.get('name', '')} of {run}"
            try:
                self._undo(change)
            except Exception as error:
                said.append(f"not undone: {what}: {error}")
                continue
            self._open.remove(entry)
            said.append(f"undone: {what}")
        os.ftruncate(self._descriptor, 0)
        self._open = [(n, run, change) for n, (_, run, change) in enumerate(self._open)]
        for number, run, change in self._open:
            self._write({"number": number, "run": run, "change": change})
        self._next = len(self._open)
        os.fsync(self._descriptor)
        return said

    def _left(self) -> list[tuple[int, str, Change]]:
        left: dict[int, tuple[int, str, Change]] = {}
        for line in self._file.read_bytes().splitlines():
            try:
                values = json.loads(line)
                number = int(values["number"])
                if "undone" in values:
                    left.pop(number, None)
                else:
                    left[number] = (number, str(values["run"]), dict(values["change"]))
            except (ValueError, KeyError, TypeError):
                continue  # Half a line: what it was to announce was not made.
        return list(left.values())

    def about_to(self, run: str, change: Change) -> None:
        """Write down a change that is made next; when this returns it is on the disk."""
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._open.append((number, run, change))
            self._write({"number": number, "run": run, "change": change})

    def undo_all(self, run: str) -> list[str]:
        """Undo everything of a run, the last first; return what would not be undone, and why."""
        with self._lock:
            own = [entry for entry in self._open if entry[1] == run]
        failed = []
        for entry in reversed(own):
            number, _, change = entry
            try:
                self._undo(change)
            except Exception as error:
                # It stays in the journal: the next start tries again.
                failed.append(f"{change['kind']}: {error}")
                continue
            with self._lock:
                self._open.remove(entry)
                self._write({"number": number, "undone": True})
                if not self._open:
                    os.ftruncate(self._descriptor, 0)
        return failed

    def _write(self, values: dict[str, Any]) -> None:
        os.write(self._descriptor, (json.dumps(values) + "\n").encode())
        os.fdatasync(self._descriptor)
