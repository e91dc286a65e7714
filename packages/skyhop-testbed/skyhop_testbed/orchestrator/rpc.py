"""gRPC service of the orchestrator: authentication, authorisation, rate limits and streaming.

Nodes connect by mutual TLS to a port of their own and are identified by their certificate; users
send a token. Other modules make the decisions: `access` has the permissions, and `procedures`,
`nodes` and `uploads` have the handlers. Handlers run in threads, so that no caller waits for
another caller's disk I/O.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import grpc
import grpc.aio

from skyhop.errors import InputError, SkyhopError
from skyhop_testbed.clock import Clock
from skyhop_testbed.keys import fingerprint, valid_until
from skyhop_testbed.orchestrator import access, accounts, archive, jobs, nodes, runs, uploads
from skyhop_testbed.orchestrator.core import Orchestrator
from skyhop_testbed.orchestrator.procedures import READING, WRITING
from skyhop_testbed.orchestrator.request_context import (
    ITSELF,
    Caller,
    ConflictError,
    DeniedError,
    NotFoundError,
    RequestContext,
    UnknownCallerError,
    as_json,
)
from skyhop_testbed.orchestrator.waiting import Wait
from skyhop_testbed.protocol import testbed_pb2 as pb
from skyhop_testbed.words import ENDED, Role, State

_LOG = logging.getLogger(__name__)
_LARGEST_MESSAGE = 64 << 20
_PIECE = 256 << 10
_MINUTE_S = 60.0
_SILENCE_S = 20.0
"""Longest time in s that a streaming call waits for a change before it reads the database again."""
OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", _LARGEST_MESSAGE),
    ("grpc.max_send_message_length", _LARGEST_MESSAGE),
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
]
_TOKEN_KEY = "authorization"
_BEARER = "Bearer "
_MOST_CONFLICTS = 20

RpcContext = grpc.aio.ServicerContext[Any, Any]


class TooOftenError(SkyhopError):
    """The caller exceeded the limit of requests per minute."""


class _RateLimiter:
    """Sliding-window rate limiter: counts each caller's requests within the last minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent: dict[str, deque[float]] = {}

    def check(self, who: str, limit: float) -> None:
        now = self._clock.monotonic_s()
        times = self._recent.setdefault(who, deque())
        while times and times[0] < now - _MINUTE_S:
            times.popleft()
        if len(times) >= limit:
            raise TooOftenError(f"more than {limit:g} requests per minute: wait a minute")
        times.append(now)
        if len(self._recent) > 10_000:  # noqa: PLR2004
            self._recent = {name: t for name, t in self._recent.items() if t}


class Service:
    """gRPC handlers of one orchestrator.

    Args:
        orchestrator: the orchestrator.
        wait: function with which a streaming call waits for a change.
    """

    def __init__(self, orchestrator: Orchestrator, wait: Wait) -> None:
        self._orchestrator, self._wait = orchestrator, wait
        self._rate_limiter = _RateLimiter(orchestrator.clock)
        self._subscriptions = _Subscriptions(asyncio.get_running_loop())
        self._archive = asyncio.Semaphore(1)
        self._end = orchestrator.listen(self._subscriptions.notify)

    def close(self) -> None:
        """End all streaming calls."""
        self._end()
        self._subscriptions.close()

    def handlers(self, service: str) -> grpc.GenericRpcHandler[Any, Any]:
        """Return a handler that serves all procedures of a service."""
        table = pb.DESCRIPTOR.services_by_name[service]
        found = {method.name: self._handler(service, method) for method in table.methods}
        return grpc.method_handlers_generic_handler(table.full_name, found)

    def _handler(self, service: str, method: Any) -> grpc.RpcMethodHandler[Any, Any]:
        request = getattr(pb, method.input_type.name)
        answer = getattr(pb, method.output_type.name)
        coded = {"request_deserializer": request.FromString}
        coded |= {"response_serializer": answer.SerializeToString}
        name = method.name
        if name in READING or name in WRITING:
            return grpc.unary_unary_rpc_method_handler(self._plain(name), **coded)
        act = getattr(self, f"_{_snake(name)}")
        if method.client_streaming:
            return grpc.stream_unary_rpc_method_handler(self._guarded(name, service, act), **coded)
        if method.server_streaming:
            stream = self._guarded_stream(name, service, act)
            return grpc.unary_stream_rpc_method_handler(stream, **coded)
        return grpc.unary_unary_rpc_method_handler(self._guarded(name, service, act), **coded)

    def _plain(self, name: str) -> Callable[[Any, RpcContext], Any]:
        """Return the handler of a procedure in `READING` or `WRITING`."""

        def act(caller: Caller, message: Any) -> Any:
            orchestrator = self._orchestrator
            if name in READING:
                with orchestrator.reading(caller) as ctx:
                    return READING[name](orchestrator, ctx, message)
            with orchestrator.writing(caller) as ctx:
                done = WRITING[name](orchestrator, ctx, message)
                if name in access.AUDITED:
                    ctx.audit(name, _target(message))
                return done

        async def answer(message: Any, rpc_context: RpcContext) -> Any:
            try:
                caller = await asyncio.to_thread(self._caller, name, "users", rpc_context)
                return await asyncio.to_thread(act, caller, message)
            except SkyhopError as error:
                await asyncio.to_thread(self._note_refusal, name, rpc_context, message, error)
                await _refuse(rpc_context, error)
            except Exception as error:
                await _fail(rpc_context, name, error)

        return answer

    def _guarded(self, name: str, service: str, act: Any) -> Callable[[Any, RpcContext], Any]:
        async def answer(message: Any, rpc_context: RpcContext) -> Any:
            try:
                caller = await asyncio.to_thread(self._caller, name, service, rpc_context)
                return await act(caller, message)
            except SkyhopError as error:
                await asyncio.to_thread(self._note_refusal, name, rpc_context, message, error)
                await _refuse(rpc_context, error)
            except Exception as error:
                await _fail(rpc_context, name, error)

        return answer

    def _guarded_stream(
        self, name: str, service: str, act: Any
    ) -> Callable[[Any, RpcContext], Any]:
        async def answer(message: Any, rpc_context: RpcContext) -> AsyncIterator[Any]:
            try:
                caller = await asyncio.to_thread(self._caller, name, service, rpc_context)
                async with contextlib.aclosing(act(caller, message)) as pieces:
                    async for piece in pieces:
                        yield piece
            except SkyhopError as error:
                await _refuse(rpc_context, error)
            except Exception as error:
                await _fail(rpc_context, name, error)

        return answer

    # --- authentication ---

    def _caller(self, name: str, service: str, rpc_context: RpcContext) -> Caller:
        """Authenticate the caller; check the role and the rate limit.

        Raises:
            UnknownCallerError: no valid token or certificate.
            DeniedError: the caller's role may not call this procedure.
            TooOftenError: the caller exceeded the rate limit.
        """
        if name == "Enrol":
            self._count_refusal(rpc_context)
            return ITSELF
        caller = self._node(rpc_context) if service == "Agent" else self._user(rpc_context)
        access.check_role(name, caller)
        if caller.role is not Role.NODE:
            with self._orchestrator.reading(caller) as ctx:
                limit = ctx.settings.requests_per_minute
            self._rate_limiter.check(caller.actor, limit)
        return caller

    def _user(self, rpc_context: RpcContext) -> Caller:
        metadata = dict(rpc_context.invocation_metadata() or ())
        value = metadata.get(_TOKEN_KEY, "")
        if not isinstance(value, str) or not value.startswith(_BEARER):
            self._count_refusal(rpc_context)
            raise UnknownCallerError("expected a token: pass the credential file (--as FILE)")
        try:
            return self._orchestrator.caller_of_token(value[len(_BEARER) :])
        except UnknownCallerError:
            self._count_refusal(rpc_context)
            raise

    def _count_refusal(self, rpc_context: RpcContext) -> None:
        with self._orchestrator.reading(ITSELF) as ctx:
            limit = ctx.settings.refused_per_minute
        self._rate_limiter.check(f"unauthenticated {_host(rpc_context)}", limit)

    def _node(self, rpc_context: RpcContext) -> Caller:
        peer = rpc_context.auth_context()
        names, pem = peer.get("x509_common_name"), peer.get("x509_pem_cert")
        if not names or not pem:
            raise UnknownCallerError("expected a node's certificate")
        name = bytes(next(iter(names))).decode(errors="replace")
        digest = fingerprint(bytes(next(iter(pem))))
        with self._orchestrator.reading(ITSELF) as ctx:
            return accounts.caller_of_certificate(ctx, name, digest)

    def _note_refusal(
        self, name: str, rpc_context: RpcContext, message: Any, error: SkyhopError
    ) -> None:
        if name not in access.AUDITED or isinstance(error, TooOftenError):
            return
        try:
            caller = self._user(rpc_context)
        except SkyhopError:
            caller = Caller(f"unknown at {_host(rpc_context)}", Role.USER)
        with contextlib.suppress(SkyhopError), self._orchestrator.writing(caller) as ctx:
            ctx.audit(name, _target(message), f"refused: {error}"[:300])

    # --- nodes ---

    async def _enrol(self, _caller: Caller, message: pb.EnrolRequest) -> pb.Certificate:
        def act() -> pb.Certificate:
            with self._orchestrator.writing(ITSELF) as ctx:
                accounts.redeem_invitation(ctx, message.token, message.node)
                nodes.get(ctx, message.node)
                accounts.delete_certificates(ctx, message.node)
                ctx.audit("Enrol", message.node)
                return self._certificate(ctx, message.node, message.csr_pem)

        return await asyncio.to_thread(act)

    async def _renew(self, caller: Caller, message: pb.RenewRequest) -> pb.Certificate:
        def act() -> pb.Certificate:
            with self._orchestrator.writing(caller) as ctx:
                ctx.audit("Renew", caller.name)
                return self._certificate(ctx, caller.name, message.csr_pem)

        return await asyncio.to_thread(act)

    def _certificate(self, ctx: RequestContext, name: str, request_pem: bytes) -> pb.Certificate:
        authority = self._orchestrator.authority
        pem = authority.sign_node(name, request_pem, self._orchestrator.now())
        expires_ns = round(valid_until(pem)[1].timestamp() * 1e9)
        accounts.register_certificate(ctx, name, fingerprint(pem), expires_ns)
        return pb.Certificate(
            certificate_pem=pem,
            authority_pem=authority.certificate_pem,
            orders_key=authority.orders_key,
        )

    async def _follow(self, caller: Caller, message: pb.FollowRequest) -> AsyncIterator[pb.Order]:
        """Stream a node's orders: first those that the node has not received yet, then new ones."""
        revision, sent = message.revision, set[str]()
        _LOG.info("node %s follows from revision=%s", caller.name, revision)
        with self._subscriptions.subscribe_node(caller.name) as changed:
            while not self._subscriptions.closed:
                changed.clear()
                orders, revision = await asyncio.to_thread(self._orders, caller, revision, sent)
                for order in orders:
                    _LOG.debug("node %s: order %s", caller.name, order.WhichOneof("kind"))
                    yield order
                await self._wait(changed, _SILENCE_S)

    def _orders(self, caller: Caller, revision: int, sent: set[str]) -> tuple[list[pb.Order], int]:
        authority, orders = self._orchestrator.authority, []
        with self._orchestrator.reading(caller) as ctx:
            now, body = nodes.schedule(ctx, caller.name)
            if now != revision:
                text = as_json(body).encode()
                signature = authority.sign_order(text)
                schedule = pb.Schedule(revision=now, body=text, signature=signature)
                orders.append(pb.Order(schedule=schedule))
            for each in nodes.tasks(ctx, caller.name):
                if each["task"] not in sent:
                    sent.add(each["task"])
                    text = as_json(each).encode()
                    signature = authority.sign_order(text)
                    task = pb.Task(task=each["task"], body=text, signature=signature)
                    orders.append(pb.Order(task=task))
            for each in nodes.results(ctx, caller.name):
                if f"result {each['run']}" not in sent:
                    sent.add(f"result {each['run']}")
                    text = as_json({"node": caller.name, **each}).encode()
                    result = pb.TaskResult(body=text, signature=authority.sign_order(text))
                    orders.append(pb.Order(task_result=result))
        return orders, now

    async def _claim(self, caller: Caller, message: pb.ClaimRequest) -> pb.ClaimReply:
        def act() -> pb.ClaimReply:
            with self._orchestrator.writing(caller) as ctx:
                granted, reason = runs.claim(ctx, message.run, message.fence, message.at_ns)
                return pb.ClaimReply(granted=granted, fence=message.fence, reason=reason)

        return await asyncio.to_thread(act)

    async def _report(self, caller: Caller, message: pb.Batch) -> pb.Ack:
        events = [(each.seq, each.at_ns, each.kind, each.json) for each in message.events]

        def act() -> pb.Ack:
            with self._orchestrator.writing(caller) as ctx:
                last, samples = nodes.report(ctx, events)
                # Store samples before the commit: if the commit fails, it is harmless to store them
                # twice.
                if samples:
                    self._orchestrator.store_telemetry(caller.name, samples)
                seen = nodes.newest_map(events)
                if seen is not None:
                    self._orchestrator.telemetry.write_map(caller.name, seen)
            return pb.Ack(seq=last, at_ns=self._orchestrator.now_ns())

        return await asyncio.to_thread(act)

    async def _input(self, caller: Caller, message: pb.InputRequest) -> AsyncIterator[pb.Piece]:
        def find() -> Any:
            with self._orchestrator.reading(caller) as ctx:
                return jobs.input_file(ctx, message.job, message.name, self._orchestrator.objects)

        path = await asyncio.to_thread(find)
        async for piece in _pieces(path, message.offset):
            yield piece

    async def _upload_state(self, caller: Caller, message: pb.RunName) -> pb.Offsets:
        def act() -> pb.Offsets:
            with self._orchestrator.reading(caller) as ctx:
                uploads.check_uploader(ctx, message.run, message.side)
            return pb.Offsets(offsets=self._orchestrator.uploads.offsets(message.run, message.side))

        return await asyncio.to_thread(act)

    async def _upload(self, caller: Caller, chunks: AsyncIterator[pb.Chunk]) -> pb.Stored:
        offsets: dict[str, int] = {}
        run = side = ""
        async for chunk in chunks:
            if (chunk.run, chunk.side) != (run, side):
                if run:
                    raise InputError("an upload stream must be of one side of one run")
                run, side = chunk.run, chunk.side
                await asyncio.to_thread(self._check_uploader, caller, run, side)
            offsets[chunk.name] = await asyncio.to_thread(
                self._orchestrator.uploads.write_piece,
                run,
                side,
                chunk.name,
                chunk.offset,
                chunk.data,
            )

        def finish() -> bool:
            with self._orchestrator.writing(caller) as ctx:
                row = uploads.check_uploader(ctx, run, side)
                ctx.changed_runs.add(run)
                return self._orchestrator.uploads.complete(ctx, row, side)

        complete = await asyncio.to_thread(finish) if run else False
        return pb.Stored(offsets=offsets, complete=complete)

    def _check_uploader(self, caller: Caller, run: str, side: str) -> None:
        with self._orchestrator.reading(caller) as ctx:
            uploads.check_uploader(ctx, run, side)

    # --- users: streaming calls ---

    async def _watch_run(self, caller: Caller, message: pb.RunName) -> AsyncIterator[pb.Document]:
        """Stream a run's document at each change, until the run has ended."""
        with self._subscriptions.subscribe_run(message.run) as changed:
            last = ""
            while not self._subscriptions.closed:
                changed.clear()
                values = await asyncio.to_thread(self._document, caller, message.run)
                text = as_json(values)
                if text != last:
                    last = text
                    yield pb.Document(json=text)
                if State(values["state"]) in ENDED:
                    return
                await self._wait(changed, _SILENCE_S)

    def _document(self, caller: Caller, run: str) -> dict[str, Any]:
        with self._orchestrator.reading(caller) as ctx:
            return runs.document(ctx, run)

    async def _fetch(self, caller: Caller, message: pb.FetchRequest) -> AsyncIterator[pb.Piece]:
        def find() -> Any:
            with self._orchestrator.reading(caller) as ctx:
                return self._orchestrator.uploads.file(ctx, message.run, message.side, message.name)

        path, size, digest = await asyncio.to_thread(find)
        yield pb.Piece(total=size, sha256=bytes.fromhex(digest))
        async for piece in _pieces(path, message.offset):
            yield piece

    async def _telemetry(
        self, caller: Caller, message: pb.TelemetryRequest
    ) -> AsyncIterator[pb.Piece]:
        """Send a node's telemetry as an Arrow IPC stream, in pieces."""
        fields, step_ns = list(message.fields), message.step_ns
        with await self._query_archive(
            caller, "samples", message, fields=fields, step_ns=step_ns
        ) as file:
            total = file.seek(0, os.SEEK_END)
            file.seek(0)
            for begin in range(0, max(total, 1), _PIECE):
                data = await asyncio.to_thread(file.read, min(_PIECE, total - begin))
                yield pb.Piece(data=data, total=total)

    async def _test_trigger(self, caller: Caller, message: pb.TestTriggerRequest) -> pb.Document:
        with await self._query_archive(
            caller, "trigger", message, expression=message.expression
        ) as file:
            return pb.Document(json=(await asyncio.to_thread(file.read)).decode())

    async def _query_archive(
        self, caller: Caller, kind: str, message: Any, **more: Any
    ) -> BinaryIO:
        """Query a node's stored telemetry in a subprocess, one query at a time."""

        def act() -> BinaryIO:
            with self._orchestrator.reading(caller) as ctx:
                nodes.get(ctx, message.node)
            to_ns = message.to_ns or self._orchestrator.now_ns()
            times = {"from_ns": message.from_ns, "to_ns": to_ns}
            directory = self._orchestrator.telemetry.directory
            return archive.answer(directory, kind, node=message.node, **times, **more)

        # Waiting for the lock here occupies no worker thread; the calls of agents need those.
        async with self._archive:
            return await asyncio.to_thread(act)


class _Subscriptions:
    """Events that are set when a node or a run changes; `notify` may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._nodes: dict[str, set[asyncio.Event]] = {}
        self._runs: dict[str, set[asyncio.Event]] = {}
        self.closed = False

    def notify(self, changed: set[str], watched: set[str]) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake, frozenset(changed), frozenset(watched))

    def _wake(self, changed: frozenset[str], watched: frozenset[str]) -> None:
        for names, waiting in ((changed, self._nodes), (watched, self._runs)):
            for name in names:
                for event in waiting.get(name, ()):
                    event.set()

    def close(self) -> None:
        self.closed = True
        for waiting in (self._nodes, self._runs):
            for events in waiting.values():
                for event in events:
                    event.set()

    def subscribe_node(self, name: str) -> contextlib.AbstractContextManager[asyncio.Event]:
        return _subscribed(self._nodes, name)

    def subscribe_run(self, name: str) -> contextlib.AbstractContextManager[asyncio.Event]:
        return _subscribed(self._runs, name)


@contextmanager
def _subscribed(waiting: dict[str, set[asyncio.Event]], name: str) -> Iterator[asyncio.Event]:
    event = asyncio.Event()
    waiting.setdefault(name, set()).add(event)
    try:
        yield event
    finally:
        waiting[name].discard(event)
        if not waiting[name]:
            del waiting[name]


async def _pieces(path: Any, offset: int) -> AsyncIterator[pb.Piece]:
    try:
        file = await asyncio.to_thread(path.open, "rb")
    except OSError as error:
        raise NotFoundError(f"the file no longer exists: {error.strerror}") from None
    with file:
        await asyncio.to_thread(file.seek, max(0, offset))
        while data := await asyncio.to_thread(file.read, _PIECE):
            yield pb.Piece(data=data)


_CODES: list[tuple[type[SkyhopError], grpc.StatusCode]] = [
    (UnknownCallerError, grpc.StatusCode.UNAUTHENTICATED),
    (DeniedError, grpc.StatusCode.PERMISSION_DENIED),
    (TooOftenError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (NotFoundError, grpc.StatusCode.NOT_FOUND),
    (ConflictError, grpc.StatusCode.FAILED_PRECONDITION),
    (InputError, grpc.StatusCode.INVALID_ARGUMENT),
    (SkyhopError, grpc.StatusCode.INTERNAL),
]


async def _fail(rpc_context: RpcContext, name: str, error: Exception) -> None:
    """Log an unexpected exception; abort the call without details, which may be confidential."""
    _LOG.error("%s: %s: %s", name, type(error).__name__, error, exc_info=error)
    await rpc_context.abort(
        grpc.StatusCode.INTERNAL, f"internal error in {name}: see the testbed's log"
    )


async def _refuse(rpc_context: RpcContext, error: SkyhopError) -> None:
    code = next(code for kind, code in _CODES if isinstance(error, kind))
    if code is grpc.StatusCode.INTERNAL:
        _LOG.error("%s", error)
    more: tuple[tuple[str, bytes], ...] = ()
    if isinstance(error, ConflictError) and error.conflicts:
        # The metadata of a gRPC reply is limited to 16 kB.
        more = (("conflicts-bin", as_json(error.conflicts[:_MOST_CONFLICTS]).encode()),)
    await rpc_context.abort(code, str(error), more)


def _host(rpc_context: RpcContext) -> str:
    """Return the caller's address without its port."""
    return rpc_context.peer().rpartition(":")[0]


def _target(message: Any) -> str:
    """Return the job, run, node or user that a request names, for the audit log; never a secret."""
    for name in ("job", "run", "node", "user"):
        value = getattr(message, name, "")
        if value:
            return str(value)[:200]
    if hasattr(message, "json"):
        with contextlib.suppress(ValueError, AttributeError):
            return str(json.loads(message.json).get("name", ""))[:200]
    if hasattr(message, "toml"):
        line = next((x for x in message.toml.splitlines() if x.startswith("id")), "")
        return line[:200]
    return ""


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
