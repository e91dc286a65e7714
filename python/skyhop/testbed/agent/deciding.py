"""What a node does now: pure, so that it can be tried without a clock, a disk or a net.

It is asked every second with all that is planned and all that is known here, and answers with what
to do. What it answered has to be in the book before it is asked again: a run that the book knows is
not begun any more, whatever a schedule says, so that none is executed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from skyhop.testbed.agent.life import key_of
from skyhop.testbed.words import ACTIVE, ENDED, JobKind, Reason, Side, State

Objection = tuple[Reason, str]
_WORKING = ACTIVE - {State.FINISHING}
_WAITING = {State.ARMED}


class Do(StrEnum):
    """What is done with a run."""

    BEGIN = "begin"
    ARM = "arm"
    SKIP = "skip"
    FAIL = "fail"
    """It was begun here once, and nothing is known of it any more."""
    STOP = "stop"


@dataclass(frozen=True)
class Action:
    """One thing to do now."""

    do: Do
    run: str
    """Of `STOP`: the life's key."""
    reason: Reason | None = None
    text: str = ""
    is_silent: bool = False
    """The orchestrator knows already."""


@dataclass(frozen=True)
class Planned:
    """A run of the schedule, or one that a trigger here made."""

    run: str
    job: str
    kind: JobKind
    is_overhead: bool
    is_client: bool
    """Whether this node is its client; or else it serves it."""
    start_ns: int
    end_ns: int
    """Of a trigger's: of the window."""
    length_ns: int
    state: State = State.PLANNED
    """What the orchestrator believes."""
    after: str | None = None

    @property
    def key(self) -> str:
        """How the book calls this node's side of it."""
        return key_of(self.run, Side.CLIENT if self.is_client else Side.SERVER)


@dataclass(frozen=True)
class Known:
    """A run that the book knows."""

    key: str
    run: str
    side: Side
    state: State
    is_overhead: bool
    end_ns: int
    is_made: bool = False

    def holds(self, now_ns: int) -> bool:
        """Return whether it has the node; an upload that takes longer than planned has not."""
        if not self.is_overhead:
            return False
        return self.state in _WORKING or (self.state is State.FINISHING and now_ns < self.end_ns)


@dataclass(frozen=True)
class Situation:
    """All that a decision depends on."""

    now_ns: int
    planned: Sequence[Planned]
    known: Mapping[str, Known]
    """By key."""
    is_scavenged: bool = False
    """Whether the host's own traffic comes first."""
    late_ns: int = 60_000_000_000
    objection: Callable[[Planned], Objection | None] = lambda _planned: None
    """Why this node does not do it: its owner's policy, or what it lacks."""
    has_fired: Callable[[str], bool] = lambda _job: False
    """Whether a job's trigger ever fired here."""


def decide(now: Situation) -> list[Action]:
    """Return what to do, in this order."""
    actions = _stops(now)
    stopped = {action.run for action in actions}
    # What is told to stop still has the node until it has stopped.
    is_taken = any(known.holds(now.now_ns) for known in now.known.values())
    for each in sorted(now.planned, key=lambda p: (p.start_ns, p.run)):
        known = now.known.get(each.run)
        if not each.is_client or (known and known.state not in (State.PLANNED, State.ARMED)):
            continue
        if each.run in stopped:
            continue
        action = _of_waiting(now, each, known, is_taken=is_taken)
        if action is None:
            continue
        is_taken |= action.do is Do.BEGIN and each.is_overhead
        actions.append(action)
    return actions


def _stops(now: Situation) -> list[Action]:
    """Return which runs end now: those that make room, and those that are not wanted any more."""
    wanted = {each.run for each in now.planned if each.state not in ENDED - {State.LOST}}
    actions = []
    for known in now.known.values():
        is_wanted = known.run in wanted or known.is_made
        if known.state in _WORKING and known.is_overhead and now.is_scavenged:
            why = "the host's own traffic comes first"
            actions.append(Action(Do.STOP, known.key, Reason.SCAVENGER, why))
        elif not is_wanted and known.side is Side.CLIENT and known.state in _WAITING | _WORKING:
            why = "it is not in the schedule any more"
            actions.append(Action(Do.STOP, known.key, Reason.USER, why, is_silent=True))
    return actions


def _of_waiting(
    now: Situation, each: Planned, known: Known | None, *, is_taken: bool
) -> Action | None:
    """Return what becomes of a run that has not begun here."""
    if each.state in ENDED - {State.LOST}:
        return None
    if known is None and each.state in ACTIVE:
        return Action(Do.FAIL, each.run, Reason.KILLED, "this node has lost what it knew of it")
    if each.state is State.LOST:
        return Action(Do.SKIP, each.run, Reason.OFFLINE, "the node was not there")
    if now.now_ns < each.start_ns:
        return None
    if each.kind is JobKind.TRIGGER:
        return _of_window(now, each, known)
    return _of_due(now, each, is_taken=is_taken)


def _of_due(now: Situation, each: Planned, *, is_taken: bool) -> Action | None:
    """Return what becomes of a run whose start has come."""
    is_late = now.now_ns > each.start_ns + now.late_ns
    why: Objection | None = None
    if now.now_ns >= each.end_ns:
        why = Reason.OFFLINE, "its time was over"
    elif each.is_overhead and now.is_scavenged:
        why = Reason.SCAVENGER, "the host's own traffic comes first"
    elif each.is_overhead and is_taken:
        if not is_late:
            return None
        why = Reason.BUSY, "another run has the node"
    elif is_late:
        late_s = (now.now_ns - each.start_ns) / 1e9
        why = Reason.OFFLINE, f"its start was {late_s:.0f} s ago"
    else:
        why = now.objection(each)
    return Action(Do.SKIP, each.run, *why) if why else Action(Do.BEGIN, each.run)


def _of_window(now: Situation, each: Planned, known: Known | None) -> Action | None:
    """Return what becomes of a run that waits for its trigger."""
    is_armed = known is not None and known.state is State.ARMED
    if now.now_ns >= each.end_ns:
        if not is_armed:
            return Action(Do.SKIP, each.run, Reason.OFFLINE, "its window was over")
        if each.after is None and not now.has_fired(each.job):
            return Action(Do.SKIP, each.run, Reason.NEVER_FIRED, "its trigger did not fire")
        return Action(Do.SKIP, each.run, Reason.WINDOW_OVER, "its window was over")
    if is_armed:
        return None
    objection = now.objection(each)
    return Action(Do.SKIP, each.run, *objection) if objection else Action(Do.ARM, each.run)


def hindrance(now: Situation, each: Planned) -> str | None:
    """Return why a run whose trigger fired does not begin; `None` where it does."""
    if now.now_ns >= each.end_ns:
        return "window-over"
    objection = now.objection(each)
    if objection is not None:
        return f"{objection[0].value}: {objection[1]}"
    if not each.is_overhead:
        return None
    if now.is_scavenged:
        return "scavenger: the host's own traffic comes first"
    if any(known.holds(now.now_ns) for known in now.known.values()):
        return "busy: another run has the node"
    meeting = next_reserved(now, each)
    return f"busy: run {meeting.run} comes before its end" if meeting else None


def next_reserved(now: Situation, each: Planned) -> Planned | None:
    """Return a reserved run that one beginning now would meet."""
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


def _first(runs: Iterable[Planned]) -> Planned | None:
    return min(runs, key=lambda run: run.start_ns, default=None)
