"""Journal of an executor: the steps of its run, and whether the executor is alive.

`journal.jsonl` has a line per step, written to disk before the step is taken. The step `started` is
the point of no return: after it no executor starts the program again.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from skyhop.errors import RunError
from skyhop.logs import fields

_LOG = logging.getLogger(__name__)
FILE = "journal.jsonl"
LOCK = "lock"
_LONGEST_BYTES = 10_000_000


class Step(StrEnum):
    """Step of a run, as a line of the journal names it."""

    DEPLOYING = "deploying"
    """An executor has begun with the run; another executor may still begin again."""
    STARTED = "started"
    """The program is about to start, and must never start a second time."""
    EXECUTING = "executing"
    """The program's process is running."""
    TRAFFIC = "traffic"
    """Bytes that the run has received and sent so far."""
    STOPPING = "stopping"
    """The program was told to end, for the given reason."""
    ENDED = "ended"
    """Exit status or signal of the program."""
    FINISHED = "finished"
    """Result and manifest are on disk."""


@dataclass(frozen=True)
class JournalEntry:
    """Line of the journal: a step, its time, and those of its details that a reader needs."""

    at_ns: int
    step: Step
    pid: int | None = None
    """Process id of the executor, at the step `deploying`."""


class Journal:
    """Journal of a run, open for writing by the executor that holds the lock.

    Raises:
        RunError: another executor works on the run.
    """

    def __init__(self, directory: Path) -> None:
        self._lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise RunError(f"{directory}: another executor works on this run") from None
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(directory / FILE, flags, 0o644)
        self._mend(directory)

    def _mend(self, directory: Path) -> None:
        """End the last line with a newline, if a killed executor has left it incomplete."""
        text = (directory / FILE).read_bytes()
        if text and not text.endswith(b"\n"):
            os.write(self._file, b"\n")

    def add(self, at_ns: int, step: Step, **details: str | int | None) -> None:
        """Append a step, and sync it to disk.

        Raises:
            OSError: the disk is full; nothing was appended.
        """
        line = (json.dumps({"at_ns": at_ns, "step": step.value, **details}) + "\n").encode()
        before = os.fstat(self._file).st_size
        if os.write(self._file, line) < len(line):
            # The incomplete line is removed, as it could not be read; the step does not count.
            os.ftruncate(self._file, before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fdatasync(self._file)
        _LOG.info("step %s %s", step.value, fields(details))


def read_journal(directory: Path) -> list[JournalEntry]:
    """Return the steps of a run so far, without an incomplete last line."""
    try:
        with (directory / FILE).open("rb") as stream:
            lines = stream.read(_LONGEST_BYTES).splitlines()
    except FileNotFoundError:
        return []
    entries = []
    for line in lines:
        with suppress(ValueError, TypeError, KeyError):
            values = json.loads(line)
            entry = JournalEntry(values["at_ns"], Step(values["step"]), values.get("pid"))
            entries.append(entry)
    return entries


def has_started(directory: Path) -> bool:
    """Return whether the journal contains the step `started`."""
    return any(entry.step is Step.STARTED for entry in read_journal(directory))


def is_alive(directory: Path) -> bool:
    """Return whether the run's executor, or any process that it started, is alive.

    All of these processes inherit the run's lock, so a free lock means that none is left.
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
