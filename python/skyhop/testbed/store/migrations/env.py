"""How alembic reaches the tables: over the connection that `database.open_database` gives it."""

from __future__ import annotations

from alembic import context

from skyhop.testbed.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
