"""Marks of the whole testbed in the table `config`, which nodes learn with their schedules."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TypedDict

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from skyhop_testbed.store.tables import config

_RESTORED, _TRUST, _RELEASE = "restored", "trust", "release"
_MARK = sa.select(config.c.value).where(config.c.key == sa.bindparam("key"))


class NodeMarks(TypedDict):
    """Marks as fields of `schedule.NodeSettings`."""

    restored_from_ns: int
    restored_at_ns: int
    trust: str
    release: str


@dataclass(frozen=True)
class PublishedRelease:
    """Release that nodes may install, and its files in the state directory."""

    version: str
    key: str
    published_ns: int
    files: dict[str, tuple[int, str]]
    """Size and SHA-256 digest of each file, by its path in the state directory."""


def put_restored(connection: Connection, from_ns: int, at_ns: int) -> None:
    """Store that the database was restored at `at_ns` from a backup of the time `from_ns`."""
    _put(connection, _RESTORED, {"from_ns": from_ns, "at_ns": at_ns})


def restored_times(connection: Connection) -> tuple[int, int]:
    """Return the time of the backup that was restored, and the time of the restoring, in ns.

    Both are 0 if none was.
    """
    found = _get(connection, _RESTORED)
    values = found if isinstance(found, dict) else {}
    return int(values.get("from_ns", 0)), int(values.get("at_ns", 0))


def put_trust(connection: Connection, digest: str) -> bool:
    """Store the digest of the keys that nodes are to trust; return whether it has changed."""
    if _get(connection, _TRUST) == digest:
        return False
    _put(connection, _TRUST, digest)
    return True


def put_release(connection: Connection, release: PublishedRelease | None) -> None:
    """Store the published release; `None` if there is none."""
    _put(connection, _RELEASE, None if release is None else asdict(release))


def published_release(connection: Connection) -> PublishedRelease | None:
    """Return the published release, if there is one."""
    return release_of(_get(connection, _RELEASE))


def release_of(values: object) -> PublishedRelease | None:
    """Return the release that a mark in the table `config` describes."""
    if not isinstance(values, dict):
        return None
    files = {name: (int(size), str(sha256)) for name, (size, sha256) in values["files"].items()}
    return PublishedRelease(**{**values, "files": files})


def node_marks(connection: Connection) -> NodeMarks:
    """Return the marks that a node's schedule contains."""
    from_ns, at_ns = restored_times(connection)
    trust = str(_get(connection, _TRUST) or "")
    release = published_release(connection)
    return {
        "restored_from_ns": from_ns,
        "restored_at_ns": at_ns,
        "trust": trust,
        "release": release.version if release else "",
    }


def _put(connection: Connection, key: str, value: object) -> None:
    connection.execute(sa.delete(config).where(config.c.key == key))
    connection.execute(sa.insert(config).values(key=key, value=json.dumps(value)))


def _get(connection: Connection, key: str) -> object:
    text = connection.scalar(_MARK, {"key": key})
    return json.loads(text) if text else None
