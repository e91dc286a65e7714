"""What every matter of the orchestrator is given: the transaction, the time, who asks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from skyhop.errors import InputError, SkyhopError
from skyhop.testbed.store import tables
from skyhop.testbed.words import Role


class NotFoundError(InputError):
    """There is no such thing, or it is not the caller's to see."""


class DeniedError(SkyhopError):
    """The caller may not do this."""


class UnknownCallerError(SkyhopError):
    """Who calls is not known: no credential, a wrong one, one that has expired."""


class ConflictError(InputError):
    """It meets what others have reserved; `conflicts` says what, for programs."""

    def __init__(self, message: str, conflicts: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.conflicts = conflicts or []


@dataclass(frozen=True)
class Caller:
    """Who asks: a user, or a node by its certificate, or the orchestrator itself."""

    name: str
    role: Role

    @property
    def actor(self) -> str:
        """How events and the audit log call it."""
        if self.role is Role.NODE:
            return f"node:{self.name}"
        return f"user:{self.name}" if self.name else "orchestrator"

    @property
    def is_admin(self) -> bool:
        """Whether it may do what administrators do."""
        return self.role is Role.ADMIN


ITSELF = Caller("", Role.ADMIN)
"""The orchestrator, on its own account."""


@dataclass(frozen=True)
class Settings:
    """What administrators can change while it runs; each is a key of the table `config`."""

    reschedule_after_s: float = 1800.0
    """A run that is moved begins no earlier than so long after it was."""
    heartbeat_s: float = 10.0
    missed_heartbeats: int = 3
    """After so many, a node counts as offline."""
    active_s: float = 600.0
    """Which nodes are listed as active: heard of within this."""
    lost_after_s: float = 600.0
    """A run is lost when nothing was heard of it for its length and this."""
    late_s: float = 60.0
    """A run that could not begin for so long after its start is skipped."""
    telemetry_retention_s: float = 400 * 86_400.0
    requests_per_minute: float = 600.0
    """Of one caller."""
    refused_per_minute: float = 60.0
    """Of those from one address whose credential was wrong."""


@dataclass
class Desk:
    """One request's view of the orchestrator."""

    connection: Connection
    now_ns: int
    caller: Caller
    settings: Settings = field(default_factory=Settings)
    changed: set[str] = field(default_factory=set)
    """Nodes whose schedule is another now: told after the transaction."""
    watched: set[str] = field(default_factory=set)
    """Runs of which there is news."""
    afterwards: list[Callable[[], None]] = field(default_factory=list)
    """What is done once the transaction has been written."""

    def one(self, query: sa.sql.Select[Any]) -> sa.RowMapping | None:
        """Return the first row of a query, None without one."""
        return self.connection.execute(query).mappings().first()

    def all(self, query: sa.sql.Select[Any]) -> list[sa.RowMapping]:
        """Return all rows of a query."""
        return list(self.connection.execute(query).mappings())

    def do(self, statement: sa.sql.Executable) -> int:
        """Execute a change; return how many rows it met."""
        return int(self.connection.execute(statement).rowcount)

    def note(self, what: str, target: str, outcome: str = "done") -> None:
        """Write into the audit log who did what to whom."""
        row = {"who": self.caller.actor, "what": what, "target": target, "outcome": outcome}
        self.do(sa.insert(tables.audit).values(at_ns=self.now_ns, **row))

    def touch(self, nodes: set[str]) -> None:
        """Give these nodes a new revision of their schedule."""
        if nodes:
            self.changed |= nodes
            table = tables.node
            self.do(
                sa.update(table)
                .where(table.c.name.in_(sorted(nodes)))
                .values(revision=table.c.revision + 1)
            )


def settings_of(connection: Connection) -> Settings:
    """Return the settings as they stand."""
    rows = connection.execute(sa.select(tables.config)).mappings()
    known = {row["key"]: json.loads(row["value"]) for row in rows}
    names = Settings.__dataclass_fields__
    return Settings(**{name: value for name, value in known.items() if name in names})


def as_json(value: object) -> str:
    """Return a value as it stands in the tables."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
