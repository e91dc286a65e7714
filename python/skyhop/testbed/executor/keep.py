"""Which of a run's files are kept, and what stands in its manifest.

The program could write its work directory as it liked, so nothing in there is believed: every
directory is opened from the one above it, links are never followed, and what is no plain file, has
more names than one or an odd one is left out and said to be.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FILE = "manifest.json"
TELEMETRY = "telemetry"
"""The pattern that stands for the terminal's data; no file of the program's."""
MOST_FILES = 10_000
_LONGEST_NAME_BYTES = 240
_DEEPEST = 16
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class Kept:
    """A file that is kept."""

    name: str
    """Relative to the work directory, with "/"."""
    size: int
    sha256: str


@dataclass(frozen=True)
class Left:
    """One that is not, though its name was asked for."""

    name: str
    why: str


def matches(name: str, patterns: list[str]) -> bool:
    """Return whether a name is asked for: by the whole of it, its last part, or its directory."""
    parts = name.split("/")
    prefixes = ["/".join(parts[: i + 1]) for i in range(len(parts))]
    return any(
        fnmatch.fnmatchcase(candidate, pattern.rstrip("/"))
        for pattern in patterns
        if pattern != TELEMETRY
        for candidate in (*prefixes, parts[-1])
    )


def choose(
    work: Path, patterns: list[str], brought: dict[str, str] | None = None
) -> tuple[list[Kept], list[Left]]:
    """Return what is kept of a work directory, and what is left though asked for.

    Args:
        work: the directory.
        patterns: those of the job.
        brought: digests of the files that the job brought, by name: unchanged they are not kept.
    """
    kept: list[Kept] = []
    left: list[Left] = []
    root = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for name, directory, entry in _walk(root, "", 0, left):
            if not matches(name, patterns):
                continue
            if len(kept) >= MOST_FILES:
                left.append(Left(name, f"more than {MOST_FILES:,} files"))
                break
            found = _measured(directory, entry, name)
            if isinstance(found, Left):
                left.append(found)
            elif (brought or {}).get(name) != found.sha256:
                kept.append(found)
    finally:
        os.close(root)
    return kept, left


def _walk(
    directory: int, prefix: str, depth: int, left: list[Left]
) -> Iterator[tuple[str, int, str]]:
    """Go through a directory in the order of names: each file's name, its directory, its entry."""
    for entry in sorted(os.listdir(directory)):
        name = f"{prefix}{entry}"
        why = _odd(name, entry, depth)
        if why:
            left.append(Left(name.encode("unicode_escape").decode()[:_LONGEST_NAME_BYTES], why))
            continue
        try:
            kind = os.stat(entry, dir_fd=directory, follow_symlinks=False).st_mode
            if not stat.S_ISDIR(kind):
                yield name, directory, entry
                continue
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            below = os.open(entry, flags, dir_fd=directory)
        except OSError as error:
            left.append(Left(name, str(error.strerror)))
            continue
        try:
            yield from _walk(below, f"{name}/", depth + 1, left)
        finally:
            os.close(below)


def _odd(name: str, entry: str, depth: int) -> str | None:
    if depth >= _DEEPEST:
        return f"below {_DEEPEST} directories"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "its name is no text"
    if size > _LONGEST_NAME_BYTES:
        return "its name is too long"
    return None if entry.isprintable() and "\\" not in entry else "its name is no plain text"


def _measured(directory: int, entry: str, name: str) -> Kept | Left:
    # A fifo in a file's place must not hold the executor.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        info = os.stat(entry, dir_fd=directory, follow_symlinks=False)
        if not stat.S_ISREG(info.st_mode):
            return Left(name, "is no plain file")
        descriptor = os.open(entry, flags, dir_fd=directory)
    except OSError as error:
        return Left(name, str(error.strerror))
    with os.fdopen(descriptor, "rb") as stream:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_nlink > 1:
            return Left(name, "is no plain file of one name")
        return Kept(name, *_digest(stream))


def _digest(stream: Any) -> tuple[int, str]:
    size, digest = 0, hashlib.sha256()
    while piece := stream.read(_PIECE_BYTES):
        size += len(piece)
        digest.update(piece)
    return size, digest.hexdigest()


def open_kept(work: Path, name: str) -> int:
    """Open a file of a manifest, without following links; the caller closes the descriptor.

    Raises:
        OSError: it is not there as a plain file any more.
    """
    *above, last = name.split("/")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    directory = os.open(work, flags | os.O_DIRECTORY)
    try:
        for part in above:
            below = os.open(part, flags | os.O_DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = below
        return os.open(last, flags | os.O_NONBLOCK, dir_fd=directory)
    finally:
        os.close(directory)


def as_json(kept: list[Kept], left: list[Left], details: dict[str, Any]) -> bytes:
    """Return a manifest as it stands in its file."""
    files = {"files": [asdict(each) for each in kept], "left": [asdict(each) for each in left]}
    return json.dumps({**details, **files}, indent=1).encode()
