"""Files of runs: taken in pieces, seen only when all of them are there.

Pieces go to `incoming/RUN/SIDE`; the manifest comes last, and when every file in it has its size
and digest they move to `NODE/JOB/YYYY/MM/DD/RUN/SIDE` and get their rows.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import shutil
from pathlib import Path, PurePosixPath

import sqlalchemy as sa

from skyhop.errors import InputError, RunError
from skyhop.testbed.ids import is_id
from skyhop.testbed.orchestrator import runs
from skyhop.testbed.orchestrator.desk import DeniedError, Desk, NotFoundError
from skyhop.testbed.orchestrator.planning import spec_of
from skyhop.testbed.store.tables import artefact, job, run
from skyhop.testbed.words import Side

MANIFEST = "manifest.json"
LARGEST_PIECE = 1 << 20
LARGEST_RUN = 20_000_000_000
_MOST_FILES = 10_000
_LONGEST_NAME = 400


class Uploads:
    """The files of all runs below one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def offsets(self, run: str, side: str) -> dict[str, int]:
        """Return how much of each file is here; of a complete run all sizes."""
        place = self._incoming(run, side)
        if not place.is_dir():
            return {}
        files = [path for path in place.rglob("*") if path.is_file()]
        return {str(path.relative_to(place)): path.stat().st_size for path in files}

    def take(self, run: str, side: str, name: str, offset: int, data: bytes) -> int:
        """Write a piece; return how much of the file is here then.

        A piece that does not begin where the file ends is not written.

        Raises:
            InputError: the name leaves the run's directory, or it is too much.
            RunError: it cannot be written.
        """
        if len(data) > LARGEST_PIECE:
            raise InputError(f"a piece of more than {LARGEST_PIECE:,} bytes")
        path = self._incoming(run, side) / checked_name(name)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            here = path.stat().st_size if path.exists() else 0
            # A file that was changed since begins anew.
            if offset == 0 and here:
                path.unlink()
                here = 0
            if offset != here:
                return here
            if offset + len(data) > LARGEST_RUN:
                raise InputError(f"{name}: more than a run may leave")
            with path.open("ab") as file:
                file.write(data)
            return here + len(data)
        except OSError as error:
            raise RunError(f"{run}/{name}: {error.strerror}") from None

    def complete(self, desk: Desk, row: sa.RowMapping, side: str) -> bool:
        """Check a run's files against their manifest, and make them seen; return whether they are.

        Raises:
            InputError: the manifest is none, or a file is not what it says.
        """
        place = self._incoming(row["id"], side)
        manifest = place / MANIFEST
        if not manifest.is_file():
            return False
        found = desk.one(sa.select(job).where(job.c.id == row["job"]))
        assert found is not None
        listed = _listed(manifest)
        for name, size, digest in listed:
            path = place / name
            if not path.is_file() or path.is_symlink() or path.stat().st_size != size:
                raise InputError(f"{name}: is not {size:,} bytes, as the manifest says")
            if _digest(path) != digest:
                path.unlink()
                raise InputError(f"{name}: is not what the manifest says: send it again")
        listed.append((MANIFEST, manifest.stat().st_size, _digest(manifest)))
        goal = self._place(row, side)
        goal.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        expires_ns = desk.now_ns + round(spec_of(found).retention_s * 1e9)
        chosen = (artefact.c.run == row["id"]) & (artefact.c.side == side)
        desk.do(sa.delete(artefact).where(chosen))
        for name, size, digest in listed:
            values = {"name": name, "size": size, "sha256": digest, "expires_ns": expires_ns}
            desk.do(
                sa.insert(artefact).values(
                    run=row["id"], side=side, stored_ns=desk.now_ns, **values
                )
            )
        if goal.exists():
            shutil.rmtree(goal)
        place.replace(goal)
        # The other side's pieces may be there still.
        with contextlib.suppress(OSError):
            place.parent.rmdir()
        return True

    def is_complete(self, desk: Desk, run: str, side: str) -> bool:
        """Return whether a run's files have been taken."""
        chosen = (artefact.c.run == run) & (artefact.c.side == side)
        return desk.one(sa.select(artefact.c.name).where(chosen)) is not None

    def file(self, desk: Desk, run: str, side: str, name: str) -> tuple[Path, int, str]:
        """Return a file, its size and its digest, for one who may have it.

        Raises:
            NotFoundError, DeniedError: there is none, or it is another's.
        """
        row = runs.check_files(desk, run)
        chosen = (artefact.c.run == run) & (artefact.c.side == side) & (artefact.c.name == name)
        kept = desk.one(sa.select(artefact).where(chosen))
        if kept is None:
            raise NotFoundError(f"run {run} has no file {side}/{name[:80]}")
        return self._place(row, side) / name, int(kept["size"]), str(kept["sha256"])

    def expire(self, desk: Desk) -> None:
        """Delete what has been kept for as long as its job wanted."""
        old = sa.select(artefact.c.run, artefact.c.side).where(artefact.c.expires_ns < desk.now_ns)
        for each in desk.all(old.distinct().limit(1000)):
            row = runs.get(desk, each["run"])
            shutil.rmtree(self._place(row, each["side"]), ignore_errors=True)
            gone = (artefact.c.run == each["run"]) & (artefact.c.side == each["side"])
            desk.do(sa.delete(artefact).where(gone))
        self._forget_pieces(desk)

    def _forget_pieces(self, desk: Desk) -> None:
        """Delete what came of runs whose nodes do not try to send the rest any more."""
        for place in [*self._incoming_of_all.glob("*")]:
            chosen = sa.select(run.c.end_ns, job).join(job).where(run.c.id == place.name)
            row = desk.one(chosen)
            kept_ns = 0 if row is None else row["end_ns"] + round(spec_of(row).retention_s * 1e9)
            if kept_ns < desk.now_ns:
                shutil.rmtree(place, ignore_errors=True)

    @property
    def _incoming_of_all(self) -> Path:
        return self._directory / "incoming"

    def _incoming(self, run: str, side: str) -> Path:
        if not is_id(run) or side not in [each.value for each in Side]:
            raise InputError("there is no such run")
        return self._incoming_of_all / run / side

    def _place(self, row: sa.RowMapping, side: str) -> Path:
        day = dt.datetime.fromtimestamp(row["created_ns"] / 1e9, dt.UTC)
        node = row["client"] if side == Side.CLIENT else row["server"]
        return self._directory.joinpath(str(node), row["job"], f"{day:%Y/%m/%d}", row["id"], side)


def check_uploader(desk: Desk, run: str, side: str) -> sa.RowMapping:
    """Return a run whose files the calling node may send.

    Raises:
        NotFoundError, DeniedError: there is none, or that side of it is another node's.
    """
    row = runs.get(desk, run)
    if runs.side_of(row, desk.caller.name) != side:
        raise DeniedError(f"that side of run {run} is not {desk.caller.name}'s")
    return row


def checked_name(name: str) -> str:
    """Return a file's name inside its run.

    Raises:
        InputError: it leaves the run's directory, or is no plain name.
    """
    path = PurePosixPath(name)
    plain = name.isprintable() and 0 < len(name.encode(errors="replace")) <= _LONGEST_NAME
    if not plain or not path.name or path.is_absolute() or ".." in path.parts or str(path) != name:
        raise InputError("a file's name leaves the run's directory, or is none")
    return name


def _listed(manifest: Path) -> list[tuple[str, int, str]]:
    try:
        files = json.loads(manifest.read_bytes())["files"]
        listed = [(checked_name(str(f["name"])), int(f["size"]), str(f["sha256"])) for f in files]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise InputError("the manifest is none") from None
    names = {name for name, _, _ in listed}
    if len(listed) > _MOST_FILES or MANIFEST in names or len(names) < len(listed):
        raise InputError("the manifest is none")
    return listed


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
