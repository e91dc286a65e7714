"""Agent of a node: the process next to a terminal that executes the orchestrator's schedule.

The agent opens connections only to the outside, keeps its whole state on its own disk (`agent_db`)
and goes on working while the orchestrator is unreachable. `service` is the main loop: it passes on
`orders`, evaluates triggers (`trigger_runs`), and has `deciding` choose, without side effects, what
happens to the node's runs (`local_runs`); `running` drives one run through its states. `link` talks
to the orchestrator, and `sensing` measures terminal and host. Programs run in executors, processes
of their own session: killing the agent does not stop them, and the next agent finds them again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skyhop_testbed.agent.service import Options

__all__ = ["enrol", "run_agent"]


def enrol(invitation: Path, state: Path) -> str:
    """Enrol this machine as a node, with an invitation; return the node's name.

    Raises:
        InputError: the file is no invitation, its token is used or expired, or the directory is
            another node's.
        RunError: the orchestrator cannot be reached, or the directory cannot be written.
    """
    from skyhop_testbed.agent import identity

    return identity.enrol(invitation, state).node


def run_agent(state: Path, *, options: Options | None = None) -> bool:
    """Run a node's agent until Ctrl-C, SIGTERM or SIGHUP; see `service.run_agent`.

    Returns:
        whether the agent is to be started again, in another version.

    Raises:
        InputError: the node is not enrolled, or another agent uses the directory.
        RunError: the directory cannot be written.
    """
    from skyhop_testbed.agent import service

    return service.run_agent(state, options=options)
