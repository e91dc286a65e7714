"""Backup of a state directory while its orchestrator runs.

The files are copied first and the database last, with SQLite's online backup: whatever the copied
database names had been stored before. Files that it names and that were stored meanwhile are copied
then, and the database once more, until it names no file that the backup lacks.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from skyhop.data.files import Scratch
from skyhop.errors import InputError, RunError
from skyhop.version import __version__
from skyhop_testbed.backup.manifest import DATABASE, FILE, Entry, Manifest, digest, is_as_listed
from skyhop_testbed.backup.places import (
    DirectoryGoal,
    Goal,
    ShrunkError,
    TarGoal,
    as_stream,
    is_tar,
    manifest_of,
    read_backup,
    sync_directory,
)
from skyhop_testbed.orchestrator.bucket import FILE as BUCKET_FILE
from skyhop_testbed.orchestrator.marks import release_of
from skyhop_testbed.orchestrator.watch import LAST_BACKUP

_ROUNDS = 5
"""Upper limit on copies of the database, of which each later one is for files stored meanwhile."""
_ATTEMPTS = 3
"""Upper limit on attempts to copy a file that becomes shorter meanwhile."""
_BUSY_S = 20.0
_STAGING = ".skyhop-"
_INCOMING = ("runs/incoming/", "releases/incoming/")
"""Unfinished uploads, which nodes and administrators send again from their beginning."""
_CREDENTIAL = "admin.json"
_FILES_OF_DATABASE = """
    SELECT artefact.name, artefact.size, artefact.sha256, artefact.side, run.id, run.job,
           run.client, run.server, run.created_ns
    FROM artefact JOIN run ON run.id = artefact.run
"""
_INPUTS_OF_DATABASE = "SELECT DISTINCT sha256, size FROM job_file"
_RELEASE_OF_DATABASE = "SELECT value FROM config WHERE key = 'release'"


@dataclass(frozen=True)
class Made:
    """Backup that was written: its list, and how much of it earlier backups already had."""

    manifest: Manifest
    linked: int
    """Number of files that are hard links to those of the former backup."""


def write_backup(state: Path, place: Path, now_ns: int, since: Path | None = None) -> Made:
    """Write a backup of a state directory, read it again, and give it its name.

    Args:
        state: the orchestrator's state directory; its service may run.
        place: the new directory, or the new file if its name ends in `.tar`.
        now_ns: present time.
        since: a former backup in a directory; files that have not changed since are hard links to
            its files.

    Raises:
        InputError: there is no orchestrator's state, `place` exists, or `since` is no backup.
        RunError: the backup cannot be written, for example because the disk is full.
    """
    if place.exists():
        raise InputError(f"{place}: exists already: give the backup a new name")
    if not (state / DATABASE).is_file():
        raise InputError(f"{state}: is no state directory of an orchestrator: no {DATABASE} there")
    if since is not None and is_tar(place):
        raise InputError(f"{place}: --since is for a backup in a directory, not in a tar file")
    try:
        with Scratch(place.parent) as scratch:
            return _write(state, place, scratch, now_ns, since)
    except OSError as error:
        raise RunError(f"{place}: the backup fails: {error.strerror or error}") from None
    except ShrunkError as error:
        raise RunError(f"{place}: {error} became shorter while it was copied: try again") from None
    except sqlite3.Error as error:
        raise RunError(f"{state / DATABASE}: cannot be copied: {error}") from None


def _write(state: Path, place: Path, scratch: Path, now_ns: int, since: Path | None) -> Made:
    scratch.chmod(0o700)
    former = {} if since is None else {each.name: each for each in manifest_of(since).files}
    unfinished = scratch / f"backup{place.suffix}"
    goal: Goal = TarGoal(unfinished) if is_tar(place) else DirectoryGoal(unfinished)
    copier = _Copier(state, goal, since, former)
    for name in _names(state):
        copier.copy(name)
    database = scratch / DATABASE
    missing, tables = _copy_database(state, database, copier)
    copier.add_file(DATABASE, database)
    database.unlink()
    manifest = Manifest(
        skyhop=__version__,
        tables=tables,
        created_ns=now_ns,
        files=sorted(copier.entries.values(), key=lambda each: each.name),
        missing=missing,
    )
    goal.add(FILE, as_stream(manifest.dumps()), len(manifest.dumps()), now_ns)
    goal.finish()
    read_backup(unfinished)
    unfinished.rename(place)
    sync_directory(place.parent)
    (state / LAST_BACKUP).touch(mode=0o600)
    return Made(manifest, copier.linked)


class _Copier:
    """Copies files of the state directory to a backup, and lists them."""

    def __init__(
        self, state: Path, goal: Goal, since: Path | None, former: dict[str, Entry]
    ) -> None:
        self._state, self._goal, self._since, self._former = state, goal, since, former
        self.entries: dict[str, Entry] = {}
        self.linked = 0

    def copy(self, name: str) -> bool:
        """Copy a file; return whether it still exists."""
        for attempt in range(_ATTEMPTS):
            try:
                with (self._state / name).open("rb") as source:
                    self._copy(name, source.fileno())
                return True
            except (FileNotFoundError, NotADirectoryError):
                return False
            except ShrunkError:
                if attempt == _ATTEMPTS - 1 or isinstance(self._goal, TarGoal):
                    raise
        return True

    def add_file(self, name: str, path: Path) -> None:
        """Copy a file from another place than the state directory."""
        with path.open("rb") as source:
            self._copy(name, source.fileno())

    def _copy(self, name: str, descriptor: int) -> None:
        about = os.fstat(descriptor)
        old = self._former.get(name)
        is_old = old and (old.size, old.mtime_ns) == (about.st_size, about.st_mtime_ns)
        if old is not None and is_old and self._link(old):
            return
        source = _Digesting(descriptor)
        self._goal.add(name, source, about.st_size, about.st_mtime_ns)  # type: ignore[arg-type]
        self.entries[name] = Entry(
            name=name, size=about.st_size, sha256=source.sha256(), mtime_ns=about.st_mtime_ns
        )

    def _link(self, old: Entry) -> bool:
        """Take a file of the former backup, if it is undamaged there and can be linked."""
        assert self._since is not None
        assert isinstance(self._goal, DirectoryGoal)
        path = self._since / old.name
        try:
            with path.open("rb") as stream:
                is_whole = is_as_listed(old, digest(stream))
        except OSError:
            return False
        if not is_whole or not self._goal.link(old.name, path):
            return False
        self.entries[old.name] = old
        self.linked += 1
        return True


class _Digesting:
    """Source of a copy, whose bytes are digested as they are read."""

    def __init__(self, descriptor: int) -> None:
        import hashlib

        self._descriptor, self._offset, self._digest = descriptor, 0, hashlib.sha256()

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most `size`; fewer only at the end."""
        found = bytearray()
        while len(found) < size:
            piece = os.pread(self._descriptor, size - len(found), self._offset)
            if not piece:
                break
            self._offset += len(piece)
            found += piece
        self._digest.update(found)
        return bytes(found)

    def sha256(self) -> str:
        """Return the digest of all bytes read so far, in hexadecimal."""
        return self._digest.hexdigest()


def _names(state: Path) -> Iterator[str]:
    """Yield the paths of all files to copy except the database, relative to the state directory.

    A journal of telemetry comes before its day's file: a journal that is folded meanwhile is then
    in the day's file, which is listed afterwards.
    """
    yield from (name for name in (_CREDENTIAL, BUCKET_FILE) if (state / name).is_file())
    for part in ("objects", "runs", "releases"):
        yield from _below(state, part)
    yield from _below(state, "telemetry", lambda name: name.endswith(".jsonl"))
    yield from _below(state, "telemetry", lambda name: not name.endswith(".jsonl"))


def _keys(state: Path) -> list[str]:
    return [*_below(state, "keys")]


def _below(
    state: Path, part: str, is_wanted: Callable[[str], bool] = lambda _name: True
) -> Iterator[str]:
    """Yield the plain files below a part of the state directory, without those in the making."""
    for place, directories, files in os.walk(state / part):
        directories[:] = sorted(each for each in directories if not each.startswith(_STAGING))
        for file in sorted(files):
            path = Path(place) / file
            name = path.relative_to(state).as_posix()
            if is_wanted(name) and not name.startswith(_INCOMING) and not path.is_symlink():
                yield name


def _copy_database(state: Path, copy: Path, copier: _Copier) -> tuple[list[str], int]:
    """Copy keys and database until the database names no file that can still be copied.

    Returns:
        the files that it names and that the state directory lacks, and the version of its tables.
    """
    lacking: set[str] = set()
    for _ in range(_ROUNDS):
        keys = {name: _content(state / name) for name in _keys(state)}
        for name in keys:
            copier.copy(name)
        with suppress(FileNotFoundError):
            copy.unlink()
        tables = snapshot(state / DATABASE, copy)
        found = {
            name
            for name, size, sha256 in named_files(copy)
            if not _has(copier.entries, name, size, sha256)
        }
        is_settled = keys == {name: _content(state / name) for name in _keys(state)}
        if is_settled and found <= lacking:
            return sorted(found), tables
        for name in found:
            copier.copy(name)
        lacking = found if is_settled else set()
    return sorted(lacking), tables


def _has(entries: dict[str, Entry], name: str, size: int, sha256: str) -> bool:
    entry = entries.get(name)
    return entry is not None and (entry.size, entry.sha256) == (size, sha256)


def _content(path: Path) -> bytes | None:
    with suppress(FileNotFoundError):
        return path.read_bytes()
    return None


def snapshot(database: Path, copy: Path) -> int:
    """Copy an SQLite database that others may write; return the version of its tables.

    Raises:
        InputError: the database is damaged.
        sqlite3.Error, OSError: it cannot be read, or the copy cannot be written.
    """
    os.close(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    address = f"file:{quote(str(database))}?mode=rw"
    with (
        closing(sqlite3.connect(address, uri=True, timeout=_BUSY_S)) as live,
        closing(sqlite3.connect(copy, isolation_level=None)) as made,
    ):
        live.backup(made, pages=-1)
        made.execute("PRAGMA journal_mode = DELETE")
        (said,) = made.execute("PRAGMA integrity_check(1)").fetchone()
        if said != "ok":
            raise InputError(f"{database}: is damaged: {said}: restore an earlier backup")
        (version,) = made.execute("PRAGMA user_version").fetchone()
    return int(version)


def named_files(database: Path) -> Iterable[tuple[str, int, str]]:
    """Yield path, size and digest of the files that a database names.

    These are results, input files and the files of the published release.
    """
    from skyhop_testbed.orchestrator.uploads import place_of

    with closing(sqlite3.connect(database)) as opened:
        opened.row_factory = sqlite3.Row
        for row in opened.execute(_FILES_OF_DATABASE):
            place = place_of(dict(row), row["side"])
            yield f"runs/{place}/{row['name']}", row["size"], row["sha256"]
        for sha256, size in opened.execute(_INPUTS_OF_DATABASE):
            yield f"objects/inputs/{sha256}", size, sha256
        for (text,) in opened.execute(_RELEASE_OF_DATABASE):
            release = release_of(json.loads(text))
            for name, (size, sha256) in release.files.items() if release else ():
                yield name, size, sha256
