"""A run's life as the fold of its events.

A run has no state of its own: what happened to it is a list of changes, each with its time, actor
and reason, and the state is what the last one that was allowed led to. Orchestrator and node fold
the same list to the same state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from skyhop.testbed.words import ACTIVE, ENDED, Reason, State

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
    # A node that returns says what became of its runs.
    State.LOST: (ENDED - {State.LOST}) | ACTIVE,
    State.SKIPPED: frozenset(),
    State.COMPLETE: frozenset(),
    State.FAILED: frozenset(),
    State.ABORTED: frozenset(),
    State.RESCHEDULED: frozenset(),
}
"""Which states may follow which."""


@dataclass(frozen=True)
class Change:
    """A run's step from one state to the next."""

    at_ns: int
    state: State
    actor: str
    """"node:NAME", "user:NAME" or "orchestrator"."""
    reason: Reason | None = None
    details: dict[str, Any] = field(default_factory=dict)
    """What belongs to it: an exit status, a signal, the start of the run in its place."""

    def as_json(self) -> dict[str, Any]:
        """Return it as it stands in messages and tables."""
        return {
            "at_ns": self.at_ns,
            "state": self.state.value,
            "actor": self.actor,
            "reason": self.reason.value if self.reason else None,
            "details": self.details,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Change:
        """Return the change that `as_json` wrote.

        Raises:
            ValueError, KeyError: it is none.
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
    """Return whether a run may go from one state to the other."""
    return after in NEXT[before]


def fold(changes: Iterable[Change], begin: State = State.PLANNED) -> State:
    """Return the state that changes lead to, in the order they came.

    Those that are not allowed change nothing.
    """
    state = begin
    for change in changes:
        if allowed(state, change.state):
            state = change.state
    return state
