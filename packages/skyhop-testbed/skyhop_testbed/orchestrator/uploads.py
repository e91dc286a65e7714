"""Files of runs: uploaded in pieces, and visible only when the upload is complete.

Pieces are written to `incoming/RUN/SIDE`. The manifest comes last. Once every file that it lists
has the right size and digest, the directory moves to `NODE/JOB/YYYY/MM/DD/RUN/SIDE`, and each file
gets a row in the table `artefact`.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import sqlalchemy as sa

from skyhop.data.marks import Mark
from skyhop.errors import InputError, RunError
from skyhop_testbed.ids import is_id
from skyhop_testbed.orchestrator import runs
from skyhop_testbed.orchestrator.planning import spec_of
from skyhop_testbed.orchestrator.request_context import DeniedError, NotFoundError, RequestContext
from skyhop_testbed.store.tables import artefact, job, run
from skyhop_testbed.words import Side

MANIFEST = "manifest.json"
LARGEST_RUN = 20_000_000_000
_MOST_FILES = 10_000
_LONGEST_NAME = 400
_INCOMING = Mark("unfinished uploads of runs; the orchestrator removes abandoned ones")


class Uploads:
    """Store for the files of all runs, below one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

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

    def complete(self, ctx: RequestContext, row: sa.RowMapping, side: str) -> bool:
        """Check an upload against its manifest and publish its files.

        Returns:
            whether the manifest has arrived and all files are published.

        Raises:
            InputError: the manifest is invalid, or a file differs from it.
        """
        place = self._incoming(row["id"], side)
        manifest = place / MANIFEST
        if not manifest.is_file():
            return False
        found = ctx.first(sa.select(job).where(job.c.id == row["job"]))
        assert found is not None
        listed = _manifest_entries(manifest)
        for name, size, digest in listed:
            path = place / name
            if not path.is_file() or path.is_symlink() or path.stat().st_size != size:
                raise InputError(f"{name}: expected {size:,} bytes, as in the manifest")
            if _digest(path) != digest:
                path.unlink()
                raise InputError(f"{name}: its digest differs from the manifest: send it again")
        listed.append((MANIFEST, manifest.stat().st_size, _digest(manifest)))
        goal = self._directory_of(row, side)
        goal.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        expires_ns = ctx.now_ns + round(spec_of(found).retention_s * 1e9)
        chosen = (artefact.c.run == row["id"]) & (artefact.c.side == side)
        ctx.execute(sa.delete(artefact).where(chosen))
        for name, size, digest in listed:
            values = {"name": name, "size": size, "sha256": digest, "expires_ns": expires_ns}
            ctx.execute(
                sa.insert(artefact).values(run=row["id"], side=side, stored_ns=ctx.now_ns, **values)
            )
        if goal.exists():
            shutil.rmtree(goal)
        place.replace(goal)
        # The run's directory is not empty while the other side still uploads.
        with contextlib.suppress(OSError):
            place.parent.rmdir()
        return True

    def is_complete(self, ctx: RequestContext, run: str, side: str) -> bool:
        """Return whether the files of a run's side have been published."""
        chosen = (artefact.c.run == run) & (artefact.c.side == side)
        return ctx.first(sa.select(artefact.c.name).where(chosen)) is not None

    def file(self, ctx: RequestContext, run: str, side: str, name: str) -> tuple[Path, int, str]:
        """Return path, size and SHA-256 digest of a published file, if the caller may read it.

        Raises:
            NotFoundError, DeniedError: there is no such file, or its job has another owner.
        """
        row = runs.check_files(ctx, run)
        chosen = (artefact.c.run == run) & (artefact.c.side == side) & (artefact.c.name == name)
        kept = ctx.first(sa.select(artefact).where(chosen))
        if kept is None:
            raise NotFoundError(f"run {run} has no file {side}/{name[:80]}")
        return self._directory_of(row, side) / name, int(kept["size"]), str(kept["sha256"])

    def expire(self, ctx: RequestContext) -> None:
        """Delete files after the retention time of their job, and abandoned uploads."""
        old = sa.select(artefact.c.run, artefact.c.side).where(artefact.c.expires_ns < ctx.now_ns)
        for each in ctx.all(old.distinct().limit(1000)):
            row = runs.get(ctx, each["run"])
            shutil.rmtree(self._directory_of(row, each["side"]), ignore_errors=True)
            gone = (artefact.c.run == each["run"]) & (artefact.c.side == each["side"])
            ctx.execute(sa.delete(artefact).where(gone))
        self._delete_abandoned(ctx)

    def _delete_abandoned(self, ctx: RequestContext) -> None:
        """Delete incomplete uploads of runs that ended longer ago than the job's retention time."""
        own = _INCOMING.is_on(self._incoming_of_all)
        for place in [*self._incoming_of_all.iterdir()] if own else ():
            chosen = sa.select(run.c.end_ns, job).join(job).where(run.c.id == place.name)
            row = ctx.first(chosen)
            kept_ns = 0 if row is None else row["end_ns"] + round(spec_of(row).retention_s * 1e9)
            if kept_ns < ctx.now_ns:
                shutil.rmtree(place, ignore_errors=True)

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


def _manifest_entries(manifest: Path) -> list[tuple[str, int, str]]:
    try:
        files = json.loads(manifest.read_bytes())["files"]
        listed = [(checked_name(str(f["name"])), int(f["size"]), str(f["sha256"])) for f in files]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise InputError("the manifest is invalid") from None
    names = {name for name, _, _ in listed}
    if len(listed) > _MOST_FILES or MANIFEST in names or len(names) < len(listed):
        raise InputError("the manifest is invalid")
    return listed


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
