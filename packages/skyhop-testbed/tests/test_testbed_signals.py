"""Signals of runs: lines on the socket of a run, fields that no run is given, and slow readers."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from manual_clock import S_NS, ManualClock
from node_here import NodeHere, Script
from test_testbed_executor import assignment, execute
from testbed_fake_orchestrator import NODE, AgentProcess, FakeOrchestrator

from needs import needs_namespaces, needs_program
from skyhop.errors import InputError
from skyhop.telemetry.fields import BY_NAME, FIELDS, Sample
from skyhop_testbed import signals
from skyhop_testbed.agent.policy import Policy
from skyhop_testbed.agent.settings import Orbit, Settings
from skyhop_testbed.agent.signal_lines import (
    Conditions,
    HandoverLines,
    encoded,
    lost_line,
    telemetry_lines,
    utc_text,
    visible,
)
from skyhop_testbed.agent.signal_socket import MOST_CLIENTS, MOST_WAITING, SignalSocket
from skyhop_testbed.executor.backends.docker import Docker
from skyhop_testbed.executor.backends.podman import Podman
from skyhop_testbed.executor.environment import environment_of
from skyhop_testbed.job import job_of, read_job
from skyhop_testbed.schedule import ScheduledJob
from skyhop_testbed.signals import Kind, Signals, first_forbidden
from waiting import wait_for

__all__ = ["execute"]

BEGIN_NS = 1_800_000_000 * S_NS
SPIKE = "pop_ping_latency_ms > 50"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeHere]:
    made = NodeHere(tmp_path, monkeypatch)
    yield made
    made.close()


def job(*names: str, **run: Any) -> dict[str, Any]:
    asked = {"client": ["sleep", "60"], "network": "none", "signals": list(names), **run}
    return {"id": "try", "nodes": [NODE], "length": 40.0, "when": {"at": 1}, "run": asked}


class Reader:
    """Client of a run's socket."""

    def __init__(self, place: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(place))
        self.socket.setblocking(False)
        self._rest = b""

    def lines(self) -> list[dict[str, Any]]:
        """Return the whole lines that have arrived since the last call."""
        while True:
            try:
                data = self.socket.recv(1 << 20)
            except BlockingIOError:
                break
            if not data:
                break
            self._rest += data
        *whole, self._rest = self._rest.split(b"\n")
        return [json.loads(line) for line in whole]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with a short path, for clients."""
    monkeypatch.chdir(tmp_path)
    return Path("signal")


def opened(place: Path) -> SignalSocket:
    return SignalSocket(place, lambda: [encoded({"type": "hello"})], lost_line)


# --- names ---


def test_every_field_is_given_or_withheld_for_a_reason() -> None:
    given = Signals.named(signals.ALL)
    names = {field.name for field in FIELDS}
    withheld = names - set(given.fields) - set(signals.PREDICTED_FIELDS)
    assert withheld == signals.OWNERS_FIELDS
    assert names >= signals.POSITION_FIELDS
    # A field whose description names the owner's traffic must not be added to those given.
    assert not [
        n for n in given.fields if "owner" in BY_NAME[n].help or "all traffic" in BY_NAME[n].help
    ]
    assert given.kinds == {Kind.PREDICTION, Kind.HANDOVER, Kind.TRIGGER}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["user_rx_bps"], "contains the owner's own traffic"),
        (["downlink_throughput_bps"], "contains the owner's own traffic"),
        (["predicted_latency_ms"], 'part of the signal "prediction"'),
        (["telemetri"], "did you mean telemetry"),
    ],
)
def test_a_job_that_asks_for_what_no_run_is_given_is_refused(
    names: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        job_of(job(*names))


def test_conditions_of_a_job_go_with_their_signal() -> None:
    assert job_of(job("trigger", conditions={"spike": SPIKE})).run.conditions == {"spike": SPIKE}
    with pytest.raises(InputError, match='conditions go with signals = \\["trigger"\\]'):
        job_of(job("state", conditions={"spike": SPIKE}))
    many = {f"c{number}": SPIKE for number in range(9)}
    with pytest.raises(InputError, match="conditions"):
        job_of(job("trigger", conditions=many))


def test_the_owner_permits_by_name() -> None:
    def refusal(policy: dict[str, Any], *names: str) -> str | None:
        given = ScheduledJob(owner="ann", name="try", spec=job_of(job(*names)))
        return Policy.of(policy).refusal(given, BEGIN_NS, 0)

    assert refusal({}, *signals.ALL, "state") is None
    assert refusal({"signals": ["handover"]}, "handover") is None
    assert (
        refusal({"signals": ["handover"]}, "prediction") == "the signal prediction is not allowed"
    )
    assert refusal({"signals": ["handover"]}, "telemetry") == "the signal telemetry is not allowed"
    assert refusal({"signals": ["state"]}, "telemetry") is None
    assert refusal({"signals": ["state"]}, "tilt") == "the signal tilt is not allowed"
    assert refusal({"signals": []}, "state") == "the signal state is not allowed"
    assert refusal({"signals": ["of_a_later_version", "state"]}, "state") is None
    assert Policy.of({"signals": ["user_rx_bps"]}).signals == Signals()
    assert first_forbidden(["telemetry"], Signals(fields=("state",))) is None


# --- lines ---


def sample(second: int, **values: Any) -> Sample:
    return {"time_ns": BEGIN_NS + second * S_NS, **values}


def test_a_handover_is_announced_once_and_in_the_emulators_words() -> None:
    lines = HandoverLines(Orbit(is_grid=True))
    assert lines.greeting() == {
        "source": "grid", "clock": "CLOCK_MONOTONIC",
        "period_ns": 15 * S_NS, "offset_ns": 12 * S_NS,
    }  # fmt: skip
    told = []
    for second in range(40):
        now_ns = BEGIN_NS + second * S_NS + 200_000_000
        in_s = 15.0 - (second - 12) % 15
        told += lines.of(sample(second, handover_in_s=in_s), now_ns, 7_200_000_000, 5_000)
    # BEGIN_NS is a full minute, so that handovers are at its seconds 12, 27 and 42.
    assert [line["at_utc"] for line in told] == [
        utc_text(BEGIN_NS + at * S_NS) for at in (12, 27, 42)
    ]
    assert told[0] == {
        "type": "handover", "at_ns": 7_200_000_000 + 11_800_000_000,
        "at_utc": utc_text(BEGIN_NS + 12 * S_NS), "outage_ns": 0, "error_ns": 5_000,
        "kind": "unknown",
    }  # fmt: skip
    assert lines.coming(BEGIN_NS + 41 * S_NS) == [told[-1]]
    assert lines.coming(BEGIN_NS + 43 * S_NS) == []
    # A forecast that moves the handover is a new announcement; one in the past is none.
    moved = lines.of(sample(39, handover_in_s=4.0), BEGIN_NS + 39 * S_NS, 0, 0)
    assert [line["at_utc"] for line in moved] == [utc_text(BEGIN_NS + 43 * S_NS)]
    assert lines.of(sample(39, handover_in_s=1.0), BEGIN_NS + 41 * S_NS, 0, 0) == []
    assert HandoverLines(None).of(sample(0, handover_in_s=5.0), BEGIN_NS, 0, 0) == []
    assert HandoverLines(Orbit(elements="x")).source == "forecast"
    assert utc_text(BEGIN_NS + 1_500_000_000).endswith(":01.5Z")


def test_conditions_are_told_when_their_value_changes_and_see_no_owners_field() -> None:
    when = {"trigger": "tilt > 3", "end": "2100-01-01T00:00:00Z"}
    named = {"spike": SPIKE, "owner": "user_rx_bps > 1000"}
    spec = job_of(job("trigger", conditions=named) | {"when": when})
    conditions, allowed = Conditions(spec), Signals.named(signals.ALL)
    told = []
    for second, latency_ms in enumerate((30.0, 30.0, 80.0, 80.0, 30.0)):
        full = sample(second, pop_ping_latency_ms=latency_ms, user_rx_bps=1e9, tilt=2.0)
        told += [
            ((int(line["time_ns"]) - BEGIN_NS) // S_NS, line["name"], line["value"])  # type: ignore[call-overload]
            for line in conditions.of(visible(full, allowed))
        ]
    assert told == [
        (0, "spike", False), (0, "owner", None), (0, "when", False),
        (2, "spike", True), (4, "spike", False),
    ]  # fmt: skip
    hidden = visible(sample(0, predicted_latency_ms=9.0), Signals.named(["trigger", "tilt"]))
    assert hidden == {"time_ns": BEGIN_NS}


def test_a_line_has_the_given_fields_and_no_others() -> None:
    full = sample(0, **{field.name: 1 for field in FIELDS})
    (line,) = telemetry_lines(full, Signals.named(["telemetry"]))
    values = line["values"]
    assert isinstance(values, dict)
    assert not signals.OWNERS_FIELDS & set(values)
    assert telemetry_lines(full, Signals.named(["prediction"])) == []
    (line,) = telemetry_lines(sample(3), Signals.named(["state"]))
    assert json.loads(encoded(line)) == {
        "type": "telemetry", "v": 1, "time_ns": BEGIN_NS + 3 * S_NS, "values": {"state": None}
    }  # fmt: skip


# --- the socket ---


def numbered(count: int, first: int = 0, size: int = 400) -> list[bytes]:
    padding = "x" * size
    return [encoded({"type": "n", "n": first + n, "x": padding}) for n in range(count)]


def test_a_slow_reader_loses_the_oldest_lines_and_is_told(place: Path) -> None:
    """Each line arrives or is counted as lost, in order, while others lose nothing."""
    server = opened(place)
    slow, quick = Reader(place / signals.SOCKET), Reader(place / signals.SOCKET)
    seen = []
    for second in range(3000):
        server.serve(numbered(1, second))
        seen += quick.lines()
    assert [line["n"] for line in seen if line["type"] == "n"] == list(range(3000))
    assert server.lost > 0
    lost_at_most = server.lost
    got = []
    for _ in range(50):
        got += slow.lines()
        server.serve()
    assert got[0]["type"] == "hello"
    numbers = [line["n"] for line in got if line["type"] == "n"]
    lost = sum(line["lines"] for line in got if line["type"] == "dropped")
    assert lost == lost_at_most
    assert len(numbers) + lost == 3000
    assert numbers == sorted(set(numbers))
    # The newest lines are among those that waited.
    assert numbers[-MOST_WAITING:] == list(range(3000 - MOST_WAITING, 3000))
    server.close()
    assert not (place / signals.SOCKET).exists()


def test_a_run_has_few_connections_and_sends_nothing(place: Path) -> None:
    server = opened(place)
    readers = [Reader(place / signals.SOCKET) for _ in range(MOST_CLIENTS)]
    server.serve(numbered(1))
    one_more = Reader(place / signals.SOCKET)
    server.serve(numbered(1, 1))
    assert [line["type"] for line in one_more.lines()] == []
    assert one_more.socket.recv(1) == b"", "it is closed"
    with pytest.raises(BrokenPipeError):
        readers[0].socket.sendall(b"x")
    assert all([line["type"] for line in r.lines()] == ["hello", "n", "n"] for r in readers)
    # A connection that its program has closed makes room.
    readers[3].socket.close()
    server.serve(numbered(1, 2))
    new = Reader(place / signals.SOCKET)
    late = Reader(place / signals.SOCKET)
    server.serve(numbered(1, 3))
    assert [line["type"] for line in new.lines()] == ["hello", "n"]
    assert late.lines() == []
    assert len(readers[0].lines()) == 2
    server.close()


def test_a_flood_of_connections_costs_a_bounded_number_of_accepts(place: Path) -> None:
    server = opened(place)
    for _ in range(20):
        for _ in range(MOST_CLIENTS):
            Reader(place / signals.SOCKET).socket.close()
        server.serve(numbered(1))
    steady = Reader(place / signals.SOCKET)
    server.serve(numbered(1, 7))
    assert [line.get("n") for line in steady.lines()] == [None, 7]
    server.close()


def test_a_socket_that_a_killed_agent_left_is_replaced(tmp_path: Path) -> None:
    """The mounted directory stays the same, and its path may be longer than a socket's."""
    long = tmp_path / ("d" * 120)
    opened(long)
    inode = long.stat().st_ino
    second = opened(long)
    assert long.stat().st_ino == inode
    os.chdir(long)
    reader = Reader(Path(signals.SOCKET))
    second.serve()
    assert [line["type"] for line in reader.lines()] == ["hello"]
    second.close()


# --- the agent ---


def signal_of(node: NodeHere, run: str) -> Path:
    return node.state / "runs" / run / "signal" / signals.SOCKET


def following(node: NodeHere, monkeypatch: pytest.MonkeyPatch, run: str) -> Reader:
    node.until(signal_of(node, run).exists)
    monkeypatch.chdir(signal_of(node, run).parent)
    return Reader(Path(signals.SOCKET))


def test_a_program_reads_its_nodes_signals_each_second(
    node: NodeHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.settings = Settings(orbit=Orbit(is_grid=True))
    node.says(pop_ping_latency_ms=30.0, predicted_throughput_bps=4e7, uplink_throughput_bps=9.0)
    node.start()
    asked = job("telemetry", "prediction", "handover", "trigger", conditions={"spike": SPIKE})
    run = node.orchestrator.plan(asked)
    reader = following(node, monkeypatch, run)
    node.clock.advance(20)
    hello, *lines = reader.lines()
    node.says(pop_ping_latency_ms=80.0)
    node.clock.advance(3)
    lines += reader.lines()
    assert (hello["type"], hello["v"], hello["source"]) == ("hello", 1, "grid")
    assert (hello["node"], hello["run"]) == (NODE, run)
    assert hello["signals"] == ["telemetry", "prediction", "handover", "trigger"]
    assert "pop_ping_latency_ms" in hello["fields"]
    of = {k: [line for line in lines if line["type"] == k] for k in ("telemetry", "prediction")}
    times = [line["time_ns"] for line in of["telemetry"]]
    assert times == [times[0] + n * S_NS for n in range(len(times))]
    assert len(times) >= 20
    assert all("uplink_throughput_bps" not in line["values"] for line in of["telemetry"])
    assert of["prediction"][0]["predicted_throughput_bps"] == 4e7
    assert len(of["prediction"]) >= 18, "no prediction is a line of its own"
    handovers = [line for line in lines if line["type"] == "handover"]
    assert 1 <= len(handovers) <= 3
    assert all(
        json.loads(json.dumps(h))["at_utc"][17:19] in ("12", "27", "42", "57") for h in handovers
    )
    spikes = [line["value"] for line in lines if line["type"] == "trigger"]
    assert spikes == [False, True]
    node.until_settled(run)
    assert not signal_of(node, run).exists()


def test_a_program_that_reads_nothing_does_not_delay_the_agent(
    node: NodeHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.start()
    long = job("telemetry", timeout="success") | {"length": 900.0}
    node.scripts["sleep"] = Script(1e6)
    run = node.orchestrator.plan(long)
    reader = following(node, monkeypatch, run)
    node.clock.advance(600)
    times = [
        sample["time_ns"]
        for _, kind, body in node.orchestrator.events if kind == "telemetry"
        for sample in body["samples"]
    ]  # fmt: skip
    assert times == [times[0] + second * S_NS for second in range(len(times))]
    assert len(times) >= 595
    node.until(lambda: node.is_settled(run), 400)
    assert "its program has not read" in node.log()
    assert reader.lines()[0]["type"] == "hello"


def test_a_restarted_agent_opens_the_sockets_of_living_runs(
    node: NodeHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.start()
    run = node.orchestrator.plan(job("state"))
    reader = following(node, monkeypatch, run)
    node.clock.advance(3)
    assert reader.lines()[0]["fields"] == ["state"]
    node.kill()
    node.start()
    node.clock.advance(3)
    again = Reader(Path(signals.SOCKET))
    node.clock.advance(2)
    assert [line["type"] for line in again.lines()][:2] == ["hello", "telemetry"]


def test_a_run_that_asks_for_nothing_has_no_socket(node: NodeHere) -> None:
    node.start()
    run = node.orchestrator.plan(job())
    node.until(lambda: "executing" in node.orchestrator.states(run))
    node.clock.advance(2)
    assert not (node.state / "runs" / run / "signal").exists()


def test_an_exact_position_hides_distances(node: NodeHere, monkeypatch: pytest.MonkeyPatch) -> None:
    node.settings = Settings(place="41.387,2.170", precision_deg=0.0)
    node.says(sat_dist_min=560_123.4, state="CONNECTED")
    node.start()
    run = node.orchestrator.plan(
        job("telemetry", "trigger", conditions={"near": "sat_dist_min > 1"})
    )
    reader = following(node, monkeypatch, run)
    node.clock.advance(3)
    lines = reader.lines()
    assert not signals.POSITION_FIELDS & set(lines[0]["fields"])
    assert all("sat_dist_min" not in line.get("values", {}) for line in lines)
    assert [line["value"] for line in lines if line["type"] == "trigger"] == [None]


# --- back ends ---


def test_containers_mount_the_socket_read_only(tmp_path: Path) -> None:
    given = replace(assignment("true"), image="x", signals="/state/runs/r/signal")
    for backend in (Podman(ManualClock()), Docker(ManualClock())):
        words = backend.command(given, tmp_path / "work")
        assert f"/state/runs/r/signal:{signals.DIRECTORY}:ro" in words
        without = backend.command(replace(given, signals=None), tmp_path / "work")
        assert not [word for word in without if signals.DIRECTORY in word]
    environment = environment_of(given, "/artifacts")
    assert environment[signals.VARIABLE] == "/run/skyhop-signal/signal.sock"
    assert signals.VARIABLE not in environment_of(replace(given, signals=None), "/artifacts")


_INSIDE = """
import json, os, socket
here = os.environ["SKYHOP_SIGNAL"]
def first(path):
    with socket.socket(socket.AF_UNIX) as one, one.makefile() as lines:
        one.connect(path)
        return json.loads(next(lines))["run"]
def attempt(what):
    try:
        what()
        return "done"
    except OSError as error:
        return type(error).__name__
place = os.path.dirname(here)
print(json.dumps([
    first(here), first("/run/skyhop-signal.sock"), os.listdir(place),
    attempt(lambda: os.unlink(here)),
    attempt(lambda: open(place + "/new", "w")),
    attempt(lambda: first(OTHER)),
]))
"""


@pytest.mark.integration
def test_a_sandbox_sees_its_own_socket_alone(
    tmp_path: Path, execute: Callable[..., dict[str, Any]]
) -> None:
    places = {name: tmp_path / name / "signal" for name in ("run", "other")}
    places["other"].parent.mkdir()
    servers = [
        SignalSocket(place, lambda n=name: [encoded({"type": "hello", "run": n})], lost_line)  # type: ignore[misc]
        for name, place in places.items()
    ]
    ended = threading.Event()

    def serve() -> None:
        while not ended.wait(0.05):
            for server in servers:
                server.serve()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        script = _INSIDE.replace("OTHER", repr(str(places["other"] / signals.SOCKET)))
        given = assignment("python3", "-c", script, signals=str(places["run"]))
        result = execute(given)
    finally:
        ended.set()
        thread.join()
    assert result["state"] == "complete", (tmp_path / "run" / "stderr").read_text()
    assert json.loads((tmp_path / "run" / "stdout").read_text()) == [
        "run", "run", [signals.SOCKET], "OSError", "OSError", "FileNotFoundError",
    ]  # fmt: skip


@pytest.mark.integration
def test_the_example_adapts_to_predictions(tmp_path: Path) -> None:
    """The command of the example runs while the predicted rate is high, and not before."""
    needs_namespaces()
    needs_program("python3")
    (tmp_path / "agent.toml").write_text("[orbit]\ngrid = true\n")
    terminal = tmp_path / "terminal.json"

    def says(bps: float) -> None:
        aside = tmp_path / "aside"
        aside.write_text(json.dumps({"predicted_throughput_bps": bps, "state": "CONNECTED"}))
        aside.replace(terminal)

    says(5e6)
    at = FakeOrchestrator(tmp_path / "orchestrator")
    agent = AgentProcess(
        tmp_path / "state", at, terminal=terminal, settings=tmp_path / "agent.toml"
    )
    try:
        agent.start()
        at.inputs["adapt.py"] = (ROOT / "examples" / "testbed" / "adapt.py").read_bytes()
        command = ["python3", "adapt.py", "--above", "20e6", "--clear", "1", "--runs", "1", "--"]
        command += ["sh", "-c", "date >> fast.txt"]
        spec = job("prediction", "handover", "state", client=command) | {"length": 300.0}
        run = at.plan(spec)
        decisions = agent.state / "runs" / run / "work" / "decisions.csv"
        wait_for(lambda: decisions.exists() and decisions.read_text().count("wait") >= 2)
        assert "run" not in decisions.read_text()
        says(5e7)
        wait_for(lambda: "complete" in at.states(run))
    finally:
        agent.clear()
        at.stop()
    kept = {name.split("/")[-1]: content for name, content in at.files.items()}
    rows = [line.split(",") for line in kept["decisions.csv"].decode().splitlines()[1:]]
    assert rows[-1][3] == "run"
    assert {row[3] for row in rows[:-1]} == {"wait"}
    # A second of a fast link may be too near a handover, but none of a slow link is used.
    assert [float(row[1]) for row in rows if row[3] == "run"] == [5e7]
    assert len(kept["fast.txt"].splitlines()) == 1
    lines = [json.loads(line) for line in kept["signals.jsonl"].splitlines()]
    assert lines[0]["source"] == "grid"
    assert {line["type"] for line in lines} >= {"hello", "handover", "telemetry", "prediction"}


def test_the_examples_job_is_valid() -> None:
    found = read_job((ROOT / "examples" / "testbed" / "adapt.toml").read_text())
    assert Signals.named(found.run.signals).fields == ("pop_ping_latency_ms", "state")
    Conditions(found)
