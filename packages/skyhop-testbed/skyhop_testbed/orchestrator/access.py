"""Access control: checks of roles and of ownership.

The modules of jobs, runs and nodes check the owner themselves, with the functions below.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa

from skyhop_testbed.api import Operation
from skyhop_testbed.orchestrator.request_context import Caller, DeniedError, RequestContext
from skyhop_testbed.privacy import shares_traffic
from skyhop_testbed.store import tables


def check_role(operation: Operation[Any, Any], caller: Caller) -> None:
    """Check that the caller's role may call an operation.

    Raises:
        DeniedError: the role may not.
    """
    if caller.role not in operation.roles:
        raise DeniedError(f"{operation.name} is not for the role {caller.role.value}")


def owns_node(ctx: RequestContext, node: str) -> bool:
    """Return whether the caller owns a node or is an administrator."""
    if ctx.caller.is_admin:
        return True
    query = sa.select(tables.node.c.owner).where(tables.node.c.name == node)
    return ctx.connection.scalar(query) == ctx.caller.name


def sees_traffic(ctx: RequestContext, node: str) -> bool:
    """Return whether the caller may read the traffic of a node's owner.

    The owner and administrators may; others if the owner's policy shares it.
    """
    if owns_node(ctx, node):
        return True
    query = sa.select(tables.node.c.policy).where(tables.node.c.name == node)
    return shares_traffic(json.loads(ctx.connection.scalar(query) or "{}"))


def my_nodes(ctx: RequestContext) -> list[str]:
    """Return the names of the nodes that the caller owns."""
    mine = sa.select(tables.node.c.name).where(tables.node.c.owner == ctx.caller.name)
    return list(ctx.connection.scalars(mine))


def check_owns_node(ctx: RequestContext, node: str) -> None:
    """Check that the caller owns a node or is an administrator.

    Raises:
        DeniedError: the node has another owner.
    """
    if not owns_node(ctx, node):
        raise DeniedError(f"{node} is not your node")


def check_owns_job(ctx: RequestContext, owner: str, what: str) -> None:
    """Check that the caller owns a job or is an administrator.

    Args:
        ctx: the request.
        owner: the job's owner.
        what: the job or run, for the message.

    Raises:
        DeniedError: the job has another owner.
    """
    if not ctx.caller.is_admin and owner != ctx.caller.name:
        raise DeniedError(f"{what} is not yours")
