"""Agent's database: its runs, the schedule, and the reports not yet acknowledged.

One SQLite file in WAL mode. A state change of a run and its report are one commit: an agent killed
between two changes has reported exactly the first. Memory cards wear with every sync and page, so
that changes are grouped by how much depends on them (`Durability`), and reports that repeat what
the node measures wait in memory until they are sent. While the disk is full, writes wait in memory,
in order.
"""

from __future__ import annotations

import sqlite3
import threading
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from skyhop.errors import InputError, RunError
from skyhop_testbed.agent import reports
from skyhop_testbed.agent.local_run import LocalRun
from skyhop_testbed.agent.reports import Report
from skyhop_testbed.agent.schedule import StoredOrder
from skyhop_testbed.api import OrderKind
from skyhop_testbed.words import EventKind

FILE = "book.sqlite"
_TABLES = """
CREATE TABLE IF NOT EXISTS outbox (seq INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL,
    kind TEXT NOT NULL, json TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS life (key TEXT PRIMARY KEY, json TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS schedule_order (n INTEGER PRIMARY KEY, kind TEXT NOT NULL,
    packed BLOB NOT NULL, signature BLOB NOT NULL);
"""
_MOST_TELEMETRY = 50_000
"""Upper limit on telemetry reports that wait in the outbox."""
_MOST_OTHERS = 20_000
"""Upper limit on waiting reports of health, scavenger and triggers together. Reports of runs and
tasks are never dropped."""
_MOST_WAITING = 10_000
"""Upper limit on droppable writes that wait in memory while the disk refuses writes."""
_BATCH_ROWS, _BATCH_BYTES = 500, 1_000_000
_UNSENT_BYTES = 200_000
"""Size of the reports in memory at which they are sent before the next heartbeat."""
_MOST_DIFFERENCES, _DIFFERENCES_BYTES = 500, 100_000
"""Number of stored differences, and their size beyond twice that of the whole schedule, at which
the node asks for the whole schedule."""
_NEVER_DROPPED = (EventKind.RUN.value, EventKind.TASK.value)
_MEASURED = (EventKind.TELEMETRY.value, EventKind.MAP.value, EventKind.HEALTH.value)
"""Kinds of reports that wait in memory: they are lost if the agent is killed before it sends them.
"""
OLD_SCHEDULE = "schedule"
"""Name under which agents before differences kept their schedule."""
_NUMBERS = "next_seq"
"""Name under which the first number is kept that no report has had."""
_RESERVED = 10_000
"""Numbers of reports that are reserved at a time."""
_Statement = tuple[str, tuple[str | int | bytes, ...]]


class Durability(IntEnum):
    """Events that a change must survive once its call has returned."""

    HELD = 0
    """Nothing: the change is written with the next one, or by `flush` within a second or so."""
    WRITTEN = 1
    """The agent's end by any signal."""
    SYNCED = 2
    """A power failure: the change is synced to disk."""


@dataclass
class WriteCounts:
    """Numbers of commits, and of commits that were synced to disk."""

    commits: int = 0
    syncs: int = 0


@dataclass(frozen=True)
class OutboxEntry:
    """Report to the orchestrator, queued in the outbox."""

    at_ns: int
    report: Report


@dataclass(frozen=True)
class _Numbered:
    """Report in memory with its number."""

    seq: int
    at_ns: int
    kind: str
    text: str

    @property
    def statement(self) -> _Statement:
        query = "INSERT OR IGNORE INTO outbox (seq, at_ns, kind, json) VALUES (?, ?, ?, ?)"
        return query, (self.seq, self.at_ns, self.kind, self.text)


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
        """Transactions that are not written yet, and whether each may be dropped."""
        self._is_refused = False
        """Whether the disk has refused the last write."""
        self._has_held_reports = False
        self._held_values: dict[str, str] = {}
        self._unsent: deque[tuple[int, str, str]] = deque()
        """Reports in memory that have no number yet: time, kind and text."""
        self._unsent_bytes = 0
        self._in_flight: list[_Numbered] = []
        """Reports from memory in the batch that was sent last."""
        self._acknowledged = 0
        self._lock = threading.RLock()
        self.counts = WriteCounts()
        self.has_reports = threading.Event()
        """Event that is set while reports are due; the reporting thread sleeps until then."""
        file = directory / FILE
        try:
            self._base = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
            for line in ("journal_mode=WAL", "synchronous=FULL", "cache_size=-512"):
                self._base.execute(f"PRAGMA {line}")
            self._is_syncing = True
            self._base.executescript(_TABLES)
            self._next_seq = self._reserved = self._first_number(now_ns)
        except sqlite3.OperationalError as error:
            raise RunError(f"{file}: {error}") from None
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"{file}: {error}: move it away; its unsent reports are lost then"
            ) from None

    def _first_number(self, now_ns: int) -> int:
        """Return the first number for reports that no report has had.

        A new database begins with the current time in ms: if it replaces a lost one, it repeats
        none of its numbers.
        """
        kept = self.get(_NUMBERS)
        numbers = [int(kept)] if kept else []
        queries = ["SELECT max(seq) FROM outbox"]
        if self._base.execute(
            "SELECT 1 FROM sqlite_master WHERE name='sqlite_sequence'"
        ).fetchone():
            # An agent before reserved numbers has made the table.
            queries.append("SELECT max(seq) FROM sqlite_sequence WHERE name='outbox'")
        for query in queries:
            (last,) = self._base.execute(query).fetchone()
            numbers += [] if last is None else [int(last) + 1]
        return max(numbers, default=now_ns // 1_000_000 + 1)

    def close(self) -> None:
        """Try once more to write what waits in memory, then close the file."""
        with self._lock:
            self._store_unsent()
            self._forget_acknowledged()
            if self._reserved > self._next_seq and not self._is_refused:
                self._waiting.append((False, [_put(_NUMBERS, str(self._next_seq))]))
            self._drain(Durability.SYNCED)
            self._base.close()

    def save_run(
        self,
        local_run: LocalRun,
        *entries: OutboxEntry,
        also_save: LocalRun | None = None,
        durability: Durability = Durability.SYNCED,
    ) -> bool:
        """Save a run's state and its reports in one commit; return whether the disk took it.

        Args:
            local_run: the run.
            entries: the reports.
            also_save: a second run, saved in the same commit.
            durability: what the change must survive; a held change counts as taken.
        """
        rows: list[_Statement] = [
            ("INSERT OR REPLACE INTO life VALUES (?, ?)", (each.key, each.dumps()))
            for each in (local_run, also_save)
            if each is not None
        ]
        with self._lock:
            rows += [self._numbered(entry).statement for entry in entries]
            self._has_held_reports |= bool(entries)
            return self._write(rows, durability, is_droppable=False)

    def delete_run(self, local_run: LocalRun) -> None:
        """Delete a settled run's row."""
        statement: _Statement = ("DELETE FROM life WHERE key = ?", (local_run.key,))
        self._write([statement], Durability.HELD, is_droppable=False)

    def add(self, entry: OutboxEntry) -> None:
        """Queue a report that does not announce a change of a run's state."""
        kind = entry.report.KIND.value
        with self._lock:
            if kind in _MEASURED:
                text = reports.dumps(entry.report)
                self._unsent.append((entry.at_ns, kind, text))
                self._unsent_bytes += len(text)
                # Telemetry has the interval of heartbeats; the other reports go with it.
                if kind == EventKind.TELEMETRY or self._unsent_bytes > _UNSENT_BYTES:
                    self.has_reports.set()
                return
            is_durable = kind in _NEVER_DROPPED
            durability = Durability.SYNCED if is_durable else Durability.WRITTEN
            self._has_held_reports = True
            self._write([self._numbered(entry).statement], durability, is_droppable=not is_durable)

    def put(self, name: str, value: str, durability: Durability = Durability.HELD) -> bool:
        """Store a text under a name; return whether the disk took it."""
        with self._lock:
            self._held_values[name] = value
            return self._write([_put(name, value)], durability, is_droppable=True)

    def get(self, name: str) -> str | None:
        """Return the text stored under a name, or `None`."""
        with self._lock:
            if name in self._held_values:
                return self._held_values[name]
            query = "SELECT value FROM kept WHERE name = ?"
            row = self._base.execute(query, (name,)).fetchone()
        return None if row is None else str(row[0])

    def flush(self) -> None:
        """Write the changes that are held, in one commit without a sync."""
        with self._lock:
            if self._waiting:
                self._drain(Durability.WRITTEN)

    def local_runs(self) -> list[LocalRun]:
        """Return all saved runs. Rows that cannot be parsed are logged and left out."""
        with self._lock:
            self._drain(Durability.WRITTEN)
            rows = self._base.execute("SELECT key, json FROM life").fetchall()
        local_runs = []
        for key, text in rows:
            try:
                local_runs.append(LocalRun.loads(text))
            except ValueError as error:
                self._say(f"run {key}: its row in {FILE} cannot be read: {error}")
        return local_runs

    # Orders with the schedule.

    def orders(self) -> list[StoredOrder]:
        """Return the last whole schedule and the differences since, oldest first."""
        with self._lock:
            self._drain(Durability.WRITTEN)
            query = "SELECT kind, packed, signature FROM schedule_order ORDER BY n"
            rows = self._base.execute(query).fetchall()
        return [StoredOrder(OrderKind(kind), zlib.decompress(p), sign) for kind, p, sign in rows]

    def replace_orders(self, order: StoredOrder) -> None:
        """Store a whole schedule in the place of all earlier orders."""
        self._store_order(order, ("DELETE FROM schedule_order", ()), _delete(OLD_SCHEDULE))

    def append_order(self, order: StoredOrder) -> None:
        """Store a difference after the earlier orders."""
        self._store_order(order)

    def _store_order(self, order: StoredOrder, *before: _Statement) -> None:
        query = "INSERT INTO schedule_order (kind, packed, signature) VALUES (?, ?, ?)"
        values = (order.kind.value, zlib.compress(order.body), order.signature)
        self._write([*before, (query, values)], Durability.WRITTEN, is_droppable=False)

    def orders_are_many(self) -> bool:
        """Return whether the stored differences are so many that a whole schedule is shorter."""
        query = "SELECT length(packed) FROM schedule_order ORDER BY n"
        with self._lock:
            sizes = [row[0] for row in self._base.execute(query).fetchall()]
        most_bytes = 2 * sizes[0] + _DIFFERENCES_BYTES if sizes else 0
        return len(sizes) > _MOST_DIFFERENCES or sum(sizes[1:]) > most_bytes

    # Reports to send.

    def next_batch(self) -> list[tuple[int, int, str, str]]:
        """Return the oldest unsent reports: number, time in ns, kind and body of each.

        At most 500 reports and about 1 MB are returned. Reports in memory follow when the file has
        no more; if they are not acknowledged before the next call, they go to the file.
        """
        with self._lock:
            self._store_in_flight()
            self._drain(Durability.WRITTEN)
            self.has_reports.clear()
            query = "SELECT seq, at_ns, kind, json FROM outbox WHERE seq > ? ORDER BY seq LIMIT ?"
            values = (self._acknowledged, _BATCH_ROWS)
            rows: list[tuple[int, int, str, str]] = self._base.execute(query, values).fetchall()
            size = 0
            for index, row in enumerate(rows):
                size += len(row[3])
                if size > _BATCH_BYTES and index:
                    return rows[:index]
            if len(rows) < _BATCH_ROWS and not self._is_refused:
                self._number_unsent(_BATCH_ROWS - len(rows), _BATCH_BYTES - size)
            return [*rows, *((e.seq, e.at_ns, e.kind, e.text) for e in self._in_flight)]

    def acknowledge(self, seq: int) -> None:
        """Forget the reports up to number `seq`, which the orchestrator has acknowledged."""
        with self._lock:
            self._acknowledged = max(seq, self._acknowledged)
            self._in_flight = [each for each in self._in_flight if each.seq > seq]

    def has_more(self) -> bool:
        """Return whether the file has reports that are not acknowledged."""
        query = "SELECT 1 FROM outbox WHERE seq > ? LIMIT 1"
        with self._lock:
            return self._base.execute(query, (self._acknowledged,)).fetchone() is not None

    def trim_outbox(self) -> None:
        """Delete acknowledged reports, and the oldest droppable ones beyond the limits."""
        durable = "', '".join(_NEVER_DROPPED)
        with self._lock:
            self._forget_acknowledged()
            low, high = self._base.execute("SELECT min(seq), max(seq) FROM outbox").fetchone()
            if low is None or high - low < min(_MOST_TELEMETRY, _MOST_OTHERS):
                return
            for which, most in (
                ("kind = 'telemetry'", _MOST_TELEMETRY),
                (f"kind NOT IN ('telemetry', '{durable}')", _MOST_OTHERS),
            ):
                query = (
                    f"DELETE FROM outbox WHERE {which} AND seq <= (SELECT seq FROM outbox "
                    f"WHERE {which} ORDER BY seq DESC LIMIT 1 OFFSET {most})"
                )
                self._write([(query, ())], Durability.HELD, is_droppable=True)

    def _numbered(self, entry: OutboxEntry) -> _Numbered:
        kind, text = entry.report.KIND.value, reports.dumps(entry.report)
        return _Numbered(self._next_number(), entry.at_ns, kind, text)

    def _next_number(self) -> int:
        """Return a number that no report has had, also none of an agent that was killed.

        Numbers are reserved in the file; the reservation is synced before a number is used.
        """
        if self._next_seq >= self._reserved:
            self._reserved = self._next_seq + _RESERVED
            statement = _put(_NUMBERS, str(self._reserved))
            self._write([statement], Durability.SYNCED, is_droppable=False)
        self._next_seq += 1
        return self._next_seq - 1

    def _number_unsent(self, most: int, most_bytes: int) -> None:
        """Move reports from memory into the batch, with numbers."""
        while self._unsent and len(self._in_flight) < most and most_bytes > 0:
            number = self._next_number()
            if self._is_refused:
                # The number is not reserved on disk: after a restart it could be given again.
                return
            at_ns, kind, text = self._unsent.popleft()
            self._unsent_bytes -= len(text)
            most_bytes -= len(text)
            self._in_flight.append(_Numbered(number, at_ns, kind, text))

    def _store_in_flight(self) -> None:
        """Put the reports of a batch that was not acknowledged into the file."""
        if self._in_flight:
            statements = [each.statement for each in self._in_flight]
            self._in_flight = []
            self._write(statements, Durability.HELD, is_droppable=True)

    def _store_unsent(self) -> None:
        """Put all reports in memory into the file."""
        self._store_in_flight()
        self._number_unsent(len(self._unsent), 1 << 62)
        self._store_in_flight()

    def _forget_acknowledged(self) -> None:
        query = "SELECT 1 FROM outbox WHERE seq <= ? LIMIT 1"
        if self._base.execute(query, (self._acknowledged,)).fetchone():
            statement: _Statement = ("DELETE FROM outbox WHERE seq <= ?", (self._acknowledged,))
            self._write([statement], Durability.HELD, is_droppable=True)

    # Writing.

    def _write(
        self, statements: Sequence[_Statement], durability: Durability, *, is_droppable: bool
    ) -> bool:
        with self._lock:
            self._waiting.append((is_droppable, list(statements)))
            if durability is Durability.HELD and not self._is_refused:
                return True
            return self._drain(durability)

    def _drain(self, durability: Durability) -> bool:
        """Write the transactions that wait in memory; return whether none is left.

        They are one commit if the disk has room for it, and else one each, in order.
        """
        if not self._waiting:
            return True
        try:
            self._commit([s for _, statements in self._waiting for s in statements], durability)
            self._waiting.clear()
        except sqlite3.Error as error:
            self._drain_singly(durability, error)
        if self._waiting:
            return False
        if self._is_refused:
            self._say(f"{FILE} can be written again")
        self._is_refused = False
        self._held_values.clear()
        if self._has_held_reports:
            self._has_held_reports = False
            self.has_reports.set()
        return True

    def _drain_singly(self, durability: Durability, error: sqlite3.Error) -> None:
        try:
            while self._waiting:
                self._commit(self._waiting[0][1], durability)
                self._waiting.popleft()
        except sqlite3.Error as again:
            error = again
        if self._waiting:
            if not self._is_refused:
                self._say(f"{FILE} cannot be written; changes wait in memory: {error}")
            self._is_refused = True
            self._drop_oldest()

    def _commit(self, statements: Sequence[_Statement], durability: Durability) -> None:
        """Execute statements as one transaction.

        In WAL mode a commit with `synchronous=NORMAL` is not synced; the next one with `FULL` syncs
        it too.
        """
        is_syncing = durability is Durability.SYNCED
        if is_syncing != self._is_syncing:
            self._base.execute(f"PRAGMA synchronous={'FULL' if is_syncing else 'NORMAL'}")
            self._is_syncing = is_syncing
        try:
            self._base.execute("BEGIN IMMEDIATE")
            for statement, values in statements:
                self._base.execute(statement, values)
            self._base.execute("COMMIT")
        except sqlite3.Error:
            if self._base.in_transaction:
                self._base.execute("ROLLBACK")
            raise
        self.counts.commits += 1
        self.counts.syncs += is_syncing

    def _drop_oldest(self) -> None:
        """Discard the oldest droppable transaction if more than `_MOST_WAITING` wait in memory."""
        droppable = sum(is_droppable for is_droppable, _ in self._waiting)
        if droppable > _MOST_WAITING:
            self._waiting.remove(next(each for each in self._waiting if each[0]))


def _put(name: str, value: str) -> _Statement:
    return "INSERT OR REPLACE INTO kept VALUES (?, ?)", (name, value)


def _delete(name: str) -> _Statement:
    return "DELETE FROM kept WHERE name = ?", (name,)
