"""Users, and the credentials of users and nodes; secrets are shown once and stored as hashes."""

from __future__ import annotations

import secrets

import sqlalchemy as sa

from skyhop.errors import InputError
from skyhop_testbed.api import PutProfile, PutUser, UserInfo
from skyhop_testbed.ids import new_id
from skyhop_testbed.job import check_name
from skyhop_testbed.keys import secret_hash
from skyhop_testbed.orchestrator import jobs
from skyhop_testbed.orchestrator.marks import restored_times
from skyhop_testbed.orchestrator.request_context import (
    Caller,
    NotFoundError,
    RequestContext,
    UnknownCallerError,
)
from skyhop_testbed.store.tables import credential, job, node, user
from skyhop_testbed.words import Role

TOKEN, SESSION, INVITATION, CERTIFICATE = "token", "session", "invitation", "certificate"
REQUEST = "request"
"""Kind of a node's signing request that waits for an administrator; its label is one of the next
two words.
"""
WAITING, APPROVED = "waiting", "approved"
INVITATION_NS = 15 * 60 * 1_000_000_000
_ASSIGNABLE_ROLES = (Role.ADMIN, Role.USER, Role.USER_PRIV)
_LONGEST = 512
_MINUTE_NS = 60_000_000_000
_DAY_NS = 86_400_000_000_000
_REQUEST_NS = 30 * _DAY_NS
_KNOWN_NS = 400 * _DAY_NS
"""Time for which an expired certificate is remembered, so that its node may ask for another."""


def new_secret() -> str:
    """Return 256 random bits as URL-safe text."""
    return secrets.token_urlsafe(32)


def put_user(ctx: RequestContext, values: PutUser) -> UserInfo:
    """Create or change a user; disabling a user cancels the user's jobs.

    Raises:
        InputError: a value is invalid, or the user is the last administrator.
    """
    name = _checked_name(values.name)
    old = ctx.first(sa.select(user).where(user.c.name == name))
    before = {"full_name": "", "team": "", "role": Role.USER, "disabled": False, **(old or {})}
    role = _role(before["role"] if values.role is None else values.role)
    disabled = bool(before["disabled"] if values.disabled is None else values.disabled)
    row = {
        "full_name": _text("full_name", values.full_name, before["full_name"]),
        "team": _text("team", values.team, before["team"]),
        "role": role,
        "disabled": disabled,
    }
    _check_admin_remains(ctx, name, role, disabled=disabled)
    if old is None:
        ctx.execute(sa.insert(user).values(name=name, created_ns=ctx.now_ns, **row))
    else:
        ctx.execute(sa.update(user).where(user.c.name == name).values(**row))
    ended = jobs.close_all(ctx, name) if disabled else 0
    return UserInfo.model_validate({"name": name, **row, "jobs_ended": ended})


def put_profile(ctx: RequestContext, values: PutProfile) -> UserInfo:
    """Change the caller's full name and team."""
    old = profile(ctx)
    row = {
        "full_name": _text("full_name", values.full_name, old.full_name),
        "team": _text("team", values.team, old.team),
    }
    ctx.execute(sa.update(user).where(user.c.name == ctx.caller.name).values(**row))
    return profile(ctx)


def profile(ctx: RequestContext) -> UserInfo:
    """Return the caller's own user."""
    row = ctx.first(sa.select(user).where(user.c.name == ctx.caller.name))
    if row is None:
        raise NotFoundError(f"there is no user {ctx.caller.name}")
    return UserInfo.model_validate(dict(row))


def users(ctx: RequestContext) -> list[UserInfo]:
    """Return all users of the testbed."""
    count = (
        sa.select(sa.func.count())
        .where(
            credential.c.user == user.c.name,
            credential.c.kind == TOKEN,
            ~credential.c.spent,
            sa.or_(credential.c.expires_ns.is_(None), credential.c.expires_ns > ctx.now_ns),
        )
        .scalar_subquery()
    )
    rows = ctx.all(sa.select(user, count.label("tokens")).order_by(user.c.name))
    return [UserInfo.model_validate(dict(row)) for row in rows]


def delete_user(ctx: RequestContext, name: str) -> int:
    """Delete a user; a user with jobs or nodes is disabled instead, and the jobs are cancelled.

    Returns:
        the number of cancelled jobs.

    Raises:
        NotFoundError: there is no such user.
        InputError: the user is the last administrator.
    """
    _check_admin_remains(ctx, name, Role.USER, disabled=True)
    used = ctx.first(sa.select(job.c.id).where(job.c.owner == name)) or ctx.first(
        sa.select(node.c.name).where(node.c.owner == name)
    )
    if used:
        found = ctx.execute(sa.update(user).where(user.c.name == name).values(disabled=True))
        ctx.execute(sa.delete(credential).where(credential.c.user == name))
    else:
        found = ctx.execute(sa.delete(user).where(user.c.name == name))
    if not found:
        raise NotFoundError(f"there is no user {name}")
    return jobs.close_all(ctx, name)


def issue(
    ctx: RequestContext,
    kind: str,
    *,
    of_user: str | None = None,
    of_node: str | None = None,
    expires_ns: int | None = None,
    label: str = "",
) -> str:
    """Create a credential; return its secret, of which only the hash is stored.

    Raises:
        NotFoundError: there is no such user or node.
        InputError: `expires_ns` is in the past.
    """
    _check_exists(ctx, of_user, of_node)
    if expires_ns is not None and expires_ns <= ctx.now_ns:
        raise InputError("the expiry of a credential must be in the future")
    secret = new_secret()
    row = {"user": of_user, "node": of_node, "label": label[:_LONGEST], "expires_ns": expires_ns}
    ctx.execute(
        sa.insert(credential).values(
            id=new_id(ctx.now_ns),
            kind=kind,
            hash=secret_hash(secret),
            created_ns=ctx.now_ns,
            **row,
        )
    )
    return secret


def revoke(ctx: RequestContext, name: str, which: str) -> int:
    """Revoke credentials of a user: those with a label or an id, or all ("*").

    Returns:
        the number of revoked credentials.

    Raises:
        NotFoundError: there is no such user, or no credential with the label or id.
    """
    _check_exists(ctx, name, None)
    chosen = credential.c.user == name
    if which != "*":
        chosen &= sa.or_(credential.c.label == which, credential.c.id == which)
    count = ctx.execute(sa.delete(credential).where(chosen))
    if not count and which != "*":
        raise NotFoundError(f'{name} has no token with the label or id "{which[:80]}"')
    return count


def caller_of_token(ctx: RequestContext, secret: str, kind: str = TOKEN) -> tuple[Caller, bool]:
    """Authenticate the caller of a token or session secret.

    Returns:
        the caller, and whether a use of the secret was recorded within the last minute.

    Raises:
        UnknownCallerError: the secret is unknown or has expired, or its user is disabled.
    """
    row = _valid_credential(ctx, secret, kind)
    found = ctx.first(sa.select(user).where(user.c.name == row["user"]))
    if found is None or found["disabled"]:
        raise UnknownCallerError("this user is disabled: ask the testbed's administrator")
    used_ns = row["used_ns"]
    is_noted = used_ns is not None and ctx.now_ns - used_ns <= _MINUTE_NS
    return Caller(found["name"], Role(found["role"])), is_noted


def record_use(ctx: RequestContext, secret: str) -> None:
    """Record the time of use of a token or session; callers do so at most once a minute."""
    mine = credential.c.hash == secret_hash(secret)
    ctx.execute(sa.update(credential).where(mine).values(used_ns=ctx.now_ns))


def redeem_invitation(ctx: RequestContext, secret: str, of_node: str) -> None:
    """Redeem the invitation of a node, which is valid once.

    Raises:
        UnknownCallerError: the invitation is for another node, was used before or has expired.
    """
    row = _valid_credential(ctx, secret, INVITATION)
    if row["node"] != of_node:
        raise UnknownCallerError(f"this invitation is not for {of_node}")
    ctx.execute(sa.update(credential).where(credential.c.id == row["id"]).values(spent=True))


def register_certificate(
    ctx: RequestContext, of_node: str, digest: bytes, expires_ns: int, issuer: str = ""
) -> None:
    """Store the SHA-256 digest of a certificate issued to a node, and the authority's name."""
    ctx.execute(
        sa.insert(credential).values(
            id=new_id(ctx.now_ns),
            kind=CERTIFICATE,
            node=of_node,
            hash=digest,
            created_ns=ctx.now_ns,
            expires_ns=expires_ns,
            label=issuer,
        )
    )


def caller_of_certificate(
    ctx: RequestContext, name: str, digest: bytes, issued_ns: int = 0
) -> Caller:
    """Authenticate a node by its certificate.

    Args:
        ctx: the request.
        name: common name of the certificate.
        digest: SHA-256 digest of the certificate.
        issued_ns: time at which the certificate was issued.

    Raises:
        UnknownCallerError: the certificate is unknown, revoked, expired or of another node.
    """
    row = ctx.first(sa.select(credential).where(credential.c.hash == digest))
    if row is None and _was_forgotten(ctx, name, issued_ns):
        return Caller(name, Role.NODE)
    if row is None or row["kind"] != CERTIFICATE or row["node"] != name or row["spent"]:
        raise UnknownCallerError("this certificate is not known: enrol the node again")
    if row["expires_ns"] is not None and row["expires_ns"] <= ctx.now_ns:
        raise UnknownCallerError("this certificate has expired: enrol the node again")
    return Caller(name, Role.NODE)


def check_expired(ctx: RequestContext, name: str, digest: bytes) -> None:
    """Check that a certificate is a node's own, unrevoked, and has expired.

    Raises:
        UnknownCallerError: it is unknown, revoked, or of another node.
        InputError: it is still valid.
    """
    row = ctx.first(sa.select(credential).where(credential.c.hash == digest))
    if row is None or row["kind"] != CERTIFICATE or row["node"] != name or row["spent"]:
        raise UnknownCallerError("this certificate is not known: enrol the node again")
    if row["expires_ns"] is not None and row["expires_ns"] > ctx.now_ns:
        raise InputError("this certificate has not expired: renew it over the agents' port")


def take_approval(ctx: RequestContext, of_node: str, digest: bytes) -> bool:
    """Return whether an administrator has approved a node's signing request; note one that is new.

    A node has one request: a later one replaces it. An approval counts once.

    Args:
        ctx: the request.
        of_node: the node.
        digest: SHA-256 digest of the signing request.
    """
    mine = (credential.c.node == of_node) & (credential.c.kind == REQUEST)
    row = ctx.first(sa.select(credential).where(mine, credential.c.expires_ns > ctx.now_ns))
    if row is not None and row["hash"] == digest:
        if row["label"] == APPROVED:
            ctx.execute(sa.delete(credential).where(mine))
        return bool(row["label"] == APPROVED)
    ctx.execute(sa.delete(credential).where(mine))
    ctx.execute(
        sa.insert(credential).values(
            id=new_id(ctx.now_ns),
            kind=REQUEST,
            node=of_node,
            hash=digest,
            label=WAITING,
            created_ns=ctx.now_ns,
            expires_ns=ctx.now_ns + _REQUEST_NS,
        )
    )
    return False


def approve(ctx: RequestContext, of_node: str) -> str:
    """Approve the request of a node whose certificate has expired; return the node's name.

    Raises:
        NotFoundError: the node has not asked.
    """
    mine = (credential.c.node == of_node) & (credential.c.kind == REQUEST)
    valid = mine & (credential.c.expires_ns > ctx.now_ns)
    if not ctx.execute(sa.update(credential).where(valid).values(label=APPROVED)):
        raise NotFoundError(f"{of_node[:80]} has not asked for a new certificate")
    return of_node


def waiting_nodes(ctx: RequestContext) -> set[str]:
    """Return the nodes whose certificate has expired, and that wait for an administrator."""
    waiting = (credential.c.kind == REQUEST) & (credential.c.label == WAITING)
    valid = waiting & (credential.c.expires_ns > ctx.now_ns)
    return set(ctx.connection.scalars(sa.select(credential.c.node).where(valid)))


def nodes_behind(ctx: RequestContext, issuer: str, first: str) -> list[str]:
    """Return the nodes whose valid certificates are all of another authority than `issuer`.

    `first` is the name of the first authority, which certificates without a label are of.
    """
    valid = (credential.c.kind == CERTIFICATE) & (credential.c.expires_ns > ctx.now_ns)
    rows = ctx.all(sa.select(credential.c.node, credential.c.label).where(valid))
    ahead = {row["node"] for row in rows if (row["label"] or first) == issuer}
    return sorted({row["node"] for row in rows} - ahead)


def delete_certificates_of_others(ctx: RequestContext, issuer: str) -> None:
    """Revoke the certificates that another authority than `issuer` has signed."""
    others = (credential.c.kind == CERTIFICATE) & (credential.c.label != issuer)
    ctx.execute(sa.delete(credential).where(others))


def _was_forgotten(ctx: RequestContext, name: str, issued_ns: int) -> bool:
    """Return whether a node's certificate was issued after the backup that was restored.

    TLS has checked that the authority signed it and that it has not expired.
    """
    from_ns, at_ns = restored_times(ctx.connection)
    # A certificate has the whole second of its issue.
    if not from_ns - 1_000_000_000 < issued_ns <= at_ns or not at_ns:
        return False
    return ctx.first(sa.select(node.c.name).where(node.c.name == name)) is not None


def delete_certificates(ctx: RequestContext, of_node: str) -> None:
    """Revoke all certificates of a node, before the node is enrolled again."""
    mine = (credential.c.node == of_node) & (credential.c.kind == CERTIFICATE)
    ctx.execute(sa.delete(credential).where(mine))


def delete_expired(ctx: RequestContext) -> None:
    """Delete credentials that expired more than a day ago, and certificates much later."""
    of_nodes = credential.c.kind == CERTIFICATE
    for chosen, kept_ns in ((of_nodes, _KNOWN_NS), (~of_nodes, _DAY_NS)):
        ctx.execute(
            sa.delete(credential).where(chosen, credential.c.expires_ns < ctx.now_ns - kept_ns)
        )


def _valid_credential(ctx: RequestContext, secret: str, kind: str) -> sa.RowMapping:
    row = ctx.first(sa.select(credential).where(credential.c.hash == secret_hash(secret)))
    if row is None or row["kind"] != kind:
        raise UnknownCallerError(f"this {kind} is not known")
    if row["spent"]:
        raise UnknownCallerError(f"this {kind} has been used before")
    if row["expires_ns"] is not None and row["expires_ns"] <= ctx.now_ns:
        raise UnknownCallerError(f"this {kind} has expired")
    return row


def _check_exists(ctx: RequestContext, of_user: str | None, of_node: str | None) -> None:
    if of_user is not None and not ctx.first(sa.select(user).where(user.c.name == of_user)):
        raise NotFoundError(f"there is no user {of_user}")
    if of_node is not None and not ctx.first(sa.select(node).where(node.c.name == of_node)):
        raise NotFoundError(f"there is no node {of_node}")


def _check_admin_remains(
    ctx: RequestContext, name: str, role: Role | str, *, disabled: bool
) -> None:
    """Refuse a change that would leave the testbed without an administrator."""
    if role == Role.ADMIN and not disabled:
        return
    admins = ctx.all(sa.select(user.c.name).where(user.c.role == Role.ADMIN, ~user.c.disabled))
    if [row["name"] for row in admins] == [name]:
        raise InputError(f"{name} is the last administrator: make another one first")


def _checked_name(value: object) -> str:
    try:
        return check_name(str(value))
    except ValueError as error:
        raise InputError(f"name: {error}") from None


def _role(value: object) -> Role:
    if value not in [role.value for role in _ASSIGNABLE_ROLES]:
        known = ", ".join(role.value for role in _ASSIGNABLE_ROLES)
        raise InputError(f'role: "{value}" is not a role; choose from {known}')
    return Role(str(value))


def _text(key: str, new: str | None, old: str) -> str:
    value = old if new is None else new
    if len(value) > _LONGEST:
        raise InputError(f"{key}: expected text of at most {_LONGEST} characters")
    return value
