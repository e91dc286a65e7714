"""Opening the orchestrator's database, and its transactions.

SQLite is in WAL mode: readers do not wait for the one writer, who takes its place at once (`BEGIN
IMMEDIATE`), so that what is checked in a transaction still holds when it is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, OperationalError, SQLAlchemyError

from skyhop.errors import InputError, RunError

_BUSY_MS = 20_000
HEAD = "0001"
"""The newest of `migrations/versions`."""


class Database:
    """The tables, reached by transactions."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # One writer at a time, as SQLite has it by itself.
        self._one_by_one = engine.dialect.name == "postgresql"

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Give a connection that sees one state of everything."""
        with _failures(), self._engine.connect() as connection, connection.begin():
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
                    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7249)")
                yield connection

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except OperationalError as error:
        raise RunError(f"the testbed's database: {error.orig}") from error


def open_database(url: str) -> Database:
    """Open a database, and bring its tables up to date.

    Args:
        url: as SQLAlchemy writes it: "sqlite:////var/lib/skyhop/testbed.sqlite",
            "postgresql+psycopg://user@host/name".

    Raises:
        InputError: it is no such address, or its tables are those of a newer skyhop.
        RunError: it cannot be opened.
    """
    engine = _engine(url)
    with _failures(), engine.connect() as connection:
        # The migrations' library is ten megabytes that a service would carry on with.
        if _revision(connection) != HEAD:
            _upgrade(connection, engine)
    return Database(engine)


def _revision(connection: Connection) -> str | None:
    """Return which migration the tables stand at, None where there are none."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return None if found is None else str(found)


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        lite = parsed.get_backend_name() == "sqlite"
        arguments: dict[str, Any] = {"check_same_thread": False} if lite else {}
        engine = sa.create_engine(parsed, connect_args=arguments, pool_size=8)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError, ValueError) as error:
        raise InputError(f"the testbed's database: {error}") from None
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
            raise RunError(f"the testbed's database: {error}") from error
