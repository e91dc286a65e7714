"""Opening of the orchestrator's database, and its transactions.

SQLite is in WAL mode: readers do not wait for the writer. A writer locks the database at the start
of its transaction (`BEGIN IMMEDIATE`), so that what it has checked still holds at the commit. In
PostgreSQL, writers take an advisory lock, and readers see one snapshot (REPEATABLE READ).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from skyhop.errors import InputError, RunError

_BUSY_MS = 20_000
_ANSWER_S = 10
_SQLITE, _POSTGRESQL = "sqlite", "postgresql"
_ADVISORY_LOCK = 7249
"""Key of the PostgreSQL advisory lock that each writer holds."""
HEAD = "0001"
"""Revision of the newest migration in `migrations/versions`."""


class Database:
    """Connection pool that hands out reading and writing transactions."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reading: dict[str, Any] = {}
        # PostgreSQL allows concurrent writers; this code relies on one writer at a time, as in
        # SQLite.
        self._needs_write_lock = engine.dialect.name == _POSTGRESQL
        if self._needs_write_lock:
            self._reading = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a read transaction, which sees one consistent snapshot."""
        with _translated_errors(), self._engine.connect() as opened:
            connection = opened.execution_options(**self._reading)
            with connection.begin():
                yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a write transaction: committed on exit, rolled back on an exception.

        Raises:
            RunError: the database cannot be written: the disk is full, or the server is away.
        """
        with _translated_errors(), self._engine.connect() as opened:
            connection = opened.execution_options(writing=True)
            with connection.begin():
                if self._needs_write_lock:
                    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
                yield connection

    def close(self) -> None:
        """Close all connections of the pool."""
        self._engine.dispose()


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except DataError as error:
        # One example is a NUL byte in a requested name, which PostgreSQL text cannot hold.
        raise InputError(f"the database cannot store this value: {_first_line(error)}") from error
    except IntegrityError:
        # This is a bug in skyhop: the values were not checked before they were written.
        raise
    except (DBAPIError, PoolTimeoutError) as error:
        raise RunError(f"the testbed's database: {_first_line(error)}") from error


def _first_line(error: SQLAlchemyError) -> str:
    """Return the first line of the database's message, without the SQL statement."""
    said = str(error.orig if isinstance(error, DBAPIError) else error).strip()
    return said.splitlines()[0] if said else type(error).__name__


def open_database(url: str) -> Database:
    """Open a database, and migrate its tables to the newest revision.

    Args:
        url: SQLAlchemy URL, such as "sqlite:////var/lib/skyhop/testbed.sqlite" or
            "postgresql://user@host/name".

    Raises:
        InputError: the URL is invalid, its driver is missing, or a newer skyhop made the tables.
        RunError: the server does not answer or refuses the login, or the file cannot be opened.
    """
    engine = _engine(url)
    try:
        with _translated_errors(), engine.connect() as connection:
            # Import alembic only if needed: it would permanently add 10 MB to the service's memory.
            if _revision(connection) != HEAD:
                _upgrade(connection, engine)
    except BaseException:
        engine.dispose()
        raise
    return Database(engine)


def is_file_database(url: str) -> bool:
    """Return whether a database is a SQLite file, whose directory must exist.

    Raises:
        InputError: the URL is invalid.
    """
    return _parsed(url).get_backend_name() == _SQLITE


def _revision(connection: Connection) -> str | None:
    """Return the migration revision of the tables, or None without tables."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return None if found is None else str(found)


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # Leave the URL out of the message: an invalid URL may still contain a password.
        raise InputError(
            "the testbed's database: invalid URL; expected "
            "sqlite:////DIR/testbed.sqlite or postgresql://USER@HOST/NAME"
        ) from None
    if parsed.get_backend_name() not in (_SQLITE, _POSTGRESQL):
        raise InputError(
            f'the testbed\'s database: "{parsed.get_backend_name()}" is not supported; '
            "use sqlite or postgresql"
        )
    if parsed.drivername == _POSTGRESQL:
        return parsed.set(drivername=f"{_POSTGRESQL}+psycopg")
    return parsed


def _engine(url: str) -> Engine:
    parsed = _parsed(url)
    lite = parsed.get_backend_name() == _SQLITE
    # The lock timeout ends a writer's wait for a lock that is never released.
    arguments: dict[str, Any] = (
        {"check_same_thread": False}
        if lite
        else {"connect_timeout": _ANSWER_S, "options": f"-c lock_timeout={_BUSY_MS}"}
    )
    try:
        # `pool_pre_ping` replaces connections that a restart of the server has closed.
        engine = sa.create_engine(
            parsed, connect_args=arguments, pool_size=8, pool_pre_ping=not lite
        )
    except ImportError as error:
        # `name` is None if psycopg is installed but its library libpq is missing.
        if error.name in ("psycopg", None):
            raise InputError(
                "the testbed's database: PostgreSQL needs psycopg: "
                "pip install 'skyhop-testbed[postgresql]'"
            ) from None
        raise InputError(
            f"the testbed's database: the driver {error.name} is not installed"
        ) from None
    except (SQLAlchemyError, ValueError, TypeError) as error:
        raise InputError(f"the testbed's database: {str(error).splitlines()[0]}") from None
    if lite:
        sa.event.listen(engine, "connect", _configure_sqlite)
        sa.event.listen(engine, "begin", _begin)
    return engine


def _configure_sqlite(connection: Any, _record: object) -> None:
    # sqlite3 would begin a transaction only at the first change; `_begin` begins it earlier.
    connection.isolation_level = None
    for pragma in (
        "journal_mode = WAL",
        "foreign_keys = ON",
        f"busy_timeout = {_BUSY_MS}",
        "synchronous = FULL",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    writing = connection.get_execution_options().get("writing")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def _upgrade(connection: Connection, engine: Engine) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    with resources.as_file(resources.files("skyhop_testbed.store") / "migrations") as place:
        config = Config()
        config.set_main_option("script_location", str(Path(place)).replace("%", "%%"))
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
            connection.commit()
        except CommandError as error:
            where = engine.url.render_as_string(hide_password=True)
            raise InputError(
                f"{where}: made by a newer skyhop, or not a skyhop database: {error}"
            ) from None
        except SQLAlchemyError as error:
            raise RunError(f"the testbed's database: {_first_line(error)}") from error
