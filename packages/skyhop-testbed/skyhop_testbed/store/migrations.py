"""Changes of the tables of files that an earlier skyhop made, one function per addition.

Each step looks whether its addition is there, so that the steps may run in any order, and again.
"""

from __future__ import annotations

from sqlalchemy.engine import Connection

from skyhop_testbed.store import usage
from skyhop_testbed.store.tables import metadata, quota
from skyhop_testbed.store.tables import usage as usage_table


def migrate(connection: Connection) -> None:
    """Bring the tables of an older file up to date."""
    for step in _STEPS:
        step(connection)


def columns_of(connection: Connection, table: str) -> set[str]:
    """Return the names of a table's columns; empty if there is no such table."""
    return {str(row[1]) for row in connection.exec_driver_sql(f"PRAGMA table_info({table})")}


def add_extension_times(connection: Connection) -> None:
    """Add `job.extend_ns`: repeating jobs are then due, and get their time when next planned."""
    if "extend_ns" not in columns_of(connection, "job"):
        connection.exec_driver_sql("ALTER TABLE job ADD COLUMN extend_ns BIGINT NOT NULL DEFAULT 0")
        connection.exec_driver_sql("UPDATE job SET extend_ns = 1 << 62 WHERE kind <> 'cron'")


def add_quotas(connection: Connection) -> None:
    """Create the tables of quotas and of their usage, and count what is stored."""
    if not columns_of(connection, usage_table.name):
        quota.create(connection, checkfirst=True)
        usage_table.create(connection)
        usage.count_from_now_on(connection)


def add_agents(connection: Connection) -> None:
    """Add `node.agent`, the versions of nodes' agents."""
    if "agent" not in columns_of(connection, "node"):
        connection.exec_driver_sql("ALTER TABLE node ADD COLUMN agent TEXT NOT NULL DEFAULT '{}'")


def add_tables(connection: Connection) -> None:
    """Create the tables that the file lacks."""
    metadata.create_all(connection)


def add_indices(connection: Connection) -> None:
    """Create the indices that the file lacks."""
    for table in metadata.sorted_tables:
        for index in table.indexes:
            index.create(connection, checkfirst=True)


_STEPS = (add_extension_times, add_quotas, add_agents, add_tables, add_indices)
