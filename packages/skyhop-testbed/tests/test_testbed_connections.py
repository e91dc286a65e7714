"""Limits of connections: who must give way, deadlines, and the supervision of the pages."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from testbed_harness import StandingClock

from skyhop_testbed.orchestrator import connections
from skyhop_testbed.orchestrator.connections import Budget, Cause, Limits, Place, Stage, peer_of
from skyhop_testbed.orchestrator.https import HttpsServer, bound
from skyhop_testbed.orchestrator.page_port import Report
from skyhop_testbed.web.supervision import SILENT_S, PageProcess


class Many:
    """Budget with a manual clock; records the connections that it has ended."""

    def __init__(self, **limits: float) -> None:
        self.clock = StandingClock()
        self.ended: list[str] = []
        self.budget = Budget(replace(Limits(), **limits), self.clock.monotonic_s)

    def open(self, name: str, address: str, stage: Stage = Stage.WAITING) -> Place | None:
        """Open a connection of an address a second after the one before."""
        self.clock.sleep(1)
        place = self.budget.admit(address, lambda: self.ended.append(name))
        if place is not None:
            self.budget.set_stage(place, stage)
        return place


def test_a_flood_of_waiting_connections_ends_its_own() -> None:
    many = Many(most=10, most_of_peer=8, most_handshakes=10)
    for number in range(3):
        assert many.open(f"user {number}", f"192.0.2.{number}")
    for number in range(1000):
        assert many.open(f"flood {number}", "198.51.100.7")
    assert many.budget.open == 10
    assert many.ended == [f"flood {number}" for number in range(993)]
    assert many.budget.ended == {Cause.DISPLACED: 993}
    assert many.budget.accepted == 1003
    # A flood from many addresses gives way to a new user as well.
    for number in range(100):
        many.open(f"other {number}", f"203.0.113.{number}")
    assert many.open("a user", "192.0.2.99")
    assert many.budget.open == 10


def test_requests_in_progress_never_give_way() -> None:
    many = Many(most=6, most_of_peer=4, most_handshakes=6)
    busy = [many.open(f"busy {n}", f"192.0.2.{n // 4}", Stage.BUSY) for n in range(6)]
    assert all(busy)
    assert many.open("more", "192.0.2.9") is None
    assert many.open("more of the first", "192.0.2.0") is None
    assert (many.ended, many.budget.ended) == ([], {Cause.FULL: 2})
    assert busy[0]
    many.budget.release(busy[0])
    many.budget.release(busy[0])
    assert many.budget.open == 5
    assert many.open("more", "192.0.2.9")


def test_a_peer_has_its_share_although_there_is_room() -> None:
    many = Many(most=100, most_of_peer=3, most_handshakes=100)
    busy = [many.open(f"busy {n}", "192.0.2.1", Stage.BUSY) for n in range(3)]
    assert all(busy)
    assert many.open("one more", "192.0.2.1") is None
    assert many.open("another peer", "192.0.2.2")
    assert (many.budget.open, many.budget.ended) == (4, {Cause.FULL: 1})


def test_half_open_handshakes_have_a_limit_of_their_own() -> None:
    many = Many(most=100, most_of_peer=50, most_handshakes=5)
    mine = many.open("mine", "192.0.2.1", Stage.HANDSHAKE)
    for number in range(20):
        assert many.open(f"half {number}", "198.51.100.7", Stage.HANDSHAKE)
    assert many.budget.open == 5
    assert "mine" not in many.ended
    assert mine
    many.budget.set_stage(mine, Stage.WAITING)
    assert many.open("next", "192.0.2.2", Stage.HANDSHAKE)
    assert many.budget.open == 6


def test_agents_behind_one_address_have_a_limit_each() -> None:
    many = Many(most=100, most_of_peer=4, most_handshakes=100)
    for agent in range(10):
        for number in range(3):
            place = many.open(f"{agent} {number}", "192.0.2.1", Stage.HANDSHAKE)
            assert place
            assert many.budget.identify(place, f"certificate {agent}")
            many.budget.set_stage(place, Stage.BUSY)
    assert (many.budget.open, many.ended) == (30, [])
    fourth = many.open("0 3", "192.0.2.1", Stage.HANDSHAKE)
    assert fourth
    assert many.budget.identify(fourth, "certificate 0")
    many.budget.set_stage(fourth, Stage.BUSY)
    fifth = many.open("0 4", "192.0.2.1", Stage.HANDSHAKE)
    assert fifth
    assert not many.budget.identify(fifth, "certificate 0"), "all four are busy"
    assert many.budget.open == 31


def test_peers_are_addresses_or_networks() -> None:
    assert peer_of("192.0.2.1") == "192.0.2.1"
    assert peer_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert peer_of("2001:db8:1:2::1") == peer_of("2001:db8:1:2:ffff::2") == "2001:db8:1:2::/64"
    assert peer_of("2001:db8:1:3::1") != peer_of("2001:db8:1:2::1")
    assert peer_of("fe80::1%eth0") == "fe80::/64"
    assert peer_of("") == ""


@pytest.mark.parametrize("descriptors", [300, 1024, 4096, 65_536])
def test_all_ports_together_fit_the_limit_on_open_files(descriptors: int) -> None:
    agents, users = connections.agents_limits(descriptors), connections.users_limits(descriptors)
    assert agents.most + users.most <= max(descriptors - 256, 44)
    for each in (agents, users):
        assert 0 < each.most_of_peer <= each.most
        assert each.most_handshakes > 0
    # The largest testbed: 200 agents with three connections each, and as many that reconnect.
    assert descriptors < 4096 or agents.most >= 1200


def test_the_soft_limit_on_open_files_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    was = {"limits": (1024, 4096)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: was["limits"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: was.update(limits=new))
    assert connections.raise_descriptor_limit() == 4096
    assert was["limits"] == (4096, 4096)
    was["limits"] = (100_000, resource.RLIM_INFINITY)
    assert connections.raise_descriptor_limit() == 100_000
    was["limits"] = (1024, resource.RLIM_INFINITY)
    assert connections.raise_descriptor_limit() == 65_536


# --- deadlines of a real server on the loopback ---

SHORT = Limits(
    most=8, most_of_peer=4, head_s=0.2, body_silence_s=0.2, least_body_bytes_per_s=0.0,
    stalled_s=0.2, handshake_s=0.2,
)  # fmt: skip


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] == "/big":
        await PlainTextResponse("x" * 30_000_000)(scope, receive, send)
        return
    body = await Request(scope, receive).body()
    await PlainTextResponse(f"{len(body)} bytes")(scope, receive, send)


@contextlib.asynccontextmanager
async def serving(limits: Limits = SHORT) -> AsyncIterator[tuple[HttpsServer, int]]:
    """Serve without TLS on a free port of the loopback; yield the server and the port."""
    server, listener = HttpsServer(_answer, limits=limits), bound("127.0.0.1:0")
    server.start(listener)
    try:
        yield server, listener.getsockname()[1]
    finally:
        await server.stop()


async def _until_end(port: int, *pieces: bytes) -> bytes:
    """Send pieces with breaks between them; return what comes until the server ends it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    got = b""
    with contextlib.suppress(ConnectionError):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)
        got = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return got


def _times(piece: bytes, count: int) -> list[bytes]:
    return [piece] * count


@pytest.mark.integration
@pytest.mark.parametrize(
    ("pieces", "cause"),
    [
        ([], Cause.HEAD),
        ([b"GET / HT"], Cause.HEAD),
        # Bytes that come one by one do not extend the deadline of the head.
        ([b"GET / HTTP/1.1\r\nx: ", *_times(b"a", 40)], Cause.HEAD),
        ([b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc"], Cause.BODY),
        ([b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n"], Cause.STALLED),
    ],
)
def test_a_client_that_stops_is_ended(pieces: list[bytes], cause: Cause) -> None:
    async def act() -> dict[Cause, int]:
        async with serving() as (server, port):
            if cause is Cause.STALLED:
                await _take_nothing(port, pieces[0], server)
            else:
                assert await _until_end(port, *pieces) == b""
            assert server.budget.open == 0
            return dict(server.budget.ended)

    assert asyncio.run(act()) == {cause: 1}


async def _take_nothing(port: int, request: bytes, server: HttpsServer) -> None:
    loop, client = asyncio.get_running_loop(), socket.socket()
    client.setblocking(False)
    with client:
        await loop.sock_connect(client, ("127.0.0.1", port))
        await loop.sock_sendall(client, request)
        async with asyncio.timeout(60):
            while not server.budget.ended:
                await asyncio.sleep(0.05)


@pytest.mark.integration
def test_a_slow_body_and_an_idle_connection_go_on() -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 40\r\n\r\n"

    async def act() -> None:
        async with serving(replace(SHORT, body_silence_s=1.0)) as (server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(2):
                writer.write(head)
                for _ in range(40):
                    writer.write(b"a")
                    await writer.drain()
                    await asyncio.sleep(0.01)
                assert b"40 bytes" in await reader.readuntil(b"40 bytes")
                # Longer than the deadline of a head: an idle connection has another one.
                await asyncio.sleep(0.5)
            assert (server.budget.open, dict(server.budget.ended)) == (1, {})
            writer.close()

    asyncio.run(act())


@pytest.mark.integration
def test_a_body_below_the_least_rate_is_ended() -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9000\r\n\r\n"

    async def act() -> dict[Cause, int]:
        limits = replace(SHORT, body_silence_s=0.3, least_body_bytes_per_s=100_000.0)
        async with serving(limits) as (server, port):
            assert await _until_end(port, head, *_times(b"a", 60)) == b""
            return dict(server.budget.ended)

    assert asyncio.run(act()) == {Cause.BODY: 1}


@pytest.mark.integration
def test_a_new_client_is_answered_while_idle_connections_fill_the_port() -> None:
    async def act() -> None:
        async with serving(replace(SHORT, head_s=60.0)) as (server, port):
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(50)]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b"0 bytes" in await asyncio.wait_for(reader.readuntil(b"0 bytes"), 60)
            assert server.budget.open == 4
            assert server.budget.ended == {Cause.DISPLACED: 47}
            for _, each in [*idle, (reader, writer)]:
                each.close()

    asyncio.run(act())


# --- supervision of the pages' process ---


class Fake:
    """Process that ends after a time of the clock, or never; it reports or is silent."""

    pid = 1

    def __init__(self, clock: StandingClock, lives_s: float | None) -> None:
        self._clock = clock
        self.ends_s = None if lives_s is None else clock.monotonic_s() + lives_s
        self.returncode: int | None = None
        self.signals: list[str] = []
        self.end = asyncio.Event()

    def look(self) -> None:
        """End if the time has come."""
        if self.ends_s is not None and self._clock.monotonic_s() >= self.ends_s:
            self._finish(1)

    def _finish(self, status: int) -> None:
        if self.returncode is None:
            self.returncode = status
            self.end.set()

    def terminate(self) -> None:
        """Take SIGTERM, and end."""
        self.signals.append("term")
        self._finish(-15)

    def kill(self) -> None:
        """Take SIGKILL, and end."""
        self.signals.append("kill")
        self._finish(-9)

    async def wait(self) -> int:
        """Wait for the end."""
        await self.end.wait()
        assert self.returncode is not None
        return self.returncode


class Supervised:
    """Supervision of processes with given lifetimes in s, by a manual clock."""

    def __init__(self, lives: list[float | None], *, reports: bool, stop_s: float) -> None:
        self.clock, self.lives, self.reports = StandingClock(), lives, reports
        self.made: list[Fake] = []
        self.starts_s: list[float] = []
        self.stop_s, self.begin_s = stop_s, self.clock.monotonic_s()

    def run(self) -> PageProcess:
        """Supervise until the service stops."""

        class Port:
            reports = 0
            report: Report | None = None

        port = Port()

        async def start() -> Fake:
            made = Fake(self.clock, self.lives[min(len(self.made), len(self.lives) - 1)])
            self.made.append(made)
            self.starts_s.append(self.clock.monotonic_s() - self.begin_s)
            return made

        async def act() -> PageProcess:
            stopping = asyncio.Event()

            async def wait(event: asyncio.Event, seconds: float) -> None:
                self.clock.sleep(seconds)
                port.reports += self.reports
                self.made[-1].look()
                if self.clock.monotonic_s() - self.begin_s >= self.stop_s:
                    stopping.set()
                for _ in range(5):
                    await asyncio.sleep(0)
                assert event

            supervision = PageProcess(start, port, self.clock, wait)  # type: ignore[arg-type]
            await supervision.supervise(stopping)
            return supervision

        return asyncio.run(act())


def test_a_process_that_dies_is_started_again_with_longer_and_longer_waits() -> None:
    tried = Supervised([0.0], reports=True, stop_s=400.0)
    tried.run()
    breaks = [b - a for a, b in zip(tried.starts_s, tried.starts_s[1:], strict=False)]
    # Each process is seen to have ended after a look of 5 s.
    assert breaks[:7] == [6.0, 7.0, 9.0, 13.0, 21.0, 37.0, 65.0]
    assert set(breaks[7:]) <= {65.0}
    assert tried.made[-1].returncode is not None


def test_a_process_that_lived_is_started_again_at_once() -> None:
    tried = Supervised([100.0, None], reports=True, stop_s=300.0)
    supervision = tried.run()
    assert tried.starts_s == [0.0, 101.0]
    assert (supervision.starts, supervision.failures) == (2, 0)
    assert [each.signals for each in tried.made] == [[], ["term"]]


def test_a_process_that_reports_no_more_is_killed() -> None:
    tried = Supervised([None], reports=False, stop_s=SILENT_S + 20.0)
    tried.run()
    assert [each.signals for each in tried.made] == [["kill"], ["term"]]
