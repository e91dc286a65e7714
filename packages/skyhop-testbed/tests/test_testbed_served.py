"""A testbed in a subprocess: TLS, the telemetry subprocess, and the latency of schedules."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from test_testbed_access import admin_submit, code_of
from testbed_harness import Served, job, served

from skyhop.errors import InputError, RunError
from skyhop_testbed.client import Credential, Testbed
from skyhop_testbed.keys import make_request
from skyhop_testbed.orchestrator.authority import open_authority
from skyhop_testbed.protocol import testbed_pb2 as pb
from skyhop_testbed.protocol import testbed_pb2_grpc as stubs

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Yield a testbed in a process of its own."""
    with served(tmp_path_factory.mktemp("served") / "state") as made:
        with made.testbed() as admin:
            # Tests send more requests than users do.
            often = 100_000
            admin.put_config({"requests_per_minute": often, "refused_per_minute": often})
            admin.put_node({"name": "a"})
        yield made


def test_the_agents_port_wants_a_certificate_of_this_testbeds(
    testbed: Served, tmp_path: Path
) -> None:
    other = open_authority(tmp_path / "keys", ["localhost"], dt.datetime.now(dt.UTC))
    key, request = make_request("a")
    forged = other.sign_node("a", request, dt.datetime.now(dt.UTC))
    expired_key, expired = _certificate(testbed, "a", days_ago=91)
    unknown_key, unknown = _certificate(testbed, "a", days_ago=0)
    for channel, code in (
        (testbed.channel(testbed.agents), grpc.StatusCode.UNAVAILABLE),
        (testbed.channel(testbed.agents, key, forged), grpc.StatusCode.UNAVAILABLE),
        (testbed.channel(testbed.agents, expired_key, expired), grpc.StatusCode.UNAVAILABLE),
        # Signed by the testbed's authority, but never issued, or revoked.
        (testbed.channel(testbed.agents, unknown_key, unknown), grpc.StatusCode.UNAUTHENTICATED),
    ):
        assert code_of(lambda c=channel: stubs.AgentStub(c).Report(pb.Batch(), timeout=60)) is code


def _certificate(testbed: Served, node: str, *, days_ago: float) -> tuple[bytes, bytes]:
    """Return a key and a certificate of the testbed's authority that its database does not know."""
    now = dt.datetime.now(dt.UTC)
    names = ["127.0.0.1", "localhost"]
    authority = open_authority(testbed.directory / "keys", names, now)
    key, request = make_request(node)
    return key, authority.sign_node(node, request, now - dt.timedelta(days=days_ago))


def test_a_wrong_or_absent_testbed_is_reported_in_a_line(testbed: Served, tmp_path: Path) -> None:
    other = open_authority(tmp_path / "keys", ["localhost"], dt.datetime.now(dt.UTC))
    token, pem = "x", other.certificate_pem.decode()
    for address in (testbed.users, "127.0.0.1:9"):
        with Testbed(Credential(address, token, pem)) as wrong, pytest.raises(RunError) as caught:
            wrong.profile()
        assert "no testbed answers there" in str(caught.value)


def test_kept_telemetry_is_read_by_a_process_of_its_own(testbed: Served) -> None:
    now_ns = time.time_ns() // 10**9 * 10**9
    agent = testbed.agent("measured")
    samples = [{"time_ns": now_ns + n * 10**9, "pop_ping_latency_ms": 20.0 * n} for n in range(4)]
    told = pb.Event(seq=1, at_ns=now_ns, kind="telemetry", json=json.dumps({"samples": samples}))
    agent.Report(pb.Batch(events=[told]), timeout=60)
    with testbed.testbed() as admin:
        fields, end_ns = ["pop_ping_latency_ms"], now_ns + 10**10
        frame = admin.telemetry("measured", now_ns, end_ns, fields)
        assert frame["pop_ping_latency_ms"].to_list() == [0.0, 20.0, 40.0, 60.0]
        with pytest.raises(InputError, match='no field "bogus"'):
            admin.telemetry("measured", 0, end_ns, ["bogus"])
    libraries = Path(f"/proc/{testbed.process.pid}/maps").read_text()
    assert "polars" not in libraries


@pytest.mark.soak
@pytest.mark.alone
def test_a_new_schedule_reaches_fifty_agents_in_two_seconds(testbed: Served) -> None:
    """Submit 1,000 jobs: the schedule of the last one reaches 50 agents within 2 s."""
    names = [f"n{number:02}" for number in range(50)]
    with ThreadPoolExecutor(50) as pool, testbed.testbed() as admin:
        agents = list(pool.map(testbed.agent, names))
        for number in range(999):
            node, hour = names[number % 50], number // 50
            when = f'at = "2099-01-01T{hour:02}:00:00Z"'
            admin_submit(admin, job(f"j{number}", when, nodes=f'["{node}"]'))
        streams = [agent.Follow(pb.FollowRequest(), timeout=60) for agent in agents]
        first = list(pool.map(next, streams))
        waiting = [pool.submit(_arrives, stream, "last") for stream in streams]
        listed = ", ".join(f'"{name}"' for name in names)
        when = 'at = "2099-01-02T00:00:00Z"'
        begin = time.monotonic()
        admin_submit(admin, job("last", when, nodes=f"[{listed}]"))
        took = [each.result(30) - begin for each in waiting]
        for stream in streams:
            stream.cancel()
    assert len(first) == len(took) == 50
    assert max(took) < 2.0, f"{max(took):.2f} s"


def _arrives(stream: Iterator[pb.Order], name: str) -> float:
    for order in stream:
        if f'"id":"{name}"'.encode() in order.schedule.body:
            return time.monotonic()
    raise AssertionError("the stream ended")
