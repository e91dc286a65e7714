"""Signals of all runs on this node: their sockets, and the lines of each second."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from skyhop.errors import RunError, SkyhopError
from skyhop.telemetry.fields import Sample
from skyhop_testbed.agent.local_run import LocalRun
from skyhop_testbed.agent.policy import Policy
from skyhop_testbed.agent.settings import Settings
from skyhop_testbed.agent.signal_lines import (
    Conditions,
    HandoverLines,
    Line,
    encoded,
    lost_line,
    prediction_lines,
    telemetry_lines,
    visible,
)
from skyhop_testbed.agent.signal_socket import SignalSocket
from skyhop_testbed.clock import Clock
from skyhop_testbed.signals import POSITION_FIELDS, Kind, Signals
from skyhop_testbed.words import State

PLACE = "signal"
"""Directory of the socket in a run's directory."""
_S = 1_000_000_000
_COARSE_DEG = 0.01
"""Least step in degrees to which a position is rounded if runs may be given distances from it."""


@dataclass
class _Feed:
    """Socket of one run, with what its job asks for."""

    local_run: LocalRun
    asked: Signals
    conditions: Conditions | None
    socket: SignalSocket

    @property
    def is_over(self) -> bool:
        """Whether the run's program has ended."""
        return self.local_run.state is not State.EXECUTING


class RunSignals:
    """Sockets on which the programs of runs read signals; a runner opens each before its program.

    Args:
        node: name of the node.
        settings: the owner's settings: source of handovers, and precision of the position.
        clock: UTC and CLOCK_MONOTONIC.
        clock_error_ns: returns the largest error of UTC on this machine.
        say: function for log lines.
    """

    def __init__(
        self,
        node: str,
        settings: Settings,
        clock: Clock,
        clock_error_ns: Callable[[], int],
        say: Callable[[str], None],
    ) -> None:
        self._node, self._clock = node, clock
        self._clock_error_ns, self._say = clock_error_ns, say
        self._handovers = HandoverLines(settings.orbit)
        is_exact = settings.place is not None and settings.precision_deg < _COARSE_DEG
        self._hidden = POSITION_FIELDS if is_exact else frozenset()
        self._allowed = Signals()
        self._feeds: dict[str, _Feed] = {}
        self._lock = threading.Lock()

    def open(self, local_run: LocalRun, directory: Path, policy: Policy) -> Path | None:
        """Open the socket of a run that asks for signals; return the directory to mount.

        Args:
            local_run: the run.
            directory: the run's directory.
            policy: the owner's policy.

        Raises:
            InputError: a condition is wrong.
            RunError: the socket cannot be made.
        """
        names = local_run.spec.run.signals
        if not names:
            return None
        with self._lock:
            self._allowed = self._allowed_by(policy)
            if local_run.key not in self._feeds:
                self._feeds[local_run.key] = self._feed(local_run, directory / PLACE)
        return directory / PLACE

    def serve(
        self, runs: Iterable[LocalRun], directory: Path, policy: Policy, sample: Sample | None
    ) -> None:
        """Accept waiting programs, and send them the lines of a new sample; called each second.

        Args:
            runs: runs with work left; sockets of those that an earlier agent left are opened.
            directory: directory of all runs.
            policy: the owner's policy.
            sample: the newest sample; `None` if there is no new one.
        """
        with self._lock:
            self._allowed = self._allowed_by(policy)
            self._close_ended()
        for local_run in runs:
            place = local_run.directory(directory)
            if self._is_left(local_run, place):
                try:
                    self.open(local_run, place, policy)
                except SkyhopError as error:
                    self._say(f"run {local_run.key}: signals: {error}")
        with self._lock:
            announced = [] if sample is None else self._announced(sample)
            for feed in self._feeds.values():
                lines = [] if sample is None else self._lines(feed, sample, announced)
                feed.socket.serve([encoded(line) for line in lines])

    def close(self) -> None:
        """Close all sockets; the next agent opens those of living runs again."""
        with self._lock:
            for feed in self._feeds.values():
                feed.socket.close()
            self._feeds.clear()

    def _feed(self, local_run: LocalRun, place: Path) -> _Feed:
        asked = Signals.named(local_run.spec.run.signals)
        has_conditions = Kind.TRIGGER in asked.kinds
        conditions = Conditions(local_run.spec) if has_conditions else None
        try:
            socket = SignalSocket(place, lambda: self._greeting(local_run, asked), lost_line)
        except OSError as error:
            raise RunError(f"the socket of signals: {error.strerror}") from None
        return _Feed(local_run, asked, conditions, socket)

    def _is_left(self, local_run: LocalRun, place: Path) -> bool:
        """Return whether a run's program runs, but an earlier agent has opened its socket."""
        is_running = local_run.state is State.EXECUTING and bool(local_run.spec.run.signals)
        return is_running and local_run.key not in self._feeds and (place / PLACE).is_dir()

    def _close_ended(self) -> None:
        for key, feed in [*self._feeds.items()]:
            if feed.is_over:
                if feed.socket.lost:
                    self._say(f"run {key}: its program has not read {feed.socket.lost} signals")
                feed.socket.close()
                del self._feeds[key]

    def _allowed_by(self, policy: Policy) -> Signals:
        return policy.signals.both(policy.signals, self._hidden)

    def _greeting(self, local_run: LocalRun, asked: Signals) -> Sequence[bytes]:
        given = asked.both(self._allowed)
        kinds = [kind.value for kind in Kind if kind in given.kinds]
        hello: Line = {
            "type": "hello",
            **self._handovers.greeting(),
            "node": self._node,
            "run": local_run.run,
            "signals": [*([Kind.TELEMETRY.value] if given.fields else []), *kinds],
            "fields": list(given.fields),
        }
        is_told = Kind.HANDOVER in given.kinds
        coming = self._handovers.coming(self._clock.now_ns()) if is_told else []
        return [encoded(line) for line in (hello, *coming)]

    def _announced(self, sample: Sample) -> Sequence[Line]:
        monotonic_ns = round(self._clock.monotonic_s() * _S)
        now_ns = self._clock.now_ns()
        return self._handovers.of(sample, now_ns, monotonic_ns, self._clock_error_ns())

    def _lines(self, feed: _Feed, sample: Sample, announced: Sequence[Line]) -> Sequence[Line]:
        given = feed.asked.both(self._allowed)
        lines = telemetry_lines(sample, given)
        if Kind.PREDICTION in given.kinds:
            lines += prediction_lines(sample)
        if Kind.HANDOVER in given.kinds:
            lines += announced
        if Kind.TRIGGER in given.kinds and feed.conditions is not None:
            lines += feed.conditions.of(visible(sample, self._allowed))
        return lines
