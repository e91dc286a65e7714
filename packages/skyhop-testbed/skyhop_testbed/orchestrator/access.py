"""Access control: the roles that may call each remote procedure, and checks of ownership.

The modules of jobs, runs and nodes check the owner themselves, with the functions below.
"""

from __future__ import annotations

import sqlalchemy as sa

from skyhop_testbed.orchestrator.request_context import Caller, DeniedError, RequestContext
from skyhop_testbed.store import tables
from skyhop_testbed.words import Role

_USERS = frozenset({Role.ADMIN, Role.USER, Role.USER_PRIV})
_ADMIN = frozenset({Role.ADMIN})
_NODES = frozenset({Role.NODE})

ALLOWED_ROLES: dict[str, frozenset[Role]] = {
    "Renew": _NODES,
    "Follow": _NODES,
    "Claim": _NODES,
    "Report": _NODES,
    "Input": _NODES,
    "UploadState": _NODES,
    "Upload": _NODES,
    "CheckJob": _USERS,
    "SubmitJob": _USERS,
    "ModifyJob": _USERS,
    "CancelJob": _USERS,
    "ListJobs": _USERS,
    "NextSlot": _USERS,
    "Calendar": _USERS,
    "ListRuns": _USERS,
    "GetRun": _USERS,
    "WatchRun": _USERS,
    "AbortRun": _USERS,
    "RescheduleRun": _USERS,
    "Fetch": _USERS,
    "ListNodes": _USERS,
    "GetNode": _USERS,
    "SetScavenger": _USERS,
    "SetPolicy": _USERS,
    "Telemetry": _USERS,
    "ObstructionMap": _USERS,
    "TestTrigger": _USERS,
    "TriggerLog": _USERS,
    "GetProfile": _USERS,
    "PutProfile": _USERS,
    "PutUser": _ADMIN,
    "DeleteUser": _ADMIN,
    "ListUsers": _ADMIN,
    "IssueToken": _ADMIN,
    "RevokeToken": _ADMIN,
    "PutNode": _ADMIN,
    "DeleteNode": _ADMIN,
    "Invite": _ADMIN,
    "GetConfig": _ADMIN,
    "PutConfig": _ADMIN,
    "Audit": _ADMIN,
}
"""Roles that may call each procedure. `Enrol` is absent: its caller has only an invitation."""

AUDITED = frozenset(
    {
        "SubmitJob",
        "ModifyJob",
        "CancelJob",
        "AbortRun",
        "RescheduleRun",
        "SetScavenger",
        "SetPolicy",
        "PutUser",
        "DeleteUser",
        "IssueToken",
        "RevokeToken",
        "PutNode",
        "DeleteNode",
        "Invite",
        "PutConfig",
        "Enrol",
        "Renew",
    }
)
"""Procedures whose calls are written to the audit log, including refused calls."""


def check_role(procedure: str, caller: Caller) -> None:
    """Check that the caller's role may call a procedure.

    Raises:
        DeniedError: the role may not.
    """
    if caller.role not in ALLOWED_ROLES[procedure]:
        raise DeniedError(f"{procedure} is not for the role {caller.role.value}")


def owns_node(ctx: RequestContext, node: str) -> bool:
    """Return whether the caller owns a node or is an administrator."""
    if ctx.caller.is_admin:
        return True
    query = sa.select(tables.node.c.owner).where(tables.node.c.name == node)
    return ctx.connection.scalar(query) == ctx.caller.name


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
