"""Alerts: what is wrong with nodes and with the orchestrator, raised and cleared once each.

A round of housekeeping finds out what is good and what is bad. An alert is raised at the first bad
finding, and cleared once its findings have been good for `_SETTLED_NS`. Between the limits of good
and bad, an alert stays as it is. Alerts are rows of the database, so that a restart repeats none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import sqlalchemy as sa

from skyhop_testbed.api import Alert
from skyhop_testbed.orchestrator import access, accounts, runs
from skyhop_testbed.orchestrator.request_context import RequestContext
from skyhop_testbed.store.tables import alert, credential, delivery, node, webhook
from skyhop_testbed.words import AlertKind, UpdateState

_S_NS = 1_000_000_000
_DAY_NS = 86_400 * _S_NS
_SETTLED_NS = 60 * _S_NS
_KEPT_NS = 180 * _DAY_NS
"""Time for which alerts that are over are kept."""
_MOST_WAITING = 10_000
"""Upper limit on messages that webhooks have not taken yet; further ones are not made."""
_AUTHORITY_DAYS = 180.0
"""Time in days that the rotation of the authority may take in all nodes."""
_BAD_UPDATES = (UpdateState.FAILED, UpdateState.WENT_BACK, UpdateState.REFUSED)
_BETWEEN = (UpdateState.WAITING, UpdateState.LOADING, UpdateState.READY, UpdateState.TRIAL)
"""States of a release's next attempt, which end no alert."""
_LONGEST_WHY = 300
"""Upper limit on the characters of an agent's sentence in an alert."""
FAILED_ROUNDS, FAILED_PAGES = 3, 3
"""Number of failures in a row from which on housekeeping and the pages' process are an alert."""


@dataclass(frozen=True)
class Facts:
    """State of the orchestrator outside its database."""

    started_ns: int
    disk_free_bytes: int
    server_expires_ns: int
    authority_expires_ns: int
    failed_rounds: int = 0
    """Number of rounds of housekeeping in a row that have failed before this one."""
    failed_pages: int = 0
    """Number of processes of the pages in a row that have ended soon after their start."""
    backup_ns: int | None = None
    """Time of the latest backup, if it is known."""


@dataclass(frozen=True)
class Finding:
    """Result of a look at one subject: good, bad or between."""

    kind: AlertKind
    subject: str
    is_bad: bool | None
    """None between the limits of good and bad: an alert stays as it is."""
    message: str


def findings(ctx: RequestContext, facts: Facts) -> list[Finding]:
    """Return what is good and bad about the orchestrator and the nodes."""
    return [*_of_orchestrator(ctx, facts), *_of_nodes(ctx, facts)]


def _of_orchestrator(ctx: RequestContext, facts: Facts) -> Iterable[Finding]:
    yield _disk(ctx, "", facts.disk_free_bytes)
    said, expires_ns = "the server's certificate", facts.server_expires_ns
    days = ctx.settings.alert_certificate_days
    yield _certificate(ctx, AlertKind.SERVER_CERTIFICATE, "", said, expires_ns, limit=days)
    said, expires_ns = "the authority's certificate", facts.authority_expires_ns
    days = max(days, _AUTHORITY_DAYS)
    yield _certificate(ctx, AlertKind.AUTHORITY_CERTIFICATE, "", said, expires_ns, limit=days)
    said = f"housekeeping has failed {facts.failed_rounds} times in a row: see the log"
    yield Finding(AlertKind.HOUSEKEEPING, "", facts.failed_rounds >= FAILED_ROUNDS, said)
    said = "the process of the web pages ends again and again: see the log"
    is_bad = facts.failed_pages >= FAILED_PAGES or (None if facts.failed_pages else False)
    yield Finding(AlertKind.PAGES, "", is_bad, said)
    if facts.backup_ns is not None:
        days = (ctx.now_ns - facts.backup_ns) / _DAY_NS
        said = f"the latest backup is {days:.0f} days old"
        yield Finding(AlertKind.BACKUP, "", days > ctx.settings.alert_backup_days, said)


def _of_nodes(ctx: RequestContext, facts: Facts) -> Iterable[Finding]:
    last = sa.func.max(credential.c.expires_ns)
    certificates = {
        row["node"]: row["expires_ns"]
        for row in ctx.all(
            sa.select(credential.c.node, last.label("expires_ns"))
            .where(credential.c.kind == accounts.CERTIFICATE, ~credential.c.spent)
            .group_by(credential.c.node)
        )
    }
    for row in ctx.all(sa.select(node)):
        name, seen_ns = row["name"], row["last_seen_ns"]
        health = json.loads(row["health"])
        if seen_ns is None or (name not in certificates and not health):
            # The node has not been enrolled yet, or was deleted.
            continue
        silent = _silence(ctx, name, seen_ns, facts)
        yield silent
        expires_ns = certificates.get(name, 0)
        said = f"{name}: its certificate"
        days = ctx.settings.alert_certificate_days
        yield _certificate(ctx, AlertKind.NODE_CERTIFICATE, name, said, expires_ns, limit=days)
        if silent.is_bad is False:
            # What a silent node has reported last says nothing about the present.
            yield from _of_health(ctx, name, health)


def _silence(ctx: RequestContext, name: str, seen_ns: int, facts: Facts) -> Finding:
    limit_ns = ctx.settings.alert_silent_s * _S_NS
    silent_ns = ctx.now_ns - seen_ns
    # A node may not have had the time to report to an orchestrator that has just started.
    is_bad = True if silent_ns > limit_ns and ctx.now_ns - facts.started_ns > limit_ns else None
    if silent_ns <= limit_ns / 2:
        is_bad = False
    said = f"{name}: has not reported for {silent_ns / 60 / _S_NS:.0f} min"
    return Finding(AlertKind.NODE_SILENT, name, is_bad, said)


def _of_health(ctx: RequestContext, name: str, health: dict[str, object]) -> Iterable[Finding]:
    free = health.get("disk_free_bytes")
    if isinstance(free, int | float):
        yield _disk(ctx, name, free)
    off_ms = health.get("clock_offset_ms")
    if isinstance(off_ms, int | float):
        limit_ms = ctx.settings.alert_clock_ms
        is_bad = True if abs(off_ms) > limit_ms else None if abs(off_ms) > limit_ms / 2 else False
        said = f"{name}: its clock is {off_ms:+.0f} ms off"
        yield Finding(AlertKind.NODE_CLOCK, name, is_bad, said)
    update = health.get("update")
    told = update if isinstance(update, dict) else {}
    state = str(told.get("state", ""))
    is_bad = True if state in _BAD_UPDATES else None if state in _BETWEEN else False
    said = f"{name}: {str(told.get('why', ''))[:_LONGEST_WHY]}"
    yield Finding(AlertKind.NODE_UPDATE, name, is_bad, said)


def _disk(ctx: RequestContext, name: str, free_bytes: float) -> Finding:
    limit = ctx.settings.alert_disk_free_bytes
    kind = AlertKind.NODE_DISK if name else AlertKind.DISK
    said = f"{name or 'the orchestrator'}: {free_bytes / 1e9:.1f} GB of disk space are free"
    is_bad = True if free_bytes < limit else None if free_bytes < 1.25 * limit else False
    return Finding(kind, name, is_bad, said)


def _certificate(
    ctx: RequestContext, kind: AlertKind, subject: str, what: str, expires_ns: int, *, limit: float
) -> Finding:
    """Return whether a certificate ends in less than `limit` days."""
    days = (expires_ns - ctx.now_ns) / _DAY_NS
    said = f"{what} ends in {days:.0f} days" if days > 0 else f"{what} has ended"
    return Finding(
        kind, subject, True if days < limit else None if days < limit + 1 else False, said
    )


def needs_update(ctx: RequestContext, found: Iterable[Finding]) -> bool:
    """Return whether `update` may have something to do: there is an alert, or a bad finding."""
    is_open = sa.select(alert.c.id).where(alert.c.cleared_ns.is_(None)).limit(1)
    return any(each.is_bad for each in found) or ctx.first(is_open) is not None


def update(ctx: RequestContext, found: Iterable[Finding]) -> None:
    """Raise and clear alerts by what a round has found, and queue the messages to webhooks."""
    opened = {
        (row["kind"], row["subject"]): row
        for row in ctx.all(sa.select(alert).where(alert.c.cleared_ns.is_(None)))
    }
    for each in found:
        row = opened.pop((each.kind.value, each.subject), None)
        if each.is_bad and row is None:
            _raise(ctx, each)
        elif row is not None and each.is_bad is not None:
            _judge(ctx, row, is_bad=each.is_bad)
    for row in opened.values():
        # The disk, clock and release of a silent node are not known. All other alerts that are left
        # are of nodes that were deleted.
        if row["kind"] not in _UNKNOWN_IF_SILENT or not _exists(ctx, row["subject"]):
            _clear(ctx, row)
    ctx.execute(sa.delete(alert).where(alert.c.cleared_ns < ctx.now_ns - _KEPT_NS))


_UNKNOWN_IF_SILENT = tuple(
    kind.value for kind in (AlertKind.NODE_DISK, AlertKind.NODE_CLOCK, AlertKind.NODE_UPDATE)
)


def _exists(ctx: RequestContext, name: str) -> bool:
    health = ctx.connection.scalar(sa.select(node.c.health).where(node.c.name == name))
    return health not in (None, "{}")


def _raise(ctx: RequestContext, found: Finding) -> None:
    made = ctx.connection.execute(
        sa.insert(alert).values(
            kind=found.kind.value,
            subject=found.subject,
            message=found.message,
            raised_ns=ctx.now_ns,
        )
    ).inserted_primary_key
    assert made is not None
    queue(ctx, "raised", int(made[0]))


def _judge(ctx: RequestContext, row: sa.RowMapping, *, is_bad: bool) -> None:
    """Clear an alert that has been good for long enough, and note when it became good."""
    since_ns = row["good_since_ns"]
    mine = sa.update(alert).where(alert.c.id == row["id"])
    if is_bad and since_ns is not None:
        ctx.execute(mine.values(good_since_ns=None))
    elif not is_bad and since_ns is None:
        ctx.execute(mine.values(good_since_ns=ctx.now_ns))
    elif not is_bad and ctx.now_ns - since_ns >= _SETTLED_NS:
        _clear(ctx, row)


def _clear(ctx: RequestContext, row: sa.RowMapping) -> None:
    ctx.execute(sa.update(alert).where(alert.c.id == row["id"]).values(cleared_ns=ctx.now_ns))
    queue(ctx, "cleared", row["id"])


def queue(ctx: RequestContext, event: str, of_alert: int | None, only: str = "") -> None:
    """Queue a message to all webhooks, or to `only` one."""
    waiting = ctx.connection.scalar(sa.select(sa.func.count()).select_from(delivery)) or 0
    for name in ctx.connection.scalars(sa.select(webhook.c.name)).all():
        if name == only or (not only and waiting < _MOST_WAITING):
            row = {"webhook": name, "alert": of_alert, "event": event}
            ctx.execute(sa.insert(delivery).values(at_ns=ctx.now_ns, next_ns=ctx.now_ns, **row))


def listing(ctx: RequestContext, *, ended: bool = False, limit: int = 0) -> list[Alert]:
    """Return alerts that the caller may see, latest first: administrators see all of them.

    Owners see those of their nodes.

    Args:
        ctx: the request.
        ended: whether to include alerts that are over.
        limit: upper limit on rows; 0 for 200.
    """
    query = sa.select(alert).order_by(alert.c.id.desc()).limit(runs.row_limit(limit, 200))
    if not ended:
        query = query.where(alert.c.cleared_ns.is_(None))
    if not ctx.caller.is_admin:
        query = query.where(alert.c.subject.in_(access.my_nodes(ctx)))
    return [Alert.model_validate(dict(row)) for row in ctx.all(query)]


def kinds_by_node(ctx: RequestContext) -> dict[str, list[str]]:
    """Return the kinds of the alerts of each node that are not over; every user may see them."""
    query = sa.select(alert.c.subject, alert.c.kind).where(
        alert.c.cleared_ns.is_(None), alert.c.subject != ""
    )
    found: dict[str, list[str]] = {}
    for row in ctx.all(query.order_by(alert.c.id)):
        found.setdefault(row["subject"], []).append(row["kind"])
    return found
