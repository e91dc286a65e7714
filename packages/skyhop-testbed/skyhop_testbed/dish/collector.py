"""Collector of a terminal's telemetry: one per terminal, running independently of runs.

The collector requests the status at 1 Hz. It requests the history every five minutes, and as soon
as a silent terminal answers again, to fill the seconds without a status. It requests the
obstruction map at a configurable interval. The clock and `sleep` are arguments, and the terminal is
a protocol of three methods, so that this module needs no sockets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from skyhop.errors import SkyhopError
from skyhop.telemetry.columns import time_of
from skyhop.telemetry.fields import TIME, UNREACHABLE, Sample
from skyhop.telemetry.gaps import SECOND_NS, last_full_second_ns, missing_from_status

HISTORY_NS = 300 * SECOND_NS
"""Interval in ns between two requests of history; a terminal keeps the last 900 seconds."""
_SOONEST_NS = 10 * SECOND_NS
"""Shortest interval in ns between two requests of history, if answers stop and resume often."""
_LONGEST_WAIT_NS = 60 * SECOND_NS
"""Longest time in ns that a request may take; after more time the machine was suspended."""
_STATUS_KEPT = 1000
"""Number of status samples to compare with the history; more than the seconds in a history."""
_UNDELIVERED_KEPT = 3600
"""Largest number of samples that are kept while `deliver` fails."""


class Terminal(Protocol):
    """Requests that the collector sends to a terminal; any exception counts as no answer."""

    def status(self) -> Sample:
        """Return the status as values of the last second; the collector adds `time_ns`."""

    def history(self) -> Sequence[Sample]:
        """Return a sample per second of the history; `time_ns` is the end of the second."""

    def map(self) -> object:
        """Return the obstruction map."""


class Collector:
    """Samples one terminal every second and passes the samples on.

    Args:
        terminal: the terminal to sample.
        deliver: receives samples, usually one per second. If it raises an exception, the samples
            are kept and passed again with the next ones.
        on_map: receives the time in ns since 1970 and the obstruction map.
        say: receives a line when a request begins to fail, and one when it works again.

    Attributes:
        map_every_s: interval in s between requests of the map, usually 15 or 1; None to request no
            map. The attribute may be changed at any time.
    """

    def __init__(
        self,
        terminal: Terminal,
        deliver: Callable[[Sequence[Sample]], None],
        *,
        on_map: Callable[[int, object], None] = lambda _time_ns, _map: None,
        say: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self.map_every_s: float | None = None
        self._terminal = terminal
        self._deliver = deliver
        self._on_map = on_map
        self._say = say
        self._from_status: deque[Sample] = deque(maxlen=_STATUS_KEPT)
        self._from_history: deque[Sample] = deque(maxlen=_STATUS_KEPT)
        self._undelivered: deque[Sample] = deque(maxlen=_UNDELIVERED_KEPT)
        self._history_ns: int | None = None
        self._map_ns: int | None = None
        self._has_gap = True
        self._boot_ns = 0
        self._failing: set[str] = set()

    def run(
        self,
        now_ns: Callable[[], int],
        sleep: Callable[[float], None],
        stopped: Callable[[], bool],
    ) -> None:
        """Sample at the beginning of every second, until stopped.

        Args:
            now_ns: clock, UTC in ns since 1970.
            sleep: sleeps for a number of seconds.
            stopped: returns whether to stop; called once per second.
        """
        while not stopped():
            self.step(now_ns())
            sleep((SECOND_NS - now_ns() % SECOND_NS) / SECOND_NS)

    def step(self, now_ns: int) -> None:
        """Run one iteration: request the status, and the history and the map if they are due."""
        new = [*self._unanswered_seconds(now_ns), self._status(now_ns)]
        self._from_status.extend(new)
        if self._history_is_due(now_ns):
            new += self._history(now_ns)
        self._deliver_pending(new)
        if self.map_every_s is not None and (
            self._map_ns is None or now_ns - self._map_ns >= self.map_every_s * SECOND_NS
        ):
            self._map_ns = now_ns
            with _Guarded(self, "map"):
                self._on_map(now_ns, self._terminal.map())

    def _unanswered_seconds(self, now_ns: int) -> list[Sample]:
        """Return samples of the seconds that passed while a request timed out."""
        if not self._from_status or self._from_status[-1].get("state") != UNREACHABLE:
            return []
        last_ns, end_ns = time_of(self._from_status[-1]), last_full_second_ns(now_ns)
        if end_ns - last_ns > _LONGEST_WAIT_NS:
            return []
        unanswered = range(last_ns + SECOND_NS, end_ns, SECOND_NS)
        return [{TIME: each_ns, "state": UNREACHABLE} for each_ns in unanswered]

    def _status(self, now_ns: int) -> Sample:
        """Return the sample of the second that has just ended; if unanswered, without values."""
        end_ns = last_full_second_ns(now_ns)
        if self._from_status and end_ns - time_of(self._from_status[-1]) > SECOND_NS:
            self._has_gap = True
        with _Guarded(self, "status"):
            sample = {**self._terminal.status(), TIME: end_ns}
            uptime_s = sample.get("uptime_s")
            if isinstance(uptime_s, int | float):
                self._boot_ns = now_ns - int(uptime_s * SECOND_NS)
            return sample
        self._has_gap = True
        return {TIME: end_ns, "state": UNREACHABLE}

    def _history_is_due(self, now_ns: int) -> bool:
        if self._from_status[-1].get("state") == UNREACHABLE:
            return False
        if self._history_ns is None:
            return True
        since_ns = now_ns - self._history_ns
        # The interval is negative after the clock was set back; the history is due then, too.
        return not 0 <= since_ns < (_SOONEST_NS if self._has_gap else HISTORY_NS)

    def _history(self, now_ns: int) -> list[Sample]:
        self._history_ns = now_ns
        with _Guarded(self, "history"):
            # The terminal's ring buffers still hold rows from before its last boot: skip them.
            rows = [row for row in self._terminal.history() if time_of(row) >= self._boot_ns]
            new = list(missing_from_status([*self._from_status, *self._from_history], rows))
            self._from_history.extend(new)
            self._has_gap = False
            return new
        return []

    def _deliver_pending(self, new: Sequence[Sample]) -> None:
        self._undelivered.extend(new)
        with _Guarded(self, "keeping"):
            self._deliver(list(self._undelivered))
            self._undelivered.clear()

    def _report(self, step: str, error: BaseException | None) -> None:
        """Report once that a step has begun to fail, and once that it works again."""
        if error is None and step in self._failing:
            self._failing.discard(step)
            self._say(f"{step}: works again")
        elif error is not None and step not in self._failing:
            self._failing.add(step)
            kind = "" if isinstance(error, SkyhopError) else f"{type(error).__name__}: "
            self._say(f"{step}: {kind}{error}")


class _Guarded:
    """Context manager that reports and suppresses an exception of a step of the collector."""

    def __init__(self, collector: Collector, step: str) -> None:
        self._collector, self._step = collector, step

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        if error is not None and not isinstance(error, Exception):
            return False
        self._collector._report(self._step, error)
        return error is not None
