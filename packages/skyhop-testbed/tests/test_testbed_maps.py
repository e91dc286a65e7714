"""Obstruction maps: requested from a terminal by its node's agent, stored, sent, and shown."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

import pytest
from manual_clock import ManualClock
from node_here import NodeHere
from test_testbed_agent import is_settled, job
from testbed_fake_orchestrator import AgentProcess, FakeOrchestrator
from testbed_harness import BEGIN_NS, event
from testbed_harness import served as orchestrator_served

from command_line import run_here
from damaged import Trial
from dish_sources import recorded_status, served
from needs import needs_namespaces
from skyhop.errors import InputError
from skyhop.telemetry import maps
from skyhop.telemetry.maps import parse_map, recorded_map
from skyhop.telemetry.obstruction import Frame, ObstructionMap
from skyhop.telemetry.store import Store
from skyhop_lab.dish.recorded import RecordedAnswers
from skyhop_testbed import api
from skyhop_testbed.agent.sensing import Watch
from skyhop_testbed.dish import device_pb2
from skyhop_testbed.dish.messages import read_obstruction_map
from skyhop_testbed.dish.readings import obstruction_map_of
from skyhop_testbed.orchestrator import nodes
from waiting import wait_for

SIDE = 21


def small_map() -> device_pb2.DishGetObstructionMapResponse:
    """Return a map in the terminal's frame: left half unseen, one pixel blocked."""
    snr = [-1.0 if place % SIDE < SIDE // 2 else 1.0 for place in range(SIDE * SIDE)]
    snr[SIDE * SIDE // 2] = 0.25
    return device_pb2.DishGetObstructionMapResponse(
        num_rows=SIDE, num_cols=SIDE, snr=snr, min_elevation_deg=10, max_theta_deg=80,
        map_reference_frame=device_pb2.FRAME_UT,
    )  # fmt: skip


def seen() -> ObstructionMap:
    return obstruction_map_of(small_map(), recorded_status())


def test_a_map_is_written_as_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / maps.FILE
    file.write_bytes(recorded_map(seen()))
    again = read_obstruction_map(file)
    assert again.snr == seen().snr
    assert again.grid.frame is Frame.TERMINAL
    assert again.grid.pointing.azimuth_deg == pytest.approx(seen().grid.pointing.azimuth_deg)
    assert again.grid.pointing.tilt_deg == pytest.approx(seen().grid.pointing.tilt_deg)
    assert maps.decode_map(maps.encode_map(file.read_bytes())) == file.read_bytes()


@pytest.mark.parametrize("text", [None, "", "%", maps.encode_map(b"{}"),
                                  maps.encode_map(b"[" * 9000),
                                  maps.encode_map(recorded_map(seen()))[:-20],
                                  maps.encode_map(b" " * (2 << 20))])  # fmt: skip
def test_what_is_no_map_is_refused(text: object) -> None:
    with pytest.raises(InputError, match=r"^map: "):
        maps.decode_map(text)


def test_a_damaged_map_is_refused_in_one_line() -> None:
    def tried(content: bytes) -> None:
        maps.decode_map(maps.encode_map(content))
        parse_map(content, "map")

    Trial("obstruction map", [recorded_map(seen())], usual=40).run(tried)


def test_a_map_is_handed_on_when_it_has_changed() -> None:
    taken: list[bytes] = []
    clock = ManualClock()
    watch = Watch(
        "127.0.0.1:1", None, host_fields=dict, on_samples=lambda _: None, on_map=taken.append,
        say=lambda _: None, clock=clock,
    )  # fmt: skip
    assert watch._collector.map_every_s == maps.EVERY_S
    first = seen()
    watch._on_map(1, first)
    watch._on_map(2, seen())
    assert taken == [recorded_map(first)]
    changed = small_map()
    changed.snr[-1] = 0.5
    watch._on_map(3, obstruction_map_of(changed, recorded_status()))
    assert len(taken) == 2
    other = Watch(None, None, host_fields=dict, on_samples=lambda _: None, say=print, clock=clock)
    assert other._collector.map_every_s is None


class Terminal:
    """Fake terminal with the small map."""

    map_every_s = maps.EVERY_S

    def __init__(self, _address: str, _clock: object) -> None:
        pass

    def status(self) -> dict[str, float]:
        """Return the status fields of a second."""
        return {"pop_ping_latency_ms": 30.0}

    def history(self) -> list[dict[str, float]]:
        """Return an empty history."""
        return []

    def map(self) -> ObstructionMap:
        """Return the small obstruction map."""
        return seen()


def test_a_node_reports_its_map_once_and_leaves_it_with_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skyhop_testbed.agent.sensing._StarlinkTerminal", Terminal)
    node = NodeHere(tmp_path, monkeypatch)
    try:
        node.start(dish="192.0.2.1:9200")
        run = node.orchestrator.plan(job("true", run={"keep": ["telemetry"]}), 5)
        node.until_settled(run)
        node.clock.advance(2 * maps.EVERY_S)
        (told,) = [body["map"] for _, kind, body in node.orchestrator.events if kind == "map"]
        assert parse_map(maps.decode_map(told), "map").snr == seen().snr
        assert node.orchestrator.files[f"{run}/client/{maps.FILE}"] == maps.decode_map(told)
    finally:
        node.close()


@pytest.mark.soak
def test_an_agent_reports_its_terminals_map_and_leaves_it_with_a_run(tmp_path: Path) -> None:
    needs_namespaces()
    orchestrator = FakeOrchestrator(tmp_path / "orchestrator")
    # The recorded terminal has traffic, which counts as its owner's: runs and uploads would wait.
    orchestrator.mode = "off"
    source = RecordedAnswers(time.time_ns(), recorded_status(), seen=small_map())
    with served(source) as address:
        agent = AgentProcess(tmp_path / "state", orchestrator, dish=address)
        try:
            agent.start()

            def told() -> list[str]:
                return [body["map"] for _, kind, body in orchestrator.events if kind == "map"]

            wait_for(told, why=agent.log)
            assert parse_map(maps.decode_map(told()[0]), "map").snr == seen().snr
            run = orchestrator.plan(job("true", run={"keep": ["telemetry"]}))
            wait_for(lambda: is_settled(orchestrator, run), why=agent.log)
            assert orchestrator.states(run)[-1] == "complete", agent.log()
            left = orchestrator.files[f"{run}/client/{maps.FILE}"]
            assert left == maps.decode_map(told()[0])
            assert len(told()) == 1, "it has not changed"
        finally:
            agent.clear()
            orchestrator.stop()


@pytest.mark.soak
def test_the_newest_map_of_a_node_is_kept_and_told(tmp_path: Path) -> None:
    skyhop = partial(run_here, tmp_path)
    bodies = [{"map": "nonsense"}, {"map": maps.encode_map(recorded_map(seen()))}, {"map": "last"}]
    with orchestrator_served(tmp_path / "state") as testbed:
        agent = testbed.agent("a")
        events = [event(n + 1, BEGIN_NS, "map", json.dumps(body)) for n, body in enumerate(bodies)]
        credential = ("--as", str(testbed.directory / "admin.json"))
        early = skyhop("testbed", "map", "a", *credential)
        assert early.returncode == 2
        assert "no obstruction map has been reported yet" in early.stderr
        assert agent.call(api.REPORT, api.Batch(events=events, at_ns=BEGIN_NS), 120.0) == 3
        with testbed.testbed() as admin:
            assert len(admin.obstruction_map("a")["dishGetObstructionMap"]["snr"]) == SIDE * SIDE
        drawn = skyhop("testbed", "map", "a", "-o", str(tmp_path / "sky.png"), *credential)
        assert drawn.returncode == 0, drawn.stderr
        assert (tmp_path / "sky.png").read_bytes().startswith(b"\x89PNG")
        file = Store(testbed.directory / "telemetry").map_file("a")
        assert file is not None
        assert file.read_bytes() == recorded_map(seen())


def test_the_newest_map_of_a_report_is_the_last_that_is_one() -> None:
    bodies = ["nonsense", maps.encode_map(b"{}"), maps.encode_map(recorded_map(seen())), "last"]
    events = [
        event(place, BEGIN_NS, "map", json.dumps({"map": body}))
        for place, body in enumerate(bodies)
    ]
    assert nodes.newest_map(events) == recorded_map(seen())
    assert nodes.newest_map(events[:2]) is None


def test_an_event_of_a_map_that_is_too_long_is_none() -> None:
    text = json.dumps({"map": maps.encode_map(recorded_map(seen())), "more": "x" * 300_000})
    assert nodes.newest_map([event(1, BEGIN_NS, "map", text)]) is None
