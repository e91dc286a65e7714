"""Places of a backup's files: a directory, or a tar file; both are read by the same functions."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from skyhop.errors import InputError
from skyhop_testbed.backup.manifest import (
    DATABASE,
    FILE,
    Digested,
    Entry,
    Manifest,
    bounded_read,
    checked_path,
    digest,
    is_as_listed,
    read_manifest,
)

_PRIVATE, _PRIVATE_DIRECTORY = 0o600, 0o700


class Goal(Protocol):
    """Backup that is being written."""

    def add(self, name: str, source: BinaryIO, size: int, mtime_ns: int) -> None:
        """Write `size` bytes of a source as a file; a second file of the same name replaces it."""

    def finish(self) -> None:
        """Have the system write everything to the disk."""


class DirectoryGoal:
    """Backup as a directory, which is created.

    Raises:
        OSError: the directory cannot be created.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=_PRIVATE_DIRECTORY)
        self._directory = directory

    def add(self, name: str, source: BinaryIO, size: int, mtime_ns: int) -> None:
        """Write `size` bytes of a source as a file."""
        path = self._made(name)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE), "wb") as to:
            copy_bytes(source, to, size, name)
            to.flush()
            os.fsync(to.fileno())
        os.utime(path, ns=(mtime_ns, mtime_ns))

    def link(self, name: str, former: Path) -> bool:
        """Take a file of a former backup by a hard link; return whether that is possible."""
        path = self._made(name)
        with suppress(OSError):
            os.link(former, path)
            return True
        return False

    def _made(self, name: str) -> Path:
        path = self._directory / name
        # `mkdir` with `parents` would make the upper directories readable to others.
        for parent in reversed(path.relative_to(self._directory).parents[:-1]):
            (self._directory / parent).mkdir(mode=_PRIVATE_DIRECTORY, exist_ok=True)
        path.unlink(missing_ok=True)
        return path

    def finish(self) -> None:
        """Have the system write the directories to the disk."""
        for place, _, _ in os.walk(self._directory):
            sync_directory(Path(place))


class TarGoal:
    """Backup as a tar file without compression.

    Raises:
        OSError: the file cannot be created.
    """

    def __init__(self, file: Path) -> None:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
        self._file = os.fdopen(descriptor, "wb")
        self._tar = tarfile.TarFile(fileobj=self._file, mode="w", format=tarfile.PAX_FORMAT)

    def add(self, name: str, source: BinaryIO, size: int, mtime_ns: int) -> None:
        """Append `size` bytes of a source as a member; a reader takes the last of a name."""
        member = tarfile.TarInfo(name)
        member.size, member.mtime, member.mode = size, mtime_ns // 10**9, _PRIVATE
        self._tar.addfile(member, cast("BinaryIO", _Exactly(source, name)))

    def finish(self) -> None:
        """End the archive, and have the system write it to the disk."""
        self._tar.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


class _Exactly:
    """Source that may not end early, for `tarfile`."""

    def __init__(self, source: BinaryIO, name: str) -> None:
        self._source, self._name = source, name

    def read(self, size: int) -> bytes:
        found = self._source.read(size)
        if len(found) < size:
            raise ShrunkError(self._name)
        return found


class ShrunkError(Exception):
    """A file became shorter while it was copied."""


def copy_bytes(source: BinaryIO, to: BinaryIO, size: int, name: str) -> None:
    """Copy exactly `size` bytes.

    Raises:
        ShrunkError: the source ends before.
        OSError: the destination cannot be written.
    """
    left = size
    while left:
        piece = source.read(min(left, 1 << 20))
        if not piece:
            raise ShrunkError(name)
        to.write(piece)
        left -= len(piece)


def sync_directory(directory: Path) -> None:
    """Have the system write a directory's names to the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- reading ---


def is_tar(place: Path) -> bool:
    """Return whether a backup is, or is to be, a tar file."""
    return place.is_file() or (place.suffix == ".tar" and not place.is_dir())


def read_backup(place: Path, into: Path | None = None) -> Manifest:
    """Read all files of a backup, compare them with its list, and copy them if wanted.

    Args:
        place: the backup.
        into: directory to which the files are copied; none is written without it.

    Raises:
        InputError: the backup is incomplete, damaged, or of a newer skyhop.
        OSError: a file cannot be read or written.
    """
    goal = None if into is None else DirectoryGoal(into)
    return _read_tar(place, goal) if is_tar(place) else _read_directory(place, goal)


def manifest_of(directory: Path) -> Manifest:
    """Return the list of a backup in a directory.

    Raises:
        InputError: the directory is no complete backup.
    """
    try:
        with (directory / FILE).open("rb") as stream:
            return read_manifest(bounded_read(stream), str(directory))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{directory}: is no complete backup: {FILE} is missing there") from None


def _read_directory(place: Path, goal: DirectoryGoal | None) -> Manifest:
    manifest = manifest_of(place)
    for entry in manifest.files:
        try:
            with (place / entry.name).open("rb") as stream:
                _drop_cached(stream)
                _take(place, entry, stream, goal)
        except FileNotFoundError:
            raise InputError(f"{place}: {entry.name} is missing: take another backup") from None
    _check_has_database(place, manifest)
    return manifest


def _take(place: Path, entry: Entry, stream: BinaryIO, goal: DirectoryGoal | None) -> None:
    """Compare a file with its entry, and copy it if wanted."""
    if not is_as_listed(entry, digest(stream)):
        raise InputError(f"{place}: {entry.name} is damaged: take another backup")
    if goal is not None:
        stream.seek(0)
        try:
            goal.add(entry.name, stream, entry.size, entry.mtime_ns)
        except ShrunkError:
            raise InputError(f"{place}: {entry.name} changes while it is read") from None


def _drop_cached(stream: BinaryIO) -> None:
    """Ask the system to read a file from the disk, not from its memory."""
    with suppress(OSError):
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read_tar(place: Path, goal: DirectoryGoal | None) -> Manifest:
    found: dict[str, Digested] = {}
    listed = b""
    with _opened_tar(place) as tar:
        for member in tar:
            stream = tar.extractfile(member) if member.isreg() else None
            if stream is None:
                raise InputError(f"{place}: {member.name[:80]} is no plain file")
            if member.name == FILE:
                listed = bounded_read(cast("BinaryIO", stream))
                continue
            name = _checked(place, member.name)
            counted = _Counted(cast("BinaryIO", stream))
            if goal is not None:
                goal.add(name, cast("BinaryIO", counted), member.size, int(member.mtime * 1e9))
            found[name] = counted.end()
    if not listed:
        raise InputError(f"{place}: is no complete backup: it ends before its {FILE}")
    manifest = read_manifest(listed, str(place))
    entries = {each.name: each for each in manifest.files}
    for name in sorted({*entries, *found}):
        if name not in entries:
            raise InputError(f"{place}: has {name}, which its list lacks: take another backup")
        if name not in found:
            raise InputError(f"{place}: {name} is missing: take another backup")
        if not is_as_listed(entries[name], found[name]):
            raise InputError(f"{place}: {name} is damaged: take another backup")
    _check_has_database(place, manifest)
    return manifest


class _Counted:
    """Stream whose bytes are counted and digested as they are read."""

    def __init__(self, stream: BinaryIO) -> None:
        import hashlib

        self._stream, self._digest, self._size = stream, hashlib.sha256(), 0

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(size)
        self._digest.update(piece)
        self._size += len(piece)
        return piece

    def end(self) -> Digested:
        """Read the rest; return size and digest of all bytes."""
        while self.read(1 << 20):
            pass
        return Digested(self._size, self._digest.hexdigest())


@contextmanager
def _opened_tar(place: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(place, "r:") as tar:
            yield tar
    except FileNotFoundError:
        raise InputError(f"{place}: there is no such backup") from None
    except (tarfile.TarError, EOFError, ShrunkError, ValueError) as error:
        said = " ".join(str(error).split())[:120]
        raise InputError(f"{place}: is cut or damaged ({said}): take another backup") from None


def _checked(place: Path, name: str) -> str:
    try:
        return checked_path(name)
    except ValueError as error:
        raise InputError(f"{place}: {error}") from None


def _check_has_database(place: Path, manifest: Manifest) -> None:
    if DATABASE not in {each.name for each in manifest.files}:
        raise InputError(f"{place}: has no {DATABASE}: it is no backup of an orchestrator")


def as_stream(content: bytes) -> BinaryIO:
    """Return bytes as a stream."""
    return io.BytesIO(content)
