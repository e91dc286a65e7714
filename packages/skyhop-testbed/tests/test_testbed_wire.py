"""Forms of the HTTP API: pieces of uploads, lines of streams, fields of requests; silent peers."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import httpx
import pytest
from starlette.requests import Request

from damaged import Trial
from skyhop.errors import InputError
from skyhop_testbed import api, wire
from skyhop_testbed.api import ApiError, ErrorKind
from skyhop_testbed.orchestrator.http import make_app, read_message
from skyhop_testbed.protocol import own_headers
from skyhop_testbed.wire import Wire

_PIECES = [("a", 0, b"whole\n"), ("empty", 0, b""), ("b/c", 7, bytes(range(256)))]


def fed(content: bytes, step: int) -> list[tuple[str, int, bytes]]:
    """Return the pieces of an upload that arrives in parts of `step` bytes."""
    frames = api.Frames()
    parts = [content[at : at + step] for at in range(0, len(content), step)]
    return [(p.name, p.offset, data) for part in parts for p, data in frames.feed(part)]


@pytest.mark.parametrize("step", [1, 7, 64, 10_000])
def test_an_upload_is_read_however_it_is_cut(step: int) -> None:
    content = b"".join(api.frame(*piece) for piece in _PIECES)
    assert fed(content, step) == _PIECES
    assert fed(content[:-1], step) == _PIECES[:-1]


def test_damaged_uploads_are_refused_in_a_line() -> None:
    def read(content: bytes) -> None:
        assert fed(content, 100) == fed(content, 7)

    Trial("upload", [b"".join(api.frame(*piece) for piece in _PIECES)], usual=60).run(read)


def test_damaged_requests_are_refused_in_a_line() -> None:
    event = {"seq": 1, "at_ns": 2, "kind": "health", "body": "{}"}
    samples = {
        api.REPORT: {"events": [event], "at_ns": 3},
        api.SUBMIT_JOB: {"toml": "id = 1", "files": {"a": "aGFsbG8="}},
        api.PUT_NODE: {"name": "a", "owner": None, "latitude_deg": 41.4, "address": "192.0.2.1"},
    }
    for operation, values in samples.items():

        def read(content: bytes, operation: api.Operation = operation) -> None:  # type: ignore[type-arg]
            request = api.read_request(operation, api.read_object(content))
            text = request.model_dump_json(exclude_unset=True).encode()
            assert api.read_request(operation, api.read_object(text)) == request

        Trial("request", [json.dumps(values).encode()], usual=40).run(read)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"limit": "many"}, "limit: "),
        ({"limit": 2**63}, "limit: "),
        ({"bogus": 1}, "bogus: Extra inputs are not permitted"),
        ([], "request: "),
    ],
)
def test_a_wrong_field_is_named(values: object, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        api.read_request(api.LIST_RUNS, values)
    assert "\n" not in str(caught.value)


def test_a_line_has_a_limit() -> None:
    assert list(api.lines_of([b"a\nb", b"c\n\nd"], 10)) == [b"a", b"bc", b""]
    with pytest.raises(ValueError, match="longer than 10 bytes"):
        list(api.lines_of([b"x" * 6, b"x" * 6], 10))


@pytest.mark.parametrize(
    ("status", "content", "kind"),
    [
        (404, b'{"error": "not-found", "message": "there is\\nno run"}', ErrorKind.NOT_FOUND),
        (502, b"<html>Bad Gateway</html>", ErrorKind.INTERNAL),
        (200, b"[]", ErrorKind.INTERNAL),
        (307, b"", ErrorKind.INTERNAL),
    ],
)
def test_an_answer_that_is_none_is_an_error_of_one_line(
    status: int, content: bytes, kind: ErrorKind
) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(status, content=content))
    made = Wire(httpx.Client(base_url="https://x", transport=transport))
    with pytest.raises(ApiError) as caught:
        made.call(api.GET_RUN, api.NamedRun(run="r"))
    assert caught.value.kind is kind
    assert "\n" not in str(caught.value)


def test_an_error_after_the_first_line_ends_a_stream() -> None:
    order = api.Order(kind=api.OrderKind.STOP, body=b"{}", signature=b"s")
    text = f'{order.model_dump_json()}\n\n{{"error":"internal","message":"away"}}\n'
    transport = httpx.MockTransport(
        lambda _: httpx.Response(200, stream=httpx.ByteStream(text.encode()))
    )
    lines = iter(
        Wire(httpx.Client(base_url="https://x", transport=transport)).stream(
            api.FOLLOW, api.Follow()
        )
    )
    assert next(lines) == order
    with pytest.raises(ApiError, match="away"):
        next(lines)


@contextmanager
def silent_after(head: bytes) -> Iterator[Wire]:
    """Give a connection without TLS to a peer that sends `head` and then nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peers: list[socket.socket] = []

        def answer() -> None:
            peers.append(listener.accept()[0])
            peers[0].recv(65_536)
            peers[0].sendall(head)

        threading.Thread(target=answer, daemon=True).start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        yield Wire(httpx.Client(base_url=address, trust_env=False))
        for peer in peers:
            peer.close()


_HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n\n\r\n"


@pytest.mark.integration
def test_a_peer_that_is_silent_has_vanished() -> None:
    with mock.patch.object(wire, "_SILENCE_S", 0.2), silent_after(_HEAD) as made:
        with pytest.raises(ApiError) as caught:
            next(iter(made.stream(api.FOLLOW, api.Follow())))
        assert caught.value.kind is ErrorKind.TIMEOUT


@pytest.mark.integration
def test_a_stream_is_ended_from_another_thread() -> None:
    with silent_after(_HEAD) as made:
        lines = made.stream(api.FOLLOW, api.Follow())
        kinds: list[ErrorKind] = []

        def wait() -> None:
            try:
                next(iter(lines))
            except ApiError as error:
                kinds.append(error.kind)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        lines.cancel()
        thread.join(60)
    assert kinds == [ErrorKind.UNREACHABLE]


def asked_over_asgi(content: bytes, encoding: str) -> tuple[int, list[api.Batch], str]:
    """Send a report to an application without sockets; return status, requests and answer."""
    seen: list[api.Batch] = []

    async def act(operation: api.Operation[Any, Any], http: Request) -> int:
        seen.append(await read_message(operation, http))
        return 7

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(make_app([api.REPORT], act))
        async with httpx.AsyncClient(transport=transport, base_url="https://t") as client:
            headers = {"content-encoding": encoding}
            return await client.post("/v1/events", content=content, headers=headers)

    answer = asyncio.run(ask())
    return answer.status_code, seen, answer.text


def test_a_long_report_is_sent_compressed_and_read() -> None:
    sent: list[httpx.Request] = []

    def take(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, json=7, headers=own_headers())

    http = httpx.Client(base_url="https://t", transport=httpx.MockTransport(take))
    events = [api.Event(seq=n, at_ns=n, kind="health", body='{"a": 1}') for n in range(50)]
    batch = api.Batch(events=events, at_ns=1)
    wire = Wire(http)
    for batch_sent in (batch, batch, api.Batch(at_ns=1)):
        assert wire.call(api.REPORT, batch_sent, is_packed=True) == 7
    # The first answer says that the orchestrator reads compressed requests.
    plain, packed, short = sent
    assert "content-encoding" not in plain.headers
    assert "content-encoding" not in short.headers
    assert packed.headers["content-encoding"] == api.PACKING
    assert len(packed.content) < len(plain.content) / 5
    status, seen, text = asked_over_asgi(packed.content, packed.headers["content-encoding"])
    assert (status, text) == (200, "7")
    assert seen == [batch]


@pytest.mark.parametrize(
    ("content", "encoding", "said"),
    [
        (b"no zlib", api.PACKING, "damaged"),
        (zlib.compress(b"{}")[:-3], api.PACKING, "cut off"),
        (zlib.compress(bytes(api.LARGEST_REQUEST + 1)), api.PACKING, "more than"),
        (b"{}", "br", "content encoding"),
    ],
)
def test_a_compressed_request_that_is_wrong_is_refused(
    content: bytes, encoding: str, said: str
) -> None:
    status, seen, text = asked_over_asgi(content, encoding)
    assert (status, seen) == (400, [])
    assert said in text
