"""Opening of the orchestrator's database, and its transactions.

SQLite is in WAL mode: readers do not wait for the writer. A writer locks the database at the start
of its transaction (`BEGIN IMMEDIATE`), so that what it has checked still holds at the commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from skyhop.errors import InputError, RunError
from skyhop_testbed.store.tables import metadata

_BUSY_MS = 20_000
_CONNECTIONS = 16
"""Connections that are kept; as many again may be open for a while."""
VERSION = 2
"""Version of the tables, in the file's `user_version`; 0 is a file without tables."""


class Database:
    """Connection pool that hands out reading and writing transactions."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a read transaction, which sees one consistent snapshot."""
        with _translated_errors(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a write transaction: committed on exit, rolled back on an exception.

        Raises:
            RunError: the database cannot be written, for example because the disk is full.
        """
        with _translated_errors(), self._engine.connect() as opened:
            connection = opened.execution_options(writing=True)
            with connection.begin():
                yield connection

    def close(self) -> None:
        """Close all connections of the pool."""
        self._engine.dispose()


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
    sa.event.listen(engine, "begin", _begin)
    return engine


def _make_tables(connection: Connection, file: Path) -> None:
    version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
    if version > VERSION:
        raise InputError(f"{file}: made by a newer skyhop, or not a skyhop database")
    if version < VERSION:
        add_missing_tables(connection)
        _add_agents(connection)
        connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")


def add_missing_tables(connection: Connection) -> None:
    """Make the tables and their indices that a file does not have, and leave the others."""
    metadata.create_all(connection)


def _add_agents(connection: Connection) -> None:
    """Add the versions of nodes' agents, which version 1 does not have."""
    columns = {row[1] for row in connection.exec_driver_sql("PRAGMA table_info(node)")}
    if "agent" not in columns:
        connection.exec_driver_sql("ALTER TABLE node ADD COLUMN agent TEXT NOT NULL DEFAULT '{}'")


def _configure(connection: Any, _record: object) -> None:
    # sqlite3 would begin a transaction only at the first change; `_begin` begins it earlier.
    connection.isolation_level = None
    for pragma in (
        "journal_mode = WAL",
        "foreign_keys = ON",
        f"busy_timeout = {_BUSY_MS}",
        "synchronous = FULL",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _forbid_writing(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA query_only = ON")


def _begin(connection: Connection) -> None:
    writing = connection.get_execution_options().get("writing")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")
