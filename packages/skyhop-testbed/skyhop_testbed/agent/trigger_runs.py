"""Runs that triggers start: the triggers of armed runs, evaluated on each new sample."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from skyhop.telemetry.fields import Sample
from skyhop_testbed.agent.admission import Admission
from skyhop_testbed.agent.agent_db import OutboxEntry
from skyhop_testbed.agent.deciding import hindrance
from skyhop_testbed.agent.local_run import LocalRun
from skyhop_testbed.agent.local_runs import LocalRuns
from skyhop_testbed.agent.node import Node
from skyhop_testbed.agent.reports import TriggerReport
from skyhop_testbed.agent.triggering import ArmedTrigger, Triggers
from skyhop_testbed.ids import new_id
from skyhop_testbed.words import Side, State

if TYPE_CHECKING:
    from skyhop_testbed.triggers import Evaluation


class TriggerRuns:
    """Evaluation of triggers, and start of the runs whose trigger has fired.

    Args:
        node: the node.
        runs: its runs.
        triggers: triggers of armed runs, with their states.
        admission: inputs of decisions, which may prevent a start.
    """

    def __init__(
        self, node: Node, runs: LocalRuns, triggers: Triggers, admission: Admission
    ) -> None:
        self._node, self._runs = node, runs
        self._triggers, self._admission = triggers, admission

    def evaluate(self, sample: Sample) -> None:
        """Evaluate the triggers of armed runs, and start the runs of those that fired."""
        armed = {
            local_run.job: local_run
            for local_run in self._runs.unsettled()
            if local_run.state is State.ARMED and local_run.side is Side.CLIENT
        }
        self._triggers.follow({job: local_run.spec for job, local_run in armed.items()})
        for each, evaluation in self._triggers.evaluate(sample):
            local_run = armed[each.job]
            run, why = None, evaluation.why
            if evaluation.fired:
                why = self._fire(each, local_run) or ""
                run = None if why else local_run.run
            if self._triggers.is_reportable(each, evaluation):
                self._report(each, evaluation, run, why)

    def _report(
        self, armed: ArmedTrigger, evaluation: Evaluation, run: str | None, why: str
    ) -> None:
        report = TriggerReport(
            job=armed.job,
            run=run,
            fired=evaluation.fired,
            value=evaluation.value,
            outcome=evaluation.outcome.value,
            why=why,
            inputs=evaluation.inputs,
        )
        self._node.db.add(OutboxEntry(evaluation.at_ns, report))

    def _fire(self, armed: ArmedTrigger, local_run: LocalRun) -> str | None:
        """Start the run that waits for a trigger which has fired.

        Return why not, or `None` if it started.
        """
        situation = self._admission.situation()
        each = next((p for p in situation.planned if p.run == local_run.run), None)
        if each is None:
            return "job-ended: the run is not in the schedule any more"
        why = hindrance(situation, each)
        if why is not None:
            return why
        window_end_ns = local_run.end_ns
        armed.runs += 1
        self._triggers.save(armed.job)
        now_ns = self._node.clock.now_ns()
        local_run.start_ns, local_run.end_ns = now_ns, now_ns + local_run.spec.length_ns
        goes_on = armed.max_runs is None or armed.runs < armed.max_runs
        self._runs.begin(local_run, _next(local_run, now_ns, window_end_ns) if goes_on else None)
        return None

    def close(self) -> None:
        """Save the states of all triggers, and remove their socket."""
        self._triggers.close()


def _next(before: LocalRun, now_ns: int, end_ns: int) -> LocalRun:
    """Return the next run of a trigger, which waits, as `before` did, in the rest of the window."""
    return replace(
        before, run=new_id(now_ns), start_ns=now_ns, end_ns=end_ns, after=before.run, is_made=True
    )
