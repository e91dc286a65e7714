"""Orchestrator in the test process: real procedures, roles and messages, no socket and TLS."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import grpc
from cryptography import x509
from cryptography.x509.oid import NameOID
from testbed_harness import StandingClock

from skyhop_testbed import client
from skyhop_testbed.cli import testbed_admin
from skyhop_testbed.client import Credential, Testbed
from skyhop_testbed.keys import make_request
from skyhop_testbed.orchestrator.core import Orchestrator
from skyhop_testbed.orchestrator.rpc import Service
from skyhop_testbed.protocol import testbed_pb2 as pb
from skyhop_testbed.protocol import testbed_pb2_grpc as stubs
from skyhop_testbed.serve import NODES, USERS, BoundPorts

ADDRESS = "in-process.test:1"
_PEER = "ipv4:192.0.2.50:40000"


class RefusedError(grpc.RpcError):  # type: ignore[misc]
    """Call that ended with a status other than OK."""

    def __init__(self, code: grpc.StatusCode, details: str, trailing: Sequence[Any] = ()) -> None:
        super().__init__(details)
        self._code, self._details, self._trailing = code, details, tuple(trailing)

    def code(self) -> grpc.StatusCode:
        """Return the gRPC status code."""
        return self._code

    def details(self) -> str:
        """Return the text of the status."""
        return self._details

    def trailing_metadata(self) -> tuple[Any, ...]:
        """Return the metadata that came with the status."""
        return self._trailing


class _Context:
    """Fake of gRPC's servicer context: metadata and certificate of the caller."""

    def __init__(self, metadata: Any, certificate: bytes | None) -> None:
        self._metadata, self._certificate = metadata, certificate

    def invocation_metadata(self) -> Any:
        return tuple(self._metadata or ())

    def auth_context(self) -> dict[str, list[bytes]]:
        if self._certificate is None:
            return {}
        subject = x509.load_pem_x509_certificate(self._certificate).subject
        name = str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
        return {"x509_common_name": [name.encode()], "x509_pem_cert": [self._certificate]}

    def peer(self) -> str:
        return _PEER

    async def abort(self, code: grpc.StatusCode, details: str, trailing: Any = ()) -> None:
        raise RefusedError(code, details, trailing)


class _Stream:
    """Iterator over the messages of a streaming call."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pieces: Any, read: Any) -> None:
        self._loop, self._pieces, self._read = loop, pieces, read

    def __iter__(self) -> _Stream:
        return self

    def __next__(self) -> Any:
        try:
            return self._read(self._loop.run_until_complete(anext(self._pieces)))
        except StopAsyncIteration:
            raise StopIteration from None

    def cancel(self) -> None:
        """Close the stream from the client's side."""
        self._loop.run_until_complete(self._pieces.aclose())


class Line:
    """Channel of a caller, with the methods of `grpc.Channel` that stubs call."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        offered: Sequence[grpc.GenericRpcHandler[Any, Any]],
        certificate: bytes | None = None,
    ) -> None:
        self._loop, self._offered, self._certificate = loop, offered, certificate

    def unary_unary(
        self, path: str, request_serializer: Any, response_deserializer: Any, **_: Any
    ) -> Callable[..., Any]:
        """Return a function that calls a procedure with one request and one answer."""

        def call(asked: Any, metadata: Any = None, **_: Any) -> Any:
            found, context = self._found(path, metadata)
            message = found.request_deserializer(request_serializer(asked))
            answer = self._loop.run_until_complete(found.unary_unary(message, context))
            return response_deserializer(found.response_serializer(answer))

        return call

    def stream_unary(
        self, path: str, request_serializer: Any, response_deserializer: Any, **_: Any
    ) -> Callable[..., Any]:
        """Return what calls a procedure of many messages and one answer."""

        def call(pieces: Iterator[Any], metadata: Any = None, **_: Any) -> Any:
            found, context = self._found(path, metadata)

            async def messages() -> Any:
                for piece in pieces:
                    yield found.request_deserializer(request_serializer(piece))

            answer = self._loop.run_until_complete(found.stream_unary(messages(), context))
            return response_deserializer(found.response_serializer(answer))

        return call

    def unary_stream(
        self, path: str, request_serializer: Any, response_deserializer: Any, **_: Any
    ) -> Callable[..., _Stream]:
        """Return what calls a procedure of one message and many answers."""

        def call(asked: Any, metadata: Any = None, **_: Any) -> _Stream:
            found, context = self._found(path, metadata)
            message = found.request_deserializer(request_serializer(asked))

            def read(piece: Any) -> Any:
                return response_deserializer(found.response_serializer(piece))

            return _Stream(self._loop, found.unary_stream(message, context), read)

        return call

    def close(self) -> None:
        """Close the channel; nothing to release."""

    def _found(self, path: str, metadata: Any) -> tuple[Any, Any]:
        @dataclass
        class Details:
            method: str
            invocation_metadata: Any

        for handlers in self._offered:
            found = handlers.service(Details(path, metadata))  # type: ignore[arg-type]
            if found is not None:
                return found, _Context(metadata, self._certificate)
        raise RefusedError(grpc.StatusCode.UNIMPLEMENTED, f"{path} is not offered here")


@dataclass
class Local:
    """Orchestrator in this process, with the interface of `testbed_harness.Served`."""

    orchestrator: Orchestrator
    clock: StandingClock
    loop: asyncio.AbstractEventLoop
    service: Service
    silences: list[float] = field(default_factory=list)
    """Durations in s for which followers waited in vain for an order."""
    users: str = "users"
    agents: str = "agents"

    @property
    def directory(self) -> Path:
        """Directory of the orchestrator's state."""
        return self.orchestrator.directory

    def testbed(self, path: Path | None = None) -> Testbed:
        """Return a user's client of the orchestrator; by default the administrator's."""
        return Testbed(Credential.read(path or self.directory / "admin.json"))

    def channel(self, where: str, key: bytes | None = None, chain: bytes | None = None) -> Any:
        """Return a channel to the users' services, or with a certificate to the nodes' services."""
        assert (key is None) == (chain is None)
        names = USERS if where == self.users else NODES
        return Line(self.loop, [self.service.handlers(name) for name in names], chain)

    def enrol(self, node: str, token: str) -> tuple[bytes, bytes]:
        """Enrol a node; return its key and certificate."""
        key, request = make_request(node)
        asked = pb.EnrolRequest(node=node, token=token, csr_pem=request)
        return key, stubs.EnrolmentStub(self.channel(self.users)).Enrol(asked).certificate_pem

    def agent(self, node: str) -> stubs.AgentStub:
        """Return a new node's way in, as an agent has it."""
        with self.testbed() as testbed:
            testbed.put_node({"name": node})
            key, chain = self.enrol(node, testbed.invitation(node)["token"])
        return stubs.AgentStub(self.channel(self.agents, key, chain))


@contextlib.contextmanager
def local(directory: Path) -> Iterator[Local]:
    """Give a new orchestrator; credentials that name it lead to it, those of others elsewhere."""
    clock = StandingClock()
    orchestrator = Orchestrator(directory, ["localhost"], clock=clock)
    testbed_admin.write_addresses(orchestrator, ADDRESS.partition(":")[0], BoundPorts(1, 1, 1))
    testbed_admin.write_first_credential(orchestrator, ADDRESS)
    loop = asyncio.new_event_loop()
    silences: list[float] = []

    async def wait(event: asyncio.Event, seconds: float) -> None:
        # What threads have told is taken in; nothing else can happen meanwhile.
        for _ in range(5):
            await asyncio.sleep(0)
        if not event.is_set():
            silences.append(seconds)
            clock.sleep(seconds)

    async def begin() -> Service:
        return Service(orchestrator, wait)

    made = Local(orchestrator, clock, loop, loop.run_until_complete(begin()), silences)
    elsewhere = client.open_channel

    def open_channel(credential: Credential) -> Any:
        return made.channel(made.users) if credential.address == ADDRESS else elsewhere(credential)

    try:
        with mock.patch.object(client, "open_channel", open_channel):
            yield made
    finally:
        made.service.close()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        orchestrator.close()
