"""Decisions of a node: pure functions, so that tests need no clock, disk or network.

Every second `decide` maps the schedule and the runs in the agent's database to the actions to take.
The caller must save the resulting states in the database before it calls again: `decide` never
begins a run that the database says has begun, whatever a schedule says, so that no run is executed
twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from skyhop_testbed.words import ACTIVE, ENDED, JobKind, Reason, Side, State, key_of

if TYPE_CHECKING:
    from skyhop_testbed.agent.local_run import LocalRun
    from skyhop_testbed.job import Job
    from skyhop_testbed.schedule import ScheduledRun

Objection = tuple[Reason, str]
_WORKING = ACTIVE - {State.FINISHING}
_WAITING = {State.ARMED}
_BEFORE_CLAIM = {State.PLANNED, State.ARMED}


class ActionKind(StrEnum):
    """Kind of action on a run."""

    BEGIN = "begin"
    ARM = "arm"
    SKIP = "skip"
    FAIL = "fail"
    """End as failed a run that the orchestrator believes active, but of which this node has no
    record.
    """
    STOP = "stop"


@dataclass(frozen=True)
class Action:
    """Action to take now on one run."""

    kind: ActionKind
    run: str
    """Id of the run; for `STOP`, the key of this node's side of it (`key_of`)."""
    reason: Reason | None = None
    text: str = ""
    is_silent: bool = False
    """Whether no report is needed, because the orchestrator ended the run itself."""


@dataclass(frozen=True)
class PlannedRun:
    """Run in the schedule, or run that a trigger on this node created."""

    run: str
    job: str
    kind: JobKind
    is_overhead: bool
    is_client: bool
    """Whether this node is the run's client; otherwise it is the server."""
    start_ns: int
    end_ns: int
    """End of the run in ns; for a job with a trigger, end of the window in which it may fire."""
    length_ns: int
    state: State = State.PLANNED
    """State of the run at the orchestrator."""
    after: str | None = None

    @classmethod
    def of(
        cls, job: Job, each: ScheduledRun | LocalRun, *, run: str, is_client: bool = True
    ) -> PlannedRun:
        """Return a run of a job; `run` is its id."""
        return cls(
            run=run,
            job=each.job,
            kind=job.when.kind,
            is_overhead=job.overhead,
            is_client=is_client,
            start_ns=each.start_ns,
            end_ns=each.end_ns,
            length_ns=job.length_ns,
            state=each.state,
            after=each.after,
        )

    @property
    def key(self) -> str:
        """Key of this node's side of the run in the database."""
        return key_of(self.run, Side.CLIENT if self.is_client else Side.SERVER)


@dataclass(frozen=True)
class KnownRun:
    """Run in the agent's database."""

    key: str
    run: str
    side: Side
    state: State
    is_overhead: bool
    end_ns: int
    is_made: bool = False

    def occupies_node(self, now_ns: int) -> bool:
        """Return whether the run occupies the node.

        A run that still uploads after its end does not.
        """
        if not self.is_overhead:
            return False
        return self.state in _WORKING or (self.state is State.FINISHING and now_ns < self.end_ns)


@dataclass(frozen=True)
class Situation:
    """Inputs of a decision."""

    now_ns: int
    planned: Sequence[PlannedRun]
    known: Mapping[str, KnownRun]
    """Runs in the database, by `KnownRun.key`."""
    is_scavenged: bool = False
    """Whether runs must give way to the host's own traffic now."""
    late_ns: int = 60_000_000_000
    objection: Callable[[PlannedRun], Objection | None] = lambda _planned: None
    """Function that returns why this node refuses a run, as reason and text, or `None`. Causes are
    the owner's policy and missing programs.
    """
    shortage: Callable[[PlannedRun], str | None] = lambda _planned: None
    """Function that returns why there is no room for a run's results, or `None` if there is. The
    room is then promised to the run.
    """
    has_fired: Callable[[str], bool] = lambda _job: False
    """Function that returns whether the trigger of a job, by its id, has ever fired on this node.
    """


def decide(now: Situation) -> list[Action]:
    """Return the actions to take now, in order: stops first, then runs by their start."""
    actions = _decide_stops(now)
    stopped = {action.run for action in actions}
    # A run that was told to stop occupies the node until its program has ended.
    is_occupied = any(known.occupies_node(now.now_ns) for known in now.known.values())
    # A schedule has thousands of runs that only wait for their start.
    due = [p for p in now.planned if p.start_ns <= now.now_ns or p.state not in _BEFORE_CLAIM]
    for each in sorted(due, key=lambda p: (p.start_ns, p.run)):
        known = now.known.get(each.run)
        if not each.is_client or (known and known.state not in (State.PLANNED, State.ARMED)):
            continue
        if each.run in stopped:
            continue
        action = _decide_waiting(now, each, known, is_occupied=is_occupied)
        if action is None:
            continue
        is_occupied |= action.kind is ActionKind.BEGIN and each.is_overhead
        actions.append(action)
    return actions


def _decide_stops(now: Situation) -> list[Action]:
    """Return `STOP` actions for runs that give way to the host or have left the schedule."""
    known_runs = [each for each in now.known.values() if each.state in _WAITING | _WORKING]
    if not known_runs:
        return []
    wanted = {each.run for each in now.planned if each.state not in ENDED - {State.LOST}}
    actions = []
    for known in known_runs:
        is_wanted = known.run in wanted or known.is_made
        if known.state in _WORKING and known.is_overhead and now.is_scavenged:
            why = "the host's own traffic comes first"
            actions.append(Action(ActionKind.STOP, known.key, Reason.SCAVENGER, why))
        elif not is_wanted and known.side is Side.CLIENT and known.state in _WAITING | _WORKING:
            why = "the run is not in the schedule any more"
            actions.append(Action(ActionKind.STOP, known.key, Reason.USER, why, is_silent=True))
    return actions


def _decide_waiting(
    now: Situation, each: PlannedRun, known: KnownRun | None, *, is_occupied: bool
) -> Action | None:
    """Return what to do with a run that has not begun on this node; `None` for nothing yet."""
    if each.state in ENDED - {State.LOST}:
        return None
    if known is None and each.state in ACTIVE:
        return Action(
            ActionKind.FAIL, each.run, Reason.KILLED, "this node has lost its record of the run"
        )
    if each.state is State.LOST:
        return Action(ActionKind.SKIP, each.run, Reason.OFFLINE, "the node was offline")
    if now.now_ns < each.start_ns:
        return None
    if each.kind is JobKind.TRIGGER:
        return _decide_trigger(now, each, known)
    return _decide_due(now, each, is_occupied=is_occupied)


def _decide_due(now: Situation, each: PlannedRun, *, is_occupied: bool) -> Action | None:
    """Return what to do with a run whose start has passed: begin it, skip it, or wait (`None`)."""
    is_late = now.now_ns > each.start_ns + now.late_ns
    why: Objection | None = None
    if now.now_ns >= each.end_ns:
        why = Reason.OFFLINE, "its time was over"
    elif each.is_overhead and now.is_scavenged:
        why = Reason.SCAVENGER, "the host's own traffic comes first"
    elif each.is_overhead and is_occupied:
        if not is_late:
            return None
        why = Reason.BUSY, "another run occupies the node"
    elif is_late:
        late_s = (now.now_ns - each.start_ns) / 1e9
        why = Reason.OFFLINE, f"its start was {late_s:.0f} s ago"
    else:
        why = now.objection(each)
        if why is None and (lack := now.shortage(each)) is not None:
            # There may soon be room; but a run that waits longer would lose much of its time.
            if now.now_ns < each.start_ns + min(now.late_ns, each.length_ns // 10):
                return None
            why = Reason.DISK, lack
    return Action(ActionKind.SKIP, each.run, *why) if why else Action(ActionKind.BEGIN, each.run)


def _decide_trigger(now: Situation, each: PlannedRun, known: KnownRun | None) -> Action | None:
    """Return what to do with a run that starts on a trigger: arm it, skip it, or wait (`None`)."""
    is_armed = known is not None and known.state is State.ARMED
    if now.now_ns >= each.end_ns:
        if not is_armed:
            return Action(ActionKind.SKIP, each.run, Reason.OFFLINE, "its window was over")
        if each.after is None and not now.has_fired(each.job):
            return Action(ActionKind.SKIP, each.run, Reason.NEVER_FIRED, "its trigger did not fire")
        return Action(ActionKind.SKIP, each.run, Reason.WINDOW_OVER, "its window was over")
    if is_armed:
        return None
    objection = now.objection(each)
    return (
        Action(ActionKind.SKIP, each.run, *objection)
        if objection
        else Action(ActionKind.ARM, each.run)
    )


def hindrance(now: Situation, each: PlannedRun) -> str | None:
    """Return, as text, why a run whose trigger has fired may not begin; `None` if it may."""
    if now.now_ns >= each.end_ns:
        return "window-over"
    objection = now.objection(each)
    if objection is None and (lack := now.shortage(each)) is not None:
        objection = Reason.DISK, lack
    if objection is not None:
        return f"{objection[0].value}: {objection[1]}"
    if not each.is_overhead:
        return None
    if now.is_scavenged:
        return "scavenger: the host's own traffic comes first"
    if any(known.occupies_node(now.now_ns) for known in now.known.values()):
        return "busy: another run occupies the node"
    meeting = next_reserved(now, each)
    return f"busy: run {meeting.run} is planned before its end" if meeting else None


def next_reserved(now: Situation, each: PlannedRun) -> PlannedRun | None:
    """Return the first planned run that would overlap with `each` if `each` began now."""
    return _first(
        other
        for other in now.planned
        if other.kind is not JobKind.TRIGGER
        and other.is_overhead
        and other.state in (State.PLANNED, *ACTIVE)
        and (other.key not in now.known or now.known[other.key].state not in ENDED)
        and other.start_ns < now.now_ns + each.length_ns
        and other.end_ns > now.now_ns
    )


def _first(runs: Iterable[PlannedRun]) -> PlannedRun | None:
    return min(runs, key=lambda run: run.start_ns, default=None)
