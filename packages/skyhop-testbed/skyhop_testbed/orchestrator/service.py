"""API of one orchestrator: authentication, permissions, rate limits, streams and files.

`http` reads requests and writes answers, `access` has the permissions, and `handlers`, `nodes`
and `uploads` make the decisions. They run in threads, so that no caller waits for another caller's
disk I/O. Agents have threads of their own, so that users cannot occupy all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, BinaryIO, ParamSpec, TypeVar

from cryptography import x509
from starlette.applications import Starlette
from starlette.requests import Request

from skyhop.errors import SkyhopError
from skyhop_testbed import api
from skyhop_testbed.api import Operation
from skyhop_testbed.keys import fingerprint, trust_digest
from skyhop_testbed.orchestrator import (
    access,
    accounts,
    archive,
    nodes,
    releases,
    runs,
    uploads,
)
from skyhop_testbed.orchestrator.agents import note_agent
from skyhop_testbed.orchestrator.authority import common_name, issued_ns
from skyhop_testbed.orchestrator.core import Orchestrator
from skyhop_testbed.orchestrator.handlers import FILES, call, note_refusal, target_of
from skyhop_testbed.orchestrator.http import make_app, read_message
from skyhop_testbed.orchestrator.node_orders import NodeOrders
from skyhop_testbed.orchestrator.request_context import (
    ITSELF,
    Caller,
    DeniedError,
    NotFoundError,
    TooOftenError,
    UnknownCallerError,
)
from skyhop_testbed.orchestrator.schedules import Held
from skyhop_testbed.orchestrator.subscriptions import Subscriptions
from skyhop_testbed.orchestrator.upload_quota import UploadQuota
from skyhop_testbed.orchestrator.waiting import Wait
from skyhop_testbed.protocol import TRUST_HEADER, Peer, own_headers
from skyhop_testbed.words import ENDED, Role

_LOG = logging.getLogger(__name__)
_PIECE = 256 << 10
_BEARER = "Bearer "
_AGENTS_THREADS, _USERS_THREADS = 16, 8
P = ParamSpec("P")
T = TypeVar("T")
_threads: ContextVar[Executor | None] = ContextVar("threads", default=None)
"""Threads for the request in progress; by default those of the event loop."""


class Service:
    """Handlers of one orchestrator's API; created in the event loop that serves it.

    Args:
        orchestrator: the orchestrator.
        wait: function with which a stream waits for a change.
    """

    def __init__(self, orchestrator: Orchestrator, wait: Wait) -> None:
        self._orchestrator, self._wait = orchestrator, wait
        self._subscriptions = Subscriptions(asyncio.get_running_loop())
        self._held: dict[str, Held] = {}
        self._archive = asyncio.Semaphore(1)
        self._of_agents = ThreadPoolExecutor(_AGENTS_THREADS, "agents")
        self._of_users = ThreadPoolExecutor(_USERS_THREADS, "users")
        self._end = orchestrator.listen(self._subscriptions.notify)
        self._handlers: dict[str, Callable[[Caller, Any], Any]] = {
            api.FOLLOW.name: self._follow,
            api.WATCH_RUN.name: self._watch_run,
            api.TELEMETRY.name: self._telemetry,
            api.TEST_TRIGGER.name: self._test_trigger,
        }

    def close(self) -> None:
        """End all streams in progress."""
        self._end()
        self._subscriptions.close()

    def app(self, *, of_nodes: bool) -> Starlette:
        """Return the application of the agents' port or of the users' port."""
        offered = [o for o in api.OPERATIONS.values() if (o.roles == api.NODES) == of_nodes]
        return make_app(offered, self._act, self._headers)

    def _headers(self) -> dict[str, str]:
        """Return headers of all answers: version, protocols, and authorities to trust."""
        trusted = self._orchestrator.authority.certificate_pem
        return {**own_headers(), TRUST_HEADER: trust_digest(trusted, ())}

    async def _act(self, operation: Operation[Any, Any], http: Request) -> Any:
        _threads.set(self._of_agents if operation.roles == api.NODES else self._of_users)
        message = None
        try:
            caller = await _in_thread(self._caller, operation, http)
            message = await read_message(operation, http)
            if operation is api.UPLOAD:
                return await self._upload(caller, message, http)
            if operation is api.UPLOAD_RELEASE:
                return await self._upload_release(caller, message, http)
            if operation.name in FILES:
                file = await _in_thread(self._opened, operation, caller, message)
                return _pieces(file, getattr(message, "offset", 0))
            handler = self._handlers.get(operation.name)
            if handler is None:
                return await _in_thread(call, self._orchestrator, operation, caller, message)
            made = handler(caller, message)
            return made if isinstance(made, AsyncIterator) else await made
        except SkyhopError as error:
            target = target_of(dict(message) if message else http.path_params)
            await _in_thread(self._note_refusal, operation, http, target, error)
            raise

    def _opened(self, operation: Operation[Any, Any], caller: Caller, message: Any) -> BinaryIO:
        with self._orchestrator.reading(caller) as ctx:
            found = FILES[operation.name](self._orchestrator, ctx, message)
        try:
            return found.open("rb")
        except OSError as error:
            raise NotFoundError(f"the file no longer exists: {error.strerror}") from None

    # --- authentication ---

    def _caller(self, operation: Operation[Any, Any], http: Request) -> Caller:
        """Authenticate the caller; check the role and the rate limit.

        Raises:
            UnknownCallerError: no valid token or certificate.
            DeniedError: the caller's role may not call this operation.
            TooOftenError: the caller exceeded the rate limit.
        """
        if operation.roles == api.INVITED:
            self._count_refusal(http)
            return ITSELF
        caller = self._node(http) if operation.roles == api.NODES else self._user(http)
        access.check_role(operation, caller)
        if caller.role is not Role.NODE:
            with self._orchestrator.reading(caller) as ctx:
                limit = ctx.settings.requests_per_minute
            self._orchestrator.rates.check(caller.actor, limit)
        return caller

    def _user(self, http: Request) -> Caller:
        value = http.headers.get("authorization", "")
        try:
            if not value.startswith(_BEARER):
                raise UnknownCallerError("expected a token: pass the credential file (--as FILE)")
            return self._orchestrator.caller_of_token(value[len(_BEARER) :])
        except UnknownCallerError:
            self._count_refusal(http)
            raise

    def _count_refusal(self, http: Request) -> None:
        with self._orchestrator.reading(ITSELF) as ctx:
            limit = ctx.settings.refused_per_minute
        self._orchestrator.rates.check(f"unauthenticated {_host(http)}", limit)

    def _node(self, http: Request) -> Caller:
        chain = http.scope.get("extensions", {}).get("tls", {}).get("client_cert_chain")
        if not chain:
            raise UnknownCallerError("expected a node's certificate")
        pem = chain[0].encode()
        certificate = x509.load_pem_x509_certificate(pem)
        name = common_name(certificate.subject)
        with self._orchestrator.reading(ITSELF) as ctx:
            caller = accounts.caller_of_certificate(
                ctx, name, fingerprint(pem), issued_ns(certificate)
            )
        agent = Peer.of_headers(http.headers)
        if agent.side_to_upgrade:
            note_agent(self._orchestrator, caller, agent)
            raise DeniedError(agent.why_not_understood)
        return replace(caller, issuer=common_name(certificate.issuer), agent=agent)

    def _note_refusal(
        self, operation: Operation[Any, Any], http: Request, target: str, error: SkyhopError
    ) -> None:
        if not operation.is_audited or isinstance(error, TooOftenError):
            return
        try:
            caller = self._user(http)
        except SkyhopError:
            caller = Caller(f"unknown at {_host(http)}", Role.USER)
        with contextlib.suppress(SkyhopError):
            note_refusal(self._orchestrator, operation, caller, target, error)

    # --- nodes ---

    async def _follow(self, caller: Caller, message: api.Follow) -> AsyncIterator[api.Order | None]:
        """Stream a node's orders: first those that the node has not received yet, then new ones."""
        orders = NodeOrders(self._orchestrator, caller, message, self._held)
        await _in_thread(note_agent, self._orchestrator, caller, caller.agent)
        _LOG.info("node %s follows from revision=%s", caller.name, message.revision)
        with self._subscriptions.of_node(caller.name) as changed:
            while not self._subscriptions.closed:
                changed.clear()
                due: list[api.Order | None] = [*await _in_thread(orders.due)]
                # A line without an order is a heartbeat.
                for order in due or [None]:
                    _LOG.debug("node %s: order %s", caller.name, order and order.kind)
                    yield order
                await self._wait(changed, api.HEARTBEAT_S)

    async def _upload(self, caller: Caller, of: api.RunSide, http: Request) -> bool:
        """Write the pieces of an upload as they arrive; publish the files if it is complete."""
        store, frames = self._orchestrator.uploads, api.Frames()
        quota = await _in_thread(self._upload_quota, caller, of)

        def write(piece: api.Piece, content: bytes) -> None:
            quota.charge(piece.name, piece.offset, len(content))
            store.write_piece(of.run, of.side, piece.name, piece.offset, content)

        try:
            async for data in http.stream():
                for piece, content in frames.feed(data):
                    await _in_thread(write, piece, content)
        finally:
            await _in_thread(quota.count)

        def finish() -> bool:
            with self._orchestrator.reading(caller) as ctx:
                most_files = ctx.settings.files_per_run
            if not store.verify(of.run, of.side, most_files):
                return False
            with self._orchestrator.writing(caller) as ctx:
                row = uploads.check_uploader(ctx, of.run, of.side)
                ctx.changed_runs.add(of.run)
                store.publish(ctx, row, of.side)
            return True

        return await _in_thread(finish)

    async def _upload_release(
        self, caller: Caller, message: api.NamedRelease, http: Request
    ) -> bool:
        """Write the pieces of a release's wheels as they arrive; publish it if it is complete."""
        orchestrator, version, frames = self._orchestrator, message.version, api.Frames()
        async for data in http.stream():
            for piece, content in frames.feed(data):
                await _in_thread(
                    releases.write_piece, orchestrator, version, piece.name, piece.offset, content
                )

        def finish() -> bool:
            is_published = releases.finish(orchestrator, caller, version)
            with orchestrator.writing(caller) as ctx:
                ctx.audit(api.UPLOAD_RELEASE.name, version)
            return is_published

        return await _in_thread(finish)

    def _upload_quota(self, caller: Caller, of: api.RunSide) -> UploadQuota:
        with self._orchestrator.reading(caller) as ctx:
            row = uploads.check_uploader(ctx, of.run, of.side)
        return UploadQuota(self._orchestrator, row, of.side)

    # --- streams and queries of users ---

    async def _watch_run(
        self, caller: Caller, message: api.NamedRun
    ) -> AsyncIterator[api.RunDocument | None]:
        """Stream a run's document at each change, until the run has ended."""
        with self._subscriptions.of_run(message.run) as changed:
            last = None
            while not self._subscriptions.closed:
                changed.clear()
                document = await _in_thread(self._document, caller, message.run)
                yield None if document == last else document
                last = document
                if document.state in ENDED:
                    return
                await self._wait(changed, api.HEARTBEAT_S)

    def _document(self, caller: Caller, run: str) -> api.RunDocument:
        with self._orchestrator.reading(caller) as ctx:
            return runs.document(ctx, run)

    async def _telemetry(self, caller: Caller, message: api.Telemetry) -> AsyncIterator[bytes]:
        """Send a node's telemetry as an Arrow IPC stream."""
        query = self._query("samples", message)
        query = replace(query, fields=message.columns, step_ns=message.step_ns)
        return _pieces(await self._answer(caller, query), 0)

    async def _test_trigger(self, caller: Caller, message: api.TestTrigger) -> list[api.Evaluation]:
        query = replace(self._query("trigger", message), expression=message.expression)
        with await self._answer(caller, query) as file:
            return api.TEST_TRIGGER.adapter.validate_json(await _in_thread(file.read))

    def _query(self, kind: str, message: api.Telemetry | api.TestTrigger) -> archive.Query:
        telemetry = str(self._orchestrator.telemetry.directory)
        to_ns = message.to_ns or self._orchestrator.now_ns()
        return archive.Query(telemetry, kind, message.node, message.from_ns, to_ns)

    async def _answer(self, caller: Caller, query: archive.Query) -> BinaryIO:
        """Query a node's stored telemetry in a subprocess, one query at a time."""

        def act() -> BinaryIO:
            with self._orchestrator.reading(caller) as ctx:
                nodes.get(ctx, query.node)
                sees_traffic = access.sees_traffic(ctx, query.node)
            return archive.answer(query if sees_traffic else archive.without_traffic(query))

        # Waiting for the lock here occupies no worker thread; the calls of agents need those.
        async with self._archive:
            return await _in_thread(act)


async def _in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in one of the threads for the request in progress."""
    call_it = functools.partial(function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_threads.get(), call_it)


async def _pieces(file: BinaryIO, offset: int) -> AsyncIterator[bytes]:
    """Yield the bytes of a file from an offset on, and close it."""
    with file:
        await _in_thread(file.seek, max(0, offset), os.SEEK_SET)
        while data := await _in_thread(file.read, _PIECE):
            yield data


def _host(http: Request) -> str:
    """Return the caller's address without its port."""
    return http.client.host if http.client else ""
