"""Telemetry of the terminal and the host: stored on this node, and queued for the orchestrator."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from skyhop.errors import SkyhopError
from skyhop.telemetry import maps
from skyhop.telemetry.columns import time_of
from skyhop.telemetry.fields import Sample
from skyhop_testbed.agent.due_times import DueTimes
from skyhop_testbed.agent.node import Node
from skyhop_testbed.agent.reports import MapReport, TelemetryReport

if TYPE_CHECKING:
    from skyhop.telemetry.store import Store

_S = 1_000_000_000
_STORED_EVERY_S = 10.0
"""Interval in s at which samples go to the store on this node; a killed agent loses the last."""
_MAP_EVERY_S = 600.0
"""Interval in s at which a changed obstruction map is stored and reported; it changes slowly."""
_MOST_SAMPLES = 60
"""Upper limit on telemetry samples in one report."""
_MOST_UNSENT = 3600
_FRESH_NS = 2 * _S


class TelemetryOutbox:
    """Buffer of samples and of the newest obstruction map, up to their reports."""

    def __init__(self, node: Node) -> None:
        self._node, self._due = node, DueTimes(node.clock)
        self._new: queue.SimpleQueue[Sequence[Sample]] = queue.SimpleQueue()
        self._newest: Sample | None = None
        self._unsent: list[Sample] = []
        self._unstored: list[Sample] = []
        self._map: bytes | None = None
        """Obstruction map that is not reported yet."""
        self._unstored_map: bytes | None = None
        self._lock = threading.Lock()
        self._opened: Store | None = None
        node.store_telemetry = self.store

    def put(self, samples: Sequence[Sample]) -> None:
        """Add samples, and wake the main loop; called by the terminal's thread."""
        self._new.put(samples)
        self._node.waking.set()

    def put_map(self, content: bytes) -> None:
        """Take the terminal's obstruction map; called by the terminal's thread."""
        self._map = self._unstored_map = content

    def _store(self) -> Store:
        if self._opened is None:
            from skyhop.telemetry.store import Store

            self._opened = Store(self._node.telemetry)
        return self._opened

    def take_new(self) -> Sample | None:
        """Take the added samples; return the newest if it is newer than all before."""
        newest = None
        while not self._new.empty():
            newest = self._take(self._new.get()) or newest
        return newest

    def store(self) -> None:
        """Write to the store on this node what is not there yet; called from any thread."""
        self._store_samples()
        with self._lock:
            content, self._unstored_map = self._unstored_map, None
            if content is not None:
                self._node.guarded("map", lambda: self._store().write_map(self._node.name, content))

    def _store_samples(self) -> None:
        with self._lock:
            samples, self._unstored = self._unstored, []
            try:
                if samples:
                    self._store().append(self._node.name, samples)
            except SkyhopError as error:
                self._node.say(f"telemetry: {error}")

    def _take(self, samples: Sequence[Sample]) -> Sample | None:
        self._unsent += samples
        del self._unsent[:-_MOST_UNSENT]
        with self._lock:
            self._unstored += samples
        newest = max(samples, key=time_of)
        if self._newest is not None and time_of(newest) <= time_of(self._newest):
            return None
        self._newest = newest
        return newest

    def fresh(self) -> Sample | None:
        """Return the newest sample; `None` if it is outdated."""
        newest = self._newest
        is_fresh = newest and self._node.clock.now_ns() - time_of(newest) <= _FRESH_NS
        return newest if is_fresh else None

    def send_due(self) -> None:
        """Store the samples, and queue the reports, that are due."""
        if self._unstored and self._due.is_due("store", _STORED_EVERY_S):
            self._store_samples()
        # More reports than heartbeats would cost a request each.
        if self._unsent and self._due.is_due("telemetry", self._node.schedule.settings.heartbeat_s):
            self.send()
        may_send = self._node.link.is_connected and not self._node.allowance.is_used_up()
        if self._map is not None and may_send and self._due.is_due("map", _MAP_EVERY_S):
            self.store()
            content, self._map = self._map, None
            self._node.report(MapReport(maps.encode_map(content)))

    def send(self) -> None:
        """Queue the reports of all samples that are not reported yet.

        Once the month's data cap is reached, samples stay on this node.
        """
        samples, self._unsent = self._unsent, []
        if self._node.allowance.is_used_up():
            return
        for first in range(0, len(samples), _MOST_SAMPLES):
            self._node.report(TelemetryReport(samples[first : first + _MOST_SAMPLES]))
