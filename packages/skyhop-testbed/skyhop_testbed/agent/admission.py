"""Admission of runs: the inputs of decisions, and the runs that the node refuses."""

from __future__ import annotations

from collections.abc import Callable

from skyhop_testbed.agent import deploying
from skyhop_testbed.agent.deciding import Objection, PlannedRun, Situation
from skyhop_testbed.agent.local_run import LocalRun
from skyhop_testbed.agent.local_runs import LocalRuns
from skyhop_testbed.agent.node import Node
from skyhop_testbed.agent.room import Room
from skyhop_testbed.agent.sensing import Host
from skyhop_testbed.schedule import ScheduledJob
from skyhop_testbed.words import Reason, ScavengerMode, Side

_S = 1_000_000_000


class Admission:
    """Inputs of decisions on this node's runs.

    Args:
        node: the node.
        runs: its runs.
        host: its host, whose traffic runs give way to.
        room: room for results of runs.
        has_fired: returns whether the trigger of a job, by its id, has ever fired here.
    """

    def __init__(
        self,
        node: Node,
        runs: LocalRuns,
        host: Host,
        room: Room,
        has_fired: Callable[[str], bool],
    ) -> None:
        self._node, self._runs, self._host = node, runs, host
        self._room, self._has_fired = room, has_fired

    def situation(self) -> Situation:
        """Return the inputs of a decision now."""
        schedule, promised = self._node.schedule, dict[str, int]()

        def shortage(each: PlannedRun) -> str | None:
            others = sum(size for run, size in promised.items() if run != each.run)
            why = self._room.why_none(others)
            if why is None:
                promised[each.run] = self._room.most_bytes_of_run
            return why

        return Situation(
            now_ns=self._node.clock.now_ns(),
            planned=self._runs.planned(),
            known=self._runs.known(),
            is_scavenged=self._host.is_active,
            late_ns=round(schedule.settings.late_s * _S),
            objection=lambda each: self._objection(schedule.jobs[each.job], Side.CLIENT),
            shortage=shortage,
            has_fired=self._has_fired,
        )

    def why_not_serve(self, local_run: LocalRun, job: ScheduledJob) -> str | None:
        """Return, as text, why the server's side of a run may not begin now; `None` if it may."""
        now_ns = self._node.clock.now_ns()
        if now_ns >= local_run.deadline_ns:
            return "offline: its time is over"
        if job.spec.overhead:
            if self._host.is_active:
                return "scavenger: the host's own traffic comes first"
            if any(known.occupies_node(now_ns) for known in self._runs.known().values()):
                return "busy: another run occupies the node"
        objection = self._objection(job, Side.SERVER)
        if objection is None and (lack := self._room.why_none(0)):
            objection = Reason.DISK, lack
        return None if objection is None else f"{objection[0].value}: {objection[1]}"

    def _objection(self, job: ScheduledJob, side: Side) -> Objection | None:
        """Return why this node refuses a job's runs, as reason and text; `None` if it does not."""
        node, now_ns = self._node, self._node.clock.now_ns()
        if job.fault:
            return None  # The run begins, and its deployment fails.
        refusal = node.policy.refusal(job, now_ns, node.allowance.used_bytes(), side)
        if refusal is not None:
            return Reason.REFUSED, refusal
        network = node.policy.network_of(job.spec.run, side)
        lacks = deploying.missing_requirement(node, job, side, network)
        if lacks is None and node.policy.rule.mode is not ScavengerMode.OFF:
            is_allowed = node.policy.has_uncounted_udp
            lacks = deploying.uncounted_traffic(job, network, is_allowed=is_allowed)
        return None if lacks is None else (Reason.NEEDS, lacks)
