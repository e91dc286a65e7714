"""Emulated terminals: as other programs see them, over a path, a run, a link."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import starlink_grpc
from conftest import Skyhop, skyhop_command
from grpc_reflection.v1alpha import reflection_pb2_grpc

import skyhop as sh
from dish_sources import (
    BEGIN_NS,
    NUMBERS,
    PATIENCE_S,
    Clock,
    S,
    Steady,
    context,
    recorded_history,
    recorded_status,
    served,
)
from needs import cases, needs_namespaces, needs_program
from skyhop.data.geometry import seen_from
from skyhop.data.positions import end_deg, satellites_at
from skyhop.telemetry.obstruction import Frame, Grid, Pointing
from skyhop_lab.dish.boresight import Boresight
from skyhop_lab.dish.device import Device, Place, Refusal, RefusedError
from skyhop_lab.dish.measuring import Meter
from skyhop_lab.dish.path_feed import Obstacle, PathFeed
from skyhop_lab.dish.recorded import RecordedAnswers
from skyhop_lab.dish.run_feed import RunFeed
from skyhop_lab.dish.terminal import BOOT_S, Terminal
from skyhop_testbed.dish import device_pb2, device_pb2_grpc
from skyhop_testbed.dish.client import Dish, Location
from skyhop_testbed.dish.device_pb2 import DishOutage, Request
from skyhop_testbed.dish.readings import (
    obstruction_map_of,
    outages_of,
    rows_of,
    sample_of,
)

# --- other programs' view ---


@contextmanager
def recorded_terminal() -> Iterator[tuple[starlink_grpc.ChannelContext, Clock]]:
    """Yield starlink-grpc-core's context of a recorded terminal, and the terminal's clock."""
    clock = Clock()
    source = RecordedAnswers(BEGIN_NS, recorded_status(), recorded_history())
    with served(source, None, clock) as address, context(address) as c:
        yield c, clock


def open_device_stream(channel: grpc.Channel, requests: Iterator[Any]) -> Iterator[Any]:
    """Open a stream of requests to the device."""
    return iter(device_pb2_grpc.DeviceStub(channel).Stream(requests))


def open_reflection(channel: grpc.Channel, requests: Iterator[Any]) -> Iterator[Any]:
    """Open a stream of questions about the services, as grpcurl does."""
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    return iter(stub.ServerReflectionInfo(requests))


@pytest.mark.integration
@pytest.mark.parametrize("open_stream", [open_device_stream, open_reflection])
def test_silent_streams_do_not_lock_others_out(
    open_stream: Callable[[grpc.Channel, Iterator[Any]], Iterator[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("skyhop_lab.dish.server._IDLE_S", 2.0)
    source = RecordedAnswers(BEGIN_NS, recorded_status(), recorded_history())
    end = threading.Event()

    def silent() -> Iterator[Any]:
        end.wait(PATIENCE_S)
        yield from ()

    with served(source, None, Clock()) as address, ExitStack() as stack:
        channels = [
            stack.enter_context(
                grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
            )
            for _ in range(40)
        ]
        streams = [open_stream(channel, silent()) for channel in channels]
        request = Request()
        request.get_status.SetInParent()
        asker = stack.enter_context(grpc.insecure_channel(address))
        answer = device_pb2_grpc.DeviceStub(asker).Handle(request, timeout=PATIENCE_S)
        assert answer.dish_get_status.device_info.id == "ut-1"
        # Another stream of the same caller takes the place of a silent one.
        assert Dish(address).status().device_info.id == "ut-1"
        codes = set()
        for stream in streams:
            with pytest.raises(grpc.RpcError) as error:
                next(stream)
            codes.add(error.value.code())
        assert codes == {grpc.StatusCode.CANCELLED}
        end.set()


@pytest.mark.integration
def test_starlink_grpc_reads_the_status() -> None:
    with recorded_terminal() as (c, _):
        status, obstruction, alerts = starlink_grpc.status_data(c)
        assert status["id"] == starlink_grpc.get_id(c) == "ut-1"
        assert (status["state"], status["uptime"], status["gps_sats"]) == ("CONNECTED", 6328, 5)
        assert status["pop_ping_latency_ms"] == pytest.approx(26.808062, abs=1e-6)
        assert (status["obstruction_duration"], status["obstruction_interval"]) == (6.5, 396.5)
        assert status["direction_azimuth"] == pytest.approx(-10.603605, abs=1e-6)
        assert status["alerts"] == 1 << 6 | 1 << 21
        assert alerts["alert_upsu_router_port_slow"]
        assert len(alerts) == 23
        assert obstruction["valid_s"] == 3135
        names, _, alert_names = starlink_grpc.status_field_names(c)
        assert set(names) == set(status)
        assert set(alert_names) == set(alerts)
        assert len(starlink_grpc.status_field_types(c)[2]) == len(alerts)


@pytest.mark.integration
def test_starlink_grpc_reads_history_and_map() -> None:
    with recorded_terminal() as (c, _):
        message = starlink_grpc.get_history(c)
        assert message.current == 13
        general, bulk = starlink_grpc.history_bulk_data(-1, context=c)
        assert general == {"samples": 8, "end_counter": 13}
        assert bulk["downlink_throughput_bps"] == [1e6 + second for second in range(5, 13)]
        assert bulk["pop_ping_latency_ms"][0] is None, "second 5 lost all of its pings"
        assert bulk["pop_ping_latency_ms"][1] == 36.25
        assert bulk["power_w"] == [40.5 + second for second in range(5, 13)]
        stats = starlink_grpc.history_stats(-1, context=c)
        assert stats[1]["count_full_ping_drop"] == 2
        assert stats[6]["latest_power"] == 52.5
        assert starlink_grpc.history_ping_stats(-1, context=c) == stats[:3]

        assert starlink_grpc.get_obstruction_map(c).num_rows == 123
        rows = starlink_grpc.obstruction_map(c)
        assert (len(rows), {len(row) for row in rows}) == (123, {123})
        assert {value for row in rows for value in row} == {-1.0}
        starlink_grpc.reset_obstruction_map(c)


@pytest.mark.integration
def test_starlink_grpc_is_refused_what_its_owner_does_not_allow() -> None:
    with recorded_terminal() as (c, _):
        nowhere = {"latitude": None, "longitude": None, "altitude": None}
        assert starlink_grpc.location_data(c) == nowhere
        with pytest.raises(grpc.RpcError) as refused:
            starlink_grpc.get_location(c)
        assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.integration
def test_starlink_grpc_commands_it() -> None:
    with recorded_terminal() as (c, clock):
        assert starlink_grpc.get_sleep_config(c) == (30, 0, False)
        starlink_grpc.set_sleep_config(120, 60, context=c)
        assert starlink_grpc.get_sleep_config(c) == (120, 60, True)
        assert starlink_grpc.get_status(c).config.power_save_mode
        for start, duration in ((1440, 60), (0, 0)):
            with pytest.raises(starlink_grpc.GrpcError, match="invalid"):
                starlink_grpc.set_sleep_config(start, duration, context=c)
        starlink_grpc.set_sleep_config(0, 0, enable=False, context=c)
        assert starlink_grpc.get_sleep_config(c) == (0, 1, False)
        assert starlink_grpc.set_gps_config(False, c) is False
        assert starlink_grpc.status_data(c)[0]["gps_enabled"] is False
        assert starlink_grpc.set_gps_config(True, c) is True

        starlink_grpc.set_stow_state(context=c)
        clock.now_ns += 3 * S
        stowed = starlink_grpc.get_status(c)
        assert starlink_grpc.status_data(c)[0]["state"] == "STOWED"
        assert stowed.stow_requested
        assert stowed.outage.duration_ns == 3 * S
        starlink_grpc.set_stow_state(unstow=True, context=c)
        assert starlink_grpc.status_data(c)[0]["state"] == "CONNECTED"
        starlink_grpc.reboot(c)
        assert starlink_grpc.get_history(c).current == 0
        assert starlink_grpc.status_data(c)[0]["uptime"] == 0


@pytest.mark.integration
def test_a_location_is_said_where_its_owner_allows_it() -> None:
    with served(RecordedAnswers(BEGIN_NS, recorded_status()), Place(41.4, 2.15, 12.5)) as address:
        with context(address) as c:
            found = starlink_grpc.location_data(c)
        assert found == {"latitude": 41.4, "longitude": 2.15, "altitude": 12.5}
        with Dish(address) as dish:
            assert dish.location() == Location(41.4, 2.15, 12.5)


@pytest.mark.integration
def test_unknown_requests_are_refused_and_streams_answered() -> None:
    with served(RecordedAnswers(BEGIN_NS, recorded_status())) as address:
        channel = grpc.insecure_channel(address)
        handle = channel.unary_unary("/SpaceX.API.Device.Device/Handle")
        # Request wifi_get_clients (3002), which the emulated terminal does not know.
        with pytest.raises(grpc.RpcError) as refused:
            handle(b"\xd2\xbb\x01\x00", timeout=PATIENCE_S)
        assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
        stream = channel.stream_stream(
            "/SpaceX.API.Device.Device/Stream",
            request_serializer=device_pb2.ToDevice.SerializeToString,
            response_deserializer=device_pb2.FromDevice.FromString,
        )
        asked = [
            device_pb2.ToDevice(health_check={}),
            device_pb2.ToDevice(request=Request(id=7, get_device_info={})),
        ]
        check, answer = stream(iter(asked), timeout=PATIENCE_S)
        channel.close()
    assert check.WhichOneof("message") == "health_check"
    assert answer.response.id == 7
    assert answer.response.get_device_info.device_info.id == "ut-1"


@pytest.mark.parametrize("message", NUMBERS)
def test_fields_have_the_numbers_of_real_terminals(message: str) -> None:
    fields = device_pb2.DESCRIPTOR.message_types_by_name[message].fields_by_name
    found = {name: fields[name].number for name in NUMBERS[message]}
    assert found == NUMBERS[message]


# --- the emulated terminal ---


def test_seconds_turn_into_rings() -> None:
    terminal = Terminal(Steady(lost={7}), BEGIN_NS, ring=5)
    history = terminal.history(BEGIN_NS + 12 * S + S // 2)
    assert history.current == 12
    rows = rows_of(history, BEGIN_NS + 12 * S)
    assert [row["pop_ping_latency_ms"] for row in rows] == [None, 18, 19, 20, 21]
    # After a lost ping the ring repeats the latency before it, as in real terminals.
    assert history.pop_ping_latency_ms[7 % 5] == 16
    status = terminal.status(BEGIN_NS + 12 * S + S // 2)
    assert (status.pop_ping_latency_ms, status.downlink_throughput_bps) == (21, 2e6)
    assert not status.HasField("outage")


def test_an_outage_shows_in_the_status_while_it_lasts() -> None:
    terminal = Terminal(Steady(lost={3, 4}), BEGIN_NS)
    states = [
        sample_of(terminal.status(BEGIN_NS + second * S), 0)["state"] for second in range(3, 7)
    ]
    assert states == ["CONNECTED", "NO_SATS", "NO_SATS", "CONNECTED"]


def test_a_terminal_that_is_rebooted_or_stowed_is_not_connected() -> None:
    terminal = Terminal(Steady(), BEGIN_NS)
    terminal.reboot(BEGIN_NS + 10 * S)
    history = terminal.history(BEGIN_NS + (10 + BOOT_S + 5) * S)
    (outage,) = outages_of(history)
    assert (outage.cause, outage.start_ns, outage.duration_ns) == (
        "BOOTING", BEGIN_NS + 10 * S, BOOT_S * S,
    )  # fmt: skip
    assert history.current == BOOT_S + 5
    assert sum(history.pop_ping_drop_rate) == BOOT_S
    terminal.stow(BEGIN_NS + 40 * S, stowed=True)
    status = terminal.status(BEGIN_NS + 44 * S)
    assert (status.outage.cause, status.stow_requested) == (DishOutage.STOWED, True)
    assert status.outage.duration_ns == 4 * S
    terminal.stow(BEGIN_NS + 44 * S, stowed=False)
    assert not terminal.status(BEGIN_NS + 46 * S).HasField("outage")


def test_who_is_not_asked_for_long_catches_up_in_time() -> None:
    terminal = Terminal(Steady(), BEGIN_NS)
    started_s = time.monotonic()
    history = terminal.history(BEGIN_NS + 10**7 * S)
    assert time.monotonic() - started_s < 5
    assert history.current == 10**7
    assert rows_of(history, 0)[-1]["pop_ping_latency_ms"] == pytest.approx(10**7 - 1 + 10)


def test_requests_have_an_answer_each() -> None:
    device = Device(Terminal(Steady(lost={18}), BEGIN_NS), None)
    now_ns = BEGIN_NS + 20 * S
    context_of = device.handle(Request(dish_get_context={}), now_ns).dish_get_context
    assert context_of.pop_ping_drop_rate_15s_mean == pytest.approx(1 / 15)
    # At 20 s past the minute the slot that began at 12 s has 7 s left.
    assert context_of.seconds_to_slot_end == pytest.approx(7)
    info = device.handle(Request(get_diagnostics={}), now_ns).dish_get_diagnostics
    assert info.id == "ut00000000-00000000-emulated"
    names = {"get_status": "dish_get_status", "get_history": "dish_get_history",
             "get_diagnostics": "dish_get_diagnostics"}  # fmt: skip
    refused = {"get_location": Refusal.PERMISSION_DENIED,
               "dish_power_save": Refusal.INVALID_ARGUMENT}  # fmt: skip
    for name in NUMBERS["Request"]:
        request = Request()
        getattr(request, name).SetInParent()
        if name in refused:
            with pytest.raises(RefusedError) as error:
                device.handle(request, now_ns)
            assert error.value.refusal == refused[name]
        else:
            answer = device.handle(request, now_ns)
            assert answer.WhichOneof("response") == names.get(name, name)


def test_it_points_as_measured_terminals_do() -> None:
    boresight = Boresight(3)
    pointings = [boresight.at(second) for second in range(0, 200_000, 25)]
    azimuths = sorted(pointing.azimuth_deg for pointing in pointings)
    elevations = sorted(90 - pointing.tilt_deg for pointing in pointings)
    inside = sum(0.2 <= azimuth <= 1.8 for azimuth in azimuths) / len(azimuths)
    assert 0.85 < inside < 1
    assert 0.85 < sum(64.5 <= e <= 65.4 for e in elevations) / len(elevations) < 1
    steps = sorted(
        abs(boresight.at(second + 1).azimuth_deg - boresight.at(second).azimuth_deg)
        for second in range(0, 20_000, 7)
    )
    assert 0.00003 < steps[len(steps) // 2] < 0.0003
    # Excursions are of several degrees.
    assert azimuths[-1] - azimuths[0] > 3
    assert boresight.at(1234) == Boresight(3).at(1234)
    assert boresight.at(1234) != Boresight(4).at(1234)


def test_directions_fall_into_their_pixels_in_both_frames() -> None:
    grid = Grid()
    assert grid.pixel(0, 90) == (61, 61)
    north, east = grid.pixel(0, 50), grid.pixel(90, 50)
    assert north is not None
    assert east is not None
    assert (north[1], east[0]) == (61, 61)
    assert north[0] < 61 < east[1]
    assert grid.pixel(0, 11) == (0, 61)
    assert grid.pixel(0, 5) is None
    draw = random.Random(2)
    tilted = Grid(frame=Frame.TERMINAL, pointing=Pointing(30, 25))
    # The middle is the direction of the boresight; the zenith is above it.
    assert tilted.pixel(30, 65) == (61, 61)
    assert tilted.pixel(0, 90) == (61 - round(25 / tilted.step_deg), 61)
    for _ in range(cases(200)):
        azimuth_deg, elevation_deg = draw.uniform(0, 360), draw.uniform(60, 90)
        for one in (grid, tilted):
            place = one.pixel(azimuth_deg, elevation_deg)
            assert place is not None
            right, up = one.offset_deg(*place)
            theta, azimuth = 90 - elevation_deg, math.radians(azimuth_deg)
            away = math.hypot(right - theta * math.sin(azimuth), up - theta * math.cos(azimuth))
            assert away <= one.step_deg * math.sqrt(0.5) + 1e-9


# --- paths and runs ---


@pytest.fixture(scope="module")
def path() -> sh.Path:
    return sh.path("Seattle", "Denver", relay="access", duration="60 s")


@pytest.mark.integration
def test_a_terminal_at_a_path_has_its_latency(path: sh.Path, tmp_path: Path) -> None:
    path.write(tmp_path / "path.parquet")
    frames = path.frames
    rtt_ms = (frames["delay_ns"].to_numpy() + frames["delay_back_ns"].to_numpy()) / 1e6
    clock = Clock()
    terminal = Terminal(PathFeed(sh.read_path(tmp_path / "path.parquet")), BEGIN_NS)
    with served(terminal, None, clock) as address, Dish(address) as dish:
        clock.now_ns = BEGIN_NS + 60 * S
        rows = dish.history()
    found = [row["pop_ping_latency_ms"] for row in rows_of(rows, 0)]
    assert found == pytest.approx(list(rtt_ms), rel=1e-6)
    # A handover's outage of some ten milliseconds loses the ping at its begin.
    ends = {
        event["t_ns"] // S
        for events in frames["events"].to_list()
        for event in events
        if event["outage_ns"]
    }
    losses = {n for n, row in enumerate(rows_of(rows, 0)) if row["pop_ping_drop_rate"]}
    assert losses == ends
    assert len(ends) > 0
    # The path is repeated.
    clock.now_ns = BEGIN_NS + 75 * S
    assert terminal.status(clock.now_ns).pop_ping_latency_ms == pytest.approx(rtt_ms[14], rel=1e-6)


def test_it_is_at_the_end_of_the_path_that_has_the_dish() -> None:
    here, there = "48.43,-123.37", "47.61,-122.33"
    path = sh.path(here, there, relay="access", duration="60 s")
    turned = sh.path(there, here, relay="access", dish="to", duration="60 s")
    for second in range(0, 60, 7):
        assert PathFeed(turned).second(second) == PathFeed(path).second(second)
    assert PathFeed(turned).second(0).serving_deg is not None


def test_its_map_has_the_serving_satellites_track(path: sh.Path) -> None:
    expected, hidden = set(), set()
    obstacle = Obstacle(0, 180, 90)
    for second, nodes in enumerate(path.frames["nodes"].to_list()):
        positions_m, _ = satellites_at(path.header, second + 0.5)
        place_deg = end_deg(path.header, "from")
        elevation, azimuth = seen_from(*place_deg, positions_m[nodes[1] : nodes[1] + 1])
        pixel = Grid().pixel(float(azimuth[0]), float(elevation[0]))
        expected.add(pixel)
        hidden |= {pixel} if azimuth[0] <= 180 else set()
    terminal = Terminal(PathFeed(path, obstacles=[obstacle]), BEGIN_NS)
    now_ns = BEGIN_NS + 60 * S
    seen = obstruction_map_of(terminal.obstruction_map(now_ns), terminal.status(now_ns))
    rows = list(seen.rows())
    found = {(r, c) for r, row in enumerate(rows) for c, value in enumerate(row) if value >= 0}
    assert found == expected
    assert 0 < seen.obstructed == len(hidden) <= seen.seen
    stats = terminal.status(now_ns).obstruction_stats
    assert stats.fraction_obstructed == pytest.approx(len(hidden) / len(expected))
    assert {one.cause for one in outages_of(terminal.history(now_ns))} == {"OBSTRUCTED"}
    terminal.clear_obstruction_map(now_ns)
    assert obstruction_map_of(terminal.obstruction_map(now_ns)).seen == 0


def test_times_without_a_path_and_losses_of_a_measured_one(tmp_path: Path) -> None:
    # ul and dl rate, ul and dl delay, ul and dl loss, time (ms)
    rows = ["8,8,10,20,0,0,0", "8,8,20,50,0.5,0.5,2000", "8,8,20,20,0,0,40000"]
    (tmp_path / "x.csv").write_text("\n".join(rows) + "\n", "utf-8")
    path = sh.import_path(tmp_path / "x.csv", "csv")
    terminal = Terminal(PathFeed(path, seed=5), BEGIN_NS)
    now_ns = BEGIN_NS + 40 * S
    found = rows_of(terminal.history(now_ns), 0)
    assert [row["pop_ping_latency_ms"] for row in found[:2]] == [30, 30]
    assert {row["pop_ping_latency_ms"] for row in found[2:]} == {70}
    drops = [float(row["pop_ping_drop_rate"] or 0) for row in found]
    assert drops[:2] == [0, 0]
    assert 0.3 < sum(drops[2:]) / 38 < 0.7
    # The path has no positions of satellites.
    assert obstruction_map_of(terminal.obstruction_map(now_ns)).seen == 0


def test_a_run_is_what_its_terminal_measured(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        '[path]\nkind = "fixed"\nrtt = "50 ms"\n[link]\nrate = "10 Mbit/s"\nqueue = "1 BDP"\n'
        '[[flow]]\n[[flow]]\nkind = "probe"\n[run]\nduration = "4 s"\n',
        "utf-8",
    )
    done = skyhop("sim", "s.toml", "-o", "run")
    assert done.returncode == 0, done.stderr
    run = sh.Run(tmp_path / "run")
    feed = RunFeed(run)
    assert feed.duration_s == 4
    rows = [row for row in run.link.to_dicts() if row["direction"] == "forward"]
    for index in range(4):
        second = feed.second(index)
        inside = [row for row in rows if index * S < row["t_ns"] <= (index + 1) * S]
        assert second.uplink_bps == 8 * sum(row["delivered_bytes"] for row in inside)
        assert second.downlink_bps < second.uplink_bps
        probes = [
            row["rtt_ns"] for row in run.probes.to_dicts() if max(row["t_ns"] - 1, 0) // S == index
        ]
        back = [rtt_ns for rtt_ns in probes if rtt_ns is not None]
        assert second.latency_ms == pytest.approx(sum(back) / len(back) / 1e6)
        assert second.drop_rate == pytest.approx(1 - len(back) / len(probes))
    assert feed.second(5) == feed.second(1)


# --- a measured link ---


def test_a_meter_makes_seconds_of_probes_and_counters() -> None:
    meter = Meter()
    step_ns = S // 15
    for probe in range(60):
        at_ns = probe * step_ns
        meter.add_counters(1000 * probe, 100 * probe, at_ns)
        meter.add_probe(probe, at_ns)
        # Probes 20 to 34 get no answer; probe 40 alone is lost, too.
        if not 20 <= probe < 35 and probe != 40:
            meter.add_answer(probe, at_ns + 40_000_000)
    seconds = [meter.second(index) for index in range(3)]
    assert [second.latency_ms for second in seconds] == [40, 40, 40]
    assert seconds[0].drop_rate == 0
    assert seconds[0].downlink_bps == pytest.approx(8 * 15_000, rel=1e-6)
    assert seconds[0].uplink_bps == pytest.approx(8 * 1500, rel=1e-6)
    terminal = Terminal(meter, BEGIN_NS)
    history = terminal.history(BEGIN_NS + 4 * S)
    assert history.current == 3, "a second is judged when late answers may have come"
    (outage,) = outages_of(history)
    assert outage.cause == "NO_PINGS"
    assert outage.start_ns == BEGIN_NS + 20 * step_ns
    assert outage.duration_ns == 15 * step_ns


def test_a_second_is_said_when_the_last_of_its_probes_is_back() -> None:
    """Seconds are known when their last probe is answered, as triggers wait for them."""
    step_ns, rtt_ns = S // 15 + 1, 160_000_000
    moments = []
    for lost in (set(), {13}, set(range(10, 40))):
        meter = Meter()
        terminal = Terminal(meter, BEGIN_NS)
        answers = {p * step_ns + rtt_ns: p for p in range(45) if p not in lost}
        known_ns = None
        for at_ns in range(0, 3 * S, 10_000_000):
            for probe in [p for p in range(45) if at_ns - 10_000_000 < p * step_ns <= at_ns]:
                meter.add_counters(0, 0, at_ns)
                meter.add_probe(probe, probe * step_ns)
            for back_ns in [b for b in answers if at_ns - 10_000_000 < b <= at_ns]:
                meter.add_answer(answers[back_ns], back_ns)
            if known_ns is None and terminal.history(BEGIN_NS + at_ns).current:
                known_ns = at_ns - S
        assert known_ns is not None
        moments.append(known_ns / 1e6)
        second = meter.second(0)
        assert second.latency_ms == pytest.approx(160)
        assert second.drop_rate == pytest.approx(len(lost & set(range(15))) / 15)
    whole, with_a_loss, with_an_outage = moments
    assert 67 <= whole <= 120, "the last was sent 67 ms before the end"
    assert 230 <= with_a_loss <= 400
    assert with_an_outage == 1000


LIVE = """
import json, socket, subprocess, sys, threading, time
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
echo.bind(("127.0.0.1", 7007))
def answer():
    while True:
        packet, sender = echo.recvfrom(2048)
        echo.sendto(packet, sender)
threading.Thread(target=answer, daemon=True).start()
skyhop = sys.argv[1]
found = {}
emulated = [
    subprocess.Popen(
        [skyhop, "dish", "emulate", "--interface", "lo", "--probe", probe,
         "--listen", f"127.0.0.1:{port}"],
        stdout=subprocess.PIPE, text=True,
    )
    for port, probe in ((9201, "127.0.0.1"), (9202, "127.0.0.1:7007"))
]
try:
    for one in emulated:
        print(one.stdout.readline(), end="", file=sys.stderr)
    time.sleep(3.2)
    for port in (9201, 9202):
        done = subprocess.run(
            [skyhop, "dish", "status", "--json", "--address", f"127.0.0.1:{port}"],
            capture_output=True, text=True, check=True,
        )
        found[port] = json.loads(done.stdout)
finally:
    for one in emulated:
        one.terminate()
        one.wait(120)
print(json.dumps(found))
"""


@pytest.mark.soak
@pytest.mark.alone
def test_a_link_is_probed_and_counted_in_a_namespace() -> None:
    needs_namespaces()
    needs_program("ip")
    command = [needs_program("unshare"), "--user", "--map-root-user", "--net", sys.executable]
    done = subprocess.run(
        [*command, "-c", LIVE, skyhop_command()[0]],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for sample in json.loads(done.stdout).values():
        # The first second's probes may have started late; over lo no probe is lost.
        assert sample["pop_ping_drop_rate"] == 0
        assert 0 < sample["pop_ping_latency_ms"] < 50
        assert sample["downlink_throughput_bps"] > 0
        assert sample["state"] == "CONNECTED"
