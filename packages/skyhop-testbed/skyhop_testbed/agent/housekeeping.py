"""Periodic work of the agent: health, input files, old files, renewal, and old telemetry.

Slow work has a thread of its own, so that it does not delay the main loop.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

from skyhop.data import marks
from skyhop_testbed.agent import deploying
from skyhop_testbed.agent.due_times import DueTimes
from skyhop_testbed.agent.health import EVERY_S as HEALTH_EVERY_S
from skyhop_testbed.agent.health import health
from skyhop_testbed.agent.identity import Identity, open_public_wire, reenrol, renew
from skyhop_testbed.agent.local_runs import FORGET_NS, LocalRuns
from skyhop_testbed.agent.node import Node
from skyhop_testbed.agent.reports import UpdateHealth
from skyhop_testbed.agent.room import Room
from skyhop_testbed.agent.schedule import Schedule
from skyhop_testbed.api import ApiError
from skyhop_testbed.schedule import InputFile

_LOG = logging.getLogger(__name__)
_S = 1_000_000_000
_RETENTION_DAYS = 2
_TIDY_EVERY_S = 600.0
_RENEW_EVERY_S = 3600.0
_PREFETCH_EVERY_S = 60.0
_CLEAN_EVERY_S, _FORGET_EVERY_S = 60.0, 3600.0


class Housekeeping:
    """Periodic work, each kind at its own interval."""

    def __init__(
        self,
        node: Node,
        runs: LocalRuns,
        room: Room,
        update: Callable[[], UpdateHealth | None] = lambda: None,
    ) -> None:
        self._node, self._runs, self._due = node, runs, DueTimes(node.clock)
        self._room, self._shortage, self._update = room, "", update
        self._threads: dict[str, threading.Thread] = {}
        self._schedule: Schedule | None = None
        self._fetched: dict[str, Mapping[str, InputFile]] = {}
        """Digests and sizes of input files already downloaded, by job."""
        self._said = ""
        """Last answer to a request for another certificate, so that each is logged once."""

    def report_health(self) -> None:
        """Report the node's health at once."""
        self._due.set_due("health")

    def do_due(self) -> None:
        """Do, or start, the work that is due."""
        node = self._node
        if node.schedule is not self._schedule:
            self._schedule = node.schedule
            self._due.set_due("prefetch")
            if self._is_trust_outdated():
                self._due.set_due("renew")
        if self._due.is_due("health", HEALTH_EVERY_S):
            self._in_background("health", self._report_health)
        may_fetch = node.link.is_connected and not node.allowance.held_back()
        if may_fetch and self._due.is_due("prefetch", _PREFETCH_EVERY_S):
            self._in_background("prefetch", self._prefetch)
        if self._due.is_due("clean", _CLEAN_EVERY_S):
            self._note_shortage()
            node.db.trim_outbox()
            self._runs.clean()
            self._clean_inputs()
        if self._due.is_due("forget", _FORGET_EVERY_S):
            self._runs.forget()
        if self._due.is_due("renew", _RENEW_EVERY_S):
            self._in_background("renewal", self._renew)
        if self._due.is_due("tidy", _TIDY_EVERY_S):
            self._in_background("tidying", self._tidy)

    def _in_background(self, name: str, do: Callable[[], None]) -> None:
        """Call a slow function in a thread of its own, unless its previous call still runs."""
        old = self._threads.get(name)
        if old is None or not old.is_alive():
            self._threads[name] = threading.Thread(
                target=self._node.guarded, args=(name, do), name=name, daemon=True
            )
            self._threads[name].start()

    def _report_health(self) -> None:
        self._node.report(health(self._node, self._room, self._update()))

    def _note_shortage(self) -> None:
        """Report at once when the disk becomes full, and when it has room again."""
        now = self._room.why_full() or ""
        if bool(now) != bool(self._shortage):
            self._node.say(now or "the node's disk has room again")
            self._due.set_due("tidy")
            self._in_background("health", self._report_health)
        self._shortage = now

    def _prefetch(self) -> None:
        """Download the input files of jobs with planned runs ahead of time.

        The link may be down later, and a triggered run has to begin within a second.
        """
        node, done = self._node, None
        while node.schedule is not done:
            done = node.schedule
            for job in dict.fromkeys(each.job for each in done.planned):
                files = done.jobs[job].files
                is_wanted = files != self._fetched.get(job) and not node.closing.is_set()
                if is_wanted and deploying.prefetch(node, job, files):
                    self._fetched[job] = files

    def _clean_inputs(self) -> None:
        """Delete input files that were not used for a week."""
        now_ns = self._node.clock.now_ns()
        for file in self._node.inputs.iterdir():
            with suppress(OSError):
                if file.name != marks.NAME and now_ns - file.stat().st_mtime_ns > FORGET_NS:
                    file.unlink()
                    # The next prefetch downloads again the files that are still needed.
                    self._fetched = {}

    def _is_trust_outdated(self) -> bool:
        """Return whether the orchestrator has rotated its keys, and this node trusts others."""
        wanted = self._node.schedule.settings.trust
        return bool(wanted) and wanted != self._node.identity.trust

    def _renew(self) -> None:
        """Get a new certificate, and the keys to trust, if that is due."""
        node = self._node
        now = dt.datetime.fromtimestamp(node.clock.now_ns() / _S, dt.UTC)
        if node.identity.has_expired(now):
            new = self._reenrol()
            if new is None:
                return
            node.identity = new
        elif node.identity.is_to_renew(now) or self._is_trust_outdated():
            node.identity = renew(node.state, node.identity, node.link.wire)
        else:
            return
        node.link.connect(node.identity)
        _LOG.info("node %s: has a new certificate", node.name)

    def _reenrol(self) -> Identity | None:
        node = self._node
        wire = open_public_wire(node.identity)
        try:
            new = reenrol(node.state, node.identity, wire)
        except ApiError as error:
            said = f"{error}: ask its administrator for an invitation, and run skyhop testbed enrol"
            new = None
        else:
            said = f"its administrator allows another with: skyhop testbed approve {node.name}"
        finally:
            wire.close()
        if new is None and said != self._said:
            node.say(f"this node's certificate has expired; the orchestrator was asked: {said}")
            self._said = said
        return new

    def _tidy(self) -> None:
        """Compact the telemetry store in a separate process; delete samples that are too old.

        While the disk is full, only the present day's samples stay.
        """
        from skyhop.telemetry.store import Store
        from skyhop.telemetry.tidying import tidy_in_subprocess

        node = self._node
        if node.telemetry.is_dir():
            tidy_in_subprocess(node.telemetry)
            days = 0 if self._room.why_full() else _RETENTION_DAYS
            Store(node.telemetry).expire(node.clock.now_ns() - days * 86_400 * _S)
