"""What a node must not forget: its runs, the schedule, and what it has not reported yet.

One SQLite file, in WAL mode and with every commit on the disk. A run's step and the report of it
are one commit: whoever is killed between two steps has told exactly of the first. While the disk is
full, what should be written waits in memory, in its order.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skyhop.errors import InputError, RunError
from skyhop.testbed.agent.life import Life
from skyhop.testbed.words import EventKind

FILE = "book.sqlite"
_TABLES = """
CREATE TABLE IF NOT EXISTS outbox (seq INTEGER PRIMARY KEY AUTOINCREMENT, at_ns INTEGER NOT NULL,
    kind TEXT NOT NULL, json TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS life (key TEXT PRIMARY KEY, json TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
_MOST_TELEMETRY = 50_000
"""Reports of telemetry that wait: about a day at one every two seconds."""
_MOST_OTHERS = 20_000
"""Of health, scavenger and triggers together; of runs and tasks none is dropped."""
_MOST_WAITING = 10_000
_BATCH_BYTES = 1_000_000
_NEVER_DROPPED = (EventKind.RUN.value, EventKind.TASK.value)
_Statement = tuple[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Entry:
    """What is to be reported."""

    kind: EventKind
    at_ns: int
    body: dict[str, Any]

    def statement(self) -> _Statement:
        """Return what writes it down."""
        text = json.dumps(self.body, separators=(",", ":"))
        return (
            "INSERT INTO outbox (at_ns, kind, json) VALUES (?, ?, ?)",
            (self.at_ns, self.kind.value, text),
        )


class Book:
    """The file; any number of threads may use it.

    Args:
        directory: where it is.
        now_ns: the time, for the first number of a new one.
        say: takes a line when the disk refuses, and one when it does not any more.

    Raises:
        InputError: what is there is no book.
        RunError: it cannot be opened.
    """

    def __init__(
        self, directory: Path, now_ns: int, say: Callable[[str], None] = lambda _line: None
    ) -> None:
        self._say = say
        self._waiting: deque[tuple[bool, list[_Statement]]] = deque()
        self._lock = threading.Lock()
        self.news = threading.Event()
        """Set when something is to be reported at once."""
        file = directory / FILE
        try:
            self._base = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
            for line in ("journal_mode=WAL", "synchronous=FULL", "cache_size=-512"):
                self._base.execute(f"PRAGMA {line}")
            self._base.executescript(_TABLES)
            self._begin(now_ns)
        except sqlite3.OperationalError as error:
            raise RunError(f"{file}: {error}") from None
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"{file}: {error}: move it away; what it had to report is lost then"
            ) from None

    def _begin(self, now_ns: int) -> None:
        """Have reports' numbers begin at the time: a new book repeats none of a lost one's."""
        if not self._base.execute("SELECT 1 FROM sqlite_sequence").fetchone():
            first = now_ns // 1_000_000
            self._base.execute("INSERT INTO sqlite_sequence VALUES ('outbox', ?)", (first,))

    def close(self) -> None:
        """Close it; what waits for room is tried once more."""
        with self._lock:
            self._drain()
            self._base.close()

    def enter(self, life: Life, *entries: Entry, also: Life | None = None) -> bool:
        """Write a run's step down, with what is reported of it; return whether the disk has it.

        Args:
            life: the run.
            entries: what is reported.
            also: a run whose step is made with it.
        """
        rows = [
            ("INSERT OR REPLACE INTO life VALUES (?, ?)", (each.key, each.dumps()))
            for each in (life, also)
            if each is not None
        ]
        written = self._write([*rows, *(entry.statement() for entry in entries)], is_dear=True)
        if entries:
            self.news.set()
        return written

    def forget(self, life: Life) -> None:
        """Drop a run that nothing is left to do of."""
        self._write([("DELETE FROM life WHERE key = ?", (life.key,))], is_dear=True)

    def add(self, entry: Entry) -> None:
        """Have something reported."""
        self._write([entry.statement()], is_dear=entry.kind.value in _NEVER_DROPPED)
        self.news.set()

    def put(self, name: str, value: str) -> bool:
        """Keep a text by its name; return whether the disk has it."""
        return self._write(
            [("INSERT OR REPLACE INTO kept VALUES (?, ?)", (name, value))], is_dear=False
        )

    def get(self, name: str) -> str | None:
        """Return a text that was kept."""
        with self._lock:
            query = "SELECT value FROM kept WHERE name = ?"
            row = self._base.execute(query, (name,)).fetchone()
        return None if row is None else str(row[0])

    def lives(self) -> list[Life]:
        """Return the runs that are known."""
        with self._lock:
            rows = self._base.execute("SELECT key, json FROM life").fetchall()
        lives = []
        for key, text in rows:
            try:
                lives.append(Life.loads(text))
            except (ValueError, TypeError, KeyError) as error:
                self._say(f"run {key}: its entry cannot be read: {error}")
        return lives

    def unsent(self) -> list[tuple[int, int, str, str]]:
        """Return what is to be reported first: number, time, kind and body of each."""
        with self._lock:
            self._drain()
            query = "SELECT seq, at_ns, kind, json FROM outbox ORDER BY seq LIMIT 500"
            rows: list[tuple[int, int, str, str]] = self._base.execute(query).fetchall()
        size = 0
        for index, row in enumerate(rows):
            size += len(row[3])
            if size > _BATCH_BYTES and index:
                return rows[:index]
        return rows

    def sent(self, seq: int) -> None:
        """Drop what the orchestrator has."""
        self._write([("DELETE FROM outbox WHERE seq <= ?", (seq,))], is_dear=False)

    def bound(self) -> None:
        """Drop the oldest of what may be dropped, where too much of it waits."""
        dear = "', '".join(_NEVER_DROPPED)
        for which, most in (
            ("kind = 'telemetry'", _MOST_TELEMETRY),
            (f"kind NOT IN ('telemetry', '{dear}')", _MOST_OTHERS),
        ):
            query = (
                f"DELETE FROM outbox WHERE {which} AND seq <= (SELECT seq FROM outbox "
                f"WHERE {which} ORDER BY seq DESC LIMIT 1 OFFSET {most})"
            )
            self._write([(query, ())], is_dear=False)

    def _write(self, statements: Sequence[_Statement], *, is_dear: bool) -> bool:
        with self._lock:
            self._waiting.append((is_dear, list(statements)))
            return self._drain()

    def _drain(self) -> bool:
        """Write what waits, each part whole or not at all; return whether nothing waits."""
        was_waiting = len(self._waiting) > 1
        while self._waiting:
            try:
                self._base.execute("BEGIN IMMEDIATE")
                for statement, values in self._waiting[0][1]:
                    self._base.execute(statement, values)
                self._base.execute("COMMIT")
            except sqlite3.Error as error:
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")
                if not was_waiting:
                    self._say(f"the book cannot be written, it waits in memory: {error}")
                self._drop_cheap()
                return False
            self._waiting.popleft()
        if was_waiting:
            self._say("the book can be written again")
        return True

    def _drop_cheap(self) -> None:
        """Keep of what waits in memory all that is of runs, and the newest of the rest."""
        cheap = sum(not dear for dear, _ in self._waiting)
        if cheap > _MOST_WAITING:
            self._waiting.remove(next(each for each in self._waiting if not each[0]))
