"""Users, and the secrets by which users and nodes are known: shown once, kept as hashes."""

from __future__ import annotations

import secrets
from typing import Any

import sqlalchemy as sa

from skyhop.errors import InputError
from skyhop.testbed.ids import new_id
from skyhop.testbed.job import check_name
from skyhop.testbed.keys import secret_hash
from skyhop.testbed.orchestrator import jobs
from skyhop.testbed.orchestrator.desk import Caller, Desk, NotFoundError, UnknownCallerError
from skyhop.testbed.store.tables import credential, job, node, user
from skyhop.testbed.words import Role

TOKEN, SESSION, INVITATION, CERTIFICATE = "token", "session", "invitation", "certificate"
INVITATION_NS = 15 * 60 * 1_000_000_000
_GIVEN = (Role.ADMIN, Role.USER, Role.USER_PRIV)
_LONGEST = 512
_MINUTE_NS = 60_000_000_000


def new_secret() -> str:
    """Return 256 random bits as text."""
    return secrets.token_urlsafe(32)


def put_user(desk: Desk, values: dict[str, Any]) -> dict[str, Any]:
    """Make a user, or change one: `name`, `full_name`, `team`, `role`, `disabled`.

    Jobs of one who is disabled end; `jobs_ended` of the answer says how many.

    Raises:
        InputError: a value is not right.
    """
    name = _checked_name(values.get("name"))
    old = desk.one(sa.select(user).where(user.c.name == name))
    role = _role(values.get("role", old["role"] if old else Role.USER))
    disabled = bool(values.get("disabled", old["disabled"] if old else False))
    row = {
        "full_name": _text(values, "full_name", old),
        "team": _text(values, "team", old),
        "role": role,
        "disabled": disabled,
    }
    _check_left(desk, name, role, disabled=disabled)
    if old is None:
        desk.do(sa.insert(user).values(name=name, created_ns=desk.now_ns, **row))
    else:
        desk.do(sa.update(user).where(user.c.name == name).values(**row))
    return {"name": name, **row, "jobs_ended": jobs.close_all(desk, name) if disabled else 0}


def put_profile(desk: Desk, values: dict[str, Any]) -> dict[str, Any]:
    """Change what users may change about themselves."""
    old = desk.one(sa.select(user).where(user.c.name == desk.caller.name))
    row = {key: _text(values, key, old) for key in ("full_name", "team")}
    desk.do(sa.update(user).where(user.c.name == desk.caller.name).values(**row))
    return profile(desk)


def profile(desk: Desk) -> dict[str, Any]:
    """Return what is known of the caller."""
    row = desk.one(sa.select(user).where(user.c.name == desk.caller.name))
    if row is None:
        raise NotFoundError(f"there is no user {desk.caller.name}")
    return dict(row)


def users(desk: Desk) -> list[dict[str, Any]]:
    """Return all users, and how many tokens of theirs are good."""
    count = (
        sa.select(sa.func.count())
        .where(
            credential.c.user == user.c.name,
            credential.c.kind == TOKEN,
            ~credential.c.spent,
            sa.or_(credential.c.expires_ns.is_(None), credential.c.expires_ns > desk.now_ns),
        )
        .scalar_subquery()
    )
    rows = desk.all(sa.select(user, count.label("tokens")).order_by(user.c.name))
    return [dict(row) for row in rows]


def delete_user(desk: Desk, name: str) -> int:
    """Forget a user who has no jobs and no nodes; one who has is disabled, and the jobs end.

    Returns:
        how many jobs were ended.

    Raises:
        NotFoundError: there is none.
    """
    _check_left(desk, name, Role.USER, disabled=True)
    used = desk.one(sa.select(job.c.id).where(job.c.owner == name)) or desk.one(
        sa.select(node.c.name).where(node.c.owner == name)
    )
    if used:
        found = desk.do(sa.update(user).where(user.c.name == name).values(disabled=True))
        desk.do(sa.delete(credential).where(credential.c.user == name))
    else:
        found = desk.do(sa.delete(user).where(user.c.name == name))
    if not found:
        raise NotFoundError(f"there is no user {name}")
    return jobs.close_all(desk, name)


def issue(
    desk: Desk,
    kind: str,
    *,
    of_user: str | None = None,
    of_node: str | None = None,
    expires_ns: int | None = None,
    label: str = "",
) -> str:
    """Return a new secret; only its hash is kept.

    Raises:
        NotFoundError: there is no such user or node.
        InputError: it would have expired before it is given.
    """
    _check_there(desk, of_user, of_node)
    if expires_ns is not None and expires_ns <= desk.now_ns:
        raise InputError("a credential cannot expire before it is made")
    secret = new_secret()
    row = {"user": of_user, "node": of_node, "label": label[:_LONGEST], "expires_ns": expires_ns}
    desk.do(
        sa.insert(credential).values(
            id=new_id(desk.now_ns),
            kind=kind,
            hash=secret_hash(secret),
            created_ns=desk.now_ns,
            **row,
        )
    )
    return secret


def revoke(desk: Desk, name: str, which: str) -> int:
    """Take tokens of a user away: those with a label or an id, or all ("*"); return how many.

    Raises:
        NotFoundError: there is no such user, or none of the label or id.
    """
    _check_there(desk, name, None)
    chosen = credential.c.user == name
    if which != "*":
        chosen &= sa.or_(credential.c.label == which, credential.c.id == which)
    count = desk.do(sa.delete(credential).where(chosen))
    if not count and which != "*":
        raise NotFoundError(f'{name} has no token with the label or id "{which[:80]}"')
    return count


def caller_of_token(desk: Desk, secret: str, kind: str = TOKEN) -> tuple[Caller, bool]:
    """Return whose a token or a session is, and whether its use was noted within a minute.

    Raises:
        UnknownCallerError: nobody's, or it has expired, or its user is disabled.
    """
    row = _good(desk, secret, kind)
    found = desk.one(sa.select(user).where(user.c.name == row["user"]))
    if found is None or found["disabled"]:
        raise UnknownCallerError("this user is disabled: ask the testbed's administrator")
    used_ns = row["used_ns"]
    is_noted = used_ns is not None and desk.now_ns - used_ns <= _MINUTE_NS
    return Caller(found["name"], Role(found["role"])), is_noted


def note_use(desk: Desk, secret: str) -> None:
    """Note that a token or a session is in use: each minute is enough to know."""
    mine = credential.c.hash == secret_hash(secret)
    desk.do(sa.update(credential).where(mine).values(used_ns=desk.now_ns))


def take_invitation(desk: Desk, secret: str, of_node: str) -> None:
    """Take the invitation of a node, which is good for once.

    Raises:
        UnknownCallerError: it is not this node's, was taken before, or has expired.
    """
    row = _good(desk, secret, INVITATION)
    if row["node"] != of_node:
        raise UnknownCallerError(f"this invitation is not for {of_node}")
    desk.do(sa.update(credential).where(credential.c.id == row["id"]).values(spent=True))


def know_certificate(desk: Desk, of_node: str, digest: bytes, expires_ns: int) -> None:
    """Remember a certificate that a node has been given."""
    desk.do(
        sa.insert(credential).values(
            id=new_id(desk.now_ns),
            kind=CERTIFICATE,
            node=of_node,
            hash=digest,
            created_ns=desk.now_ns,
            expires_ns=expires_ns,
        )
    )


def caller_of_certificate(desk: Desk, name: str, digest: bytes) -> Caller:
    """Return the node that a certificate is of.

    Raises:
        UnknownCallerError: it was taken back, has expired, or is another's.
    """
    row = desk.one(sa.select(credential).where(credential.c.hash == digest))
    if row is None or row["kind"] != CERTIFICATE or row["node"] != name or row["spent"]:
        raise UnknownCallerError("this certificate is not known: enrol the node again")
    if row["expires_ns"] is not None and row["expires_ns"] <= desk.now_ns:
        raise UnknownCallerError("this certificate has expired: enrol the node again")
    return Caller(name, Role.NODE)


def forget_certificates(desk: Desk, of_node: str) -> None:
    """Take back all certificates of a node: it is enrolled anew."""
    mine = (credential.c.node == of_node) & (credential.c.kind == CERTIFICATE)
    desk.do(sa.delete(credential).where(mine))


def forget_expired(desk: Desk) -> None:
    """Delete what has expired a day ago."""
    desk.do(sa.delete(credential).where(credential.c.expires_ns < desk.now_ns - 86_400_000_000_000))


def _good(desk: Desk, secret: str, kind: str) -> sa.RowMapping:
    row = desk.one(sa.select(credential).where(credential.c.hash == secret_hash(secret)))
    if row is None or row["kind"] != kind:
        raise UnknownCallerError(f"this {kind} is not known")
    if row["spent"]:
        raise UnknownCallerError(f"this {kind} has been used before")
    if row["expires_ns"] is not None and row["expires_ns"] <= desk.now_ns:
        raise UnknownCallerError(f"this {kind} has expired")
    return row


def _check_there(desk: Desk, of_user: str | None, of_node: str | None) -> None:
    if of_user is not None and not desk.one(sa.select(user).where(user.c.name == of_user)):
        raise NotFoundError(f"there is no user {of_user}")
    if of_node is not None and not desk.one(sa.select(node).where(node.c.name == of_node)):
        raise NotFoundError(f"there is no node {of_node}")


def _check_left(desk: Desk, name: str, role: Role | str, *, disabled: bool) -> None:
    """Keep the last administrator."""
    if role == Role.ADMIN and not disabled:
        return
    admins = desk.all(sa.select(user.c.name).where(user.c.role == Role.ADMIN, ~user.c.disabled))
    if [row["name"] for row in admins] == [name]:
        raise InputError(f"{name} is the last administrator: make another one first")


def _checked_name(value: object) -> str:
    try:
        return check_name(str(value))
    except ValueError as error:
        raise InputError(f"name: {error}") from None


def _role(value: object) -> Role:
    if value not in [role.value for role in _GIVEN]:
        known = ", ".join(role.value for role in _GIVEN)
        raise InputError(f'role: "{value}" is none; there are {known}')
    return Role(str(value))


def _text(values: dict[str, Any], key: str, old: sa.RowMapping | None) -> str:
    value = values.get(key, old[key] if old else "")
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise InputError(f"{key}: expected a text of at most {_LONGEST} characters")
    return value
