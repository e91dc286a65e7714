"""One collector per terminal, however many runs: asks it every second, and never stops.

Status comes at 1 Hz. History closes what status missed: every five minutes, and as soon as a
terminal that was silent speaks again. The obstruction map is asked for at the rate that is wanted.
Time and sleep are arguments, and the terminal is whatever has three methods, so that nothing here
knows of sockets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from skyhop.errors import SkyhopError
from skyhop.telemetry.columns import time_of
from skyhop.telemetry.fields import TIME, UNREACHABLE, Sample
from skyhop.telemetry.gaps import SECOND_NS, filled, second_ns

HISTORY_NS = 300 * SECOND_NS
"""From one history to the next; a terminal keeps 900 seconds."""
_SOONEST_NS = 10 * SECOND_NS
"""Until history is asked for again by a terminal that comes and goes."""
_LONGEST_WAIT_NS = 60 * SECOND_NS
"""Longer than that nobody waits: the machine slept."""
_KEPT = 1000
"""Status of so many seconds is compared with history: more than a terminal keeps."""
_WAITING = 3600
"""So many samples wait where nobody can take them."""


class Terminal(Protocol):
    """What a collector asks; each may raise whatever it likes, which counts as silence."""

    def status(self) -> Sample:
        """Return the last second; its time is the collector's business."""

    def history(self) -> Sequence[Sample]:
        """Return the rows of the rings, each with the time at which its second ended."""

    def map(self) -> object:
        """Return the obstruction map."""


class Collector:
    """Asks one terminal, and hands on what it says.

    Args:
        terminal: whom to ask.
        deliver: takes samples, usually one per second; where it fails, they are kept and handed on
            with the next.
        on_map: takes the time and the obstruction map.
        say: takes a line when trouble begins, and one when it is over.

    Attributes:
        map_every_s: how often the map is asked for: None is never, 15 or 1 are usual. May be
            changed at any time.
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
        self._said: deque[Sample] = deque(maxlen=_KEPT)
        self._filled: deque[Sample] = deque(maxlen=_KEPT)
        self._waiting: deque[Sample] = deque(maxlen=_WAITING)
        self._history_ns: int | None = None
        self._map_ns: int | None = None
        self._has_missed = True
        self._boot_ns = 0
        self._troubles: set[str] = set()

    def run(
        self,
        now_ns: Callable[[], int],
        sleep: Callable[[float], None],
        stopped: Callable[[], bool],
    ) -> None:
        """Ask at the beginning of every second, until it is stopped.

        Args:
            now_ns: UTC.
            sleep: sleeps so many seconds.
            stopped: asked once per second.
        """
        while not stopped():
            self.step(now_ns())
            sleep((SECOND_NS - now_ns() % SECOND_NS) / SECOND_NS)

    def step(self, now_ns: int) -> None:
        """Do what is due at a time: once per second."""
        new = [*self._waited(now_ns), self._status(now_ns)]
        self._said.extend(new)
        if self._history_is_due(now_ns):
            new += self._history(now_ns)
        self._hand_on(new)
        if self.map_every_s is not None and (
            self._map_ns is None or now_ns - self._map_ns >= self.map_every_s * SECOND_NS
        ):
            self._map_ns = now_ns
            with _Silence(self, "map"):
                self._on_map(now_ns, self._terminal.map())

    def _waited(self, now_ns: int) -> list[Sample]:
        """Return the seconds that were spent waiting for an answer that did not come."""
        if not self._said or self._said[-1].get("state") != UNREACHABLE:
            return []
        last_ns, end_ns = time_of(self._said[-1]), second_ns(now_ns)
        if end_ns - last_ns > _LONGEST_WAIT_NS:
            return []
        waited = range(last_ns + SECOND_NS, end_ns, SECOND_NS)
        return [{TIME: each_ns, "state": UNREACHABLE} for each_ns in waited]

    def _status(self, now_ns: int) -> Sample:
        """Return the second that has just ended; without values where the terminal is silent."""
        end_ns = second_ns(now_ns)
        if self._said and end_ns - time_of(self._said[-1]) > SECOND_NS:
            self._has_missed = True
        with _Silence(self, "status"):
            sample = {**self._terminal.status(), TIME: end_ns}
            uptime_s = sample.get("uptime_s")
            if isinstance(uptime_s, int | float):
                self._boot_ns = now_ns - int(uptime_s * SECOND_NS)
            return sample
        self._has_missed = True
        return {TIME: end_ns, "state": UNREACHABLE}

    def _history_is_due(self, now_ns: int) -> bool:
        if self._said[-1].get("state") == UNREACHABLE:
            return False
        if self._history_ns is None:
            return True
        since_ns = now_ns - self._history_ns
        # A clock that was set back makes it due too.
        return not 0 <= since_ns < (_SOONEST_NS if self._has_missed else HISTORY_NS)

    def _history(self, now_ns: int) -> list[Sample]:
        self._history_ns = now_ns
        with _Silence(self, "history"):
            # Before it was started, a terminal has seen nothing: its rings are of another life.
            rows = [row for row in self._terminal.history() if time_of(row) >= self._boot_ns]
            new = list(filled([*self._said, *self._filled], rows))
            self._filled.extend(new)
            self._has_missed = False
            return new
        return []

    def _hand_on(self, new: Sequence[Sample]) -> None:
        self._waiting.extend(new)
        with _Silence(self, "keeping"):
            self._deliver(list(self._waiting))
            self._waiting.clear()

    def _note(self, what: str, trouble: BaseException | None) -> None:
        """Say that a trouble has begun or is over; once each."""
        if trouble is None and what in self._troubles:
            self._troubles.discard(what)
            self._say(f"{what}: works again")
        elif trouble is not None and what not in self._troubles:
            self._troubles.add(what)
            kind = "" if isinstance(trouble, SkyhopError) else f"{type(trouble).__name__}: "
            self._say(f"{what}: {kind}{trouble}")


class _Silence:
    """What a terminal raises ends what was asked, not the collector."""

    def __init__(self, collector: Collector, what: str) -> None:
        self._collector, self._what = collector, what

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, trouble: BaseException | None, _where: object) -> bool:
        if trouble is not None and not isinstance(trouble, Exception):
            return False
        self._collector._note(self._what, trouble)
        return trouble is not None
