"""The agent: what runs beside a terminal, and does there what the orchestrator has planned.

It dials out only, keeps all that it has to know on its own disk (`book`), and goes on while nobody
answers. `deciding` says what to do now, without doing anything; `running` takes one run through its
life; `link` speaks with the orchestrator; `sensing` looks at terminal and host, `triggering` at
what starts runs; `service` brings them together. Programs run in executors, which live beside the
agent and not below it: who kills the agent does not stop them, and the next agent finds them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skyhop.testbed.agent.service import Options

__all__ = ["enrol", "run_agent"]


def enrol(invitation: Path, state: Path) -> str:
    """Make a node of this machine, by an invitation; return the node's name.

    Raises:
        InputError: the file is no invitation, its token is not good any more, or there is an
            identity already.
        RunError: the orchestrator cannot be reached, or the directory not be written.
    """
    from skyhop.testbed.agent import identity

    return identity.enrol(invitation, state).node


def run_agent(state: Path, *, options: Options | None = None) -> int:
    """Run a node's agent until SIGTERM or SIGINT, and return 0; see `service.run_agent`.

    Raises:
        InputError: the node is not enrolled, or another agent has the directory.
        RunError: the directory cannot be written.
    """
    from skyhop.testbed.agent import service

    return service.run_agent(state, options=options)
