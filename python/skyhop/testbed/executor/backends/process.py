"""The back end `process`: a sandbox of namespaces, with nothing to install."""

from __future__ import annotations

import os
from pathlib import Path

from skyhop.testbed.executor import places
from skyhop.testbed.executor.assignment import Assignment
from skyhop.testbed.executor.environment import command_of, environment_of
from skyhop.testbed.executor.sandbox import Furnish, Plan, Sandbox, give, user_of
from skyhop.testbed.words import Network

_LONGEST_HOST_NAME = 63


class Process:
    """Programs in sandboxes."""

    def lacks(self, assignment: Assignment) -> str | None:
        """Return why it cannot be had; a machine that forbids namespaces says so at the start."""
        if assignment.network is Network.VETH and assignment.kernel is None:
            return 'network = "veth" needs the kernel service, which this node does not have'
        return None

    def start(
        self, assignment: Assignment, work: Path, output: tuple[int, int], furnish: Furnish | None
    ) -> Sandbox:
        """Start the program in a sandbox of its own."""
        user = user_of(assignment.run) if os.geteuid() == 0 else None
        command = command_of(assignment, work)
        is_live = assignment.command is None and assignment.engine == "live"
        seen = places.of_system()
        seen += places.of_skyhop() if assignment.command is None else []
        seen += places.of_live() if is_live else []
        if user is not None:
            give(work, user)
        plan = Plan(
            command=command,
            environment=environment_of(assignment, places.HOME),
            work=work,
            places=seen,
            name=assignment.node[:_LONGEST_HOST_NAME] or "run",
            own_network=assignment.network is not Network.HOST,
            may_nest=is_live,
            limits=assignment.limits,
        )
        return Sandbox(plan, user, output, furnish)

    def clean(self, run: str) -> None:
        """Leave nothing, as the kernel sees to it."""
