"""State machine of a run: its state is computed from its list of changes.

Each change has a time, an actor and a reason. The run's state is that of the last permitted change
in the list. Orchestrator and node derive the same state from the same list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from skyhop_testbed.words import ACTIVE, ENDED, Reason, State

_BEFORE_FINISHING = (State.ABORTED, State.RESCHEDULED, State.FAILED, State.LOST)

NEXT: dict[State, frozenset[State]] = {
    State.PLANNED: frozenset({State.ARMED, State.CLAIMED, State.SKIPPED, *_BEFORE_FINISHING}),
    State.ARMED: frozenset({State.CLAIMED, State.SKIPPED, *_BEFORE_FINISHING}),
    State.CLAIMED: frozenset({State.DEPLOYING, State.SKIPPED, *_BEFORE_FINISHING}),
    State.DEPLOYING: frozenset(
        {State.WAITING_SERVER, State.EXECUTING, State.FINISHING, *_BEFORE_FINISHING}
    ),
    State.WAITING_SERVER: frozenset({State.EXECUTING, State.FINISHING, *_BEFORE_FINISHING}),
    State.EXECUTING: frozenset({State.FINISHING, *_BEFORE_FINISHING}),
    State.FINISHING: frozenset(
        {State.COMPLETE, State.FAILED, State.ABORTED, State.RESCHEDULED, State.LOST}
    ),
    # A node that comes back online reports the outcome of runs that were marked lost.
    State.LOST: (ENDED - {State.LOST}) | ACTIVE,
    State.SKIPPED: frozenset(),
    State.COMPLETE: frozenset(),
    State.FAILED: frozenset(),
    State.ABORTED: frozenset(),
    State.RESCHEDULED: frozenset(),
}
"""States that are permitted after each state."""


@dataclass(frozen=True)
class Change:
    """Change of a run's state, with its time, actor and reason."""

    at_ns: int
    state: State
    actor: str
    """"node:NAME", "user:NAME" or "orchestrator"."""
    reason: Reason | None = None
    details: dict[str, Any] = field(default_factory=dict)
    """Details of the change, such as an exit status, a signal, or the start of the replacing run.
    """

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Change:
        """Parse the JSON object with these fields that messages and tables hold.

        Raises:
            ValueError, KeyError: the values are no change.
        """
        reason = values.get("reason")
        return cls(
            at_ns=int(values["at_ns"]),
            state=State(values["state"]),
            actor=str(values["actor"]),
            reason=Reason(reason) if reason else None,
            details=dict(values.get("details") or {}),
        )


def allowed(before: State, after: State) -> bool:
    """Return whether a run may change from state `before` to state `after`."""
    return after in NEXT[before]


def fold(changes: Iterable[Change], begin: State = State.PLANNED) -> State:
    """Return the state after changes, applied in order; forbidden changes are ignored."""
    state = begin
    for change in changes:
        if allowed(state, change.state):
            state = change.state
    return state
