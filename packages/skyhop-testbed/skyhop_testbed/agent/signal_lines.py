"""Lines that a run reads on its socket, from one sample of telemetry per second.

The lines continue the protocol of `skyhop signal serve` (docs/reference/signal-socket.md), so that
a program reads both. A run's conditions are evaluated here, on the fields that it may see.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from skyhop.telemetry.columns import time_of
from skyhop.telemetry.fields import Sample, Value
from skyhop_testbed.agent.settings import Orbit
from skyhop_testbed.agent.surroundings import GRID_OFFSET_S, GRID_PERIOD_S
from skyhop_testbed.signals import PREDICTED_FIELDS, Kind, Signals

if TYPE_CHECKING:
    from skyhop_testbed.job import Job
    from skyhop_testbed.triggers import Trigger

VERSION = 1
"""Version of the protocol; new fields and new types of lines do not change it."""
OF_JOB = "when"
"""Name of the job's own trigger among a run's conditions."""
_S = 1_000_000_000
_SAME_NS = _S // 2
"""Largest difference in ns between two announcements of one handover."""
_FEWEST_DIGITS = 9

Line = Mapping[str, object]


def encoded(line: Line) -> bytes:
    """Return a line of JSON, with its version after its type."""
    text = json.dumps({"type": line["type"], "v": VERSION, **line}, separators=(",", ":"))
    return text.encode() + b"\n"


def lost_line(count: int) -> bytes:
    """Return the line that tells a client how many lines it has lost."""
    return encoded({"type": "dropped", "lines": count})


class HandoverLines:
    """Announcements of a node's next handover, each once, as early as the agent knows it.

    Args:
        orbit: the owner's source of satellite positions; `None` without one.
    """

    def __init__(self, orbit: Orbit | None) -> None:
        self._orbit = orbit
        self._at_ns = 0
        """Time of the announced handover in ns of UTC."""
        self.newest: Line | None = None
        """Last announcement, also of a handover that has passed; `None` before the first."""

    @property
    def source(self) -> str | None:
        """Source of the announcements, by its name in the protocol; `None` without one."""
        if self._orbit is None:
            return None
        return "grid" if self._orbit.is_grid else "path" if self._orbit.path else "forecast"

    def greeting(self) -> Line:
        """Return the fields about handovers in the first line to a client."""
        is_grid = self.source == "grid"
        return {
            "source": self.source,
            "clock": "CLOCK_MONOTONIC",
            "period_ns": GRID_PERIOD_S * _S if is_grid else None,
            "offset_ns": GRID_OFFSET_S * _S if is_grid else None,
        }

    def of(self, sample: Sample, now_ns: int, monotonic_ns: int, error_ns: int) -> list[Line]:
        """Return an announcement if the next handover is another than the last announced one.

        Args:
            sample: the newest sample.
            now_ns: UTC.
            monotonic_ns: the same moment on CLOCK_MONOTONIC.
            error_ns: largest error of UTC on this machine.
        """
        in_s = sample.get("handover_in_s")
        if not isinstance(in_s, int | float) or self.source is None:
            return []
        at_ns = time_of(sample) + round(in_s * _S)
        if at_ns <= now_ns or abs(at_ns - self._at_ns) <= _SAME_NS:
            return []
        self._at_ns = at_ns
        self.newest = {
            "type": Kind.HANDOVER.value,
            "at_ns": monotonic_ns + at_ns - now_ns,
            "at_utc": utc_text(at_ns),
            "outage_ns": 0,
            "error_ns": error_ns,
            "kind": "unknown" if self.source == "grid" else "end",
        }
        return [self.newest]

    def coming(self, now_ns: int) -> list[Line]:
        """Return the last announcement, if its handover is still ahead, for a new client."""
        return [self.newest] if self.newest is not None and self._at_ns > now_ns else []


class Conditions:
    """Conditions of one run: those that its job names, and the job's own trigger.

    Args:
        spec: the run's job.

    Raises:
        InputError: an expression is wrong.
    """

    def __init__(self, spec: Job) -> None:
        # The import is local to spare nodes without triggers the parser's memory.
        from skyhop_testbed.triggers import Trigger

        named = dict(spec.run.conditions)
        if spec.when.trigger is not None:
            named.setdefault(OF_JOB, spec.when.trigger)
        self._triggers: dict[str, Trigger] = {
            name: Trigger(expression, seed=spec.when.seed, source=f"condition {name}")
            for name, expression in named.items()
        }
        self._last: dict[str, bool | None] = {}

    def of(self, sample: Sample) -> list[Line]:
        """Evaluate all conditions; return a line for each whose value has changed."""
        lines: list[Line] = []
        for name, trigger in self._triggers.items():
            found = trigger.update(time_of(sample), sample)
            if found is None or (name in self._last and self._last[name] is found.value):
                continue
            self._last[name] = found.value
            lines.append(
                {
                    "type": Kind.TRIGGER.value,
                    "time_ns": found.at_ns,
                    "name": name,
                    "value": found.value,
                    "inputs": found.inputs,
                }
            )
        return lines


def telemetry_lines(sample: Sample, given: Signals) -> list[Line]:
    """Return the line with the given fields of a sample; none without fields."""
    if not given.fields:
        return []
    values: dict[str, Value] = {name: sample.get(name) for name in given.fields}
    return [{"type": Kind.TELEMETRY.value, "time_ns": time_of(sample), "values": values}]


def prediction_lines(sample: Sample) -> list[Line]:
    """Return the line with a sample's predictions; none if the node has not predicted."""
    values = {name: sample.get(name) for name in PREDICTED_FIELDS}
    if all(value is None for value in values.values()):
        return []
    return [{"type": Kind.PREDICTION.value, "time_ns": time_of(sample), **values}]


def visible(sample: Sample, allowed: Signals) -> Sample:
    """Return the part of a sample that conditions may use."""
    names = {*allowed.fields, "time_ns"}
    names |= set(PREDICTED_FIELDS) if Kind.PREDICTION in allowed.kinds else set()
    return {name: value for name, value in sample.items() if name in names}


def utc_text(time_ns: int) -> str:
    """Return a time in ns since 1970 as RFC 3339 text, with no more digits than it needs."""
    whole = dt.datetime.fromtimestamp(time_ns // _S, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")
    digits = f"{time_ns % _S:0{_FEWEST_DIGITS}d}".rstrip("0")
    return f"{whole}.{digits}Z" if digits else f"{whole}Z"
