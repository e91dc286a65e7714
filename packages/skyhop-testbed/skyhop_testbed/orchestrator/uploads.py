"""Files of runs: uploaded in pieces, and visible only when the upload is complete.

Pieces are written to `incoming/RUN/SIDE`. The manifest comes first, or last from older agents. Once
every file that it lists has the right size and digest, the directory moves to
`NODE/JOB/YYYY/MM/DD/RUN/SIDE`, and each file gets a row in the table `artefact`. Manifests are read
in pieces, so that the memory does not depend on the number of files. If the administrator has
configured a bucket, `bucket_mover` moves published files there.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import itertools
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import sqlalchemy as sa

from skyhop.data.marks import Mark
from skyhop.errors import InputError, RunError
from skyhop_testbed.api import UploadProgress
from skyhop_testbed.ids import is_id
from skyhop_testbed.manifests import ListedFile, read_files
from skyhop_testbed.orchestrator import runs
from skyhop_testbed.orchestrator.bucket import Bucket
from skyhop_testbed.orchestrator.planning import spec_of
from skyhop_testbed.orchestrator.request_context import DeniedError, NotFoundError, RequestContext
from skyhop_testbed.orchestrator.stored_file import StoredFile
from skyhop_testbed.store.tables import artefact, bucket_object, job, run
from skyhop_testbed.words import Side

MANIFEST = "manifest.json"
LARGEST_RUN = 20_000_000_000
_LARGEST = 1 << 63
_ROWS = 1000
"""Number of files that are added to the table at once."""
_MOST_RANGES = 1000
"""Upper limit on the ranges of missing files in an answer."""
_MOST_EXPIRED = 200
"""Upper limit on sides of runs whose files one round of housekeeping deletes."""
_LONGEST_NAME = 400
_INCOMING = Mark("unfinished uploads of runs; the orchestrator removes abandoned ones")


class ExpiredFiles(NamedTuple):
    """Published files of one side of a run, which are to be deleted."""

    run: str
    side: str
    directory: Path


class Uploads:
    """Store for the files of all runs, below one directory.

    Args:
        directory: the directory.
        bucket: bucket to which published files move; `None` leaves them in the directory.
    """

    def __init__(self, directory: Path, bucket: Bucket | None = None) -> None:
        self._directory, self._bucket = directory, bucket

    def offsets(self, run: str, side: str) -> dict[str, int]:
        """Return the number of bytes received of each file of an upload in progress."""
        place = self._incoming(run, side)
        if not place.is_dir():
            return {}
        files = [path for path in place.rglob("*") if path.is_file()]
        return {str(path.relative_to(place)): path.stat().st_size for path in files}

    def write_piece(self, run: str, side: str, name: str, offset: int, data: bytes) -> int:
        """Append a piece to a file; return the file's size in bytes.

        A piece whose offset is not the file's present size is ignored. Offset 0 is the exception:
        it restarts the file.

        Raises:
            InputError: the name leaves the run's directory, or the file is too large.
            RunError: the file cannot be written.
        """
        path = self._incoming(run, side) / checked_name(name)
        try:
            _INCOMING.make(self._incoming_of_all, 0o700)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            here = path.stat().st_size if path.exists() else 0
            # The node sends the file again from its beginning, as it changed since the last piece.
            if offset == 0 and here:
                path.unlink()
                here = 0
            if offset != here:
                return here
            if offset + len(data) > LARGEST_RUN:
                raise InputError(f"{name}: larger than {LARGEST_RUN:,} bytes")
            with path.open("ab") as file:
                file.write(data)
            return here + len(data)
        except OSError as error:
            raise RunError(f"{run}/{name}: {error.strerror}") from None

    def progress(self, run: str, side: str, most_files: float) -> UploadProgress:
        """Return what has arrived of an upload in progress.

        Raises:
            InputError: the manifest is invalid.
            DeniedError: the manifest lists more than `most_files` files.
        """
        place = self._incoming(run, side)
        manifest = place / MANIFEST
        here = manifest.stat().st_size if manifest.is_file() else 0
        ranges: list[tuple[int, int]] = []
        offset = 0
        try:
            for index, entry in enumerate(_entries(manifest, most_files) if here else ()):
                size = _size(place / entry["name"])
                if size == entry["size"]:
                    continue
                if not ranges:
                    offset = size if 0 <= size < entry["size"] else 0
                if ranges and (ranges[-1][1] == index or len(ranges) >= _MOST_RANGES):
                    ranges[-1] = ranges[-1][0], index + 1
                else:
                    ranges.append((index, index + 1))
        except InputError:
            return UploadProgress(manifest_bytes=here, missing=None, offset=0)
        return UploadProgress(manifest_bytes=here, missing=ranges if here else None, offset=offset)

    def verify(self, run: str, side: str, most_files: float) -> bool:
        """Compare an upload with its manifest; return whether the manifest has arrived.

        This takes long for many files, and needs no transaction.

        Raises:
            InputError: the manifest is invalid, or a file differs from it.
            DeniedError: the manifest lists more than `most_files` files.
        """
        place = self._incoming(run, side)
        manifest = place / MANIFEST
        if not manifest.is_file():
            return False
        for entry in _entries(manifest, most_files):
            if _size(place / entry["name"]) != entry["size"]:
                raise InputError(
                    f"{entry['name']}: expected {entry['size']:,} bytes, as in the manifest"
                )
        for entry in _entries(manifest, most_files):
            path = place / entry["name"]
            if _digest(path) != entry["sha256"]:
                path.unlink()
                raise InputError(
                    f"{entry['name']}: its digest differs from the manifest: send it again"
                )
        return True

    def complete(self, ctx: RequestContext, row: sa.RowMapping, side: str) -> bool:
        """Check an upload against its manifest and publish its files.

        Returns:
            whether the manifest has arrived and all files are published.

        Raises:
            InputError: the manifest is invalid, or a file differs from it.
            DeniedError: the run has too many files.
        """
        if not self.verify(row["id"], side, ctx.settings.files_per_run):
            return False
        self.publish(ctx, row, side)
        return True

    def publish(self, ctx: RequestContext, row: sa.RowMapping, side: str) -> None:
        """Publish the files of an upload that `verify` has accepted.

        Raises:
            InputError: the manifest lists a file twice.
        """
        place = self._incoming(row["id"], side)
        manifest = place / MANIFEST
        found = ctx.first(sa.select(job).where(job.c.id == row["job"]))
        assert found is not None
        goal = self._directory_of(row, side)
        goal.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        expires_ns = ctx.now_ns + round(spec_of(found).retention_s * 1e9)
        chosen = (artefact.c.run == row["id"]) & (artefact.c.side == side)
        ctx.execute(sa.delete(artefact).where(chosen))
        own: ListedFile = {
            "name": MANIFEST,
            "size": manifest.stat().st_size,
            "sha256": _digest(manifest),
        }
        of_all = {"run": row["id"], "side": side, "stored_ns": ctx.now_ns, "expires_ns": expires_ns}
        count = 0
        entries = itertools.chain(_entries(manifest, ctx.settings.files_per_run), [own])
        insert = sa.insert(artefact).prefix_with("OR IGNORE")
        for entry in iter(lambda: [*itertools.islice(entries, _ROWS)], []):
            ctx.connection.execute(insert, [{**of_all, **each} for each in entry])
            count += len(entry)
        stored = ctx.connection.scalar(
            sa.select(sa.func.count()).select_from(artefact).where(chosen)
        )
        if stored != count:
            raise InputError("the manifest is invalid: it lists a file twice")
        if goal.exists():
            shutil.rmtree(goal)
        place.replace(goal)
        # The run's directory is not empty while the other side still uploads.
        with contextlib.suppress(OSError):
            place.parent.rmdir()

    def is_complete(self, ctx: RequestContext, run: str, side: str) -> bool:
        """Return whether the files of a run's side have been published."""
        chosen = (artefact.c.run == run) & (artefact.c.side == side)
        return ctx.first(sa.select(artefact.c.name).where(chosen)) is not None

    def file(self, ctx: RequestContext, run: str, side: str, name: str) -> tuple[Path, int, str]:
        """Return path, size and SHA-256 digest of a published file, if the caller may read it.

        Raises:
            NotFoundError, DeniedError: there is no such file, or its job has another owner.
            InputError: the file is in the bucket alone.
        """
        found = self.stored(ctx, run, side, name)
        return found.local_path(), found.size, found.sha256

    def stored(self, ctx: RequestContext, run: str, side: str, name: str) -> StoredFile:
        """Return a published file on the disk or in the bucket, if the caller may read it.

        Raises:
            NotFoundError, DeniedError: there is no such file, or its job has another owner.
        """
        row = runs.check_files(ctx, run)
        chosen = (artefact.c.run == run) & (artefact.c.side == side) & (artefact.c.name == name)
        kept = ctx.first(sa.select(artefact).where(chosen))
        if kept is None:
            raise NotFoundError(f"run {run} has no file {side}/{name[:80]}")
        path = self._directory_of(row, side) / name
        key = self.key_of(path)
        same = (bucket_object.c.key == key) & (bucket_object.c.sha256 == kept["sha256"])
        in_bucket = ctx.first(sa.select(bucket_object.c.key).where(same)) is not None
        return StoredFile(
            path, int(kept["size"]), str(kept["sha256"]), key if in_bucket else None, self._bucket
        )

    def place(self, ctx: RequestContext, run: str, side: str) -> Path:
        """Return the directory of the published files of one side of a run."""
        return self._directory_of(runs.get(ctx, run), side)

    def key_of(self, path: Path) -> str:
        """Return the key of a published file in the bucket: its path below the directory."""
        return path.relative_to(self._directory).as_posix()

    def delete_local(self, key: str) -> None:
        """Delete the local copy of an object, and the directories that are empty then."""
        path = self._directory / key
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            for above in path.parents:
                if above == self._directory:
                    return
                above.rmdir()

    def discard(self, run: str, side: str) -> None:
        """Delete an upload in progress."""
        self.remove(self._incoming(run, side))

    def expired(self, ctx: RequestContext) -> list[ExpiredFiles]:
        """Return sides of runs whose files are older than their job's retention time."""
        old = sa.select(artefact.c.run, artefact.c.side).where(artefact.c.expires_ns < ctx.now_ns)
        return [
            self.files_of(ctx, each["run"], each["side"])
            for each in ctx.all(old.distinct().limit(_MOST_EXPIRED))
        ]

    def files_of(self, ctx: RequestContext, run: str, side: str) -> ExpiredFiles:
        """Return the published files of one side of a run, for their deletion."""
        return ExpiredFiles(run, side, self._directory_of(runs.get(ctx, run), side))

    def kept_bytes(self, ctx: RequestContext, files: ExpiredFiles) -> int:
        """Return the size of published files in bytes."""
        chosen = (artefact.c.run == files.run) & (artefact.c.side == files.side)
        return int(
            ctx.connection.scalar(sa.select(sa.func.sum(artefact.c.size)).where(chosen)) or 0
        )

    def forget(self, ctx: RequestContext, files: ExpiredFiles) -> int:
        """Delete the rows of published files; return their number."""
        gone = (artefact.c.run == files.run) & (artefact.c.side == files.side)
        return ctx.execute(sa.delete(artefact).where(gone))

    def remove(self, place: Path) -> None:
        """Delete a directory of files, and the directories above it that are empty then."""
        shutil.rmtree(place, ignore_errors=True)
        above = place.parent
        with contextlib.suppress(OSError):
            while above not in (self._directory, self._incoming_of_all):
                above.rmdir()
                above = above.parent

    def abandoned(self, ctx: RequestContext) -> list[Path]:
        """Return incomplete uploads of runs that ended longer ago than their retention time."""
        own = _INCOMING.is_on(self._incoming_of_all)
        found = []
        for place in [*self._incoming_of_all.iterdir()] if own else ():
            if not place.is_dir():
                continue
            chosen = sa.select(run.c.end_ns, job).join(job).where(run.c.id == place.name)
            row = ctx.first(chosen)
            kept_ns = 0 if row is None else row["end_ns"] + round(spec_of(row).retention_s * 1e9)
            if kept_ns < ctx.now_ns:
                found.append(place)
        return found

    @property
    def _incoming_of_all(self) -> Path:
        return self._directory / "incoming"

    def _incoming(self, run: str, side: str) -> Path:
        if not is_id(run) or side not in [each.value for each in Side]:
            raise InputError("there is no such run")
        return self._incoming_of_all / run / side

    def _directory_of(self, row: sa.RowMapping, side: str) -> Path:
        return self._directory / place_of(dict(row), side)


def place_of(row: Mapping[Any, Any], side: str) -> PurePosixPath:
    """Return the directory of a run's published files, relative to the directory of all runs.

    `row` has the run's id, job, client, server and time of creation.
    """
    day = dt.datetime.fromtimestamp(row["created_ns"] / 1e9, dt.UTC)
    node = row["client"] if side == Side.CLIENT else row["server"]
    return PurePosixPath(str(node), row["job"], f"{day:%Y/%m/%d}", row["id"], side)


def check_uploader(ctx: RequestContext, run: str, side: str) -> sa.RowMapping:
    """Return a run's row, if the calling node may upload files of the run's `side`.

    Raises:
        NotFoundError, DeniedError: there is no such run, or that side is another node.
    """
    row = runs.get(ctx, run)
    if runs.side_of(row, ctx.caller.name) != side:
        raise DeniedError(f"that side of run {run} is not {ctx.caller.name}'s")
    return row


def checked_name(name: str) -> str:
    """Return a file's path relative to the directory of its run, after a check.

    Raises:
        InputError: the path leaves the directory, is not normalised, too long or unprintable.
    """
    path = PurePosixPath(name)
    plain = name.isprintable() and 0 < len(name.encode(errors="replace")) <= _LONGEST_NAME
    if not plain or not path.name or path.is_absolute() or ".." in path.parts or str(path) != name:
        raise InputError("invalid file name: expected a plain path inside the run's directory")
    return name


def _entries(manifest: Path, most_files: float) -> Iterator[ListedFile]:
    """Yield the files of a manifest.

    Raises:
        InputError: the manifest is invalid.
        DeniedError: it lists more than `most_files` files.
    """
    try:
        with manifest.open("rb") as stream:
            for index, entry in enumerate(read_files(stream)):
                if index >= most_files:
                    raise DeniedError(
                        f"the run has more than {most_files:,.0f} files, the limit of this "
                        "testbed: pack them into an archive"
                    )
                if checked_name(entry["name"]) == MANIFEST or not 0 <= entry["size"] < _LARGEST:
                    raise ValueError("wrong name or size")
                yield entry
    except (ValueError, OverflowError, RecursionError):
        raise InputError("the manifest is invalid") from None


def _size(path: Path) -> int:
    """Return the size of a plain file; -1 if there is none."""
    try:
        info = path.lstat()
    except OSError:
        return -1
    return info.st_size if stat.S_ISREG(info.st_mode) else -1


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
