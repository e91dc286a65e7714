"""Opening of the orchestrator's database, and its transactions.

SQLite is in WAL mode: readers do not wait for the writer. A writer locks the database at the start
of its transaction (`BEGIN IMMEDIATE`), so that what it has checked still holds at the commit.
Writers of this process queue in order of their arrival: SQLite itself serves waiting writers in any
order, and lets a busy one starve the others.

Deleted rows leave free pages, which `give_back` returns to the file system in pieces.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from skyhop.errors import InputError, RunError
from skyhop_testbed.store import usage
from skyhop_testbed.store.migrations import migrate
from skyhop_testbed.store.tables import metadata

_LOG = logging.getLogger(__name__)
_BUSY_MS = 20_000
_CONNECTIONS = 16
"""Connections that are kept; as many again may be open for a while."""
_LARGEST_WAL_BYTES = 64 << 20
"""Size to which the write-ahead log is cut back after a checkpoint."""
_INCREMENTAL = 2
"""Value of SQLite's `auto_vacuum` with which `incremental_vacuum` can return free pages."""
VERSION = 2
"""Version of the tables, in the file's `user_version`; 0 is a file without tables."""


class Database:
    """Connection pool that hands out reading and writing transactions."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writers = _Queue()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a read transaction, which sees one consistent snapshot."""
        with _translated_errors(), self._engine.begin() as connection:
            connection.exec_driver_sql("BEGIN")
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a write transaction: committed on exit, rolled back on an exception.

        Raises:
            RunError: the database cannot be written, for example because the disk is full.
        """
        with (
            self._writers.turn(_BUSY_MS / 1000),
            _translated_errors(),
            self._engine.begin() as connection,
        ):
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection

    def give_back(self, most_pages: int) -> None:
        """Return at most `most_pages` free pages to the file system."""
        with (
            self._writers.turn(_BUSY_MS / 1000),
            _translated_errors(),
            self._engine.connect() as opened,
        ):
            base: Any = opened.connection.driver_connection
            # Each step of the statement frees one page; `execute` would do one step only.
            base.executescript(f"PRAGMA incremental_vacuum({most_pages})")

    def close(self) -> None:
        """Close all connections of the pool."""
        self._engine.dispose()


class _Queue:
    """Lock that threads acquire in order of their arrival."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()

    @contextmanager
    def turn(self, patience_s: float) -> Iterator[None]:
        """Hold the lock.

        Raises:
            RunError: the lock is not free within `patience_s`.
        """
        mine = threading.Event()
        with self._lock:
            self._waiting.append(mine)
            if self._waiting[0] is mine:
                mine.set()
        try:
            if not mine.wait(patience_s):
                raise RunError("the testbed's database is busy: try again in a minute")
            yield
        finally:
            with self._lock:
                self._waiting.remove(mine)
                if self._waiting:
                    self._waiting[0].set()


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except IntegrityError:
        # This is a bug in skyhop: the values were not checked before they were written.
        raise
    except (DBAPIError, PoolTimeoutError) as error:
        raise RunError(f"the testbed's database: {_first_line(error)}") from error


def _first_line(error: SQLAlchemyError) -> str:
    """Return the first line of the database's message, without the SQL statement."""
    said = str(error.orig if isinstance(error, DBAPIError) else error).strip()
    return said.splitlines()[0] if said else type(error).__name__


def open_database(file: Path) -> Database:
    """Open a database; make its tables, or those that the file of an older version lacks.

    Raises:
        InputError: a newer skyhop made the tables.
        RunError: the file cannot be opened.
    """
    engine = _engine(file, _CONNECTIONS)
    database = Database(engine)
    try:
        with database.writing() as connection:
            _make_tables(connection, file)
        _allow_giving_back(engine, file)
    except BaseException:
        engine.dispose()
        raise
    return database


def open_to_read(file: Path) -> Database:
    """Open the database of a running orchestrator, to read only.

    In WAL mode a reader does not keep the writer waiting, whatever happens to the reader.
    """
    engine = _engine(file, 8)
    sa.event.listen(engine, "connect", _forbid_writing)
    return Database(engine)


def _engine(file: Path, connections: int) -> Engine:
    engine = sa.create_engine(
        f"sqlite:///{file}",
        connect_args={"check_same_thread": False},
        pool_size=connections,
        max_overflow=connections,
    )
    sa.event.listen(engine, "connect", _configure)
    return engine


def _make_tables(connection: Connection, file: Path) -> None:
    version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
    if version > VERSION:
        raise InputError(f"{file}: made by a newer skyhop, or not a skyhop database")
    if version == 0:
        metadata.create_all(connection)
        usage.count_from_now_on(connection)
    elif version < VERSION:
        migrate(connection)
    connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")


def _allow_giving_back(engine: Engine, file: Path) -> None:
    """Rewrite an older file once, so that free pages can be returned in pieces from now on.

    The rewriting needs twice the file's size of free space; without it, the file stays as it is:
    its free pages are used again, but the file never shrinks.
    """
    with _translated_errors(), engine.connect() as opened:
        base: Any = opened.connection.driver_connection
        if base.execute("PRAGMA auto_vacuum").fetchone()[0] == _INCREMENTAL:
            return
        size, free = file.stat().st_size, shutil.disk_usage(file.parent).free
        if free < 3 * size:
            _LOG.warning("%s: stays at its size: rewriting needs %s free bytes", file, 3 * size)
            return
        base.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
        base.execute("VACUUM")


def _configure(connection: Any, _record: object) -> None:
    # sqlite3 would begin a transaction only at the first change; `Database` begins it earlier.
    connection.isolation_level = None
    pragmas = [
        f"busy_timeout = {_BUSY_MS}",
        "journal_mode = WAL",
        f"journal_size_limit = {_LARGEST_WAL_BYTES}",
        "foreign_keys = ON",
        "synchronous = FULL",
    ]
    if connection.execute("PRAGMA page_count").fetchone()[0] == 0:
        # Only a file without tables takes the mode, and it would wait for a writer of another file.
        pragmas.insert(1, f"auto_vacuum = {_INCREMENTAL}")
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}")


def _forbid_writing(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA query_only = ON")
