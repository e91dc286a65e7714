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

    def measure(self, sample: Sample | None) -> None:
        """Read the counters; report when runs must begin or need no longer give way.

        Args:
            sample: the terminal's newest sample; `None` if it is outdated.
        """
        node, rule = self._node, self._node.policy.rule
        decision = self._host.measure(node.clock.now_ns(), self._runs.counted(), rule, sample)
        if decision.active == self._was_active:
            return
        node.report(ScavengerReport(**vars(decision), mode=rule.mode))
        if decision.active or self._was_active is not None:
            node.say(f"scavenger: {'active' if decision.active else 'over'}: {decision.cause}")
        self._was_active = decision.active
