"""Reports that a node repeats after its orchestrator was restored from a backup.

The orchestrator has forgotten what it acknowledged since the backup. Each run that was in progress
then or later is reported again, by the shortest permitted way from the state in which the
orchestrator's schedule has it to its present state. Results that are still on the node are uploaded
again.
"""

from __future__ import annotations

from collections import deque

from skyhop_testbed.agent.local_run import LocalRun
from skyhop_testbed.agent.local_runs import LocalRuns
from skyhop_testbed.agent.node import Node
from skyhop_testbed.agent.reports import FollowUp, RunDetails
from skyhop_testbed.agent.running import run_entry
from skyhop_testbed.states import NEXT
from skyhop_testbed.words import ENDED, JobKind, Side, State

_KEY = "restored"
_SLACK_NS = 60 * 1_000_000_000
"""Time before the backup from which runs are reported again: a report may have been on its way."""


def report_again(node: Node, runs: LocalRuns) -> None:
    """Report runs again if the node's schedule is the first since its orchestrator was restored."""
    settings = node.schedule.settings
    at_ns, from_ns = settings.restored_at_ns, settings.restored_from_ns - _SLACK_NS
    if str(at_ns) == (node.db.get(_KEY) or "0"):
        return
    for local_run in [*runs]:
        is_unknown = not local_run.settled_ns or local_run.settled_ns >= from_ns
        if is_unknown and local_run.side is Side.CLIENT and not local_run.is_silent:
            _report(node, local_run)
        if local_run.settled_ns >= from_ns:
            runs.upload_again(local_run)
    node.db.put(_KEY, str(at_ns))


def _report(node: Node, local_run: LocalRun) -> None:
    known = node.schedule.runs.get(local_run.run)
    # A run that is not in the schedule has ended there, or counts as lost.
    before = State.LOST if known is None else known.state
    now_ns = node.clock.now_ns()
    new = None
    if known is None and local_run.after and local_run.spec.when.kind is JobKind.TRIGGER:
        new = FollowUp(local_run.run, local_run.after, local_run.start_ns, local_run.end_ns)
    for state in way(before, local_run.state):
        details: RunDetails = {"text": "reported again: the orchestrator was restored"}
        if state is State.CLAIMED:
            details["fence"] = local_run.fence
        node.db.add(run_entry(local_run, now_ns, details, new, state=state))
        new = None


def way(before: State, after: State) -> list[State]:
    """Return the states of the shortest permitted way, without `before`; empty if there is none."""
    ways: deque[tuple[State, list[State]]] = deque([(before, [])])
    seen = {before}
    while ways:
        state, steps = ways.popleft()
        if state is after:
            return steps
        if state in ENDED - {before}:
            continue
        for following in sorted(NEXT[state] - seen):
            seen.add(following)
            ways.append((following, [*steps, following]))
    return []
