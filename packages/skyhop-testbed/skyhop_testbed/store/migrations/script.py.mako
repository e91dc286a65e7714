"""${message}."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    """Upgrade to this revision from the previous one."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """Downgrade from this revision to the previous one."""
    ${downgrades if downgrades else "pass"}
