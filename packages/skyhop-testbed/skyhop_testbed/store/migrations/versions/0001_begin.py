"""Create the first version of all tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Upgrade to this revision from the previous one."""
    op.create_table(
        "audit",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    with op.batch_alter_table("audit", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_audit_at_ns"), ["at_ns"], unique=False)

    op.create_table(
        "config",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_config")),
    )
    op.create_table(
        "user",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("full_name", sa.Text(), nullable=False),
        sa.Column("team", sa.Text(), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_user")),
    )
    op.create_table(
        "job",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("owner", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=90), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("overhead", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("planned_ns", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["owner"], ["user.name"], name=op.f("fk_job_owner")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job")),
        sa.UniqueConstraint("owner", "name", name=op.f("uq_job_owner_name")),
    )
    with op.batch_alter_table("job", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_job_owner"), ["owner"], unique=False)
        batch_op.create_index(batch_op.f("ix_job_state"), ["state"], unique=False)

    op.create_table(
        "node",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("owner", sa.String(length=63), nullable=True),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("latitude_deg", sa.Float(), nullable=True),
        sa.Column("longitude_deg", sa.Float(), nullable=True),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("health", sa.Text(), nullable=False),
        sa.Column("scavenger_mode", sa.String(length=8), nullable=False),
        sa.Column("scavenger_active", sa.Boolean(), nullable=False),
        sa.Column("last_seen_ns", sa.BigInteger(), nullable=True),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["owner"], ["user.name"], name=op.f("fk_node_owner")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_node")),
    )
    op.create_table(
        "credential",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("user", sa.String(length=63), nullable=True),
        sa.Column("node", sa.String(length=63), nullable=True),
        sa.Column("hash", sa.LargeBinary(length=32), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("expires_ns", sa.BigInteger(), nullable=True),
        sa.Column("used_ns", sa.BigInteger(), nullable=True),
        sa.Column("spent", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["node"], ["node.name"], name=op.f("fk_credential_node"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["user"], ["user.name"], name=op.f("fk_credential_user"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_credential")),
        sa.UniqueConstraint("hash", name=op.f("uq_credential_hash")),
    )
    op.create_table(
        "job_file",
        sa.Column("job", sa.String(length=26), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["job"], ["job.id"], name=op.f("fk_job_file_job"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job", "name", name=op.f("pk_job_file")),
    )
    op.create_table(
        "job_node",
        sa.Column("job", sa.String(length=26), nullable=False),
        sa.Column("node", sa.String(length=63), nullable=False),
        sa.Column("side", sa.String(length=8), nullable=False),
        sa.ForeignKeyConstraint(
            ["job"], ["job.id"], name=op.f("fk_job_node_job"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["node"], ["node.name"], name=op.f("fk_job_node_node")),
        sa.PrimaryKeyConstraint("job", "node", name=op.f("pk_job_node")),
    )
    with op.batch_alter_table("job_node", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_job_node_node"), ["node"], unique=False)

    op.create_table(
        "preemption",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("node", sa.String(length=63), nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["node"], ["node.name"], name=op.f("fk_preemption_node")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_preemption")),
    )
    with op.batch_alter_table("preemption", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_preemption_node"), ["node"], unique=False)

    op.create_table(
        "run",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("job", sa.String(length=26), nullable=False),
        sa.Column("client", sa.String(length=63), nullable=False),
        sa.Column("server", sa.String(length=63), nullable=True),
        sa.Column("start_ns", sa.BigInteger(), nullable=False),
        sa.Column("end_ns", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=16), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("after", sa.String(length=26), nullable=True),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["client"], ["node.name"], name=op.f("fk_run_client")),
        sa.ForeignKeyConstraint(["job"], ["job.id"], name=op.f("fk_run_job")),
        sa.ForeignKeyConstraint(["server"], ["node.name"], name=op.f("fk_run_server")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run")),
    )
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_run_client_state_start_ns"),
            ["client", "state", "start_ns"],
            unique=False,
        )
        batch_op.create_index(batch_op.f("ix_run_job"), ["job"], unique=False)
        batch_op.create_index(batch_op.f("ix_run_server"), ["server"], unique=False)
        batch_op.create_index(batch_op.f("ix_run_start_ns"), ["start_ns"], unique=False)
        batch_op.create_index(batch_op.f("ix_run_state"), ["state"], unique=False)

    op.create_table(
        "trigger_log",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("job", sa.String(length=26), nullable=False),
        sa.Column("node", sa.String(length=63), nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.Column("fired", sa.Boolean(), nullable=False),
        sa.Column("run", sa.String(length=26), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["job.id"], name=op.f("fk_trigger_log_job")),
        sa.ForeignKeyConstraint(["node"], ["node.name"], name=op.f("fk_trigger_log_node")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trigger_log")),
    )
    with op.batch_alter_table("trigger_log", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_trigger_log_job"), ["job"], unique=False)

    op.create_table(
        "artefact",
        sa.Column("run", sa.String(length=26), nullable=False),
        sa.Column("side", sa.String(length=8), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("stored_ns", sa.BigInteger(), nullable=False),
        sa.Column("expires_ns", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["run.id"], name=op.f("fk_artefact_run")),
        sa.PrimaryKeyConstraint("run", "side", "name", name=op.f("pk_artefact")),
    )
    with op.batch_alter_table("artefact", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_artefact_expires_ns"), ["expires_ns"], unique=False)

    op.create_table(
        "event",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("run", sa.String(length=26), nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.Column("received_ns", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=16), nullable=True),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("applied", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["run.id"], name=op.f("fk_event_run")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event")),
    )
    with op.batch_alter_table("event", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_event_run"), ["run"], unique=False)

    op.create_table(
        "task",
        sa.Column("id", sa.String(length=26), nullable=False),
        sa.Column("run", sa.String(length=26), nullable=False),
        sa.Column("node", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("state", sa.String(length=8), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("expires_ns", sa.BigInteger(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["node"], ["node.name"], name=op.f("fk_task_node")),
        sa.ForeignKeyConstraint(["run"], ["run.id"], name=op.f("fk_task_run")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_task")),
    )
    with op.batch_alter_table("task", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_task_node_state"), ["node", "state"], unique=False)
        batch_op.create_index(batch_op.f("ix_task_run"), ["run"], unique=False)


def downgrade() -> None:
    """Downgrade from this revision to the previous one."""
    with op.batch_alter_table("task", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_task_run"))
        batch_op.drop_index(batch_op.f("ix_task_node_state"))

    op.drop_table("task")
    with op.batch_alter_table("event", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_event_run"))

    op.drop_table("event")
    with op.batch_alter_table("artefact", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_artefact_expires_ns"))

    op.drop_table("artefact")
    with op.batch_alter_table("trigger_log", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_trigger_log_job"))

    op.drop_table("trigger_log")
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_run_state"))
        batch_op.drop_index(batch_op.f("ix_run_start_ns"))
        batch_op.drop_index(batch_op.f("ix_run_server"))
        batch_op.drop_index(batch_op.f("ix_run_job"))
        batch_op.drop_index(batch_op.f("ix_run_client_state_start_ns"))

    op.drop_table("run")
    with op.batch_alter_table("preemption", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_preemption_node"))

    op.drop_table("preemption")
    with op.batch_alter_table("job_node", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_job_node_node"))

    op.drop_table("job_node")
    op.drop_table("job_file")
    op.drop_table("credential")
    op.drop_table("node")
    with op.batch_alter_table("job", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_job_state"))
        batch_op.drop_index(batch_op.f("ix_job_owner"))

    op.drop_table("job")
    op.drop_table("user")
    op.drop_table("config")
    with op.batch_alter_table("audit", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_audit_at_ns"))

    op.drop_table("audit")
