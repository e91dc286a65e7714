"""Pages of administrators: users, nodes, invitations, settings and the audit log."""

from __future__ import annotations

from starlette.responses import Response

from skyhop.errors import InputError
from skyhop_testbed import api
from skyhop_testbed.keys import fingerprint
from skyhop_testbed.orchestrator import accounts, alerts, webhooks
from skyhop_testbed.orchestrator import nodes as node_records
from skyhop_testbed.web import queries
from skyhop_testbed.web.page_request import PageRequest
from skyhop_testbed.words import Role

_ROLES = (Role.USER, Role.USER_PRIV, Role.ADMIN)
_ROWS = 100
_DAY_NS = 86_400 * 10**9
_TOKEN_DAYS = 90


def show(request: PageRequest) -> Response:
    """Show counts of users, nodes and invitations, and the latest lines of the audit log."""
    request.check_admin()
    with request.reading() as ctx:
        counts = {
            "users": len(accounts.users(ctx)),
            "nodes": len(queries.names_of_nodes(ctx)),
            "invitations": len(queries.invitations(ctx)),
        }
        log = queries.audit_log(ctx, limit=10)
        told = alerts.listing(ctx, ended=True, limit=20)
        hooks = webhooks.listing(ctx)
    return request.render(
        "admin.html",
        title="Administration",
        counts=counts,
        log=log,
        alerts=told,
        webhooks=hooks,
    )


def users(request: PageRequest) -> Response:
    """Show users, and a form to create or change one."""
    return _users(request, 200)


def _users(
    request: PageRequest, status: int, *, problem: str = "", secret: str = "", of: str = ""
) -> Response:
    request.check_admin()
    with request.reading() as ctx:
        listed = accounts.users(ctx)
    edited = next((u for u in listed if u.name == request.query("edit")), None)
    return request.render(
        "admin_users.html",
        status,
        title="Users",
        users=listed,
        edited=edited or {},
        roles=[role.value for role in _ROLES],
        problem=problem,
        secret=secret,
        of=of,
        token_days=_TOKEN_DAYS,
    )


def put_user(request: PageRequest) -> Response:
    """Create or change a user from the form."""
    texts = {key: request.form_field(key).strip() for key in ("name", "full_name", "team", "role")}
    values = api.PutUser(**texts, disabled=request.form_field("disabled") == "yes")
    try:
        request.change(api.PUT_USER, values)
    except InputError as error:
        return _users(request, 400, problem=str(error))
    return request.redirect("/admin/users", "out" if values.disabled else "user")


def delete_user(request: PageRequest) -> Response:
    """Delete a user and cancel the user's jobs; a user with jobs or nodes is disabled instead."""
    name = request.path_param("name")
    request.change(api.DELETE_USER, api.NamedUser(user=name))
    return request.redirect("/admin/users", "out")


def make_token(request: PageRequest) -> Response:
    """Create a token for a user, and show it on this one page only."""
    name = request.path_param("name")
    expires_ns = request.orchestrator.now_ns() + _TOKEN_DAYS * _DAY_NS
    asked = api.IssueToken(user=name, label="from the administrator", expires_ns=expires_ns)
    secret = request.change(api.ISSUE_TOKEN, asked)
    return _users(request, 200, secret=secret, of=name)


def revoke_tokens(request: PageRequest) -> Response:
    """Revoke all tokens and sessions of a user."""
    name = request.path_param("name")
    request.change(api.REVOKE_TOKEN, api.RevokeToken(user=name, token="*"))
    return request.redirect("/admin/users", "revoked")


def nodes(request: PageRequest) -> Response:
    """Show nodes, and a form to create or change one."""
    return _nodes(request, 200)


def _nodes(
    request: PageRequest, status: int, *, problem: str = "", secret: str = "", of: str = ""
) -> Response:
    request.check_admin()
    with request.reading() as ctx:
        listed = [node_records.document(ctx, name) for name in queries.names_of_nodes(ctx)]
        invited = queries.invitations(ctx)
        names = [user.name for user in accounts.users(ctx)]
    edited = next((node for node in listed if node.name == request.query("edit")), None)
    return request.render(
        "admin_nodes.html",
        status,
        title="Nodes and invitations",
        nodes=listed,
        invited=invited,
        users=names,
        edited=edited or {},
        problem=problem,
        secret=secret,
        of=of,
        authority=fingerprint(request.orchestrator.authority_pem).hex(),
        minutes=accounts.INVITATION_NS // (60 * 10**9),
    )


def put_node(request: PageRequest) -> Response:
    """Create or change a node from the form."""
    keys = ("name", "owner", "description", "provider", "address")
    texts = {key: request.form_field(key).strip() for key in keys}
    try:
        values = api.PutNode(
            **texts,
            latitude_deg=_degrees("latitude_deg", request.form_field("latitude_deg").strip()),
            longitude_deg=_degrees("longitude_deg", request.form_field("longitude_deg").strip()),
        )
        request.change(api.PUT_NODE, values)
    except InputError as error:
        return _nodes(request, 400, problem=str(error))
    return request.redirect("/admin/nodes", "node")


def _degrees(key: str, text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        raise InputError(f"{key}: expected a number") from None


def invite(request: PageRequest) -> Response:
    """Create an invitation for a node, and show it on this one page only."""
    name = request.path_param("name")
    secret = request.change(api.INVITE, api.NamedNode(node=name))
    return _nodes(request, 200, secret=secret, of=name)


def delete_node(request: PageRequest) -> Response:
    """Delete a node, its certificates and its telemetry."""
    name = request.path_param("name")
    request.change(api.DELETE_NODE, api.NamedNode(node=name))
    return request.redirect("/admin/nodes", "deleted")


def config(request: PageRequest) -> Response:
    """Show the orchestrator's settings, with defaults."""
    request.check_admin()
    with request.reading() as ctx:
        found = queries.settings(ctx)
    return request.render("admin_config.html", title="Settings", settings=found)


def audit(request: PageRequest) -> Response:
    """Show the audit log, latest first, 100 lines per page."""
    request.check_admin()
    before = request.query_number("before", 0, 0, 2**62)
    with request.reading() as ctx:
        log = queries.audit_log(ctx, before=before, who=request.query("who"), limit=_ROWS + 1)
    return request.render(
        "admin_audit.html",
        title="Audit log",
        log=log[:_ROWS],
        has_more=len(log) > _ROWS,
        who=request.query("who"),
    )
