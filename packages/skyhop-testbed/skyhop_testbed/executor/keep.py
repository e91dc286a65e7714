"""Choice of a run's files to keep, and their manifest.

The work directory is untrusted, as the run's program writes it: each directory is opened relative
to its parent, and links are never followed. Entries that are not regular files, have several hard
links or a strange name are left out; the manifest lists them with the reason.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from skyhop_testbed.manifests import write_manifest
from skyhop_testbed.words import Side

FILE = "manifest.json"
TELEMETRY = "telemetry"
"""Pattern in `keep` that requests the terminal's telemetry; it matches no file."""
_LONGEST_NAME_BYTES = 240
_DEEPEST = 16
_MOST_LISTED = 1000
"""Upper limit on the files left out that a manifest lists."""
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class KeptFile:
    """File that is kept, as the manifest lists it."""

    name: str
    """Path relative to the work directory, separated by "/"."""
    size: int
    sha256: str


@dataclass(frozen=True)
class SkippedFile:
    """File that matches a pattern but is not kept, with the reason."""

    name: str
    why: str


@dataclass(frozen=True)
class Origin:
    """Run whose files a manifest lists, and whether the run is not complete."""

    run: str
    node: str
    side: Side
    partial: bool


def matches(name: str, patterns: list[str]) -> bool:
    """Return whether a pattern matches a path, its last component, or one of its directories."""
    parts = name.split("/")
    prefixes = ["/".join(parts[: i + 1]) for i in range(len(parts))]
    return any(
        fnmatch.fnmatchcase(candidate, pattern.rstrip("/"))
        for pattern in patterns
        if pattern != TELEMETRY
        for candidate in (*prefixes, parts[-1])
    )


def choose(
    work: Path, patterns: list[str], inputs: Mapping[str, str] | None = None
) -> Iterator[KeptFile | SkippedFile]:
    """Yield the files of a work directory to keep, and those that match but are left out.

    Args:
        work: the directory.
        patterns: the job's `keep`.
        inputs: digests of the job's input files by name; unchanged input files are not kept.
    """
    root = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for each in _walk(root, "", 0):
            if isinstance(each, SkippedFile):
                yield each
                continue
            name, directory, entry = each
            if not matches(name, patterns):
                continue
            found = _kept_or_skipped(directory, entry, name)
            if isinstance(found, SkippedFile) or (inputs or {}).get(name) != found.sha256:
                yield found
    finally:
        os.close(root)


def _walk(directory: int, prefix: str, depth: int) -> Iterator[tuple[str, int, str] | SkippedFile]:
    """Walk a directory in alphabetical order.

    Yield each file's path, directory descriptor and name, or why it is left out.
    """
    for entry in sorted(os.listdir(directory)):
        name = f"{prefix}{entry}"
        why = _name_fault(name, entry, depth)
        if why:
            shown = name.encode("unicode_escape").decode()[:_LONGEST_NAME_BYTES]
            yield SkippedFile(shown, why)
            continue
        try:
            kind = os.stat(entry, dir_fd=directory, follow_symlinks=False).st_mode
            if not stat.S_ISDIR(kind):
                yield name, directory, entry
                continue
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            below = os.open(entry, flags, dir_fd=directory)
        except OSError as error:
            yield SkippedFile(name, str(error.strerror))
            continue
        try:
            yield from _walk(below, f"{name}/", depth + 1)
        finally:
            os.close(below)


def _name_fault(name: str, entry: str, depth: int) -> str | None:
    if depth >= _DEEPEST:
        return f"below {_DEEPEST} directories"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if size > _LONGEST_NAME_BYTES:
        return "its name is too long"
    is_plain = entry.isprintable() and "\\" not in entry
    return None if is_plain else "its name has unprintable characters or a backslash"


def _kept_or_skipped(directory: int, entry: str, name: str) -> KeptFile | SkippedFile:
    # O_NONBLOCK, as a FIFO must not block the executor.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        info = os.stat(entry, dir_fd=directory, follow_symlinks=False)
        if not stat.S_ISREG(info.st_mode):
            return SkippedFile(name, "is no plain file")
        descriptor = os.open(entry, flags, dir_fd=directory)
    except OSError as error:
        return SkippedFile(name, str(error.strerror))
    with os.fdopen(descriptor, "rb") as stream:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_nlink > 1:
            return SkippedFile(name, "is no plain file, or has several hard links")
        return KeptFile(name, *_digest(stream))


def _digest(stream: BinaryIO) -> tuple[int, str]:
    size, digest = 0, hashlib.sha256()
    while piece := stream.read(_PIECE_BYTES):
        size += len(piece)
        digest.update(piece)
    return size, digest.hexdigest()


def open_kept(work: Path, name: str) -> int:
    """Open a file of a manifest without following links; the caller closes the descriptor.

    Raises:
        OSError: the file is missing, or has become a link.
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


@dataclass
class Kept:
    """Number of files that a manifest lists, and whether there are more than the limit."""

    files: int = 0
    is_exceeded: bool = False


def write_kept(
    to: BinaryIO, of: Origin, found: Iterator[KeptFile | SkippedFile], most: int
) -> Kept:
    """Write the manifest of a run's files.

    Args:
        to: the manifest's file.
        of: the run.
        found: result of `choose`.
        most: upper limit on the files that are kept.
    """
    kept, left, more = Kept(), list[SkippedFile](), 0

    def files() -> Iterator[KeptFile]:
        nonlocal more
        for each in found:
            if isinstance(each, KeptFile):
                if kept.files >= most:
                    kept.is_exceeded = True
                    return
                kept.files += 1
                yield each
            elif len(left) < _MOST_LISTED:
                left.append(each)
            else:
                more += 1

    def below() -> Iterator[tuple[str, object]]:
        yield "partial", of.partial or kept.is_exceeded
        yield "left", left
        if more:
            yield "left_unlisted", more

    above = {"run": of.run, "node": of.node, "side": of.side}
    write_manifest(to, above, files(), below())
    return kept
