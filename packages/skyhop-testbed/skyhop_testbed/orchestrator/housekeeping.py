"""Periodic housekeeping of the orchestrator: plans, lost runs, and what is too old.

Each round does a bounded amount of work, in transactions of a fraction of a second, so that agents
and users are served between them. What one round leaves, the next one does.
"""

from __future__ import annotations

import datetime as dt
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from skyhop.errors import SkyhopError
from skyhop_testbed.orchestrator import accounts, planning, quotas, retention, runs
from skyhop_testbed.orchestrator.request_context import ITSELF

if TYPE_CHECKING:
    from skyhop_testbed.orchestrator.core import Orchestrator

_LOG = logging.getLogger(__name__)
_S_NS = 1_000_000_000
_DAY_NS = 86_400 * _S_NS
_EPOCH = dt.date(1970, 1, 1).toordinal()
_JOBS, _STEPS = 200, 20
"""Upper limits per round: extended or closed jobs, and steps of each kind of deletion."""
_FREE_PAGES = 2_000
"""Upper limit on pages (of 4 KiB) of the database that a round returns to the file system."""
_TELEMETRY_EVERY_NS = 3600 * _S_NS
TELEMETRY_PROMISED_NS = 30 * _DAY_NS
"""Age up to which telemetry is kept although the disk is full."""


class Housekeeping:
    """Periodic work of one orchestrator."""

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._of = orchestrator
        self._telemetry_ns = 0
        """Time of the last look for telemetry that is too old."""
        self._shortage: str | None = None

    def do_round(self) -> None:
        """Do a bounded part of all that is due."""
        self._extend_plans()
        self._find_lost()
        with self._of.writing(ITSELF) as ctx:
            accounts.delete_expired(ctx)
        self._expire_files()
        inputs = self._of.objects / "inputs"
        for step in (
            retention.delete_old_lines,
            retention.delete_old_runs,
            partial(retention.delete_old_jobs, inputs=inputs),
        ):
            self._repeat(step)
        self._expire_telemetry()
        self._note_shortage()
        self._of.database.give_back(_FREE_PAGES)

    def _extend_plans(self) -> None:
        with self._of.reading(ITSELF) as ctx:
            due = planning.jobs_to_extend(ctx, _JOBS)
            finished = planning.finished_jobs(ctx)
        for each in due:
            with self._of.writing(ITSELF) as ctx:
                planning.extend_plan(ctx, each, quotas.room_for_runs(ctx, each))
        for each in finished[:_JOBS]:
            with self._of.writing(ITSELF) as ctx:
                planning.close_job(ctx, each)

    def _find_lost(self) -> None:
        self._repeat(runs.find_lost)

    def _repeat(self, step: retention.Step) -> None:
        """Do steps, each in its transaction, until nothing is left or the round's limit."""
        for _ in range(_STEPS):
            with self._of.writing(ITSELF) as ctx:
                if not step(ctx):
                    return

    def _expire_files(self) -> None:
        """Delete files of runs after their retention time, and abandoned uploads."""
        with self._of.reading(ITSELF) as ctx:
            expired = self._of.uploads.expired(ctx)
            abandoned = self._of.uploads.abandoned(ctx)
        for each in expired:
            # First the files: if this is interrupted, the next round finds the rows again.
            self._of.uploads.remove(each.directory)
            with self._of.writing(ITSELF) as ctx:
                self._of.uploads.forget(ctx, each)
        for place in abandoned:
            self._of.uploads.remove(place)

    def _expire_telemetry(self) -> None:
        """Delete telemetry that is too old, every hour, and more of it while the disk is full."""
        now_ns = self._of.now_ns()
        with self._of.reading(ITSELF) as ctx:
            kept_ns = round(ctx.settings.telemetry_retention_s * _S_NS)
        is_full = self._of.shortage() is not None
        if is_full or now_ns - self._telemetry_ns >= _TELEMETRY_EVERY_NS:
            self._telemetry_ns = now_ns
            self._of.telemetry.expire(now_ns - kept_ns)
        if is_full:
            self._make_room(now_ns - TELEMETRY_PROMISED_NS)

    def _make_room(self, before_ns: int) -> None:
        """Delete the oldest days of telemetry until the disk has room, none after `before_ns`."""
        store = self._of.telemetry
        days = sorted({day for node in store.nodes() for day in store.days(node)})
        for day in days:
            end_ns = (day.toordinal() - _EPOCH + 1) * _DAY_NS
            if end_ns > before_ns or self._of.shortage() is None:
                return
            _LOG.warning("the disk is full: the telemetry of %s is deleted", day)
            store.expire(end_ns)

    def _note_shortage(self) -> None:
        """Write to the audit log when the disk becomes full, and when it has room again."""
        now = self._of.shortage()
        if (now is None) == (self._shortage is None):
            return
        self._shortage = now
        with suppress(SkyhopError), self._of.writing(ITSELF) as ctx:
            ctx.audit("disk", str(self._of.directory), now or "there is room again")
