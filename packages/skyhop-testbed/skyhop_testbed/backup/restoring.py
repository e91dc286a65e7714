"""Restoring of a backup into an empty state directory, and its marks in the database.

A restored orchestrator knows less than its nodes: what happened after the backup is unknown to it.
`mark_restored` therefore lets each schedule's revision jump ahead of all that nodes have seen,
since a node refuses an older one, and stores the time of the backup. With this time nodes report
again what became of their runs since (`NodeSettings.restored_from_ns`), and certificates that were
issued since are accepted (`accounts.caller_of_certificate`). Invitations and sessions of the web
page end. Fencing tokens are chosen by nodes, which never use one twice.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from skyhop.data.files import Scratch
from skyhop.errors import InputError, RunError
from skyhop_testbed.backup.manifest import DATABASE, Manifest, check_tables
from skyhop_testbed.backup.places import is_tar, manifest_of, read_backup, sync_directory
from skyhop_testbed.orchestrator.accounts import INVITATION, SESSION
from skyhop_testbed.orchestrator.marks import put_restored
from skyhop_testbed.store.database import VERSION, open_database
from skyhop_testbed.store.tables import credential, node

_MS_NS = 1_000_000


def check_backup(place: Path) -> Manifest:
    """Read a whole backup, and compare it with its list.

    Raises:
        InputError: the backup is incomplete, damaged, or of a newer skyhop.
        RunError: it cannot be read.
    """
    try:
        manifest = read_backup(place)
    except OSError as error:
        raise RunError(f"{place}: {error.strerror or error}") from None
    check_tables(manifest, VERSION, str(place))
    return manifest


def restore(place: Path, state: Path, now_ns: int) -> Manifest:
    """Restore a backup as a state directory, which appears complete or not at all.

    Args:
        place: the backup, a directory or a tar file.
        state: the new state directory; it does not exist, or is empty.
        now_ns: present time.

    Raises:
        InputError: the backup is incomplete, damaged, or of a newer skyhop, or `state` has content.
        RunError: the state directory cannot be written.
    """
    goal = state.resolve()
    if goal.exists() and (not goal.is_dir() or any(goal.iterdir())):
        raise InputError(f"{state}: has content already: give an empty or a new directory")
    if not is_tar(place):
        check_tables(manifest_of(place), VERSION, str(place))
    try:
        goal.parent.mkdir(parents=True, exist_ok=True)
        with Scratch(goal.parent) as scratch:
            made = scratch / "state"
            manifest = read_backup(place, made)
            check_tables(manifest, VERSION, str(place))
            _mark(made / DATABASE, manifest.created_ns, now_ns)
            for directory in (made, *(each for each in made.rglob("*") if each.is_dir())):
                sync_directory(directory)
            made.rename(goal)
            sync_directory(goal.parent)
    except OSError as error:
        raise RunError(f"{state}: cannot be restored: {error.strerror or error}") from None
    return manifest


def _mark(file: Path, from_ns: int, now_ns: int) -> None:
    database = open_database(file)
    try:
        with database.writing() as connection:
            mark_restored(connection, from_ns, now_ns)
    finally:
        database.close()
    # A restored directory has no journal of the database that must come along.
    with closing(sqlite3.connect(file)) as opened:
        opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def mark_restored(connection: sa.engine.Connection, from_ns: int, now_ns: int) -> None:
    """Mark a database as restored from a backup of the time `from_ns`.

    Revisions jump to the time in ms: they grow by one at each change, which happens less often than
    once a millisecond, so that no earlier orchestrator has reached it.
    """
    jumped = sa.func.max(node.c.revision + 1, now_ns // _MS_NS)
    connection.execute(sa.update(node).values(revision=jumped))
    ended = credential.c.kind.in_([INVITATION, SESSION])
    connection.execute(sa.delete(credential).where(ended))
    put_restored(connection, from_ns, now_ns)
