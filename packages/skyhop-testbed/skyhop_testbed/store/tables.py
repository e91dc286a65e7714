"""Tables of the orchestrator's database.

Times are UTC in nanoseconds since 1970. Ids are ULIDs, but users and nodes are identified by their
names. A run's state follows from its rows in `event`; `run.state` is a copy, which is changed in
the transaction that inserts the event.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite autoincrements only columns of the type INTEGER.
_Serial = BigInteger().with_variant(Integer, "sqlite")

user = Table(
    "user",
    metadata,
    Column("name", String(63), primary_key=True),
    Column("full_name", Text, nullable=False, default=""),
    Column("team", Text, nullable=False, default=""),
    Column("role", String(16), nullable=False),
    Column("created_ns", BigInteger, nullable=False),
    Column("disabled", Boolean, nullable=False, default=False),
)

credential = Table(
    "credential",
    metadata,
    Column("id", String(26), primary_key=True),
    # One of "token", "session", "invitation" and "certificate".
    Column("kind", String(16), nullable=False),
    Column("user", ForeignKey("user.name", ondelete="CASCADE"), nullable=True),
    Column("node", ForeignKey("node.name", ondelete="CASCADE"), nullable=True),
    # SHA-256 of the secret or certificate; neither is stored itself.
    Column("hash", LargeBinary(32), nullable=False, unique=True),
    Column("label", Text, nullable=False, default=""),
    Column("created_ns", BigInteger, nullable=False),
    Column("expires_ns", BigInteger, nullable=True),
    Column("used_ns", BigInteger, nullable=True),
    Column("spent", Boolean, nullable=False, default=False),
)

node = Table(
    "node",
    metadata,
    Column("name", String(63), primary_key=True),
    Column("owner", ForeignKey("user.name"), nullable=True),
    Column("description", Text, nullable=False, default=""),
    Column("provider", Text, nullable=False, default=""),
    # Address at which clients reach the node as a server; "" if it does not serve.
    Column("address", Text, nullable=False, default=""),
    # Rounded to 0.1 degrees (about 11 km): the exact location is private.
    Column("latitude_deg", Float, nullable=True),
    Column("longitude_deg", Float, nullable=True),
    Column("policy", Text, nullable=False, default="{}"),
    Column("health", Text, nullable=False, default="{}"),
    # Version and protocols of the agent, as JSON; empty before it has connected.
    Column("agent", Text, nullable=False, server_default="{}"),
    Column("scavenger_mode", String(8), nullable=False, default="auto"),
    Column("scavenger_active", Boolean, nullable=False, default=False),
    Column("last_seen_ns", BigInteger, nullable=True),
    Column("last_seq", BigInteger, nullable=False, default=0),
    Column("revision", BigInteger, nullable=False, default=1),
    Column("created_ns", BigInteger, nullable=False),
)

job = Table(
    "job",
    metadata,
    Column("id", String(26), primary_key=True),
    Column("owner", ForeignKey("user.name"), nullable=False, index=True),
    # When a finished job's name is used again, the old job gets the suffix "~" and its id.
    Column("name", String(90), nullable=False),
    Column("spec", Text, nullable=False),
    Column("kind", String(8), nullable=False),
    Column("overhead", Boolean, nullable=False),
    # One of "active", "over" and "cancelled".
    Column("state", String(16), nullable=False, index=True),
    Column("created_ns", BigInteger, nullable=False),
    # Time in ns up to which runs exist for all occurrences.
    Column("planned_ns", BigInteger, nullable=False, default=0),
    # Time in ns from which more runs of the job are planned.
    Column("extend_ns", BigInteger, nullable=False, default=0, server_default="0"),
    UniqueConstraint("owner", "name"),
    Index(None, "state", "extend_ns"),
)

job_node = Table(
    "job_node",
    metadata,
    Column("job", ForeignKey("job.id", ondelete="CASCADE"), primary_key=True),
    Column("node", ForeignKey("node.name"), primary_key=True, index=True),
    Column("side", String(8), nullable=False),
)

job_file = Table(
    "job_file",
    metadata,
    Column("job", ForeignKey("job.id", ondelete="CASCADE"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
)

run = Table(
    "run",
    metadata,
    Column("id", String(26), primary_key=True),
    Column("job", ForeignKey("job.id"), nullable=False),
    Column("client", ForeignKey("node.name"), nullable=False),
    Column("server", ForeignKey("node.name"), nullable=True),
    # Start and end of the run; for a run that waits for a trigger, of the trigger's window.
    Column("start_ns", BigInteger, nullable=False),
    Column("end_ns", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", String(16), nullable=True),
    # Fencing token: larger for each new claim; a claim with a smaller token is refused.
    Column("fence", BigInteger, nullable=False, default=0),
    # Id of the run that this one replaces or follows.
    Column("after", String(26), nullable=True),
    Column("created_ns", BigInteger, nullable=False),
    Index(None, "client", "state", "start_ns"),
    Index(None, "server", "state", "start_ns"),
    Index(None, "job", "state", "start_ns"),
    Index(None, "state", "end_ns"),
    Index(None, "start_ns"),
)

event = Table(
    "event",
    metadata,
    Column("id", _Serial, primary_key=True, autoincrement=True),
    Column("run", ForeignKey("run.id"), nullable=False, index=True),
    Column("at_ns", BigInteger, nullable=False),
    Column("received_ns", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", String(16), nullable=True),
    Column("details", Text, nullable=False, default="{}"),
    # Whether the state machine allowed the change; refused changes are logged too.
    Column("applied", Boolean, nullable=False),
)

task = Table(
    "task",
    metadata,
    Column("id", String(26), primary_key=True),
    Column("run", ForeignKey("run.id"), nullable=False, index=True),
    Column("node", ForeignKey("node.name"), nullable=False),
    Column("kind", String(8), nullable=False),
    # One of "open", "done" and "failed".
    Column("state", String(8), nullable=False),
    Column("created_ns", BigInteger, nullable=False),
    Column("expires_ns", BigInteger, nullable=False),
    Column("result", Text, nullable=False, default="{}"),
    Index(None, "node", "state"),
)

artefact = Table(
    "artefact",
    metadata,
    Column("run", ForeignKey("run.id"), primary_key=True),
    Column("side", String(8), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("stored_ns", BigInteger, nullable=False),
    Column("expires_ns", BigInteger, nullable=False, index=True),
)

bucket_object = Table(
    "bucket_object",
    metadata,
    # Key without the administrator's prefix: the file's path below the directory of all runs.
    Column("key", Text, primary_key=True),
    # File that the object holds; the file's row in `artefact` may be gone.
    Column("run", String(26), nullable=False),
    Column("side", String(8), nullable=False),
    Column("name", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("stored_ns", BigInteger, nullable=False),
    # Whether the orchestrator's disk still has a copy.
    Column("is_local", Boolean, nullable=False),
    Index(None, "run", "side", "name"),
    Index(None, "is_local", "stored_ns"),
)

trigger_log = Table(
    "trigger_log",
    metadata,
    Column("id", _Serial, primary_key=True, autoincrement=True),
    Column("job", ForeignKey("job.id"), nullable=False, index=True),
    Column("node", ForeignKey("node.name"), nullable=False),
    Column("at_ns", BigInteger, nullable=False, index=True),
    Column("fired", Boolean, nullable=False),
    Column("run", String(26), nullable=True),
    Column("body", Text, nullable=False),
)

preemption = Table(
    "preemption",
    metadata,
    Column("id", _Serial, primary_key=True, autoincrement=True),
    Column("node", ForeignKey("node.name"), nullable=False, index=True),
    Column("at_ns", BigInteger, nullable=False, index=True),
    Column("active", Boolean, nullable=False),
    Column("body", Text, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    Column("id", _Serial, primary_key=True, autoincrement=True),
    Column("at_ns", BigInteger, nullable=False, index=True),
    Column("who", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("outcome", Text, nullable=False),
)

config = Table(
    "config",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

webhook = Table(
    "webhook",
    metadata,
    Column("name", String(63), primary_key=True),
    Column("url", Text, nullable=False),
    # Secret that the receiver checks; "" for none.
    Column("secret", Text, nullable=False, default=""),
    Column("created_ns", BigInteger, nullable=False),
)

alert = Table(
    "alert",
    metadata,
    Column("id", _Serial, primary_key=True, autoincrement=True),
    Column("kind", String(32), nullable=False),
    # Name of a node; "" for the orchestrator.
    Column("subject", String(63), nullable=False),
    Column("message", Text, nullable=False),
    Column("raised_ns", BigInteger, nullable=False),
    # Time since which the condition no longer holds, while the alert is not cleared yet.
    Column("good_since_ns", BigInteger, nullable=True),
    Column("cleared_ns", BigInteger, nullable=True, index=True),
)

delivery = Table(
    "delivery",
    metadata,
    Column("id", _Serial, primary_key=True, autoincrement=True),
    Column("webhook", ForeignKey("webhook.name", ondelete="CASCADE"), nullable=False),
    # The alert that is told of; none for a test of the webhook.
    Column("alert", ForeignKey("alert.id", ondelete="CASCADE"), nullable=True),
    # One of "raised", "cleared" and "test".
    Column("event", String(8), nullable=False),
    Column("at_ns", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False, default=0),
    Column("next_ns", BigInteger, nullable=False, index=True),
    Column("error", Text, nullable=False, default=""),
)

quota = Table(
    "quota",
    metadata,
    # "user" or "node".
    Column("kind", String(8), primary_key=True),
    Column("name", String(63), primary_key=True),
    # Quota without its prefix, such as "jobs" (`orchestrator/quotas.py`).
    Column("key", Text, primary_key=True),
    Column("value", Float, nullable=False),
)

usage = Table(
    "usage",
    metadata,
    Column("kind", String(8), primary_key=True),
    Column("name", String(63), primary_key=True),
    # "kept_bytes" or "uploaded_bytes" (`store/usage.py`).
    Column("what", String(16), primary_key=True),
    # Days since 1970 (UTC); 0 for what is not counted per day.
    Column("day", Integer, primary_key=True),
    Column("amount", BigInteger, nullable=False),
)
