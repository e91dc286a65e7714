"""For administrators: users, nodes and their invitations, settings, who did what."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from skyhop.errors import InputError
from skyhop.testbed.keys import fingerprint
from skyhop.testbed.orchestrator import nodes as matters
from skyhop.testbed.orchestrator import people
from skyhop.testbed.web import queries
from skyhop.testbed.web.ask import Ask
from skyhop.testbed.words import Role

_ROLES = (Role.USER, Role.USER_PRIV, Role.ADMIN)
_ROWS = 100
_DAY_NS = 86_400 * 10**9
_TOKEN_DAYS = 90


def show(ask: Ask) -> Response:
    """Show what there is to administer."""
    ask.check_admin()
    with ask.reading() as desk:
        counts = {
            "users": len(people.users(desk)),
            "nodes": len(queries.names_of_nodes(desk)),
            "invitations": len(queries.invitations(desk)),
        }
        log = queries.audit_log(desk, limit=10)
    return ask.page("admin.html", title="Administration", counts=counts, log=log)


def users(ask: Ask) -> Response:
    """Show users, and a form to make or change one."""
    return _users(ask, 200)


def _users(ask: Ask, status: int, *, said: str = "", secret: str = "", of: str = "") -> Response:
    ask.check_admin()
    with ask.reading() as desk:
        listed = people.users(desk)
    edited = next((u for u in listed if u["name"] == ask.query("edit")), None)
    return ask.page(
        "admin_users.html",
        status,
        title="Users",
        users=listed,
        edited=edited or {},
        roles=[role.value for role in _ROLES],
        said=said,
        secret=secret,
        of=of,
        token_days=_TOKEN_DAYS,
    )


def put_user(ask: Ask) -> Response:
    """Make or change a user."""
    values: dict[str, Any] = {
        key: ask.field(key).strip() for key in ("name", "full_name", "team", "role")
    }
    values["disabled"] = ask.field("disabled") == "yes"
    try:
        ask.act("PutUser", values["name"], lambda desk: people.put_user(desk, values))
    except InputError as error:
        return _users(ask, 400, said=str(error))
    return ask.go("/admin/users", "out" if values["disabled"] else "user")


def delete_user(ask: Ask) -> Response:
    """Forget a user, whose jobs end; one who has jobs or nodes is disabled."""
    name = ask.path("name")
    ask.act("DeleteUser", name, lambda desk: people.delete_user(desk, name))
    return ask.go("/admin/users", "out")


def make_token(ask: Ask) -> Response:
    """Make a user's token, which is shown this once."""
    name = ask.path("name")
    expires_ns = ask.office.now_ns() + _TOKEN_DAYS * _DAY_NS
    secret = ask.act(
        "IssueToken",
        name,
        lambda desk: people.issue(
            desk,
            people.TOKEN,
            of_user=name,
            expires_ns=expires_ns,
            label="from the administrator",
        ),
    )
    return _users(ask, 200, secret=secret, of=name)


def revoke_tokens(ask: Ask) -> Response:
    """Take all of a user's tokens and sessions away."""
    name = ask.path("name")
    ask.act("RevokeToken", name, lambda desk: people.revoke(desk, name, "*"))
    return ask.go("/admin/users", "revoked")


def nodes(ask: Ask) -> Response:
    """Show nodes, and a form to make or change one."""
    return _nodes(ask, 200)


def _nodes(ask: Ask, status: int, *, said: str = "", secret: str = "", of: str = "") -> Response:
    ask.check_admin()
    with ask.reading() as desk:
        listed = [matters.document(desk, name) for name in queries.names_of_nodes(desk)]
        invited = queries.invitations(desk)
        names = [user["name"] for user in people.users(desk)]
    edited = next((node for node in listed if node["name"] == ask.query("edit")), None)
    return ask.page(
        "admin_nodes.html",
        status,
        title="Nodes and invitations",
        nodes=listed,
        invited=invited,
        users=names,
        edited=edited or {},
        said=said,
        secret=secret,
        of=of,
        authority=fingerprint(ask.office.authority.certificate_pem).hex(),
        minutes=people.INVITATION_NS // (60 * 10**9),
    )


def put_node(ask: Ask) -> Response:
    """Make or change a node."""
    values: dict[str, Any] = {
        key: ask.field(key).strip()
        for key in ("name", "owner", "description", "provider", "address")
    }
    try:
        for key in ("latitude_deg", "longitude_deg"):
            values[key] = _degrees(key, ask.field(key).strip())
        ask.act("PutNode", values["name"], lambda desk: matters.put(desk, values))
    except InputError as error:
        return _nodes(ask, 400, said=str(error))
    return ask.go("/admin/nodes", "node")


def _degrees(key: str, text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        raise InputError(f"{key}: expected a number") from None


def invite(ask: Ask) -> Response:
    """Make an invitation for a node, which is shown this once."""
    name = ask.path("name")
    expires_ns = ask.office.now_ns() + people.INVITATION_NS
    secret = ask.act(
        "Invite",
        name,
        lambda desk: people.issue(desk, people.INVITATION, of_node=name, expires_ns=expires_ns),
    )
    return _nodes(ask, 200, secret=secret, of=name)


def delete_node(ask: Ask) -> Response:
    """Take a node off the testbed, and its telemetry with it."""
    name = ask.path("name")
    ask.act("DeleteNode", name, lambda desk: matters.delete(desk, name))
    ask.office.telemetry.delete(name)
    return ask.go("/admin/nodes", "deleted")


def config(ask: Ask) -> Response:
    """Show the settings."""
    ask.check_admin()
    with ask.reading() as desk:
        found = queries.settings(desk)
    return ask.page("admin_config.html", title="Settings", settings=found)


def audit(ask: Ask) -> Response:
    """Show who did what, the latest first."""
    ask.check_admin()
    before = ask.number("before", 0, 0, 2**62)
    with ask.reading() as desk:
        log = queries.audit_log(desk, before=before, who=ask.query("who"), limit=_ROWS + 1)
    return ask.page(
        "admin_audit.html",
        title="Audit log",
        log=log[:_ROWS],
        has_more=len(log) > _ROWS,
        who=ask.query("who"),
    )
