"""List of a backup's files with their sizes and digests, which makes the backup complete.

The file `backup.json` has the list as one line of JSON, and the SHA-256 digest of that line as a
second line, so that a cut or changed list is noticed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import BinaryIO

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from skyhop.errors import InputError

FILE = "backup.json"
DATABASE = "testbed.sqlite"
FORMAT = 1
"""Version of the form of backups; a larger one is of a newer skyhop."""
_LARGEST_BYTES = 1_000_000_000
_PIECE_BYTES = 1 << 20


class Entry(BaseModel):
    """File of a backup: path in the state directory, size, digest, and time of its last change."""

    model_config = ConfigDict(frozen=True)

    name: str
    size: int
    sha256: str
    mtime_ns: int

    @field_validator("name")
    @classmethod
    def _check(cls, value: str) -> str:
        return checked_path(value)


class Manifest(BaseModel):
    """Content of a backup."""

    model_config = ConfigDict(frozen=True)

    format: int = FORMAT
    skyhop: str
    """Version of the skyhop that made the backup."""
    tables: int
    """Version of the database's tables."""
    created_ns: int
    """Time in ns at which the backup began; later changes may be missing."""
    files: list[Entry]
    missing: list[str] = []
    """Files that the database names and that the state directory did not have."""

    def dumps(self) -> bytes:
        """Return the content of `backup.json`."""
        line = self.model_dump_json().encode()
        return line + b"\n" + hashlib.sha256(line).hexdigest().encode() + b"\n"

    @property
    def size(self) -> int:
        """Total size of the files in bytes."""
        return sum(each.size for each in self.files)


class _Head(BaseModel):
    """Fields by which a reader recognises a manifest of a newer form."""

    format: int
    skyhop: str


def checked_path(value: str) -> str:
    """Return a path relative to the state directory unchanged, if it is a plain one.

    Raises:
        ValueError: the path is absolute, leaves the directory, or is not normalised.
    """
    path = PurePosixPath(value)
    if not path.name or path.is_absolute() or ".." in path.parts or str(path) != value:
        raise ValueError(f"{value[:80]!r} is no path inside a state directory")
    return value


def read_manifest(content: bytes, place: str) -> Manifest:
    """Parse the content of `backup.json`.

    Args:
        content: the bytes of the file.
        place: name of the backup, for messages.

    Raises:
        InputError: the list is cut or changed, or a newer skyhop wrote it.
    """
    line, _, digest = content.partition(b"\n")
    if digest.decode("ascii", "replace") != hashlib.sha256(line).hexdigest() + "\n":
        raise InputError(f"{place}: {FILE} is cut or was changed: take another backup")
    try:
        head = _Head.model_validate_json(line)
        if head.format > FORMAT:
            raise InputError(f"{place}: is a backup of skyhop {head.skyhop[:40]}: {_UPDATE}")
        return Manifest.model_validate_json(line)
    except ValidationError:
        raise InputError(f"{place}: {FILE} is no list of a backup: take another backup") from None


_UPDATE = "install that version or a newer one, then restore"


def check_tables(manifest: Manifest, newest: int, place: str) -> None:
    """Check that this skyhop can read the database of a backup.

    Raises:
        InputError: the tables are of a newer version than `newest`.
    """
    if manifest.tables > newest:
        raise InputError(f"{place}: is a backup of skyhop {manifest.skyhop[:40]}: {_UPDATE}")


@dataclass
class Digested:
    """Size and SHA-256 digest of bytes that were read."""

    size: int
    sha256: str


def digest(stream: BinaryIO) -> Digested:
    """Read a stream to its end; return size and digest of its bytes."""
    found, size = hashlib.sha256(), 0
    while piece := stream.read(_PIECE_BYTES):
        found.update(piece)
        size += len(piece)
    return Digested(size, found.hexdigest())


def is_as_listed(entry: Entry, found: Digested) -> bool:
    """Return whether bytes have the size and the digest of a list's entry."""
    return found.size == entry.size and found.sha256 == entry.sha256


def bounded_read(stream: BinaryIO) -> bytes:
    """Return the content of a manifest's file, at most `_LARGEST_BYTES` of it."""
    return stream.read(_LARGEST_BYTES)
