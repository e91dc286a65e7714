"""Back end `process`: a sandbox of Linux namespaces, with nothing to install."""

from __future__ import annotations

import os
from pathlib import Path

from skyhop_testbed import signals
from skyhop_testbed.executor import sandbox_fs, user_network
from skyhop_testbed.executor.assignment import Assignment
from skyhop_testbed.executor.devices import DeviceSetup
from skyhop_testbed.executor.environment import command_of, environment_of
from skyhop_testbed.executor.sandbox import AttachDevice, Plan, Sandbox, chown_tree, user_of
from skyhop_testbed.kernel.network import DEVICE
from skyhop_testbed.words import Network

_LONGEST_HOST_NAME = 63


class Process:
    """Back end that runs programs in sandboxes."""

    def unavailable_reason(self, assignment: Assignment) -> str | None:
        """Return why a run cannot execute.

        Namespaces that this machine forbids show only at the start.
        """
        if assignment.network is Network.INTERNET:
            return user_network.unavailable_reason()
        if assignment.network is Network.VETH and assignment.kernel is None:
            return 'network = "veth" needs the kernel service, which this node does not have'
        return None

    def start(
        self,
        assignment: Assignment,
        work: Path,
        output: tuple[int, int],
        attach_device: AttachDevice | None,
    ) -> Sandbox:
        """Start the run's program in a new sandbox."""
        user = user_of(assignment.key) if os.geteuid() == 0 else None
        command = command_of(assignment, work)
        is_live = assignment.command is None and assignment.engine == "live"
        seen = sandbox_fs.system_mounts()
        seen += sandbox_fs.skyhop_mounts() if assignment.command is None else []
        seen += sandbox_fs.live_mounts() if is_live else []
        if assignment.signals is not None:
            seen.append(sandbox_fs.BindMount(assignment.signals, signals.DIRECTORY))
        is_internet = assignment.network is Network.INTERNET
        if user is not None:
            chown_tree(work, user)
        plan = Plan(
            command=command,
            environment=environment_of(assignment, sandbox_fs.HOME),
            work=work,
            mounts=seen,
            name=assignment.node[:_LONGEST_HOST_NAME] or "run",
            own_network=assignment.network is not Network.HOST,
            may_nest=is_live,
            limits=assignment.limits,
            setup=_setup(assignment),
            resolver=user_network.RESOLVER_FILE if is_internet else None,
        )
        return Sandbox(plan, user, output, attach_device)

    def clean(self, key: str) -> None:
        """Do nothing: the kernel ends the namespaces with their processes."""


def _setup(assignment: Assignment) -> DeviceSetup | None:
    """Return the setup of the device that a run's own network namespace gets."""
    if assignment.network is Network.INTERNET:
        return user_network.setup_of(assignment.fence)
    if assignment.network is Network.VETH:
        return DeviceSetup(assignment.fence, DEVICE)
    return None
