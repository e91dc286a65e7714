"""Predictions in telemetry: models that a node's owner names run in a separate process.

The agent sends each new second of telemetry to the process (`prediction`), with the orbit fields
that are already known for the seconds ahead. It waits some milliseconds for the answer, so that
triggers see samples and predictions at once. Without an answer within 0.25 s the predicted fields
are null.
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
from typing import Literal, TypedDict

from skyhop.errors import InputError, RunError
from skyhop.telemetry.columns import time_of
from skyhop.telemetry.fields import TIME, Sample
from skyhop_testbed.agent.settings import Predict, Settings
from skyhop_testbed.clock import Clock

_S = 1_000_000_000
_COMMAND = (sys.executable, "-m", "skyhop_testbed.agent.prediction")
_PATIENCE_S = 0.25
_LOADING_S = 60.0
_HANDED_ON_NS = 60 * _S
"""Age up to which samples are sent to the process; older ones would not change a prediction."""
_MOST_UNANSWERED = 15
"""Number of requests without an answer after which the process is killed. A process that reads
nothing would block telemetry once the pipe is full."""
_SOONEST_S, _LATEST_S = 60.0, 3600.0
"""Shortest and longest wait in s before a process that has ended is started again."""


class ModelOrder(TypedDict):
    """First line to the process: the models that it loads."""

    models: Sequence[str]
    horizon_s: int | None
    """Horizon of the predictions in s; `None` is each model's shortest."""
    sky: Literal["nothing", "grid", "satellites"]
    """Source of orbits, which decides the fields that are known for the seconds ahead."""


class PredictionRequest(TypedDict):
    """Further line to the process: new samples, and the orbit fields of the seconds ahead."""

    samples: Sequence[Sample]
    ahead: Sequence[Sample]


class PredictionAnswer(TypedDict, total=False):
    """Answer to the order (the first three fields) or to a request (the last two)."""

    ahead_s: int
    """Number of seconds ahead whose orbit fields the models need."""
    error: str
    is_input: bool
    """Whether the error is an `InputError`."""
    at_ns: int
    """Time of the newest sample of the request."""
    predicted: Sample


class PredictionClient:
    """Client of the process that runs a node's prediction models.

    Args:
        settings: the owner's settings, which name the models.
        orbit_fields: returns the orbit fields of a second, given its time in ns.
        say: function for log lines.
        command: command that starts the process.
        clock: time and waiting.
    """

    def __init__(
        self,
        settings: Settings,
        orbit_fields: Callable[[int], Sample],
        say: Callable[[str], None],
        command: Sequence[str] = _COMMAND,
        *,
        clock: Clock,
    ) -> None:
        self._orbit_fields, self._say, self._command = orbit_fields, say, command
        self._clock = clock
        self._wanted = settings.predict
        self._order = None if self._wanted is None else _order(self._wanted, settings)
        self._process: _Process | None = None
        self._ahead_s = 0
        self._unanswered = 0
        self._wait_s, self._again_at = 0.0, 0.0

    def start(self) -> None:
        """Start the process, if there are models, and wait until they are loaded.

        Raises:
            InputError: a model is missing, damaged, or needs other fields than this node's.
            RunError: a model cannot be read.
        """
        if self._order is None:
            return
        self._process = _Process(self._command, self._order, self._clock)
        try:
            answer = self._process.line(_LOADING_S)
        except EOFError:
            answer = None
        if answer is None or "error" in answer:
            self.close()
            kind = InputError if answer is not None and answer["is_input"] else RunError
            raise kind((answer or {}).get("error") or "predict: the models could not be loaded")
        self._ahead_s = answer["ahead_s"]

    def with_predictions(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """Return the samples.

        The newest also gets the predictions, if the process answers in time.
        """
        if self._order is None or not samples:
            return samples
        newest = max(samples, key=time_of)
        predicted = self._predict(samples, time_of(newest))
        return [{**each, **predicted} if each is newest else each for each in samples]

    def close(self) -> None:
        """Kill the prediction process, if it runs."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def _predict(self, samples: Sequence[Sample], newest_ns: int) -> Sample:
        if self._process is None:
            self._restart()
            return {}
        ahead = (newest_ns + number * _S for number in range(1, self._ahead_s + 1))
        request: PredictionRequest = {
            "samples": [s for s in samples if time_of(s) > newest_ns - _HANDED_ON_NS],
            "ahead": [{**self._orbit_fields(at_ns), TIME: at_ns} for at_ns in ahead],
        }
        until = self._clock.monotonic_s() + _PATIENCE_S
        try:
            self._process.send(request)
            self._unanswered += 1
            while (answer := self._process.line(until - self._clock.monotonic_s())) is not None:
                self._unanswered, self._wait_s = 0, 0.0
                # The first answer of a process that was started again is the one to the order.
                if answer.get("at_ns") == newest_ns:
                    return answer["predicted"]
            if self._unanswered >= _MOST_UNANSWERED:
                self._end("does not answer")
        except (OSError, EOFError):
            self._end("has ended")
        return {}

    def _end(self, why: str) -> None:
        self.close()
        self._wait_s = min(max(2 * self._wait_s, _SOONEST_S), _LATEST_S)
        self._again_at = self._clock.monotonic_s() + self._wait_s
        self._say(f"predict: the process {why}: it starts again in {self._wait_s:.0f} s")

    def _restart(self) -> None:
        """Start the process again if the wait is over.

        Its first answers come late, while models load.
        """
        if self._clock.monotonic_s() >= self._again_at and self._order is not None:
            self._process, self._unanswered = _Process(self._command, self._order, self._clock), 0


def _order(wanted: Predict, settings: Settings) -> ModelOrder:
    orbit = settings.orbit
    return {
        "models": wanted.models,
        "horizon_s": wanted.horizon_s,
        "sky": "nothing" if orbit is None else "grid" if orbit.is_grid else "satellites",
    }


class _Process:
    """Child process that answers lines of JSON on its pipes, and ends with the agent."""

    def __init__(self, command: Sequence[str], order: ModelOrder, clock: Clock) -> None:
        pipe = subprocess.PIPE
        # The child inherits standard error, so its messages go to the agent's log.
        self._process = subprocess.Popen(
            list(command), stdin=pipe, stdout=pipe, text=True, env={**os.environ}
        )
        self._clock = clock
        self._lines: deque[str] = deque()
        self._news = threading.Event()
        self._reader = threading.Thread(target=self._read, name="predict", daemon=True)
        self._reader.start()
        # A process that has ended already is noticed when its answers are read.
        with suppress(OSError):
            self.send(order)

    def send(self, content: ModelOrder | PredictionRequest) -> None:
        """Write one line of JSON to the process.

        Raises:
            OSError: the process has ended.
        """
        assert self._process.stdin is not None, "it has a pipe"
        self._process.stdin.write(json.dumps(content, allow_nan=False) + "\n")
        self._process.stdin.flush()

    def line(self, patience_s: float) -> PredictionAnswer | None:
        """Return the next line, parsed; `None` if none comes within `patience_s` seconds.

        Raises:
            EOFError: the process has ended.
        """
        self._news.clear()
        if not self._lines:
            self._clock.wait(self._news, max(patience_s, 0.0))
        if not self._lines:
            return None
        text = self._lines.popleft()
        if not text:
            raise EOFError
        answer: PredictionAnswer = json.loads(text)
        return answer

    def close(self) -> None:
        """Kill the process, wait for it, and close its pipe."""
        self._process.kill()
        self._process.wait()
        # Closing flushes the unread input, which fails as the reader is gone.
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
