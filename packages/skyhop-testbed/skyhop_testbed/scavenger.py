"""Scavenger: decides each second whether runs give way to the host's own traffic.

The host's own traffic is the traffic of the terminal, or of the host's interface, minus the traffic
of runs and of the agent, in each direction. The scavenger becomes active, so that overhead runs
stop, when the host's own traffic exceeds a threshold in two of the last three samples, in either
direction. It becomes inactive after a minute in which the traffic was below half of both
thresholds. A missing sample changes nothing. The owner's switch and quiet hours take precedence.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from skyhop.errors import InputError
from skyhop_testbed.words import ScavengerMode

_S_NS = 1_000_000_000
_DAY_MIN = 1440
_LONGEST_STEP_NS = 2 * _S_NS
"""Upper limit on the time that one quiet sample counts for."""
MOST_SAMPLES = 60
MOST_BPS = 10e9
"""Highest plausible rate in bit/s; a higher rate means that a counter was reset."""
_QUIET = re.compile(r"([0-9]{2}):([0-9]{2})-([0-9]{2}):([0-9]{2})", re.ASCII)


class Cause(StrEnum):
    """Cause of the scavenger's decision."""

    SWITCH = "switch"
    """The owner has set the mode `on` or `off`."""
    QUIET_HOURS = "quiet-hours"
    TRAFFIC = "traffic"
    """The host's own traffic exceeds a threshold."""
    IDLE = "idle"


@dataclass(frozen=True)
class QuietHours:
    """Daily time range, in minutes of UTC, in which no overhead run executes.

    It may span midnight.
    """

    begin_min: int
    end_min: int

    @classmethod
    def read(cls, text: str) -> QuietHours:
        """Parse quiet hours such as "22:00-06:30"; "00:00-24:00" is the whole day.

        Raises:
            InputError: the text has another form.
        """
        found = _QUIET.fullmatch(text.strip())
        if found:
            hours, minutes, until_hours, until_minutes = (int(part) for part in found.groups())
            begin, end = 60 * hours + minutes, 60 * until_hours + until_minutes
            fits = max(minutes, until_minutes) < 60 and begin < _DAY_MIN and end <= _DAY_MIN  # noqa: PLR2004
            if fits and begin != end:
                return cls(begin, end)
        raise InputError(
            f'quiet hours: "{text}" is no time of the day: write HH:MM-HH:MM, UTC, '
            'such as "22:00-06:30"'
        )

    def contains(self, now_ns: int) -> bool:
        """Return whether a time lies in the quiet hours; their end is exclusive."""
        minute = now_ns // (60 * _S_NS) % _DAY_MIN
        if self.begin_min < self.end_min:
            return self.begin_min <= minute < self.end_min
        return minute >= self.begin_min or minute < self.end_min


@dataclass(frozen=True)
class Rule:
    """Parameters of the scavenger."""

    mode: ScavengerMode = ScavengerMode.AUTO
    quiet: tuple[QuietHours, ...] = ()
    """Quiet hours, which apply only in the mode `auto`."""
    rx_bps: float = 40_000.0
    """Threshold of the host's own received traffic, in bit/s."""
    tx_bps: float = 100_000.0
    """Threshold of the host's own sent traffic, in bit/s."""
    samples: int = 3
    """Number of the latest samples that are compared with the thresholds."""
    of_them: int = 2
    """Number of these samples that must exceed a threshold."""
    idle_s: float = 60.0
    """Time in s for which traffic must be below `idle_share` of both thresholds before runs may go
    on.
    """
    idle_share: float = 0.5
    slack: float = 0.0
    """Share of the runs' traffic that is added to both thresholds, for nodes that read the counters
    of terminal and runs at different moments."""

    def thresholds(self, rates: Rates | None) -> tuple[float, float]:
        """Return the thresholds for received and sent traffic, including slack, in bit/s."""
        runs_rx = 0.0 if rates is None else rates.runs_rx_bps or 0.0
        runs_tx = 0.0 if rates is None else rates.runs_tx_bps or 0.0
        return self.rx_bps + self.slack * runs_rx, self.tx_bps + self.slack * runs_tx


@dataclass(frozen=True)
class Counters:
    """Byte counters at one time; a counter is `None` if unknown."""

    total_rx: int | None
    """Bytes received by the terminal or the host's interface."""
    total_tx: int | None
    runs_rx: int | None = 0
    """Bytes received by all runs, including ended ones."""
    runs_tx: int | None = 0
    agent_rx: int | None = 0
    agent_tx: int | None = 0


@dataclass(frozen=True)
class Rates:
    """Traffic rates over one second in bit/s; a rate is `None` if unknown."""

    total_rx_bps: float | None
    total_tx_bps: float | None
    runs_rx_bps: float | None = 0.0
    runs_tx_bps: float | None = 0.0
    agent_rx_bps: float | None = 0.0
    agent_tx_bps: float | None = 0.0

    @property
    def user_rx_bps(self) -> float | None:
        """Host's own received traffic, at least 0; `None` if a part is unknown."""
        return _difference(self.total_rx_bps, self.runs_rx_bps, self.agent_rx_bps)

    @property
    def user_tx_bps(self) -> float | None:
        """Host's own sent traffic, at least 0; `None` if a part is unknown."""
        return _difference(self.total_tx_bps, self.runs_tx_bps, self.agent_tx_bps)


@dataclass(frozen=True)
class Decision:
    """Decision, at the time of a sample, whether runs give way."""

    active: bool
    since_ns: int
    """Time since which `active` has this value."""
    cause: Cause
    user_rx_bps: float | None
    user_tx_bps: float | None


class Scavenger:
    """State machine that decides whether a node's runs give way."""

    def __init__(self, rule: Rule | None = None) -> None:
        self.rule = rule or Rule()
        self._busy: deque[bool] = deque(maxlen=self.rule.samples)
        self._traffic = False
        self._quiet_ns = 0
        self._sample_ns: int | None = None
        self._last: Decision | None = None

    def change(self, rule: Rule) -> None:
        """Replace the rule, but keep the samples processed so far."""
        self.rule = rule
        self._busy = deque(self._busy, maxlen=rule.samples)

    def update(self, now_ns: int, rates: Rates | None) -> Decision:
        """Process the rates of one second (`None` if unknown); return the decision."""
        rx, tx = (None, None) if rates is None else (rates.user_rx_bps, rates.user_tx_bps)
        self._sense(now_ns, rates, rx, tx)
        active, cause = self._decide(now_ns)
        last = self._last
        since_ns = last.since_ns if last is not None and last.active == active else now_ns
        self._last = Decision(active, since_ns, cause, rx, tx)
        return self._last

    def _sense(self, now_ns: int, rates: Rates | None, rx: float | None, tx: float | None) -> None:
        rule = self.rule
        # A sample covers one second, the one before it; time without samples does not count as
        # quiet.
        last_ns = now_ns - _S_NS if self._sample_ns is None else self._sample_ns
        step_ns = min(max(0, now_ns - last_ns), _LONGEST_STEP_NS)
        self._sample_ns = now_ns
        if rx is None and tx is None:
            return
        rx_bps, tx_bps = rule.thresholds(rates)
        self._busy.append((rx or 0.0) > rx_bps or (tx or 0.0) > tx_bps)
        if sum(self._busy) >= rule.of_them:
            self._traffic = True
        share = rule.idle_share
        if (rx or 0.0) >= share * rx_bps or (tx or 0.0) >= share * tx_bps:
            self._quiet_ns = 0
        elif rx is not None and tx is not None:
            # One direction alone may prove that there is traffic, but not that there is none.
            self._quiet_ns += step_ns
        if self._quiet_ns >= rule.idle_s * _S_NS:
            self._traffic = False

    def _decide(self, now_ns: int) -> tuple[bool, Cause]:
        rule = self.rule
        if rule.mode is not ScavengerMode.AUTO:
            return rule.mode is ScavengerMode.ON, Cause.SWITCH
        if any(hours.contains(now_ns) for hours in rule.quiet):
            return True, Cause.QUIET_HOURS
        return self._traffic, Cause.TRAFFIC if self._traffic else Cause.IDLE


class Meter:
    """Converter of byte counters to rates.

    Counters restart at 0, and wrap at 32 bits on old systems.
    """

    def __init__(self) -> None:
        self._before: tuple[int, Counters] | None = None

    def update(self, now_ns: int, counters: Counters | None) -> Rates | None:
        """Return the rates since the previous counters; `None` at the first call.

        A counter that decreased was reset, and its rate is unknown. The exception is a wrap: the
        counter was in the last quarter below 2^32, and the implied rate is at most `MOST_BPS`.
        """
        before, self._before = self._before, None if counters is None else (now_ns, counters)
        if before is None or counters is None or now_ns <= before[0]:
            return None
        then_ns, old = before
        span_s = (now_ns - then_ns) / _S_NS

        def rate(name: str) -> float | None:
            return _rate(getattr(old, name), getattr(counters, name), span_s)

        return Rates(
            rate("total_rx"), rate("total_tx"), rate("runs_rx"), rate("runs_tx"),
            rate("agent_rx"), rate("agent_tx"),
        )  # fmt: skip


def _rate(before: int | None, after: int | None, span_s: float) -> float | None:
    if before is None or after is None or before < 0 or after < 0:
        return None
    grown = after - before
    if grown < 0 and before < 1 << 32:
        grown += 1 << 32
        # A decrease near 2^32 is a wrap; anywhere else it is a reset.
        if before < 3 << 30:
            return None
    rate = 8 * grown / span_s
    return rate if 0 <= rate <= MOST_BPS else None


def _difference(
    total_bps: float | None, runs_bps: float | None, agent_bps: float | None
) -> float | None:
    if total_bps is None or runs_bps is None or agent_bps is None:
        return None
    own = total_bps - runs_bps - agent_bps
    return None if own != own else max(0.0, own)  # noqa: PLR0124


def parse_rule(values: Mapping[str, Any]) -> Rule:
    """Parse the scavenger rule in a node's policy; its keys are the fields of `Rule`.

    Raises:
        InputError: a key or a value is wrong.
    """
    known = set(Rule.__dataclass_fields__)
    for name in values:
        if name not in known:
            raise InputError(
                f'scavenger: "{name}" is unknown: expected one of {", ".join(sorted(known))}'
            )
    given = dict(values)
    try:
        if "mode" in given:
            given["mode"] = ScavengerMode(given["mode"])
    except ValueError:
        raise InputError(f'scavenger: mode is auto, on or off, not "{given["mode"]}"') from None
    quiet = given.get("quiet", ())
    if not isinstance(quiet, list | tuple):
        raise InputError('scavenger: quiet is a list of times of the day, such as ["22:00-06:30"]')
    rule = Rule(**{**given, "quiet": tuple(QuietHours.read(str(text)) for text in quiet)})
    _check_numbers(rule)
    return rule


def _check_numbers(rule: Rule) -> None:
    for name in ("rx_bps", "tx_bps", "idle_s", "idle_share", "slack"):
        value = getattr(rule, name)
        least = 0.0 if name == "slack" else 1e-9
        most = 1.0 if name in ("idle_share", "slack") else 1e12
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= most:
            raise InputError(f"scavenger: {name} is a number from {least:g} to {most:g}")
    counts = (rule.of_them, rule.samples)
    if not all(type(count) is int for count in counts) or not (
        1 <= rule.of_them <= rule.samples <= MOST_SAMPLES
    ):
        raise InputError(
            f"scavenger: of_them is from 1 to samples, which is at most {MOST_SAMPLES}"
        )
