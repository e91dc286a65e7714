"""The orchestrator's procedures on the net: who calls, may he, and what he is answered.

Nodes come by mutual TLS to a port of their own and are known by their certificate; users bring a
token. Nothing here decides anything: `access` says who may, `procedures`, `nodes` and `uploads` do
it, in threads, so that no caller waits for another's disk.
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
from skyhop.testbed.clock import Clock
from skyhop.testbed.keys import fingerprint, valid_until
from skyhop.testbed.orchestrator import access, archive, jobs, nodes, people, runs, uploads
from skyhop.testbed.orchestrator.desk import (
    ITSELF,
    Caller,
    ConflictError,
    DeniedError,
    Desk,
    NotFoundError,
    UnknownCallerError,
    as_json,
)
from skyhop.testbed.orchestrator.office import Office
from skyhop.testbed.orchestrator.procedures import READING, WRITING
from skyhop.testbed.orchestrator.waiting import Wait
from skyhop.testbed.protocol import testbed_pb2 as pb
from skyhop.testbed.words import ENDED, Role, State

_log = logging.getLogger("skyhop.testbed")
_LARGEST_MESSAGE = 64 << 20
_PIECE = 256 << 10
_MINUTE_S = 60.0
_SILENCE_S = 20.0
"""A follower hears something at least so often, so that either side notices a dead line."""
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

Context = grpc.aio.ServicerContext[Any, Any]


class TooOftenError(SkyhopError):
    """A caller asks more often than one may."""


class _Rates:
    """How often each caller asked within the last minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asked: dict[str, deque[float]] = {}

    def check(self, who: str, limit: float) -> None:
        now = self._clock.monotonic_s()
        times = self._asked.setdefault(who, deque())
        while times and times[0] < now - _MINUTE_S:
            times.popleft()
        if len(times) >= limit:
            raise TooOftenError(f"more than {limit:g} requests a minute: wait a little")
        times.append(now)
        if len(self._asked) > 10_000:  # noqa: PLR2004
            self._asked = {name: t for name, t in self._asked.items() if t}


class Service:
    """Answers for one office.

    Args:
        office: the orchestrator.
        wait: how a follower waits for news.
    """

    def __init__(self, office: Office, wait: Wait) -> None:
        self._office, self._wait = office, wait
        self._rates = _Rates(office.clock)
        self._news = _News(asyncio.get_running_loop())
        self._archive = asyncio.Semaphore(1)
        self._end = office.listen(self._news.tell)

    def close(self) -> None:
        """Let those who follow go."""
        self._end()
        self._news.close()

    def handlers(self, service: str) -> grpc.GenericRpcHandler[Any, Any]:
        """Return what answers a service's procedures."""
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

    def _plain(self, name: str) -> Callable[[Any, Context], Any]:
        """Return what answers a procedure of the tables."""

        def act(caller: Caller, asked: Any) -> Any:
            office = self._office
            if name in READING:
                with office.reading(caller) as desk:
                    return READING[name](office, desk, asked)
            with office.writing(caller) as desk:
                done = WRITING[name](office, desk, asked)
                if name in access.AUDITED:
                    desk.note(name, _target(asked))
                return done

        async def answer(asked: Any, context: Context) -> Any:
            try:
                caller = await asyncio.to_thread(self._caller, name, "users", context)
                return await asyncio.to_thread(act, caller, asked)
            except SkyhopError as error:
                await asyncio.to_thread(self._note_refusal, name, context, asked, error)
                await _refuse(context, error)
            except Exception as error:
                await _fail(context, name, error)

        return answer

    def _guarded(self, name: str, service: str, act: Any) -> Callable[[Any, Context], Any]:
        async def answer(asked: Any, context: Context) -> Any:
            try:
                caller = await asyncio.to_thread(self._caller, name, service, context)
                return await act(caller, asked)
            except SkyhopError as error:
                await asyncio.to_thread(self._note_refusal, name, context, asked, error)
                await _refuse(context, error)
            except Exception as error:
                await _fail(context, name, error)

        return answer

    def _guarded_stream(self, name: str, service: str, act: Any) -> Callable[[Any, Context], Any]:
        async def answer(asked: Any, context: Context) -> AsyncIterator[Any]:
            try:
                caller = await asyncio.to_thread(self._caller, name, service, context)
                async with contextlib.aclosing(act(caller, asked)) as pieces:
                    async for piece in pieces:
                        yield piece
            except SkyhopError as error:
                await _refuse(context, error)
            except Exception as error:
                await _fail(context, name, error)

        return answer

    # --- who calls ---

    def _caller(self, name: str, service: str, context: Context) -> Caller:
        """Return who calls, if he may.

        Raises:
            UnknownCallerError, DeniedError, TooOftenError: he may not.
        """
        if name == "Enrol":
            self._count_refusal(context)
            return ITSELF
        caller = self._node(context) if service == "Agent" else self._user(context)
        access.check_role(name, caller)
        if caller.role is not Role.NODE:
            with self._office.reading(caller) as desk:
                limit = desk.settings.requests_per_minute
            self._rates.check(caller.actor, limit)
        return caller

    def _user(self, context: Context) -> Caller:
        told = dict(context.invocation_metadata() or ())
        value = told.get(_TOKEN_KEY, "")
        if not isinstance(value, str) or not value.startswith(_BEARER):
            self._count_refusal(context)
            raise UnknownCallerError(
                "expected a token: give the file that came with it (--as FILE)"
            )
        try:
            return self._office.caller_of_token(value[len(_BEARER) :])
        except UnknownCallerError:
            self._count_refusal(context)
            raise

    def _count_refusal(self, context: Context) -> None:
        with self._office.reading(ITSELF) as desk:
            limit = desk.settings.refused_per_minute
        self._rates.check(f"nobody {_host(context)}", limit)

    def _node(self, context: Context) -> Caller:
        told = context.auth_context()
        names, pem = told.get("x509_common_name"), told.get("x509_pem_cert")
        if not names or not pem:
            raise UnknownCallerError("expected a node's certificate")
        name = bytes(next(iter(names))).decode(errors="replace")
        digest = fingerprint(bytes(next(iter(pem))))
        with self._office.reading(ITSELF) as desk:
            return people.caller_of_certificate(desk, name, digest)

    def _note_refusal(self, name: str, context: Context, asked: Any, error: SkyhopError) -> None:
        if name not in access.AUDITED or isinstance(error, TooOftenError):
            return
        try:
            caller = self._user(context)
        except SkyhopError:
            caller = Caller(f"unknown at {_host(context)}", Role.USER)
        with contextlib.suppress(SkyhopError), self._office.writing(caller) as desk:
            desk.note(name, _target(asked), f"refused: {error}"[:300])

    # --- nodes ---

    async def _enrol(self, _caller: Caller, asked: pb.EnrolRequest) -> pb.Certificate:
        def act() -> pb.Certificate:
            with self._office.writing(ITSELF) as desk:
                people.take_invitation(desk, asked.token, asked.node)
                nodes.get(desk, asked.node)
                people.forget_certificates(desk, asked.node)
                desk.note("Enrol", asked.node)
                return self._certificate(desk, asked.node, asked.csr_pem)

        return await asyncio.to_thread(act)

    async def _renew(self, caller: Caller, asked: pb.RenewRequest) -> pb.Certificate:
        def act() -> pb.Certificate:
            with self._office.writing(caller) as desk:
                desk.note("Renew", caller.name)
                return self._certificate(desk, caller.name, asked.csr_pem)

        return await asyncio.to_thread(act)

    def _certificate(self, desk: Desk, name: str, request_pem: bytes) -> pb.Certificate:
        authority = self._office.authority
        pem = authority.sign_node(name, request_pem, self._office.now())
        expires_ns = round(valid_until(pem)[1].timestamp() * 1e9)
        people.know_certificate(desk, name, fingerprint(pem), expires_ns)
        return pb.Certificate(
            certificate_pem=pem,
            authority_pem=authority.certificate_pem,
            orders_key=authority.orders_key,
        )

    async def _follow(self, caller: Caller, asked: pb.FollowRequest) -> AsyncIterator[pb.Order]:
        """Send a node its orders: what it does not have yet now, and whatever changes then."""
        revision, told = asked.revision, set[str]()
        with self._news.of_node(caller.name) as changed:
            while not self._news.closed:
                changed.clear()
                orders, revision = await asyncio.to_thread(self._orders, caller, revision, told)
                for order in orders:
                    yield order
                await self._wait(changed, _SILENCE_S)

    def _orders(self, caller: Caller, revision: int, told: set[str]) -> tuple[list[pb.Order], int]:
        authority, orders = self._office.authority, []
        with self._office.reading(caller) as desk:
            now, body = nodes.schedule(desk, caller.name)
            if now != revision:
                text = as_json(body).encode()
                signature = authority.sign_order(text)
                schedule = pb.Schedule(revision=now, body=text, signature=signature)
                orders.append(pb.Order(schedule=schedule))
            for each in nodes.tasks(desk, caller.name):
                if each["task"] not in told:
                    told.add(each["task"])
                    text = as_json(each).encode()
                    signature = authority.sign_order(text)
                    task = pb.Task(task=each["task"], body=text, signature=signature)
                    orders.append(pb.Order(task=task))
            for each in nodes.results(desk, caller.name):
                if f"result {each['run']}" not in told:
                    told.add(f"result {each['run']}")
                    text = as_json({"node": caller.name, **each}).encode()
                    result = pb.TaskResult(body=text, signature=authority.sign_order(text))
                    orders.append(pb.Order(task_result=result))
        return orders, now

    async def _claim(self, caller: Caller, asked: pb.ClaimRequest) -> pb.ClaimReply:
        def act() -> pb.ClaimReply:
            with self._office.writing(caller) as desk:
                granted, reason = runs.claim(desk, asked.run, asked.fence, asked.at_ns)
                return pb.ClaimReply(granted=granted, fence=asked.fence, reason=reason)

        return await asyncio.to_thread(act)

    async def _report(self, caller: Caller, asked: pb.Batch) -> pb.Ack:
        events = [(each.seq, each.at_ns, each.kind, each.json) for each in asked.events]

        def act() -> pb.Ack:
            with self._office.writing(caller) as desk:
                last, samples = nodes.report(desk, events)
                # Kept before the transaction is: what comes twice is the same.
                if samples:
                    self._office.keep_telemetry(caller.name, samples)
                seen = nodes.newest_map(events)
                if seen is not None:
                    self._office.telemetry.keep_map(caller.name, seen)
            return pb.Ack(seq=last, at_ns=self._office.now_ns())

        return await asyncio.to_thread(act)

    async def _input(self, caller: Caller, asked: pb.InputRequest) -> AsyncIterator[pb.Piece]:
        def find() -> Any:
            with self._office.reading(caller) as desk:
                return jobs.input_file(desk, asked.job, asked.name, self._office.objects)

        path = await asyncio.to_thread(find)
        async for piece in _pieces(path, asked.offset):
            yield piece

    async def _upload_state(self, caller: Caller, asked: pb.RunName) -> pb.Offsets:
        def act() -> pb.Offsets:
            with self._office.reading(caller) as desk:
                uploads.check_uploader(desk, asked.run, asked.side)
            return pb.Offsets(offsets=self._office.uploads.offsets(asked.run, asked.side))

        return await asyncio.to_thread(act)

    async def _upload(self, caller: Caller, chunks: AsyncIterator[pb.Chunk]) -> pb.Stored:
        offsets: dict[str, int] = {}
        run = side = ""
        async for chunk in chunks:
            if (chunk.run, chunk.side) != (run, side):
                if run:
                    raise InputError("one upload is of one run")
                run, side = chunk.run, chunk.side
                await asyncio.to_thread(self._check_uploader, caller, run, side)
            offsets[chunk.name] = await asyncio.to_thread(
                self._office.uploads.take, run, side, chunk.name, chunk.offset, chunk.data
            )

        def finish() -> bool:
            with self._office.writing(caller) as desk:
                row = uploads.check_uploader(desk, run, side)
                desk.watched.add(run)
                return self._office.uploads.complete(desk, row, side)

        complete = await asyncio.to_thread(finish) if run else False
        return pb.Stored(offsets=offsets, complete=complete)

    def _check_uploader(self, caller: Caller, run: str, side: str) -> None:
        with self._office.reading(caller) as desk:
            uploads.check_uploader(desk, run, side)

    # --- users: what is sent in pieces ---

    async def _watch_run(self, caller: Caller, asked: pb.RunName) -> AsyncIterator[pb.Document]:
        """Send a run as it is, and again whenever it changes, until it has ended."""
        with self._news.of_run(asked.run) as changed:
            last = ""
            while not self._news.closed:
                changed.clear()
                values = await asyncio.to_thread(self._document, caller, asked.run)
                text = as_json(values)
                if text != last:
                    last = text
                    yield pb.Document(json=text)
                if State(values["state"]) in ENDED:
                    return
                await self._wait(changed, _SILENCE_S)

    def _document(self, caller: Caller, run: str) -> dict[str, Any]:
        with self._office.reading(caller) as desk:
            return runs.document(desk, run)

    async def _fetch(self, caller: Caller, asked: pb.FetchRequest) -> AsyncIterator[pb.Piece]:
        def find() -> Any:
            with self._office.reading(caller) as desk:
                return self._office.uploads.file(desk, asked.run, asked.side, asked.name)

        path, size, digest = await asyncio.to_thread(find)
        yield pb.Piece(total=size, sha256=bytes.fromhex(digest))
        async for piece in _pieces(path, asked.offset):
            yield piece

    async def _telemetry(
        self, caller: Caller, asked: pb.TelemetryRequest
    ) -> AsyncIterator[pb.Piece]:
        """Send a node's telemetry as Arrow's stream of record batches."""
        fields, step_ns = list(asked.fields), asked.step_ns
        with await self._kept(caller, "samples", asked, fields=fields, step_ns=step_ns) as file:
            total = file.seek(0, os.SEEK_END)
            file.seek(0)
            for begin in range(0, max(total, 1), _PIECE):
                data = await asyncio.to_thread(file.read, min(_PIECE, total - begin))
                yield pb.Piece(data=data, total=total)

    async def _test_trigger(self, caller: Caller, asked: pb.TestTriggerRequest) -> pb.Document:
        with await self._kept(caller, "trigger", asked, expression=asked.expression) as file:
            return pb.Document(json=(await asyncio.to_thread(file.read)).decode())

    async def _kept(self, caller: Caller, kind: str, asked: Any, **more: Any) -> BinaryIO:
        """Return what another process answers about a node's kept telemetry, one at a time."""

        def act() -> BinaryIO:
            with self._office.reading(caller) as desk:
                nodes.get(desk, asked.node)
            to_ns = asked.to_ns or self._office.now_ns()
            times = {"from_ns": asked.from_ns, "to_ns": to_ns}
            directory = self._office.telemetry.directory
            return archive.answer(directory, kind, node=asked.node, **times, **more)

        # Those who wait hold no thread: agents need them.
        async with self._archive:
            return await asyncio.to_thread(act)


class _News:
    """Wakes those who wait for a node or a run; told from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._nodes: dict[str, set[asyncio.Event]] = {}
        self._runs: dict[str, set[asyncio.Event]] = {}
        self.closed = False

    def tell(self, changed: set[str], watched: set[str]) -> None:
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

    def of_node(self, name: str) -> contextlib.AbstractContextManager[asyncio.Event]:
        return _waiting(self._nodes, name)

    def of_run(self, name: str) -> contextlib.AbstractContextManager[asyncio.Event]:
        return _waiting(self._runs, name)


@contextmanager
def _waiting(waiting: dict[str, set[asyncio.Event]], name: str) -> Iterator[asyncio.Event]:
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
        raise NotFoundError(f"the file is not there any more: {error.strerror}") from None
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


async def _fail(context: Context, name: str, error: Exception) -> None:
    """Answer where something went wrong that nobody foresaw: what it was is not the caller's."""
    _log.error("%s: %s: %s", name, type(error).__name__, error, exc_info=error)
    await context.abort(grpc.StatusCode.INTERNAL, f"{name} failed here: the testbed's log says why")


async def _refuse(context: Context, error: SkyhopError) -> None:
    code = next(code for kind, code in _CODES if isinstance(error, kind))
    if code is grpc.StatusCode.INTERNAL:
        _log.error("%s", error)
    more: tuple[tuple[str, bytes], ...] = ()
    if isinstance(error, ConflictError) and error.conflicts:
        # What may stand beside an answer is 16 kB at most.
        more = (("conflicts-bin", as_json(error.conflicts[:_MOST_CONFLICTS]).encode()),)
    await context.abort(code, str(error), more)


def _host(context: Context) -> str:
    """Return the caller's address without its port."""
    return context.peer().rpartition(":")[0]


def _target(asked: Any) -> str:
    """Return what a request is about, for the audit log: never a secret."""
    for name in ("job", "run", "node", "user"):
        value = getattr(asked, name, "")
        if value:
            return str(value)[:200]
    if hasattr(asked, "json"):
        with contextlib.suppress(ValueError, AttributeError):
            return str(json.loads(asked.json).get("name", ""))[:200]
    if hasattr(asked, "toml"):
        line = next((x for x in asked.toml.splitlines() if x.startswith("id")), "")
        return line[:200]
    return ""


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
