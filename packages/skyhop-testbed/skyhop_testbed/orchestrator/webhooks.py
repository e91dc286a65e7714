"""Webhooks: addresses of administrators to which alerts are sent as JSON, with retries.

A message is a row of the database until its receiver has taken it (a status of 200 to 299). Each
webhook gets its messages in order; one that does not answer delays no other.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import sqlalchemy as sa

from skyhop.errors import InputError, SkyhopError
from skyhop.version import __version__
from skyhop_testbed.api import PutWebhook, WebhookInfo
from skyhop_testbed.job import check_name
from skyhop_testbed.orchestrator.alerts import queue
from skyhop_testbed.orchestrator.core import Orchestrator
from skyhop_testbed.orchestrator.request_context import ITSELF, NotFoundError, RequestContext
from skyhop_testbed.orchestrator.waiting import Wait
from skyhop_testbed.store.tables import alert, delivery, webhook

_LOG = logging.getLogger(__name__)
_S_NS = 1_000_000_000
_LOOK_EVERY_S = 5.0
_TIMEOUT_S = 20.0
"""Time in s for a whole request, from the look-up of its name to the response's head."""
_FIRST_RETRY_S, _LONGEST_RETRY_S = 10.0, 3600.0
_GIVEN_UP_NS = 3 * 86_400 * _S_NS
_MOST_AT_ONCE = 50
"""Upper limit on messages to one webhook before the next look."""
_LONGEST_URL, _LONGEST_SECRET, _MOST = 2000, 500, 20

Post = Callable[[str, dict[str, str], bytes], Awaitable[str]]
"""Function that sends a body to a URL; returns "" or why the receiver has not taken it."""


def put(ctx: RequestContext, values: PutWebhook) -> WebhookInfo:
    """Create or change a webhook.

    Raises:
        InputError: the name, the URL or the secret is invalid, or there are too many webhooks.
    """
    try:
        name = check_name(values.name)
    except ValueError as error:
        raise InputError(f"name: {error}") from None
    parts = _parts(values.url)
    if parts is None or not values.url.isascii() or not values.url.isprintable():
        raise InputError('url: expected an address such as "https://example.org/alerts"')
    if len(values.secret) > _LONGEST_SECRET or not (values.secret + "x").isascii():
        raise InputError(f"secret: expected at most {_LONGEST_SECRET} ASCII characters")
    if not (values.secret + "x").isprintable():
        raise InputError("secret: expected printable characters")
    names = ctx.connection.scalars(sa.select(webhook.c.name)).all()
    row = {"url": values.url, "secret": values.secret}
    if name in names:
        ctx.execute(sa.update(webhook).where(webhook.c.name == name).values(**row))
    elif len(names) >= _MOST:
        raise InputError(f"there are {_MOST} webhooks already: remove one first")
    else:
        ctx.execute(sa.insert(webhook).values(name=name, created_ns=ctx.now_ns, **row))
    return next(each for each in listing(ctx) if each.name == name)


def _parts(url: str) -> tuple[str, str] | None:
    """Return scheme and host of a URL; None if it is none of HTTP."""
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not host or len(url) > _LONGEST_URL:
        return None
    return parts.scheme, parts.netloc.rpartition("@")[2]


def remove(ctx: RequestContext, name: str) -> str:
    """Delete a webhook and the messages that it has not taken.

    Raises:
        NotFoundError: there is no such webhook.
    """
    if not ctx.execute(sa.delete(webhook).where(webhook.c.name == name)):
        raise NotFoundError(f"there is no webhook {name[:80]}")
    return name


def test(ctx: RequestContext, name: str) -> WebhookInfo:
    """Queue a test message to a webhook.

    Raises:
        NotFoundError: there is no such webhook.
    """
    found = next((each for each in listing(ctx) if each.name == name), None)
    if found is None:
        raise NotFoundError(f"there is no webhook {name[:80]}")
    queue(ctx, "test", None, name)
    return found


def listing(ctx: RequestContext) -> list[WebhookInfo]:
    """Return all webhooks, without their secrets."""
    found = []
    for row in ctx.all(sa.select(webhook).order_by(webhook.c.name)):
        waiting = sa.select(delivery).where(delivery.c.webhook == row["name"])
        messages = ctx.all(waiting.order_by(delivery.c.id))
        scheme, host = _parts(row["url"]) or ("", "")
        found.append(
            WebhookInfo(
                name=row["name"],
                url=f"{scheme}://{host}/…",
                has_secret=bool(row["secret"]),
                created_ns=row["created_ns"],
                waiting=len(messages),
                error=messages[0]["error"] if messages else "",
            )
        )
    return found


class Sender:
    """Sends queued messages until the service stops.

    Args:
        orchestrator: the orchestrator.
        post: sends one message.
    """

    def __init__(self, orchestrator: Orchestrator, post: Post) -> None:
        self._orchestrator, self._post = orchestrator, post
        self._known: list[dict[str, Any]] = []

    async def run(self, stopping: asyncio.Event, wait: Wait) -> None:
        """Send due messages every few seconds."""
        while not stopping.is_set():
            try:
                await self.send_due()
            except SkyhopError as error:
                _LOG.error("alerts cannot be sent: %s", error)
            except Exception:
                # One failure does not end the service: the next round may succeed.
                _LOG.exception("alerts cannot be sent")
            await wait(stopping, _LOOK_EVERY_S)

    async def send_due(self) -> None:
        """Send each webhook its due messages one after the other."""
        for _ in range(_MOST_AT_ONCE):
            due = await asyncio.to_thread(self._due)
            if not due:
                return
            await asyncio.gather(*(self._send(row) for row in due))

    async def send_unstored(self, event: str, kind: str, message: str) -> None:
        """Send a message that the database cannot hold, once, to the webhooks that were known."""
        told = {"event": event, "kind": kind, "subject": "", "message": message}
        at_ns = self._orchestrator.now_ns()
        for row in self._known:
            said = await self._try(row, {**told, "at_ns": at_ns})
            if said:
                _LOG.error("webhook %s: %s", row["name"], said)

    def _due(self) -> list[dict[str, Any]]:
        with self._orchestrator.reading(ITSELF) as ctx:
            self._known = [dict(row) for row in ctx.all(sa.select(webhook))]
            first = sa.select(sa.func.min(delivery.c.id)).group_by(delivery.c.webhook)
            query = (
                sa.select(
                    delivery,
                    webhook.c.url,
                    webhook.c.secret,
                    *(alert.c[name] for name in ("kind", "subject", "message", "raised_ns")),
                    alert.c.cleared_ns,
                )
                .join(webhook)
                .outerjoin(alert)
                .where(delivery.c.id.in_(first), delivery.c.next_ns <= ctx.now_ns)
            )
            return [dict(row) for row in ctx.all(query)]

    async def _send(self, row: dict[str, Any]) -> None:
        said = await self._try(row, _message(row))
        await asyncio.to_thread(self._note, row, said)

    async def _try(self, row: dict[str, Any], values: dict[str, Any]) -> str:
        headers = {
            "content-type": "application/json",
            "user-agent": f"skyhop-testbed/{__version__}",
        }
        if row["secret"]:
            headers["authorization"] = f"Bearer {row['secret']}"
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                return await self._post(row["url"], headers, json.dumps(values).encode())
        except TimeoutError:
            return f"no answer within {_TIMEOUT_S:g} s"

    def _note(self, row: dict[str, Any], said: str) -> None:
        """Delete a message that was taken or is too old; plan the next attempt of another."""
        now_ns, attempts = self._orchestrator.now_ns(), row["attempts"] + 1
        mine = delivery.c.id == row["id"]
        is_over = not said or now_ns - row["at_ns"] > _GIVEN_UP_NS or row["event"] == "test"
        if said:
            _LOG.warning("webhook %s: attempt %s failed: %s", row["webhook"], attempts, said)
        delay_s = min(_FIRST_RETRY_S * 3.0 ** min(attempts - 1, 10), _LONGEST_RETRY_S)
        values = {"attempts": attempts, "error": said[:300]}
        values["next_ns"] = now_ns + round(delay_s * _S_NS)
        with self._orchestrator.writing(ITSELF) as ctx:
            if is_over and not (said and row["event"] == "test" and attempts == 1):
                ctx.execute(sa.delete(delivery).where(mine))
            else:
                ctx.execute(sa.update(delivery).where(mine).values(**values))


def _message(row: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON object of a message; `text` is for chats, which show only that."""
    if row["event"] == "test":
        said = "skyhop testbed: a test of this webhook"
        return {"event": "test", "at_ns": row["at_ns"], "text": said}
    state = "ALERT" if row["event"] == "raised" else "over"
    return {
        **{key: row[key] for key in ("event", "kind", "subject", "message", "raised_ns")},
        "cleared_ns": row["cleared_ns"] if row["event"] == "cleared" else None,
        "at_ns": row["at_ns"],
        "alert": row["alert"],
        "text": f"skyhop testbed: {state}: {row['message']}",
    }


async def post(url: str, headers: dict[str, str], content: bytes) -> str:
    """Send a body to a URL; return "" or why it was not taken. The response's body is not read."""
    import httpx

    try:
        async with (
            httpx.AsyncClient(timeout=_TIMEOUT_S, follow_redirects=False) as client,
            client.stream("POST", url, headers=headers, content=content) as response,
        ):
            return "" if response.is_success else f"status {response.status_code}"
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"[:300]
