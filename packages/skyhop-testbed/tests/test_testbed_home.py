"""A node at home: a clock that starts in the past, and an HTTP proxy on the way."""

from __future__ import annotations

import base64
import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT
from manual_clock import S_NS
from node_here import NodeHere
from test_testbed_node import job
from testbed_fake_orchestrator import FakeOrchestrator

from skyhop.errors import InputError, RunError
from skyhop_testbed import api
from skyhop_testbed.agent.identity import enrol, open_public_wire, read_identity
from skyhop_testbed.agent.settings import read_settings
from skyhop_testbed.proxies import environment_proxy

_YEAR_NS = 365 * 86_400 * S_NS


# --- the clock ---


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeHere]:
    made = NodeHere(tmp_path, monkeypatch)
    yield made
    made.close()


def test_an_agent_waits_for_a_clock_that_starts_in_the_past(node: NodeHere) -> None:
    now_ns = node.clock.now_ns()
    node.clock.set_wall(now_ns - _YEAR_NS)
    run = node.orchestrator.plan(job("true"), _YEAR_NS / S_NS + 30)
    node.start()
    node.clock.advance(25)
    assert node.orchestrator.batches == 0
    said = [line for line in node.said if "the agent waits until NTP has set the clock" in line]
    assert said == node.said
    assert "the clock says 2025-12-01 00:00 UTC" in said[0]
    node.clock.set_wall(now_ns + 25 * S_NS)
    node.until_settled(run)
    assert node.orchestrator.states(run)[-1] == "complete"
    assert sum("the clock is set" in line for line in node.said) == 1


def test_a_clock_before_the_stored_schedule_is_waited_for_at_most_ten_minutes(
    node: NodeHere,
) -> None:
    node.clock.advance(86_400)
    node.start()
    node.orchestrator.plan(job("true"))
    node.clock.advance(60)
    node.end()
    now_ns, batches = node.clock.now_ns(), node.orchestrator.batches
    # After the certificate's beginning, but before the schedule.
    node.clock.set_wall(now_ns - 3600 * S_NS)
    node.start()
    node.clock.advance(500)
    assert node.orchestrator.batches == batches
    node.clock.advance(200)
    assert node.orchestrator.batches > batches
    assert sum("starts nevertheless" in line for line in node.said) == 1


def test_a_sane_clock_is_not_waited_for(node: NodeHere) -> None:
    node.start()
    node.orchestrator.plan(job("true"))
    node.clock.advance(5)
    node.end()
    node.clock.set_wall(node.clock.now_ns() - 30 * S_NS)
    node.start()
    node.clock.advance(5)
    assert not any("clock" in line for line in node.said)


def test_the_services_start_after_the_clock_is_set() -> None:
    for name in ("skyhop-agent.service", "skyhop-testbed.service"):
        lines = (ROOT / "examples" / "testbed" / name).read_text().splitlines()
        for key in ("After=", "Wants="):
            (line,) = (each for each in lines if each.startswith(key))
            assert {"network-online.target", "time-sync.target"} <= set(line[len(key) :].split())


# --- the proxy ---


class Proxy:
    """HTTP proxy that knows CONNECT, in threads of the test; it records the targets."""

    def __init__(self, credential: str = "") -> None:
        self.targets: list[str] = []
        self._wanted = base64.b64encode(credential.encode()).decode() if credential else ""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End all connections, and the listener's thread."""
        for each in [self._listener, *self._open]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            piece = client.recv(4096)
            if not piece:
                return
            head += piece
        method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
        self.targets.append(f"{method} {target}")
        if self._wanted and f"Basic {self._wanted}".encode() not in head:
            client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            client.close()
            return
        host, _, port = target.rpartition(":")
        server = socket.create_connection((host, int(port)), 60)
        self._open.append(server)
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with selectors.DefaultSelector() as both, contextlib.suppress(OSError):
            both.register(client, selectors.EVENT_READ, server)
            both.register(server, selectors.EVENT_READ, client)
            while True:
                for key, _ in both.select():
                    data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                    key.data.sendall(data) if data else key.data.shutdown(socket.SHUT_WR)
                    if not data:
                        return


@pytest.mark.integration
def test_an_agent_works_through_a_proxy(tmp_path: Path) -> None:
    orchestrator, proxy = FakeOrchestrator(tmp_path / "orchestrator"), Proxy("ann:secret")
    state = tmp_path / "state"
    state.mkdir()
    (state / "agent.toml").write_text(f'proxy = "http://ann:secret@{proxy.address}"\n')
    try:
        enrol(orchestrator.invitation(), state)
        identity = read_identity(state)
        assert proxy.targets == [f"CONNECT {identity.address}"]
        chosen = type(identity)(**{**vars(identity), "proxy": f"http://ann:secret@{proxy.address}"})
        wire = chosen.open_wire()
        assert wire.call(api.REPORT, api.Batch()) == 0
        orders = wire.stream(api.FOLLOW, api.Follow(revision=-1))
        order = next(iter(orders))
        assert order.kind is api.OrderKind.SCHEDULE
        # A stream that waits for its next line is ended from another thread.
        threading.Timer(0.5, orders.cancel).start()
        with pytest.raises(api.ApiError):
            list(orders)
        wire.close()
        assert set(proxy.targets[1:]) == {f"CONNECT {identity.agents}"}
        wrong = type(identity)(**{**vars(identity), "proxy": f"http://bob:x@{proxy.address}"})
        for refused in (wrong.open_wire(), open_public_wire(wrong)):
            with pytest.raises(api.ApiError, match="the HTTP proxy refuses: 407") as error:
                refused.call(api.REPORT, api.Batch())
            assert error.value.kind is api.ErrorKind.UNREACHABLE
            refused.close()
    finally:
        proxy.close()
        orchestrator.stop()


@pytest.mark.integration
def test_enrolment_without_its_proxy_says_so(tmp_path: Path) -> None:
    orchestrator, proxy = FakeOrchestrator(tmp_path / "orchestrator"), Proxy()
    proxy.close()
    state = tmp_path / "state"
    state.mkdir()
    (state / "agent.toml").write_text(f'proxy = "http://{proxy.address}"\n')
    try:
        with pytest.raises(RunError, match="cannot be reached"):
            enrol(orchestrator.invitation(), state)
    finally:
        orchestrator.stop()


@pytest.mark.parametrize(
    ("variables", "address", "proxy"),
    [
        ({}, "testbed.example.org:7401", None),
        ({"HTTPS_PROXY": "http://p:3128"}, "testbed.example.org:7401", "http://p:3128"),
        ({"https_proxy": "p:3128"}, "testbed.example.org:7401", "http://p:3128"),
        ({"ALL_PROXY": "http://p:3128"}, "testbed.example.org:7401", "http://p:3128"),
        ({"HTTP_PROXY": "http://p:3128"}, "testbed.example.org:7401", None),
        ({"HTTPS_PROXY": "http://p:3128"}, "127.0.0.1:7401", None),
        ({"HTTPS_PROXY": "http://p:3128"}, "localhost:7401", None),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "example.org"}, "a.example.org:1", None),
    ],
)
def test_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], address: str, proxy: str | None
) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        for each in (name, name.lower()):
            monkeypatch.delenv(each, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert environment_proxy(address) == proxy


@pytest.mark.parametrize("proxy", ["socks5://p:1", "http://", "https://p:1", "p", "http://p:x"])
def test_a_proxy_that_is_none_is_refused_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    named = proxy.replace("p:", "ann:secret@p:")
    (tmp_path / "agent.toml").write_text(f'proxy = "{named}"\n')
    with pytest.raises(InputError, match=r"agent.toml: proxy: expected an HTTP proxy") as refused:
        read_settings(tmp_path / "agent.toml")
    assert "secret" not in str(refused.value)
    if "://" in named:
        monkeypatch.setenv("HTTPS_PROXY", named)
        with pytest.raises(InputError, match="HTTPS_PROXY: expected an HTTP proxy"):
            environment_proxy("testbed.example.org:7401")
