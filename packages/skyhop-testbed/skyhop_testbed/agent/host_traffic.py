"""Traffic of the host: measured each second; a change of the scavenger's decision is reported."""

from __future__ import annotations

from skyhop.telemetry.fields import Sample
from skyhop_testbed.agent.local_runs import LocalRuns
from skyhop_testbed.agent.node import Node
from skyhop_testbed.agent.reports import ScavengerReport
from skyhop_testbed.agent.sensing import Host


class HostTraffic:
    """Measurement of the host's traffic without that of the runs."""

    def __init__(self, node: Node, host: Host, runs: LocalRuns) -> None:
        self._node, self._host, self._runs = node, host, runs
        self._was_active: bool | None = None
        self.has_cap_changed = False
        """Whether the month's cap was reached or lifted at the last measurement."""

    def measure(self, sample: Sample | None) -> None:
        """Read the counters; report when runs must begin or need no longer give way.

        Uploads give way too, and the agent's bytes count in the month's total.

        Args:
            sample: the terminal's newest sample; `None` if it is outdated.
        """
        node, rule = self._node, self._node.policy.rule
        decision = self._host.measure(node.clock.now_ns(), self._runs.counted(), rule, sample)
        self.has_cap_changed = node.allowance.update(
            is_owner_active=decision.active, agent_bytes=self._host.agent_bytes
        )
        if decision.active == self._was_active:
            return
        node.report(ScavengerReport(**vars(decision), mode=rule.mode))
        if decision.active or self._was_active is not None:
            node.say(f"scavenger: {'active' if decision.active else 'over'}: {decision.cause}")
        self._was_active = decision.active
