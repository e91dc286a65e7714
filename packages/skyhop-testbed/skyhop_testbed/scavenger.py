"""Scavenger: decides each second whether runs give way to the host's own traffic.

The host's own traffic is the traffic of the terminal, or of the host's interface, minus the traffic
of runs and of the agent, in each direction. Counters of several sources are never read at the same
moment; `Meter` bounds what this can hide, and lets no error of one second count twice.

The scavenger becomes active, so that overhead runs stop, when the host's own traffic exceeds a
threshold in two of the last three samples, in either direction. It becomes inactive after a minute
in which the traffic was below half of both thresholds. A missing sample changes nothing. The
owner's switch and quiet hours take precedence.
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
_CARRIED = 5
"""Number of readings for which an estimate above its upper bound is kept."""
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
    """Share of the runs' traffic that is added to both thresholds, because headers and repeated
    segments of runs are known only approximately."""

    def thresholds(self, rates: Rates | None) -> tuple[float, float]:
        """Return the thresholds for received and sent traffic, including slack, in bit/s."""
        runs_rx = 0.0 if rates is None else rates.runs_rx_bps or 0.0
        runs_tx = 0.0 if rates is None else rates.runs_tx_bps or 0.0
        return self.rx_bps + self.slack * runs_rx, self.tx_bps + self.slack * runs_tx


@dataclass(frozen=True)
class Counters:
    """Byte counters, read within a few milliseconds; a counter is `None` if unknown.

    The link's counters are read before and after those of the runs and the agent. What the link
    carried in between may be missing in the latter.
    """

    total_rx: int | None
    """Bytes received by the terminal or the host's interface, read before the others."""
    total_tx: int | None
    runs_rx: int | None = 0
    """Bytes received by all runs, including ended ones."""
    runs_tx: int | None = 0
    agent_rx: int | None = 0
    agent_tx: int | None = 0
    later_rx: int | None = None
    """Bytes received by the terminal or the host's interface, read after the others; `None` if they
    are the same."""
    later_tx: int | None = None
    has_lost: bool = False
    """Whether a run has ended whose last bytes are unknown: rates of runs and owner are then
    unknown too."""


@dataclass(frozen=True)
class Rates:
    """Traffic rates over one second in bit/s; a rate is `None` if unknown."""

    total_rx_bps: float | None
    total_tx_bps: float | None
    runs_rx_bps: float | None = 0.0
    runs_tx_bps: float | None = 0.0
    agent_rx_bps: float | None = 0.0
    agent_tx_bps: float | None = 0.0
    user_rx_bps: float | None = None
    """Host's own received traffic, at least 0."""
    user_tx_bps: float | None = None
    """Host's own sent traffic, at least 0."""


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

    Args:
        lag: number of readings by which the link's counters may be behind those of the runs and
            the agent: 0 for an interface of this host, 2 for a terminal, which reports the rate of
            a past second.
    """

    def __init__(self, lag: int = 0) -> None:
        self._lag = lag
        self._before: tuple[int, Counters] | None = None
        self._rx, self._tx = _Remainder(lag), _Remainder(lag)

    def update(self, now_ns: int, counters: Counters | None) -> Rates | None:
        """Return the rates since the previous counters; `None` at the first call.

        A counter that decreased was reset, and its rate is unknown. The exception is a wrap: the
        counter was in the last quarter below 2^32, and the implied rate is at most `MOST_BPS`.
        """
        before, self._before = self._before, None if counters is None else (now_ns, counters)
        if before is None or counters is None or now_ns <= before[0]:
            for remainder in (self._rx, self._tx):
                remainder.clear()
            if counters is not None:
                self._rx.begin(_between(counters.total_rx, counters.later_rx))
                self._tx.begin(_between(counters.total_tx, counters.later_tx))
            return None
        then_ns, old = before
        span_s = (now_ns - then_ns) / _S_NS

        def grown(name: str) -> int | None:
            if counters.has_lost and name.startswith("runs"):
                return None
            return _grown(getattr(old, name), getattr(counters, name), span_s)

        names = ("total_rx", "total_tx", "runs_rx", "runs_tx", "agent_rx", "agent_tx")
        rx, tx, runs_rx, runs_tx, agent_rx, agent_tx = more = [grown(name) for name in names]
        between_rx = _between(counters.total_rx, counters.later_rx)
        between_tx = _between(counters.total_tx, counters.later_tx)
        user_rx = self._rx.update(rx, _sum(runs_rx, agent_rx), between_rx)
        user_tx = self._tx.update(tx, _sum(runs_tx, agent_tx), between_tx)
        bps = [None if each is None else 8 * each / span_s for each in (*more, user_rx, user_tx)]
        return Rates(*bps)


class _Remainder:
    """Bytes of one direction that are neither a run's nor the agent's.

    Let `low` be the link's bytes before the other counters were read, and `high` those after, each
    without the bytes of runs and agent. The owner's bytes since the start lie between both. The
    estimate moves only as far as these bounds force it, so that an error of one second is made up
    for in the next and none adds up. At a link without the owner's traffic the estimate stays.

    If a later `high` is below the estimate, the bytes of runs were overestimated, such as their
    headers. The estimate follows after `_CARRIED` readings: until then it may also be a queue that
    drains.
    """

    def __init__(self, lag: int) -> None:
        self._low = 0
        self._own: deque[int] = deque(maxlen=lag + 1)
        self._highs: deque[int] = deque(maxlen=_CARRIED)
        self._estimate: int | None = None

    def clear(self) -> None:
        """Forget all readings so far."""
        self._low, self._estimate = 0, None
        self._own.clear()
        self._highs.clear()

    def begin(self, between: int) -> None:
        """Set the first bounds, from the bytes between two readings of the link's counter."""
        self._own.append(0)
        self._highs.append(between)
        self._estimate = between

    def update(self, grown: int | None, own_grown: int | None, between: int) -> int | None:
        """Return the owner's bytes since the previous reading; `None` if unknown.

        Args:
            grown: growth of the link's first counter.
            own_grown: growth of the bytes of runs and agent.
            between: bytes between two readings of the link's counter.
        """
        if grown is None or own_grown is None or self._estimate is None:
            self.clear()
            self.begin(between)
            return None
        self._low += grown - own_grown
        self._own.append(self._own[-1] + own_grown)
        behind = self._own[-1] - self._own[0]
        self._highs.append(self._low + between + behind)
        before = self._estimate
        self._estimate = max(self._low, min(before, max(self._highs)))
        return max(0, self._estimate - before)


def _between(total: int | None, later: int | None) -> int:
    """Return the bytes between two readings of the link's counter."""
    return _grown(total, later, 1.0) or 0


def _grown(before: int | None, after: int | None, span_s: float) -> int | None:
    """Return the growth of a counter in bytes; `None` if it was reset or is unknown."""
    if before is None or after is None or before < 0 or after < 0:
        return None
    grown = after - before
    if grown < 0 and before < 1 << 32:
        grown += 1 << 32
        # A decrease near 2^32 is a wrap; anywhere else it is a reset.
        if before < 3 << 30:
            return None
    return grown if grown >= 0 and 8 * grown / span_s <= MOST_BPS else None


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


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
