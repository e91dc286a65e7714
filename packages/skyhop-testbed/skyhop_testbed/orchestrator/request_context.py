"""Context of one request to the orchestrator: transaction, time and caller; and the errors."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from skyhop.errors import InputError, SkyhopError
from skyhop_testbed.api import Conflict, Settings
from skyhop_testbed.protocol import Peer
from skyhop_testbed.store import tables
from skyhop_testbed.words import Role

_LOG = logging.getLogger(__name__)
_ALL_SETTINGS = sa.select(tables.config.c.key, tables.config.c.value).order_by(tables.config.c.key)
_ADD_LINE = sa.insert(tables.audit)


class NotFoundError(InputError):
    """The named object does not exist, or the caller may not see it."""


class DeniedError(SkyhopError):
    """The caller lacks the permission for the request."""


class UnknownCallerError(SkyhopError):
    """The caller is not authenticated: it sent no credential, a wrong one or an expired one."""


class ConflictError(InputError):
    """A job overlaps existing reservations, which `conflicts` lists in machine-readable form."""

    def __init__(self, message: str, conflicts: list[Conflict]) -> None:
        super().__init__(message)
        self.conflicts = conflicts


class TooOftenError(SkyhopError):
    """The caller exceeded the limit of requests per minute."""


@dataclass(frozen=True)
class Caller:
    """Authenticated caller: a user, a node (by its certificate) or the orchestrator itself."""

    name: str
    role: Role
    issuer: str = field(default="", compare=False)
    """Name of the authority that signed a node's certificate."""
    agent: Peer = field(default=Peer(), compare=False)
    """Version and protocols of a node's agent."""

    @property
    def actor(self) -> str:
        """Name of the caller in events and the audit log, such as `user:ann` or `node:bcn-1`."""
        if self.role is Role.NODE:
            return f"node:{self.name}"
        return f"user:{self.name}" if self.name else "orchestrator"

    @property
    def is_admin(self) -> bool:
        """Whether the caller has the rights of an administrator."""
        return self.role is Role.ADMIN


ITSELF = Caller("", Role.ADMIN)
"""The orchestrator as caller of its own housekeeping."""


@dataclass
class RequestContext:
    """One request to the orchestrator, inside one database transaction."""

    connection: Connection
    now_ns: int
    caller: Caller
    settings: Settings = field(default_factory=Settings)
    changed_nodes: set[str] = field(default_factory=set)
    """Nodes whose schedule changed; listeners are notified after the commit."""
    changed_runs: set[str] = field(default_factory=set)
    """Runs whose document changed; listeners are notified after the commit."""
    prepared: Any = None
    """Result of the handler's work in an earlier transaction, which only read."""
    after_commit: list[Callable[[], None]] = field(default_factory=list)
    """Actions to execute once the transaction is committed."""

    def first(self, query: sa.sql.Select[Any], **values: Any) -> sa.RowMapping | None:
        """Return the first row of a query, or None; `values` are those of its bound parameters."""
        return self.connection.execute(query, values).mappings().first()

    def all(self, query: sa.sql.Select[Any], **values: Any) -> list[sa.RowMapping]:
        """Return all rows of a query; `values` are those of its bound parameters."""
        return list(self.connection.execute(query, values).mappings())

    def scalar(self, query: sa.sql.Select[Any], **values: Any) -> Any:
        """Return the first column of a query's first row; None if there is no row."""
        return self.connection.scalar(query, values)

    def execute(self, statement: sa.sql.Executable, **values: Any) -> int:
        """Execute a statement; return the number of affected rows.

        `values` are those of bound parameters, or of the columns of a row to insert.
        """
        return int(self.connection.execute(statement, values).rowcount)

    @contextmanager
    def undone_if_raising(self) -> Iterator[None]:
        """Undo what the block has written, but nothing before it, if the block raises an error."""
        self.connection.exec_driver_sql("SAVEPOINT part")
        try:
            yield
        except BaseException:
            self.connection.exec_driver_sql("ROLLBACK TO part")
            raise
        finally:
            self.connection.exec_driver_sql("RELEASE part")

    def audit(self, what: str, target: str, outcome: str = "done") -> None:
        """Add a line to the audit log: caller, action, target and outcome."""
        row = {"who": self.caller.actor, "what": what, "target": target, "outcome": outcome}
        _LOG.info("%s %s %s: %s", *row.values())
        self.execute(_ADD_LINE, at_ns=self.now_ns, **row)

    def bump_revision(self, nodes: set[str]) -> None:
        """Increment the schedule revision of nodes, so that their agents receive it."""
        if nodes:
            self.changed_nodes |= nodes
            table = tables.node
            self.execute(
                sa.update(table)
                .where(table.c.name.in_(sorted(nodes)))
                .values(revision=table.c.revision + 1)
            )


def settings_of(connection: Connection) -> Settings:
    """Read the settings from the table `config`, with defaults for absent keys."""
    return _settings(tuple((key, value) for key, value in connection.execute(_ALL_SETTINGS)))


@lru_cache(maxsize=8)
def _settings(rows: tuple[tuple[str, str], ...]) -> Settings:
    """Return the settings of the rows; most requests find the same rows as the one before."""
    names = Settings.__dataclass_fields__
    return Settings(**{key: json.loads(value) for key, value in rows if key in names})


def as_json(value: object) -> str:
    """Return a value as compact JSON with sorted keys, the form stored in the tables."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
