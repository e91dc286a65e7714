"""Quotas of one upload: files and bytes of the run's side, bytes kept, and bytes per day.

An `UploadQuota` is made at the start of an upload, and charged with each piece before it is
written. Every 16 MB it counts the bytes in the database and looks again at what is left, so that
several uploads of a user together exceed a quota by at most that much each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from skyhop_testbed.orchestrator import quotas
from skyhop_testbed.orchestrator.request_context import (
    ITSELF,
    DeniedError,
    RequestContext,
    TooOftenError,
)
from skyhop_testbed.store.tables import job, usage
from skyhop_testbed.store.usage import UPLOADED_BYTES
from skyhop_testbed.words import Side

if TYPE_CHECKING:
    from skyhop_testbed.orchestrator.core import Orchestrator

_STEP_BYTES = 16_000_000
_DAY_NS = 86_400 * 1_000_000_000


class UploadQuota:
    """Quotas of an upload in progress.

    Args:
        of: the orchestrator.
        row: the run.
        side: the run's side whose files are uploaded.
    """

    def __init__(self, of: Orchestrator, row: sa.RowMapping, side: str) -> None:
        self._of, self._row, self._side = of, row, side
        self._node = str(row["client"] if side == Side.CLIENT else row["server"])
        self._sizes = of.uploads.offsets(row["id"], side)
        self._bytes, self._uncounted = sum(self._sizes.values()), 0
        with of.reading(ITSELF) as ctx:
            owner = ctx.connection.scalar(sa.select(job.c.owner).where(job.c.id == row["job"]))
            self._owner = str(owner)
            self._most_bytes = self._least(ctx, quotas.BYTES_PER_RUN)
            self._most_files = self._least(ctx, quotas.FILES_PER_RUN)
            self._check(ctx)

    def _least(self, ctx: RequestContext, key: str) -> float:
        who = ((quotas.USER, self._owner), (quotas.NODE, self._node))
        return min(quotas.allowed(ctx, kind, name, key) for kind, name in who)

    def charge(self, name: str, offset: int, size: int) -> None:
        """Count a piece of a file that is about to be written.

        Raises:
            DeniedError: the run's side has too many files or bytes: sending it again is no use.
            TooOftenError: a quota is used up for now.
            RunError: the disk is too full.
        """
        here = self._sizes.get(name, 0)
        if offset in (0, here):
            self._sizes[name] = offset + size
            self._bytes += offset + size - here
        self._uncounted += size
        for what, taken, most in (
            ("files", len(self._sizes), self._most_files),
            ("bytes", self._bytes, self._most_bytes),
        ):
            if taken > most:
                self._of.uploads.discard(self._row["id"], self._side)
                raise DeniedError(
                    f"quota: {taken:,} {what} of this side of the run, {most:,.0f} are allowed: "
                    'let the job keep less (keep = ["…"]), or ask an administrator for more'
                )
        if self._uncounted >= _STEP_BYTES:
            self.count()
            with self._of.reading(ITSELF) as ctx:
                self._check(ctx)

    def _check(self, ctx: RequestContext) -> None:
        self._of.check_room()
        for kind, name in ((quotas.USER, self._owner), (quotas.NODE, self._node)):
            for key, added in ((quotas.KEPT, max(1, self._bytes)), (quotas.PER_DAY, 1)):
                why = quotas.exceeded(ctx, kind, name, key, added)
                if why is not None:
                    raise TooOftenError(why)

    def count(self) -> None:
        """Count the bytes that have arrived since the last count as uploaded today."""
        added, self._uncounted = self._uncounted, 0
        if not added:
            return
        with self._of.writing(ITSELF) as ctx:
            for kind, name in ((quotas.USER, self._owner), (quotas.NODE, self._node)):
                add_uploaded(ctx, kind, name, added)


def add_uploaded(ctx: RequestContext, kind: str, name: str, added: int) -> None:
    """Add bytes to what was uploaded today for a user or by a node."""
    from sqlalchemy.dialects.sqlite import insert

    day = ctx.now_ns // _DAY_NS
    row = {"kind": kind, "name": name, "what": UPLOADED_BYTES, "day": day, "amount": added}
    made = insert(usage).values(**row)
    grown = {"amount": usage.c.amount + made.excluded.amount}
    key = ["kind", "name", "what", "day"]
    ctx.execute(made.on_conflict_do_update(index_elements=key, set_=grown))
