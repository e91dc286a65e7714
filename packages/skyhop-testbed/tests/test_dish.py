"""Reading of terminals: answers as telemetry, recordings, damaged recordings."""

from __future__ import annotations

import json
import math
import random
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import starlink_grpc
from google.protobuf import descriptor_pool
from grpc_reflection.v1alpha import reflection

from damaged import Trial
from dish_sources import (
    BEGIN_NS,
    MADE_UP,
    PATIENCE_S,
    Clock,
    S,
    Steady,
    context,
    recorded_history,
    recorded_status,
    served,
)
from needs import cases
from reference_files import reference
from skyhop.errors import InputError, RunError
from skyhop.telemetry.fields import BY_NAME, TIME
from skyhop.telemetry.gps import gps_of_utc_ns, utc_of_gps_ns
from skyhop_lab.dish.device import Device
from skyhop_lab.dish.recorded import RecordedAnswers
from skyhop_lab.dish.server import Server, scaled_clock
from skyhop_lab.dish.terminal import Terminal
from skyhop_testbed.dish import device_pb2, messages
from skyhop_testbed.dish.client import Dish, checked_address
from skyhop_testbed.dish.device_pb2 import DishOutage
from skyhop_testbed.dish.readings import (
    Follower,
    events_of,
    obstruction_map_of,
    outages_of,
    ring_length,
    rows_of,
    sample_of,
)

# --- answers as telemetry ---


@pytest.mark.integration
def test_a_status_comes_back_exactly_as_telemetry() -> None:
    clock = Clock(BEGIN_NS + 700_000_000)
    source = RecordedAnswers(clock.now_ns, recorded_status())
    with served(source, None, clock) as address, Dish(address) as dish:
        sample = sample_of(dish.status(), clock.now_ns)
        assert dish.location() is None
    assert sample == {
        TIME: BEGIN_NS,
        "pop_ping_latency_ms": 26.808062,
        "pop_ping_drop_rate": 0.25,
        "downlink_throughput_bps": 74222.41,
        "uplink_throughput_bps": 54291.07,
        "direction_azimuth": -10.603605,
        "direction_elevation": 72.13238,
        "tilt": 17.91243,
        "attitude_uncertainty": 2.170362,
        "currently_obstructed": True,
        "fraction_obstructed": 0.13378248,
        "obstruction_valid_s": 3135.0,
        "snr_above_noise": True,
        "snr_persistently_low": True,
        "seconds_to_first_nonempty_slot": 1.5,
        "state": "CONNECTED",
        "outage": False,
        "alerts": "roaming,upsu_router_port_slow",
        "uptime_s": 6328,
        "gps_valid": True,
        "gps_sats": 5,
        "eth_speed_mbps": 1000,
    }
    assert set(sample) - {TIME} <= set(BY_NAME)


@pytest.mark.parametrize("cause", DishOutage.Cause.values())
def test_every_cause_of_an_outage_is_a_state(cause: Any) -> None:
    status = recorded_status()
    status.outage.cause = cause
    sample = sample_of(status, 0)
    name = DishOutage.Cause.Name(cause)
    assert sample["state"] == ("SEARCHING" if name == "NO_SCHEDULE" else name)
    assert sample["outage"] is True


def test_what_a_terminal_does_not_know_is_null() -> None:
    sample = sample_of(device_pb2.DishGetStatusResponse(pop_ping_drop_rate=1.0), 0)
    for name in ("pop_ping_latency_ms", "tilt", "gps_sats", "uptime_s", "eth_speed_mbps"):
        assert sample[name] is None, name
    odd = recorded_status()
    odd.pop_ping_latency_ms, odd.pop_ping_drop_rate = math.nan, -1.0
    odd.seconds_to_first_nonempty_slot = -3.0
    # A cause of newer firmware gives its number.
    odd.MergeFromString(DishOutage().SerializeToString())
    odd.outage.MergeFromString(b"\x08\x63")
    sample = sample_of(odd, 0)
    assert sample["pop_ping_latency_ms"] is sample["pop_ping_drop_rate"] is None
    assert sample["seconds_to_first_nonempty_slot"] is None
    assert sample["state"] == "99"


def test_gps_times_become_utc() -> None:
    moment = datetime(2024, 5, 9, 2, 59, 30, tzinfo=UTC)
    assert utc_of_gps_ns(1_399_258_788 * S) == int(moment.timestamp()) * S
    assert gps_of_utc_ns(utc_of_gps_ns(123)) == 123


@pytest.mark.integration
def test_outages_and_rings_come_back_exactly() -> None:
    source = RecordedAnswers(BEGIN_NS, recorded_status(), recorded_history())
    with served(source) as address, Dish(address) as dish:
        history = dish.history()
    outages = outages_of(history)
    assert [one.cause for one in outages] == ["NO_SATS", "OBSTRUCTED"]
    assert outages[0].start_ns == (1_399_258_788 + 315_964_800 - 18) * S + 500_715_800 + 5
    assert (outages[0].duration_ns, outages[1].did_switch) == (820_049_309, True)
    assert ring_length(history) == 8
    rows = rows_of(history, BEGIN_NS)
    assert [row[TIME] for row in rows] == [BEGIN_NS - (12 - second) * S for second in range(5, 13)]
    for second, row in zip(range(5, 13), rows, strict=True):
        lost = second % 5 == 0
        assert row["pop_ping_latency_ms"] == (None if lost else 30.25 + second)
        assert row["pop_ping_drop_rate"] == float(lost)
        assert row["downlink_throughput_bps"] == 1e6 + second
        assert row["uplink_throughput_bps"] == 1e5 + second
        assert row["power_w"] == 40.5 + second


def test_a_terminal_without_power_and_one_that_has_only_begun() -> None:
    history = recorded_history(current=3, ring=43_200)
    del history.power_in[:]
    rows = rows_of(history, BEGIN_NS)
    assert (ring_length(history), len(rows)) == (43_200, 3)
    assert [row["power_w"] for row in rows] == [None] * 3
    assert rows_of(device_pb2.DishGetHistoryResponse(), BEGIN_NS) == []


def test_histories_are_joined_whatever_the_steps() -> None:
    draw = random.Random(1)
    for _ in range(cases(50)):
        follower, seen, current = Follower(), [], draw.randint(1, 40)
        first = max(current - 8, 0)
        while current < 80:
            # Request at a random time within the second.
            now_ns = BEGIN_NS + current * S + draw.randrange(S)
            joined = follower.join(recorded_history(current), now_ns)
            assert not joined.rebooted
            assert joined.missed_s == 0
            seen += joined.rows
            current += draw.randint(0, 8)
        numbers = [round(float(row["downlink_throughput_bps"] or 0) - 1e6) for row in seen]
        assert numbers == list(range(first, first + len(numbers)))
        assert [row[TIME] for row in seen] == [BEGIN_NS + (n + 1) * S for n in numbers]


def test_what_is_missed_and_a_reboot_are_noticed() -> None:
    follower = Follower()
    follower.join(recorded_history(20), BEGIN_NS)
    joined = follower.join(recorded_history(33), BEGIN_NS + 13 * S)
    assert (len(joined.rows), joined.missed_s, joined.rebooted) == (8, 5, False)
    # Rebooted: the count of seconds is smaller than before.
    joined = follower.join(recorded_history(4), BEGIN_NS + 60 * S)
    assert (len(joined.rows), joined.missed_s, joined.rebooted) == (4, 0, True)
    assert joined.rows[-1][TIME] == BEGIN_NS + 60 * S
    # Rebooted long ago: the count is larger, but by less than the elapsed time.
    joined = follower.join(recorded_history(50), BEGIN_NS + 200 * S)
    assert (len(joined.rows), joined.rebooted) == (8, True)


@pytest.mark.integration
def test_a_reboot_in_the_middle_of_a_stream_is_noticed() -> None:
    clock = Clock()
    terminal = Terminal(Steady(), BEGIN_NS, ring=60)
    with served(terminal, None, clock) as address, Dish(address) as dish:
        follower, counts = Follower(), []
        for second in range(1, 40):
            clock.now_ns = BEGIN_NS + second * S
            if second == 20:
                with context(address) as c:
                    starlink_grpc.reboot(c)
                assert dish.status().outage.cause == DishOutage.BOOTING  # type: ignore[attr-defined]
            joined = follower.join(dish.history(), clock.now_ns)
            counts.append((len(joined.rows), joined.rebooted))
    assert counts == [(1, False)] * 19 + [(0, True)] + [(1, False)] * 19


def test_newer_firmware_has_its_outages_in_the_event_log() -> None:
    terminal = Terminal(Steady(lost={5, 6, 7}), BEGIN_NS)
    history = terminal.history(BEGIN_NS + 12 * S)
    (outage,) = outages_of(history)
    assert (outage.cause, outage.start_ns) == ("NO_SATS", BEGIN_NS + 5 * S)
    assert outage.duration_ns == 3 * S
    (event,) = events_of(history)
    assert (event.reason, event.start_ns) == ("EVENT_REASON_OUTAGE_NO_SATS", outage.start_ns)
    del history.outages[:]
    (again,) = outages_of(history)
    assert (again.cause, again.start_ns, again.duration_ns) == ("NO_SATS", BEGIN_NS + 5 * S, 3 * S)
    assert again.did_switch is None


# --- recorded terminals ---


def test_a_real_terminals_history_reads_as_published() -> None:
    history = messages.read_history(reference("dish/get_history.json.gz"))
    assert history.current == 13_547
    rings = ("pop_ping_drop_rate", "pop_ping_latency_ms", "downlink_throughput_bps",
             "uplink_throughput_bps")  # fmt: skip
    assert [len(getattr(history, name)) for name in rings] == [900] * 4
    outages = outages_of(history)
    assert Counter(one.cause for one in outages) == {
        "NO_SCHEDULE": 251, "OBSTRUCTED": 227, "NO_DOWNLINK": 167, "NO_PINGS": 37, "BOOTING": 1,
    }  # fmt: skip
    assert datetime.fromtimestamp(outages[-1].start_ns // S, UTC) == datetime(
        2024, 5, 9, 2, 59, 30, tzinfo=UTC
    )
    rows = rows_of(history, BEGIN_NS)
    assert len(rows) == 900
    # The newest value of the ring is at (13,547 - 1) mod 900.
    assert rows[-1]["pop_ping_latency_ms"] == pytest.approx(history.pop_ping_latency_ms[46])
    assert sum(row["pop_ping_latency_ms"] is None for row in rows) == 76
    assert {row["power_w"] for row in rows} == {None}


@pytest.mark.integration
def test_a_real_terminal_said_again_is_told_from_it_by_nothing() -> None:
    status = messages.read_status(reference("dish/get_status.json"))
    history = messages.read_history(reference("dish/get_history.json.gz"))
    with served(RecordedAnswers(BEGIN_NS, status, history)) as address, Dish(address) as dish:
        # Compare bytes: the client builds its own message classes by reflection.
        assert dish.status().SerializeToString() == status.SerializeToString()
        assert dish.history().SerializeToString() == history.SerializeToString()
    sample = sample_of(status, BEGIN_NS)
    assert (sample["pop_ping_latency_ms"], sample["alerts"]) == (26.808062, "roaming,is_heating")
    assert (sample["uptime_s"], sample["state"]) == (6328, "CONNECTED")


def test_a_recording_goes_on_second_by_second() -> None:
    source = RecordedAnswers(BEGIN_NS, recorded_status(), recorded_history())
    follower = Follower()
    first = follower.join(source.history(BEGIN_NS), BEGIN_NS).rows
    for second in range(1, 20):
        now_ns = BEGIN_NS + second * S
        (row,) = follower.join(source.history(now_ns), now_ns).rows
        assert row["downlink_throughput_bps"] == first[(second - 1) % 8]["downlink_throughput_bps"]
        assert (
            sample_of(source.status(now_ns), now_ns)["downlink_throughput_bps"]
            == (row["downlink_throughput_bps"])
        )


def test_damaged_histories_are_refused_or_read() -> None:
    def read(content: bytes) -> object:
        history = messages.parse_history(content, "history.json")
        return rows_of(history, BEGIN_NS), outages_of(history), Follower().join(history, BEGIN_NS)

    text = json.dumps(MADE_UP, indent=1).encode()
    bare = json.dumps(MADE_UP["dishGetHistory"]).encode()
    Trial("dish history", [text, bare]).run(read)


def test_damaged_statuses_and_maps_are_refused_or_read() -> None:
    def read(content: bytes) -> object:
        if b"snr" in content:
            return list(obstruction_map_of(messages.parse_map(content, "map.json")).rows())
        return sample_of(messages.parse_status(content, "status.json"), 0)

    status = {
        "apiVersion": "17",
        "dishGetStatus": {
            "deviceInfo": {"id": "ut", "boot": None},
            "deviceState": {"uptimeS": "6328"},
            "popPingLatencyMs": 26.8,
            "alerts": {"roaming": True},
            "outage": {"cause": "NO_SATS", "durationNs": "5"},
            "hasActuators": "HAS_ACTUATORS_NO",
        },
    }
    seen = {
        "dishGetObstructionMap": {
            "numRows": 2, "numCols": 3, "snr": [-1, 0, 0.5, 1, -1, 1], "maxThetaDeg": 80,
            "mapReferenceFrame": "FRAME_UT",
        }
    }  # fmt: skip
    Trial("dish status", [json.dumps(status).encode(), json.dumps(seen).encode()]).run(read)


def test_wrong_files_are_refused_in_a_line(tmp_path: Path) -> None:
    wrong = {
        "not-json": b"{",
        "a-list": b"[1]",
        "another": b'{"dishGetStatus": {}}',
        "nothing": b"{}",
        "lengths": b'{"popPingDropRate": [0, 0], "popPingLatencyMs": [1]}',
        "cut": b"\x1f\x8b\x08\x00\x00",
    }
    for name, content in wrong.items():
        file = tmp_path / name
        file.write_bytes(content)
        with pytest.raises(InputError, match=name) as refused:
            messages.read_history(file)
        assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match="cannot read"):
        messages.read_history(tmp_path / "missing")


# --- failures of connections ---


def failure(address: str, timeout_s: float = 5.0) -> str:
    with Dish(address, timeout_s) as dish, pytest.raises(RunError) as failed:
        dish.status()
    text = str(failed.value)
    assert text.startswith(address)
    assert "\n" not in text
    return text


@contextmanager
def grpc_server(*, with_reflection: bool) -> Iterator[str]:
    """Yield the address of a gRPC server that is no terminal."""
    server = grpc.server(ThreadPoolExecutor(2))
    if with_reflection:
        # An empty pool hides the services that this process has registered.
        pool = descriptor_pool.DescriptorPool()
        reflection.enable_server_reflection([reflection.SERVICE_NAME], server, pool)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


@contextmanager
def http_server() -> Iterator[str]:
    """Yield the address of a web server."""
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.integration
def test_who_is_no_terminal_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    # Reset the state of a process that has not connected to a terminal yet.
    monkeypatch.setattr(starlink_grpc, "imports_pending", True)
    with grpc_server(with_reflection=False) as address:
        assert "no reflection" in failure(address)
    with grpc_server(with_reflection=True) as address:
        assert "not a terminal" in failure(address)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    assert "no terminal answers there" in failure(address)
    with http_server() as address:
        assert "not a terminal: it does not speak gRPC" in failure(address)
    said = failure("no-such-host.invalid:9200")
    assert said.count("(") == said.count(")")
    assert "[" not in said
    assert "]" not in said


@pytest.mark.parametrize("pending", [True, False])
@pytest.mark.integration
def test_who_does_not_answer_is_not_waited_for(
    pending: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `pending` decides whether the client requests reflection or the status first.
    with served(RecordedAnswers(BEGIN_NS, recorded_status())) as address, Dish(address) as dish:
        dish.status()
    monkeypatch.setattr(starlink_grpc, "imports_pending", pending)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        text = failure(f"127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.3)
    assert "no answer within 0.3 s" in text


@pytest.mark.integration
def test_a_terminal_that_comes_back_is_read_again() -> None:
    with served(RecordedAnswers(BEGIN_NS, recorded_status())) as address:
        dish = Dish(address, 2.0)
        assert dish.sample()["uptime_s"] == 6328
    with pytest.raises(RunError):
        dish.sample()
    with Server(Device(RecordedAnswers(BEGIN_NS, recorded_status())), address, Clock()):
        assert dish.sample()["uptime_s"] == 6328
    dish.close()


def test_addresses_are_checked() -> None:
    assert checked_address("dish.lan") == "dish.lan:9200"
    assert checked_address("[::1]") == "[::1]:9200"
    assert checked_address("192.168.100.1:80") == "192.168.100.1:80"
    for wrong in ("", ":9200", "a:b", "a:0", "a:99999", "a b:1", "http://a:1", "a:" + "9" * 5000):
        with pytest.raises(InputError, match="not an address"):
            checked_address(wrong)
    for wrong in ("::1", "::1:9200", "fe80::1"):
        with pytest.raises(InputError, match=r"in brackets, such as \[fe80::1\]:9200"):
            checked_address(wrong)


@pytest.mark.integration
def test_an_address_that_is_taken_is_told() -> None:
    device = Device(RecordedAnswers(BEGIN_NS, recorded_status()))
    with (
        Server(device, "127.0.0.1:0", Clock()) as first,
        pytest.raises(RunError, match="cannot listen there: Address already in use"),
    ):
        Server(device, first.address)


def test_time_goes_as_fast_as_it_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    moments_ns = iter([3 * S, 3 * S + S // 20])
    slow = SimpleNamespace(monotonic_ns=lambda: next(moments_ns))
    monkeypatch.setattr("skyhop_lab.dish.server.time", slow)
    clock = scaled_clock(100.0, BEGIN_NS)
    assert clock() - BEGIN_NS == 5 * S


@pytest.mark.integration
def test_many_at_once_are_answered() -> None:
    terminal = Terminal(Steady(), BEGIN_NS)
    found: list[int] = []

    def ask(address: str) -> None:
        with Dish(address) as dish:
            found.extend(len(dish.new_rows().rows) for _ in range(3))

    clock = Clock(BEGIN_NS + 5 * S)
    with served(terminal, None, clock) as address:
        threads = [threading.Thread(target=ask, args=(address,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert sorted(found) == [0] * 8 + [5] * 4
