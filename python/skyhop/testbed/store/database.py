"""Opening the orchestrator's database, and its transactions.

SQLite is in WAL mode: readers do not wait for the one writer, who takes its place at once (`BEGIN
IMMEDIATE`), so that what is checked in a transaction still holds when it is written. In PostgreSQL
writers take a lock of ours, and readers see one snapshot.
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
"""Whoever writes holds it."""
HEAD = "0001"
"""The newest of `migrations/versions`."""


class Database:
    """The tables, reached by transactions."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reading: dict[str, Any] = {}
        # One writer at a time, as SQLite has it by itself.
        self._one_by_one = engine.dialect.name == _POSTGRESQL
        if self._one_by_one:
            self._reading = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Give a connection that sees one state of everything."""
        with _failures(), self._engine.connect() as opened:
            connection = opened.execution_options(**self._reading)
            with connection.begin():
                yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Give a connection whose changes are made together, or not at all.

        Raises:
            RunError: the database cannot be written: the disk is full, or it is gone.
        """
        with _failures(), self._engine.connect() as opened:
            connection = opened.execution_options(writing=True)
            with connection.begin():
                if self._one_by_one:
                    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
                yield connection

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except DataError as error:
        # Such as a zero byte in a name that is looked for, which PostgreSQL's texts do not have.
        raise InputError(f"no table can hold this: {_line(error)}") from error
    except IntegrityError:
        # Of ours alone: what is written was not checked.
        raise
    except (DBAPIError, PoolTimeoutError) as error:
        raise RunError(f"the testbed's database: {_line(error)}") from error


def _line(error: SQLAlchemyError) -> str:
    """Return what the database said, without the statement and in one line."""
    said = str(error.orig if isinstance(error, DBAPIError) else error).strip()
    return said.splitlines()[0] if said else type(error).__name__


def open_database(url: str) -> Database:
    """Open a database, and bring its tables up to date.

    Args:
        url: as SQLAlchemy writes it: "sqlite:////var/lib/skyhop/testbed.sqlite",
            "postgresql://user@host/name".

    Raises:
        InputError: it is no such address, its driver is missing, or its tables are those of a
            newer skyhop.
        RunError: it cannot be opened: it does not answer, or does not let us in.
    """
    engine = _engine(url)
    try:
        with _failures(), engine.connect() as connection:
            # The migrations' library is ten megabytes that a service would carry on with.
            if _revision(connection) != HEAD:
                _upgrade(connection, engine)
    except BaseException:
        engine.dispose()
        raise
    return Database(engine)


def lies_in_a_file(url: str) -> bool:
    """Return whether a database is a file, whose directory has to be there.

    Raises:
        InputError: it is no address of one.
    """
    return _parsed(url).get_backend_name() == _SQLITE


def _revision(connection: Connection) -> str | None:
    """Return which migration the tables stand at, None where there are none."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return None if found is None else str(found)


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # What is no address may hold a password all the same.
        raise InputError(
            "the testbed's database: that is no address of one; there are "
            "sqlite:////DIR/testbed.sqlite and postgresql://USER@HOST/NAME"
        ) from None
    if parsed.get_backend_name() not in (_SQLITE, _POSTGRESQL):
        raise InputError(
            f'the testbed\'s database: "{parsed.get_backend_name()}" is not known; '
            "there are sqlite and postgresql"
        )
    if parsed.drivername == _POSTGRESQL:
        return parsed.set(drivername=f"{_POSTGRESQL}+psycopg")
    return parsed


def _engine(url: str) -> Engine:
    parsed = _parsed(url)
    lite = parsed.get_backend_name() == _SQLITE
    # Who waits for a lock for so long waits for one that is never given back.
    arguments: dict[str, Any] = (
        {"check_same_thread": False}
        if lite
        else {"connect_timeout": _ANSWER_S, "options": f"-c lock_timeout={_BUSY_MS}"}
    )
    try:
        # A server may have been started anew since a connection was made.
        engine = sa.create_engine(
            parsed, connect_args=arguments, pool_size=8, pool_pre_ping=not lite
        )
    except ImportError as error:
        # Without a name it is there, and lacks the library that it calls.
        if error.name in ("psycopg", None):
            raise InputError(
                "the testbed's database: PostgreSQL needs psycopg: pip install 'skyhop[postgresql]'"
            ) from None
        raise InputError(f"the testbed's database: there is no driver {error.name}") from None
    except (SQLAlchemyError, ValueError, TypeError) as error:
        raise InputError(f"the testbed's database: {str(error).splitlines()[0]}") from None
    if lite:
        sa.event.listen(engine, "connect", _as_we_use_it)
        sa.event.listen(engine, "begin", _begin)
    return engine


def _as_we_use_it(connection: Any, _record: object) -> None:
    # The driver's own transactions begin too late: at the first change.
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

    with resources.as_file(resources.files("skyhop.testbed.store") / "migrations") as place:
        config = Config()
        config.set_main_option("script_location", str(Path(place)).replace("%", "%%"))
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
            connection.commit()
        except CommandError as error:
            where = engine.url.render_as_string(hide_password=True)
            raise InputError(
                f"{where}: was made by a newer skyhop, or is not ours: {error}"
            ) from None
        except SQLAlchemyError as error:
            raise RunError(f"the testbed's database: {_line(error)}") from error
