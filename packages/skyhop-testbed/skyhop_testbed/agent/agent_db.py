"""Agent's database: its runs, the schedule, and the reports not yet acknowledged.

One SQLite file in WAL mode, with every commit synced to disk. A state change of a run and its
report are one commit: an agent killed between two changes has reported exactly the first. While the
disk is full, writes wait in memory, in order.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from skyhop.errors import InputError, RunError
from skyhop_testbed.agent import reports
from skyhop_testbed.agent.local_run import LocalRun
from skyhop_testbed.agent.reports import Report
from skyhop_testbed.words import EventKind

FILE = "book.sqlite"
_TABLES = """
CREATE TABLE IF NOT EXISTS outbox (seq INTEGER PRIMARY KEY AUTOINCREMENT, at_ns INTEGER NOT NULL,
    kind TEXT NOT NULL, json TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS life (key TEXT PRIMARY KEY, json TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
_MOST_TELEMETRY = 50_000
"""Upper limit on telemetry reports that wait in the outbox: about a day's, at one every two
seconds.
"""
_MOST_OTHERS = 20_000
"""Upper limit on waiting reports of health, scavenger and triggers together. Reports of runs and
tasks are never dropped."""
_MOST_WAITING = 10_000
"""Upper limit on droppable writes that wait in memory while the disk refuses writes."""
_BATCH_BYTES = 1_000_000
_NEVER_DROPPED = (EventKind.RUN.value, EventKind.TASK.value)
_Statement = tuple[str, tuple[str | int, ...]]


@dataclass(frozen=True)
class OutboxEntry:
    """Report to the orchestrator, queued in the outbox."""

    at_ns: int
    report: Report

    def statement(self) -> _Statement:
        """Return the SQL statement that adds the report to the outbox."""
        return (
            "INSERT INTO outbox (at_ns, kind, json) VALUES (?, ?, ?)",
            (self.at_ns, self.report.KIND.value, reports.dumps(self.report)),
        )


class AgentDb:
    """SQLite database of the agent; thread-safe.

    Args:
        directory: the agent's directory; the database is the file `FILE` in it.
        now_ns: current time; a new database starts numbering its reports from it.
        say: function for log lines: one when the disk begins to refuse writes, one when it
            accepts them again.

    Raises:
        InputError: the file is no SQLite database.
        RunError: the file cannot be opened.
    """

    def __init__(
        self, directory: Path, now_ns: int, say: Callable[[str], None] = lambda _line: None
    ) -> None:
        self._say = say
        self._waiting: deque[tuple[bool, list[_Statement]]] = deque()
        self._lock = threading.Lock()
        self.has_reports = threading.Event()
        """Event that is set while the outbox has reports; the reporting thread sleeps until then.
        """
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
                f"{file}: {error}: move it away; its unsent reports are lost then"
            ) from None

    def _begin(self, now_ns: int) -> None:
        """Start the report numbers at the current time in ms.

        A database that replaces a lost one then repeats none of its numbers.
        """
        if not self._base.execute("SELECT 1 FROM sqlite_sequence").fetchone():
            first = now_ns // 1_000_000
            self._base.execute("INSERT INTO sqlite_sequence VALUES ('outbox', ?)", (first,))

    def close(self) -> None:
        """Try once more to write the transactions that wait in memory, then close the file."""
        with self._lock:
            self._drain()
            self._base.close()

    def save_run(
        self, local_run: LocalRun, *entries: OutboxEntry, also_save: LocalRun | None = None
    ) -> bool:
        """Save a run's state and its reports in one commit; return whether the commit is on disk.

        Args:
            local_run: the run.
            entries: the reports.
            also_save: a second run, saved in the same commit.
        """
        rows = [
            ("INSERT OR REPLACE INTO life VALUES (?, ?)", (each.key, each.dumps()))
            for each in (local_run, also_save)
            if each is not None
        ]
        written = self._write([*rows, *(entry.statement() for entry in entries)], is_durable=True)
        if entries:
            self.has_reports.set()
        return written

    def delete_run(self, local_run: LocalRun) -> None:
        """Delete a settled run's row."""
        self._write([("DELETE FROM life WHERE key = ?", (local_run.key,))], is_durable=True)

    def add(self, entry: OutboxEntry) -> None:
        """Queue a report that does not announce a change of a run's state."""
        self._write([entry.statement()], is_durable=entry.report.KIND.value in _NEVER_DROPPED)
        self.has_reports.set()

    def put(self, name: str, value: str) -> bool:
        """Store a text under a name; return whether the text is on disk."""
        return self._write(
            [("INSERT OR REPLACE INTO kept VALUES (?, ?)", (name, value))], is_durable=False
        )

    def get(self, name: str) -> str | None:
        """Return the text stored under a name, or `None`."""
        with self._lock:
            query = "SELECT value FROM kept WHERE name = ?"
            row = self._base.execute(query, (name,)).fetchone()
        return None if row is None else str(row[0])

    def local_runs(self) -> list[LocalRun]:
        """Return all saved runs. Rows that cannot be parsed are logged and left out."""
        with self._lock:
            rows = self._base.execute("SELECT key, json FROM life").fetchall()
        local_runs = []
        for key, text in rows:
            try:
                local_runs.append(LocalRun.loads(text))
            except ValueError as error:
                self._say(f"run {key}: its row in {FILE} cannot be read: {error}")
        return local_runs

    def next_batch(self) -> list[tuple[int, int, str, str]]:
        """Return the oldest unsent reports: number, time in ns, kind and body of each.

        At most 500 reports and about 1 MB are returned.
        """
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

    def acknowledge(self, seq: int) -> None:
        """Delete the reports up to number `seq`, which the orchestrator has acknowledged."""
        self._write([("DELETE FROM outbox WHERE seq <= ?", (seq,))], is_durable=False)

    def trim_outbox(self) -> None:
        """Delete the oldest droppable reports beyond `_MOST_TELEMETRY` and `_MOST_OTHERS`."""
        durable = "', '".join(_NEVER_DROPPED)
        for which, most in (
            ("kind = 'telemetry'", _MOST_TELEMETRY),
            (f"kind NOT IN ('telemetry', '{durable}')", _MOST_OTHERS),
        ):
            query = (
                f"DELETE FROM outbox WHERE {which} AND seq <= (SELECT seq FROM outbox "
                f"WHERE {which} ORDER BY seq DESC LIMIT 1 OFFSET {most})"
            )
            self._write([(query, ())], is_durable=False)

    def _write(self, statements: Sequence[_Statement], *, is_durable: bool) -> bool:
        with self._lock:
            self._waiting.append((is_durable, list(statements)))
            return self._drain()

    def _drain(self) -> bool:
        """Write the transactions that wait in memory, in order; return whether none is left."""
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
                    self._say(f"{FILE} cannot be written; changes wait in memory: {error}")
                self._drop_oldest()
                return False
            self._waiting.popleft()
        if was_waiting:
            self._say(f"{FILE} can be written again")
        return True

    def _drop_oldest(self) -> None:
        """Discard the oldest droppable transaction if more than `_MOST_WAITING` wait in memory."""
        droppable = sum(not durable for durable, _ in self._waiting)
        if droppable > _MOST_WAITING:
            self._waiting.remove(next(each for each in self._waiting if not each[0]))
