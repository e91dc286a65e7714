"""Moving of published files from the orchestrator's disk to its bucket, in the background.

The disk is the spool: files of runs are published there, as without a bucket. Each round uploads
files that the bucket lacks, deletes local copies that are old enough, and deletes objects whose
files have been deleted. The table `bucket_object` records each object after its upload, so that a
killed round is repeated and nothing is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from skyhop.errors import RunError
from skyhop_testbed.orchestrator.bucket import Bucket
from skyhop_testbed.orchestrator.request_context import ITSELF
from skyhop_testbed.store.tables import artefact, bucket_object

if TYPE_CHECKING:
    from skyhop_testbed.orchestrator.core import Orchestrator

_LOG = logging.getLogger(__name__)
_S = 1_000_000_000
_MOST_FILES = 200
"""Upper limit on files and on objects that one round handles of each kind."""
_MOST_FAILURES = 3
"""Number of failed uploads after which a round ends."""
_GRACE_S = 60.0
"""Least time in s for which a local copy stays: a reader may just be opening it."""
_SOONEST_S, _LATEST_S = 15.0, 600.0
"""Shortest and longest wait in s after a failed round."""


@dataclass(frozen=True)
class Waiting:
    """File that the bucket lacks."""

    run: str
    side: str
    name: str
    sha256: str
    size: int
    path: Path
    key: str


class BucketMover:
    """Mover of files from disk to bucket; one thread calls `do_round`.

    Args:
        orchestrator: the orchestrator, with its database and files.
        bucket: its bucket.
    """

    def __init__(self, orchestrator: Orchestrator, bucket: Bucket) -> None:
        self._orchestrator, self._bucket = orchestrator, bucket
        self._database, self._uploads = orchestrator.database, orchestrator.uploads
        self._clock = orchestrator.clock
        self._wait_s, self._again_s = 0.0, 0.0
        self._said = ""

    def do_round(self, is_ending: Callable[[], bool] = lambda: False) -> int:
        """Do one round, unless the wait after a failure is not over; return the uploaded files.

        Args:
            is_ending: returns whether the service ends, so that no further upload begins.
        """
        if self._clock.monotonic_s() < self._again_s:
            return 0
        moved, trouble = 0, ""
        failures = 0
        for each in self._waiting():
            if is_ending() or failures >= _MOST_FAILURES:
                break
            try:
                moved += self._move(each)
            except (RunError, OSError) as error:
                failures, trouble = failures + 1, str(error)
        try:
            self._delete_local()
            self._delete_objects()
        except RunError as error:
            trouble = str(error)
        self._note(trouble)
        return moved

    def waiting(self) -> tuple[int, int]:
        """Return number and bytes of the files that the bucket lacks."""
        counted = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(artefact.c.size), 0))
        with self._orchestrator.reading(ITSELF) as ctx:
            row = ctx.connection.execute(_lacking(counted)).one()
            return int(row[0]), int(row[1])

    def _note(self, trouble: str) -> None:
        """Log a change between success and failure, and set the wait before the next round."""
        if trouble != self._said:
            if trouble:
                files, size = self.waiting()
                _LOG.warning("%s files (%s bytes) wait for the bucket: %s", files, size, trouble)
            else:
                _LOG.info("the bucket answers again")
            self._said = trouble
        self._wait_s = min(max(2 * self._wait_s, _SOONEST_S), _LATEST_S) if trouble else 0.0
        self._again_s = self._clock.monotonic_s() + self._wait_s

    def _waiting(self) -> list[Waiting]:
        """Return files that the bucket lacks, the oldest first."""
        chosen = _lacking(sa.select(artefact)).order_by(artefact.c.stored_ns).limit(_MOST_FILES)
        found = []
        with self._orchestrator.reading(ITSELF) as ctx:
            for row in ctx.all(chosen):
                place = self._uploads.place(ctx, row["run"], row["side"])
                path = place / row["name"]
                values = {name: row[name] for name in ("run", "side", "name", "sha256", "size")}
                found.append(Waiting(**values, path=path, key=self._uploads.key_of(path)))
        return found

    def _move(self, each: Waiting) -> int:
        """Upload a file, and record the object; return 0 if the file has been deleted."""
        try:
            self._bucket.put(each.path, each.key, each.sha256)
        except FileNotFoundError:
            return 0
        with self._database.writing() as connection:
            chosen = bucket_object.c.key == each.key
            connection.execute(sa.delete(bucket_object).where(chosen))
            connection.execute(
                sa.insert(bucket_object).values(
                    key=each.key,
                    run=each.run,
                    side=each.side,
                    name=each.name,
                    sha256=each.sha256,
                    size=each.size,
                    stored_ns=self._clock.now_ns(),
                    is_local=True,
                )
            )
        return 1

    def _delete_local(self) -> None:
        """Delete local copies of objects that are older than the administrator's `keep_local`."""
        kept_s = max(self._bucket.settings.keep_local_s, _GRACE_S)
        before_ns = self._clock.now_ns() - round(kept_s * _S)
        is_old = bucket_object.c.is_local & (bucket_object.c.stored_ns < before_ns)
        with self._orchestrator.reading(ITSELF) as ctx:
            rows = ctx.all(sa.select(bucket_object).where(is_old).limit(_MOST_FILES))
        for row in rows:
            self._uploads.delete_local(row["key"])
        with self._database.writing() as connection:
            for row in rows:
                # A file that arrived again meanwhile has a new row.
                same = (bucket_object.c.key == row["key"]) & (
                    bucket_object.c.stored_ns == row["stored_ns"]
                )
                connection.execute(sa.update(bucket_object).where(same).values(is_local=False))

    def _delete_objects(self) -> None:
        """Delete objects whose files have been deleted, after their retention time or otherwise.

        Raises:
            RunError: the bucket does not answer.
        """
        joined = bucket_object.outerjoin(artefact, _same_file())
        gone = sa.select(bucket_object).select_from(joined).where(artefact.c.run.is_(None))
        with self._orchestrator.reading(ITSELF) as ctx:
            rows = ctx.all(gone.limit(_MOST_FILES))
        for row in rows:
            self._bucket.delete(row["key"])
            with self._database.writing() as connection:
                chosen = bucket_object.c.key == row["key"]
                connection.execute(sa.delete(bucket_object).where(chosen))


def _same_file() -> sa.ColumnElement[bool]:
    return (
        (artefact.c.run == bucket_object.c.run)
        & (artefact.c.side == bucket_object.c.side)
        & (artefact.c.name == bucket_object.c.name)
    )


def _lacking(chosen: sa.Select[Any]) -> sa.Select[Any]:
    """Restrict a query of files to those that the bucket lacks, or that have arrived again."""
    joined = artefact.outerjoin(bucket_object, _same_file())
    is_new = artefact.c.stored_ns > bucket_object.c.stored_ns
    is_other = bucket_object.c.sha256 != artefact.c.sha256
    is_lacking = bucket_object.c.key.is_(None) | is_other | is_new
    return chosen.select_from(joined).where(is_lacking)
