"""What became of a run, as its executor wrote it down, and whether that executor still lives.

`journal.jsonl` has a line per step, each on the disk before the step is made. Its `started` is the
point of no return: whoever finds it there never starts the program again.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from enum import StrEnum
from pathlib import Path
from typing import Any

from skyhop.errors import RunError

FILE = "journal.jsonl"
LOCK = "lock"
_LONGEST_BYTES = 10_000_000


class Step(StrEnum):
    """What the lines of a journal say."""

    DEPLOYING = "deploying"
    """The run was taken on; it may be again."""
    STARTED = "started"
    """The program is about to be started: from here on, never again."""
    EXECUTING = "executing"
    """It runs."""
    TRAFFIC = "traffic"
    """What it has moved so far."""
    STOPPING = "stopping"
    """It is told to end, and why."""
    ENDED = "ended"
    """Its exit status or signal."""
    FINISHED = "finished"
    """Result and manifest are written."""


_STEPS = frozenset(step.value for step in Step)


class Journal:
    """A run's journal, written by the one that holds its lock.

    Raises:
        RunError: another executor has the run's directory.
    """

    def __init__(self, directory: Path) -> None:
        self._lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise RunError(f"{directory}: another executor is at work on this run") from None
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(directory / FILE, flags, 0o644)
        self._mend(directory)

    def _mend(self, directory: Path) -> None:
        """End a line that a killed executor left without its end."""
        text = (directory / FILE).read_bytes()
        if text and not text.endswith(b"\n"):
            os.write(self._file, b"\n")

    def add(self, at_ns: int, step: Step, **details: Any) -> None:
        """Write a step down; when this returns it is on the disk.

        Raises:
            OSError: it is not: the disk is full.
        """
        line = (json.dumps({"at_ns": at_ns, "step": step.value, **details}) + "\n").encode()
        before = os.fstat(self._file).st_size
        if os.write(self._file, line) < len(line):
            # The disk took a part of it: a step that nobody can read was not made.
            os.ftruncate(self._file, before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fdatasync(self._file)


def read_journal(directory: Path) -> list[dict[str, Any]]:
    """Return the steps of a run so far; half a line, as of one being written, is left out."""
    try:
        with (directory / FILE).open("rb") as stream:
            lines = stream.read(_LONGEST_BYTES).splitlines()
    except FileNotFoundError:
        return []
    steps = []
    for line in lines:
        try:
            values = json.loads(line)
        except ValueError:
            continue
        if isinstance(values, dict) and values.get("step") in _STEPS:
            steps.append(values)
    return steps


def has_started(directory: Path) -> bool:
    """Return whether the program was started, or was about to be."""
    return any(step["step"] == Step.STARTED for step in read_journal(directory))


def is_alive(directory: Path) -> bool:
    """Return whether the run's executor, or anything it started, lives.

    Its processes inherit the lock, so that a free one says that nothing is left.
    """
    try:
        lock = os.open(directory / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
