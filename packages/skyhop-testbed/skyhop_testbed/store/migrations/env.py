"""Alembic environment: migrates over the connection of `database.open_database`."""

from __future__ import annotations

from alembic import context

from skyhop_testbed.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
