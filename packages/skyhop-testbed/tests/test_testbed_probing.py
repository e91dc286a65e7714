"""The agent's own probe: its measurements, and their fields in telemetry."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from manual_clock import BEGIN_NS, ManualClock
from node_here import ModuleWith
from testbed_fake_orchestrator import AgentProcess, FakeOrchestrator

from needs import needs_namespaces
from skyhop.errors import InputError
from skyhop_testbed.agent import probing
from skyhop_testbed.agent.probing import Prober, connect_s
from skyhop_testbed.agent.settings import Probe, read_settings
from skyhop_testbed.clock import SYSTEM_CLOCK
from skyhop_testbed.triggers.evaluate import Trigger
from waiting import wait_for

S = 10**9
LOOPBACK = (socket.AF_INET, "127.0.0.1")


@pytest.mark.integration
def test_connecting_and_being_refused_are_answers_and_silence_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=8) as server:
        port = server.getsockname()[1]
        found = connect_s(LOOPBACK, port, SYSTEM_CLOCK)
        assert found is not None
        assert found > 0
    refused = connect_s(LOOPBACK, port, SYSTEM_CLOCK)
    assert refused is not None
    assert refused > 0
    monkeypatch.setattr(probing, "_PATIENCE_S", 0.05)
    with socket.socket() as full:
        # The backlog of a listener that accepts no connection fills up; later SYNs get no answer.
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        assert connect_s(LOOPBACK, port, SYSTEM_CLOCK) is None
        for each in waiting:
            each.close()


@pytest.mark.usefixtures("names")
def test_a_probe_counts_for_the_second_in_which_it_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter([0.025, None])
    monkeypatch.setattr(probing, "connect_s", lambda _address, _port, _clock: next(answers))
    prober = Prober(Probe("127.0.0.1", 7), print, clock=ManualClock())
    prober.probe_once(100 * S)
    prober.probe_once(101 * S + S // 2)
    assert prober.of_second(101 * S) == {"probe_rtt_ms": 25.0, "probe_loss": 0.0}
    assert prober.of_second(102 * S) == {"probe_loss": 1.0}
    assert prober.of_second(103 * S) == {}


@pytest.mark.usefixtures("names")
def test_who_may_not_ping_connects_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_address: object, _number: int, _clock: object) -> float:
        raise PermissionError

    said: list[str] = []
    monkeypatch.setattr(probing, "ping_s", refuse)
    monkeypatch.setattr(probing, "connect_s", lambda _address, port, _clock: port / 1e3)
    prober = Prober(Probe("127.0.0.1"), said.append, clock=ManualClock())
    for second in range(3):
        prober.probe_once(second * S)
    assert len(said) == 1
    assert "ping_group_range" in said[0]
    assert prober.of_second(3 * S)["probe_rtt_ms"] == 443.0


class Names:
    """Fake name resolution, with or without an address."""

    def __init__(self) -> None:
        self.clock, self.has_address = ManualClock(), True
        self.asked_s: list[float] = []

    def resolve(self, _host: str, _port: object, **_others: object) -> list[Any]:
        """Return an address as `socket.getaddrinfo` does."""
        self.asked_s.append(self.clock.monotonic_s())
        if not self.has_address:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, 0, 0, "", ("192.0.2.1", 0))]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """Resolve names without a network."""
    made = Names()
    monkeypatch.setattr(probing, "socket", ModuleWith(socket, getaddrinfo=made.resolve))
    return made


def test_a_name_is_asked_for_again_and_trouble_with_it_said_once(
    monkeypatch: pytest.MonkeyPatch, names: Names
) -> None:
    clock, said = names.clock, []
    names.has_address = False
    monkeypatch.setattr(probing, "connect_s", lambda _address, _port, _clock: 0.025)
    prober = Prober(Probe("host.invalid", 1), said.append, clock=clock)
    seen = []
    for second in range(800):
        if second == 100:
            names.has_address = True
        prober.probe_once(clock.now_ns())
        seen.append(prober.of_second(clock.now_ns() + S))
        clock.advance(1)
    assert names.asked_s == [0, 60, 120, 720]
    assert seen[119] == {}
    assert seen[120] == {"probe_rtt_ms": 25.0, "probe_loss": 0.0}
    assert said == [
        "probe: host.invalid: Name or service not known",
        "probe: host.invalid: has an address again",
    ]


def test_a_prober_asks_at_the_beginning_of_every_second(
    monkeypatch: pytest.MonkeyPatch, names: Names
) -> None:
    clock, asked_ns = names.clock, []
    clock.advance(0.3)
    monkeypatch.setattr(threading, "Thread", clock.thread_class())

    def connect(_address: object, _port: int, _clock: object) -> float:
        asked_ns.append(clock.now_ns())
        clock.sleep(0.4)
        return 0.4

    monkeypatch.setattr(probing, "connect_s", connect)
    prober = Prober(Probe("127.0.0.1", 7), print, clock=clock)
    prober.start()
    clock.advance(5)
    assert asked_ns == [BEGIN_NS + second * S for second in range(1, 6)]
    prober.close()
    clock.advance(1)
    assert len(asked_ns) == 5


@pytest.mark.soak
def test_a_user_who_may_ping_does() -> None:
    needs_namespaces()
    script = (
        "import socket\nfrom skyhop_testbed.agent.probing import ping_s\n"
        "from skyhop_testbed.clock import SYSTEM_CLOCK as clock\n"
        "for number, host in enumerate(('127.0.0.1', '192.0.2.1')):\n"
        "    print(ping_s((socket.AF_INET, host), number, clock))"
    )
    done = subprocess.run(
        ["unshare", "-Urn", "sh", "-c",
         "ip link set lo up && echo '0 0' > /proc/sys/net/ipv4/ping_group_range && exec \"$@\"",
         "sh", sys.executable, "-c", script],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answered, lost = done.stdout.split()
    assert 0 < float(answered) < 0.5
    assert lost == "None"


@pytest.mark.soak
def test_an_agent_that_was_given_a_target_has_it_in_its_telemetry(tmp_path: Path) -> None:
    needs_namespaces()
    orchestrator = FakeOrchestrator(tmp_path / "orchestrator")
    agent = AgentProcess(tmp_path / "state", orchestrator)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        target = f"127.0.0.1:{server.getsockname()[1]}"
        (agent.state / "agent.toml").write_text(f'[probe]\ntarget = "{target}"\n')

        def told() -> list[dict[str, float]]:
            return [
                sample
                for _, kind, body in orchestrator.events
                if kind == "telemetry"
                for sample in body["samples"]
                if "probe_rtt_ms" in sample
            ]

        try:
            begun = time.monotonic()
            agent.start()
            wait_for(lambda: len(told()) > 2, why=agent.log)
            assert all(0 < s["probe_rtt_ms"] < 900 and s["probe_loss"] == 0 for s in told())
            assert len(told()) <= time.monotonic() - begun + 1, "once a second"
        finally:
            agent.clear()
            orchestrator.stop()
    fires = Trigger("probe_rtt_ms > 0 & probe_loss == 0").update(S, {"time_ns": S, **told()[0]})
    assert fires is not None
    assert fires.fired


@pytest.mark.parametrize(
    ("target", "host", "port"),
    [("8.8.8.8", "8.8.8.8", None), ("example.org:443", "example.org", 443), ("::1", "::1", None),
     ("[2001:db8::1]:53", "2001:db8::1", 53)],
)  # fmt: skip
def test_targets(tmp_path: Path, target: str, host: str, port: int | None) -> None:
    (tmp_path / "agent.toml").write_text(f'[probe]\ntarget = "{target}"\n')
    assert read_settings(tmp_path / "agent.toml").probe == Probe(host, port)


@pytest.mark.parametrize("text", ['target = ""', 'target = "a b"', 'target = "x:0"', "target = 1",
                                  'target = "x:65536"', "", 'goal = "x"'])  # fmt: skip
def test_what_is_no_target_is_refused_by_its_key(tmp_path: Path, text: str) -> None:
    (tmp_path / "agent.toml").write_text(f"[probe]\n{text}\n")
    with pytest.raises(InputError, match=r"agent\.toml: probe\."):
        read_settings(tmp_path / "agent.toml")
