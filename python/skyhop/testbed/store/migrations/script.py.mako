"""${message}."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    """Go on to it."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """Go back from it."""
    ${downgrades if downgrades else "pass"}
