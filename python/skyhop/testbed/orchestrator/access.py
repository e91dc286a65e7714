"""Who may call what: every remote procedure, once.

Whose job, run or node it is, the matter itself checks, with what stands below.
"""

from __future__ import annotations

import sqlalchemy as sa

from skyhop.testbed.orchestrator.desk import Caller, DeniedError, Desk
from skyhop.testbed.store import tables
from skyhop.testbed.words import Role

_USERS = frozenset({Role.ADMIN, Role.USER, Role.USER_PRIV})
_ADMIN = frozenset({Role.ADMIN})
_NODES = frozenset({Role.NODE})

MAY: dict[str, frozenset[Role]] = {
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
"""By the name of the procedure. `Enrol` alone is for everybody: it takes an invitation."""

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
"""Those whose calls stand in the audit log, refused ones too."""


def check_role(procedure: str, caller: Caller) -> None:
    """Let those pass who may call a procedure.

    Raises:
        DeniedError: the caller's role may not.
    """
    if caller.role not in MAY[procedure]:
        raise DeniedError(f"{procedure} is not for the role {caller.role.value}")


def owns_node(desk: Desk, node: str) -> bool:
    """Return whether a node is the caller's, or the caller administers all."""
    if desk.caller.is_admin:
        return True
    query = sa.select(tables.node.c.owner).where(tables.node.c.name == node)
    return desk.connection.scalar(query) == desk.caller.name


def my_nodes(desk: Desk) -> list[str]:
    """Return the nodes that the caller owns."""
    mine = sa.select(tables.node.c.name).where(tables.node.c.owner == desk.caller.name)
    return list(desk.connection.scalars(mine))


def check_owns_node(desk: Desk, node: str) -> None:
    """Let a node's owner and administrators pass.

    Raises:
        DeniedError: it is another's.
    """
    if not owns_node(desk, node):
        raise DeniedError(f"{node} is not your node")


def check_owns_job(desk: Desk, owner: str, what: str) -> None:
    """Let a job's user and administrators pass.

    Raises:
        DeniedError: it is another's.
    """
    if not desk.caller.is_admin and owner != desk.caller.name:
        raise DeniedError(f"{what} is not yours")
