"""Predictions in telemetry, where a node's owner has named models: asked of a process beside.

Each second that comes in is handed to it (`prediction`) with what orbits say of the seconds ahead,
and waits for the answer, some milliseconds, so that triggers see both at once. What has not been
answered in a quarter of a second, or is not known, is null.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from skyhop.errors import InputError, RunError
from skyhop.telemetry.columns import time_of
from skyhop.telemetry.fields import TIME, Sample
from skyhop.testbed.agent.settings import Predict, Settings
from skyhop.testbed.clock import Clock

_S = 1_000_000_000
_COMMAND = (sys.executable, "-m", "skyhop.testbed.agent.prediction")
_PATIENCE_S = 0.25
_LOADING_S = 60.0
_HANDED_ON_NS = 60 * _S
"""Of history, seconds before these are of no use."""
_MOST_UNANSWERED = 15
"""So many lines, and it is taken for dead: one that reads nothing would hold up telemetry."""
_SOONEST_S, _LATEST_S = 60.0, 3600.0
"""Until a process that has ended is begun anew."""


class Predicting:
    """Asks a node's models.

    Args:
        settings: what its owner wants.
        above: returns what is known of a second's sky, by its time in ns.
        say: takes lines.
        command: what answers.
        clock: what time it is, and how to wait.
    """

    def __init__(
        self,
        settings: Settings,
        above: Callable[[int], Sample],
        say: Callable[[str], None],
        command: Sequence[str] = _COMMAND,
        *,
        clock: Clock,
    ) -> None:
        self._above, self._say, self._command = above, say, command
        self._clock = clock
        self._wanted = settings.predict
        self._order = None if self._wanted is None else _order(self._wanted, settings)
        self._process: _Process | None = None
        self._ahead_s = 0
        self._unanswered = 0
        self._wait_s, self._again_at = 0.0, 0.0

    def start(self) -> None:
        """Begin, where there are models, and wait until they are loaded.

        Raises:
            InputError: one is none, is damaged, or cannot be asked with this node's telemetry.
            RunError: one cannot be read.
        """
        if self._order is None:
            return
        self._process = _Process(self._command, self._order, self._clock)
        try:
            said = self._process.line(_LOADING_S)
        except EOFError:
            said = None
        if said is None or "error" in said:
            self.close()
            kind = InputError if said is not None and said["is_input"] else RunError
            raise kind((said or {}).get("error") or "predict: the models could not be loaded")
        self._ahead_s = int(said["ahead_s"])

    def complemented(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """Return samples, the newest with what is foretold at its end, where that is known."""
        if self._order is None or not samples:
            return samples
        newest = max(samples, key=time_of)
        foretold = self._asked(samples, time_of(newest))
        return [{**each, **foretold} if each is newest else each for each in samples]

    def close(self) -> None:
        """End what is under way."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def _asked(self, samples: Sequence[Sample], newest_ns: int) -> Sample:
        if self._process is None:
            self._begin_anew()
            return {}
        ahead = (newest_ns + number * _S for number in range(1, self._ahead_s + 1))
        told = {
            "samples": [s for s in samples if time_of(s) > newest_ns - _HANDED_ON_NS],
            "ahead": [{**self._above(at_ns), TIME: at_ns} for at_ns in ahead],
        }
        until = self._clock.monotonic_s() + _PATIENCE_S
        try:
            self._process.tell(told)
            self._unanswered += 1
            while (said := self._process.line(until - self._clock.monotonic_s())) is not None:
                self._unanswered, self._wait_s = 0, 0.0
                if said.get("at_ns") == newest_ns:
                    foretold: Sample = said["foretold"]
                    return foretold
            if self._unanswered >= _MOST_UNANSWERED:
                self._end("does not answer")
        except (OSError, EOFError):
            self._end("has ended")
        return {}

    def _end(self, why: str) -> None:
        self.close()
        self._wait_s = min(max(2 * self._wait_s, _SOONEST_S), _LATEST_S)
        self._again_at = self._clock.monotonic_s() + self._wait_s
        self._say(f"predict: the process {why}: it is begun anew in {self._wait_s:.0f} s")

    def _begin_anew(self) -> None:
        """Begin again where it is time; it loads meanwhile, and its first answers come late."""
        if self._clock.monotonic_s() >= self._again_at and self._order is not None:
            self._process, self._unanswered = _Process(self._command, self._order, self._clock), 0


def _order(wanted: Predict, settings: Settings) -> dict[str, Any]:
    orbit = settings.orbit
    sky = "nothing" if orbit is None else "grid" if orbit.is_grid else "satellites"
    return {"models": wanted.models, "horizon_s": wanted.horizon_s, "sky": sky}


class _Process:
    """A process that answers lines of JSON, and ends with us."""

    def __init__(self, command: Sequence[str], order: dict[str, Any], clock: Clock) -> None:
        pipe = subprocess.PIPE
        # What it says otherwise belongs to the agent's log.
        self._process = subprocess.Popen(
            list(command), stdin=pipe, stdout=pipe, text=True, env={**os.environ}
        )
        self._clock = clock
        self._lines: deque[str] = deque()
        self._news = threading.Event()
        self._reader = threading.Thread(target=self._read, name="predict", daemon=True)
        self._reader.start()
        # One that has ended already is found out by its lines.
        with suppress(OSError):
            self.tell(order)

    def tell(self, content: dict[str, Any]) -> None:
        """Write a line.

        Raises:
            OSError: it has ended.
        """
        assert self._process.stdin is not None, "it has a pipe"
        self._process.stdin.write(json.dumps(content, allow_nan=False) + "\n")
        self._process.stdin.flush()

    def line(self, patience_s: float) -> dict[str, Any] | None:
        """Return the next line; None where there is none in so many seconds.

        Raises:
            EOFError: it has ended.
        """
        self._news.clear()
        if not self._lines:
            self._clock.wait(self._news, max(patience_s, 0.0))
        if not self._lines:
            return None
        text = self._lines.popleft()
        if not text:
            raise EOFError
        found: dict[str, Any] = json.loads(text)
        return found

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        # What it has not read is of no use any more.
        with suppress(OSError):
            assert self._process.stdin is not None, "it has a pipe"
            self._process.stdin.close()

    def _read(self) -> None:
        assert self._process.stdout is not None, "it has a pipe"
        for line in self._process.stdout:
            self._add(line)
        self._add("")

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self._news.set()
