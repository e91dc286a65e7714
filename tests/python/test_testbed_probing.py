"""The agent's own probe: what it measures, and that telemetry has it."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from needs import needs_namespaces
from testbed_orchestrator import AgentProcess, Orchestrator
from waiting import wait_for

from skyhop.errors import InputError
from skyhop.testbed.agent import probing
from skyhop.testbed.agent.probing import Prober, connect_s
from skyhop.testbed.agent.settings import Probe, read_settings
from skyhop.testbed.triggers.evaluate import Trigger

S = 10**9
LOOPBACK = (socket.AF_INET, "127.0.0.1")


def test_connecting_and_being_refused_are_answers_and_silence_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=8) as server:
        port = server.getsockname()[1]
        found = connect_s(LOOPBACK, port)
        assert found is not None
        assert 0 < found < 0.5
    refused = connect_s(LOOPBACK, port)
    assert refused is not None
    assert 0 < refused < 0.5
    monkeypatch.setattr(probing, "_PATIENCE_S", 0.05)
    with socket.socket() as full:
        # Of a listener that takes nobody, the queue fills up: what then comes is not answered.
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        assert connect_s(LOOPBACK, port) is None
        for each in waiting:
            each.close()


def test_a_probe_counts_for_the_second_in_which_it_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter([0.025, None])
    monkeypatch.setattr(probing, "connect_s", lambda _address, _port: next(answers))
    prober = Prober(Probe("127.0.0.1", 7), print)
    prober.look(100 * S)
    prober.look(101 * S + S // 2)
    assert prober.of_second(101 * S) == {"probe_rtt_ms": 25.0, "probe_loss": 0.0}
    assert prober.of_second(102 * S) == {"probe_loss": 1.0}
    assert prober.of_second(103 * S) == {}


def test_who_may_not_ping_connects_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_address: object, _number: int) -> float:
        raise PermissionError

    said: list[str] = []
    monkeypatch.setattr(probing, "ping_s", refuse)
    monkeypatch.setattr(probing, "connect_s", lambda _address, port: port / 1e3)
    prober = Prober(Probe("127.0.0.1"), said.append)
    for second in range(3):
        prober.look(second * S)
    assert len(said) == 1
    assert "ping_group_range" in said[0]
    assert prober.of_second(3 * S)["probe_rtt_ms"] == 443.0


def test_a_name_without_an_address_is_null_and_said_once() -> None:
    said: list[str] = []
    prober = Prober(Probe("nobody.invalid", 1), said.append)
    prober.look(0)
    prober.look(S)
    assert prober.of_second(S) == prober.of_second(2 * S) == {}
    assert len(said) == 1
    assert said[0].startswith("probe: nobody.invalid: ")


def test_a_user_who_may_ping_does() -> None:
    needs_namespaces()
    script = (
        "import socket\nfrom skyhop.testbed.agent.probing import ping_s\n"
        "print(ping_s((socket.AF_INET, '127.0.0.1'), 1), ping_s((socket.AF_INET, '192.0.2.1'), 2))"
    )
    done = subprocess.run(
        ["unshare", "-Urn", "sh", "-c",
         "ip link set lo up && echo '0 0' > /proc/sys/net/ipv4/ping_group_range && exec \"$@\"",
         "sh", sys.executable, "-c", script],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answered, lost = done.stdout.split()
    assert 0 < float(answered) < 0.5
    assert lost == "None"


def test_an_agent_that_was_given_a_target_has_it_in_its_telemetry(tmp_path: Path) -> None:
    needs_namespaces()
    orchestrator = Orchestrator(tmp_path / "orchestrator")
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
