"""Versions and protocols of nodes' agents, as they state them when they connect."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import sqlalchemy as sa

from skyhop_testbed.orchestrator.request_context import Caller, as_json
from skyhop_testbed.protocol import Peer
from skyhop_testbed.store.tables import node

if TYPE_CHECKING:
    from skyhop_testbed.orchestrator.core import Orchestrator


def note_agent(orchestrator: Orchestrator, caller: Caller, agent: Peer) -> None:
    """Store version and protocols of a node's agent, if they have changed."""
    text = as_json({"version": agent.version, "lowest": agent.lowest, "highest": agent.highest})
    mine = node.c.name == caller.name
    with orchestrator.reading(caller) as ctx:
        if ctx.connection.scalar(sa.select(node.c.agent).where(mine)) == text:
            return
    with orchestrator.writing(caller) as ctx:
        ctx.execute(sa.update(node).where(mine).values(agent=text))


def agent_of(row: sa.RowMapping) -> Peer | None:
    """Return version and protocols of a node's agent; `None` if it has never connected."""
    values = json.loads(row["agent"])
    return Peer(**values) if values else None
