"""Bodies of the agent's reports to the orchestrator, one class for each `EventKind`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypedDict

from skyhop.telemetry.fields import Sample, Value
from skyhop_testbed.executor.result import CountedTraffic
from skyhop_testbed.states import Change
from skyhop_testbed.words import EventKind, ScavengerMode


class RunDetails(TypedDict, total=False):
    """Details of a change of a run's state, as far as they apply to it."""

    text: str
    """Reason of the change, as text."""
    message: str | None
    """Reason as the executor's result gives it."""
    fence: int
    port: int
    start_ns: int
    """Actual start of a run that a trigger starts; the schedule has only the window."""
    end_ns: int
    began_ns: int | None
    """Start of the program."""
    ended_ns: int | None
    exit: int | None
    signal: int | None
    partial: bool | None
    traffic: CountedTraffic | None


@dataclass(frozen=True)
class FollowUp:
    """Run that this node has created: the next run within a trigger's window."""

    run: str
    after: str | None
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class RunReport:
    """Change of a run's state."""

    KIND: ClassVar = EventKind.RUN
    run: str
    change: Change
    new: FollowUp | None = None
    """Set if the orchestrator does not know the run yet."""


@dataclass(frozen=True)
class TaskReport:
    """Reply to a task for a server's side."""

    KIND: ClassVar = EventKind.TASK
    task: str
    run: str
    ok: bool
    port: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class TelemetryReport:
    """Samples of the node's telemetry."""

    KIND: ClassVar = EventKind.TELEMETRY
    samples: Sequence[Sample]


@dataclass(frozen=True)
class MapReport:
    """Obstruction map of the terminal, as text (`telemetry.maps.encode_map`)."""

    KIND: ClassVar = EventKind.MAP
    map: str


@dataclass(frozen=True)
class TriggerReport:
    """Evaluation of a job's trigger."""

    KIND: ClassVar = EventKind.TRIGGER
    job: str
    run: str | None
    """Id of the run that the trigger has started, if any."""
    fired: bool
    value: bool | None
    outcome: str
    why: str
    inputs: Mapping[str, Value]


@dataclass(frozen=True)
class ScavengerReport:
    """Decision whether runs give way to the host's traffic, when it has changed."""

    KIND: ClassVar = EventKind.SCAVENGER
    active: bool
    since_ns: int
    cause: str
    user_rx_bps: float | None
    user_tx_bps: float | None
    mode: ScavengerMode


class KernelHealth(TypedDict):
    """Kernel of a node, and whether the kernel service answers."""

    release: str
    service: bool
    congestion: list[str]


class MonthlyData(TypedDict):
    """Data that the testbed has moved on a node in a month."""

    month: str
    """Month in UTC, as `YYYY-MM`."""
    used_bytes: int
    cap_bytes: float | None
    held_back: str | None
    """Reason why uploads wait; `None` if they need not."""


class UpdateHealth(TypedDict):
    """State of the published release of skyhop on a node."""

    release: str
    state: str
    """One of the words of `UpdateState`."""
    why: str


@dataclass(frozen=True)
class HealthReport:
    """Software and resources of the node."""

    KIND: ClassVar = EventKind.HEALTH
    version: str
    programs: list[str]
    kernel: KernelHealth
    disk_free_bytes: int
    clock_offset_ms: float | None
    load: float
    backends: dict[str, str | None]
    """Reason why a back end cannot be used, or `None`, by its name."""
    networks: list[str]
    network_lacks: dict[str, str] = field(default_factory=dict)
    """Reason why a network cannot be used, and what to do, by its name."""
    data: MonthlyData | None = None
    shortage: str = ""
    """Why the disk takes nothing new, as one line; "" if it does."""
    results_bytes: int = 0
    """Bytes that runs take on the node, or may still write."""
    results_most_bytes: float = 0.0
    update: UpdateHealth | None = None
    """State of the published release; `None` if none is published."""


Report = (
    RunReport
    | TaskReport
    | TelemetryReport
    | MapReport
    | TriggerReport
    | ScavengerReport
    | HealthReport
)


def dumps(report: Report) -> str:
    """Return the JSON text of a report."""
    return json.dumps(vars(report), default=vars, separators=(",", ":"))
