"""`skyhop dish serve`: metrics by the exporters' names, and the dashboard that uses them."""

from __future__ import annotations

import inspect
import json
import re
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT, Skyhop, skyhop_command
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from dish_sources import BEGIN_NS, PATIENCE_S, recorded_history, recorded_status, served
from skyhop.errors import RunError
from skyhop_lab.dish.recorded import RecordedAnswers
from skyhop_testbed.cli.dish import serve
from skyhop_testbed.dish import device_pb2
from skyhop_testbed.dish.client import Location
from skyhop_testbed.dish.metrics import GAUGES, STATES, DishMetrics
from skyhop_testbed.dish.metrics_server import MOST, MOST_OF_CALLER, Connections, start_server

_EXPORTERS = """
    up info uptime_seconds snr_above_noise_floor snr_persistently_low uplink_throughput_bps
    downlink_throughput_bps pop_ping_drop_ratio pop_ping_latency_seconds gps_valid gps_satellites
    tilt_angle_deg boresight_azimuth_deg boresight_elevation_deg currently_obstructed
    fraction_obstruction_ratio power_input_watts location_latitude_deg location_longitude_deg
    location_altitude_meters alert_unexpected_location alert_install_pending alert_is_heating
    alert_is_power_save_idle alert_signal_lower_than_predicted seconds_to_first_nonempty_slot
    eth_speed_mbps outage_info outage_duration_seconds history_outages_count
    up scrape_duration_seconds info uptime_seconds state first_nonempty_slot_seconds
    pop_ping_drop_ratio pop_ping_latency_seconds uplink_throughput_bytes downlink_throughput_bytes
    bore_sight_azimuth_deg bore_sight_elevation_deg currently_obstructed fraction_obstruction_ratio
    valid_seconds alert_motors_stuck alert_thermal_throttle alert_thermal_shutdown
    alert_mast_not_near_vertical alert_unexpected_location alert_slow_eth_speeds
"""
"""Names of joshuasing/starlink_exporter, then those of danopstech/starlink_exporter."""


class Answers:
    """Terminal with a recorded status and history; a test may make a request fail."""

    def __init__(self, *silent: str) -> None:
        self.silent = silent
        self.asked: list[str] = []
        self.current = recorded_status()
        self.current.outage.cause = device_pb2.DishOutage.OBSTRUCTED
        self.current.outage.start_timestamp_ns = 1_399_258_788_500_715_800
        self.current.outage.duration_ns = 1_500_000_000

    def status(self) -> device_pb2.DishGetStatusResponse:
        """Return the status with a present outage."""
        return self._answer("status", self.current)

    def history(self) -> device_pb2.DishGetHistoryResponse:
        """Return the recorded history."""
        return self._answer("history", recorded_history())

    def location(self) -> Location:
        """Return a constant position."""
        return self._answer("location", Location(41.4, 2.15, 12.5))

    def _answer(self, name: str, answer: Any) -> Any:
        self.asked.append(name)
        if name in self.silent:
            raise RunError("no answer")
        return answer


def text_of(dish: Answers) -> str:
    registry = CollectorRegistry()
    registry.register(DishMetrics(dish))  # type: ignore[arg-type]
    return generate_latest(registry).decode()


def values_of(text: str) -> dict[str, float]:
    families = text_string_to_metric_families(text)
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_the_names_are_those_of_the_exporters_in_use() -> None:
    found = {*values_of(text_of(Answers()))}
    assert {f"starlink_dish_{name}" for name in _EXPORTERS.split()} <= found
    assert {"starlink_exporter_scrapes_total", "starlink_exporter_scrape_duration_seconds"} <= found


def test_the_values_are_in_the_units_of_the_names() -> None:
    found = values_of(text_of(Answers()))
    assert found["starlink_dish_pop_ping_latency_seconds"] == pytest.approx(0.026808062)
    assert found["starlink_dish_downlink_throughput_bps"] == pytest.approx(74222.41)
    assert found["starlink_dish_downlink_throughput_bytes"] == pytest.approx(74222.41)
    assert found["starlink_dish_power_input_watts"] == 52.5
    assert found["starlink_dish_outage_duration_seconds"] == 1.5
    assert found["starlink_dish_outage_start_timestamp_seconds"] == pytest.approx(
        1715223570.5, 1e-9
    )
    assert (found["starlink_dish_alert_roaming"], found["starlink_dish_alert_is_heating"]) == (1, 0)
    assert found["starlink_dish_location_latitude_deg"] == 41.4


def test_a_value_that_is_not_known_has_no_metric() -> None:
    answers = Answers()
    answers.current.ClearField("gps_stats")
    answers.current.pop_ping_drop_rate = 1.0
    found = values_of(text_of(answers))
    assert "starlink_dish_gps_satellites" not in found
    assert "starlink_dish_pop_ping_latency_seconds" not in found, "no ping was answered"


def test_a_silent_terminal_is_not_up() -> None:
    found = values_of(text_of(Answers("status")))
    assert found["starlink_dish_up"] == 0
    assert not {name for name in found if "throughput" in name}


def test_a_terminal_that_refuses_other_requests_is_up() -> None:
    found = values_of(text_of(Answers("history", "location")))
    assert found["starlink_dish_up"] == 1
    assert "starlink_dish_uptime_seconds" in found


_UNITS = {"s": "_seconds", "bps": "_bps", "percentunit": "_ratio", "watt": "_watts"}
"""Grafana's units of panels, with the last part of the names of metrics that have them."""


def series_of(expression: str, found: Mapping[str, set[str]]) -> list[str]:
    """Return the metrics that a query of the dashboard selects; `found` has labels by name."""
    parts = re.fullmatch(r"(\w*)(?:\{(.*)\})?(?: == 1)?", expression)
    assert parts is not None, f"a query of another form: {expression}"
    name, matchers = parts.groups()
    selected = [name] if name else [*found]
    for label, operator, value in re.findall(r'(\w+)(=~|=)"([^"]*)"', matchers or ""):
        if (label, operator) == ("__name__", "=~"):
            selected = [one for one in selected if re.fullmatch(value, one)]
        else:
            assert all(label in found[one] for one in selected), f"no label {label}"
    return selected


def test_the_dashboard_names_only_metrics_and_labels_that_exist() -> None:
    families = text_string_to_metric_families(text_of(Answers()))
    samples = [sample for family in families for sample in family.samples]
    found = {sample.name: {*sample.labels, "__name__"} for sample in samples}
    used = set()
    for panel in dashboard()["panels"]:
        unit = panel["fieldConfig"]["defaults"].get("unit", "short")
        for target in panel["targets"]:
            series = series_of(target["expr"], found)
            assert series, target["expr"]
            assert {*series} <= {*found}, target["expr"]
            labels = {*re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])}
            assert all(labels <= found[name] for name in series), target["legendFormat"]
            assert all(name.endswith(_UNITS.get(unit, "")) for name in series), panel["title"]
            used |= {*series}
    assert len(used) > 30


def test_the_dashboard_has_a_word_for_each_state() -> None:
    (state,) = [panel for panel in dashboard()["panels"] if panel["title"] == "State"]
    (mapping,) = state["fieldConfig"]["defaults"]["mappings"]
    words = {int(value): option["text"] for value, option in mapping["options"].items()}
    states = {str(word).lower(): number for word, number in STATES.items()}
    assert {words[number]: number for number in states.values()} == states
    assert {*words} == {*STATES.values(), 0}


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len({*cells}) == len(cells)
    assert max(x for x, _ in cells) < 24, "Grafana has 24 columns"
    assert len({panel["id"] for panel in panels}) == len(panels)


def dashboard() -> Any:
    return json.loads((ROOT / "examples" / "dish" / "grafana.json").read_text("utf-8"))


def test_a_scrape_ends_before_prometheus_gives_up() -> None:
    answers = Answers()
    text_of(answers)
    page = (ROOT / "docs" / "how-to" / "dish.md").read_text("utf-8")
    (interval_s,) = re.findall(r"scrape_interval: (\d+)s", page)
    timeout_s = inspect.signature(serve).parameters["timeout"].default
    assert len(answers.asked) == 3
    assert len(answers.asked) * timeout_s < int(interval_s)


def test_the_page_names_only_metrics_that_exist() -> None:
    page = (ROOT / "docs" / "how-to" / "dish.md").read_text("utf-8")
    used = {*re.findall(r"\bstarlink_(?:dish|exporter)_\w+", page)}
    assert len(used) > 10
    assert used <= {*values_of(text_of(Answers()))}


def test_every_gauge_has_a_name_of_its_own() -> None:
    names = [gauge.name for gauge in GAUGES]
    assert len({*names}) == len(names)


@pytest.mark.integration
def test_prometheus_reads_the_metrics_of_an_emulated_terminal() -> None:
    with served(RecordedAnswers(BEGIN_NS, recorded_status())) as address:
        command = [*skyhop_command(), "dish", "serve", "--address", address]
        server = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert server.stdout is not None
        try:
            line = server.stdout.readline()
            url = line.split()[-1]
            wanted = {"Accept": "application/openmetrics-text; version=1.0.0"}
            request = urllib.request.Request(url, headers=wanted)
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                kind, text = answer.headers["Content-Type"], answer.read().decode()
            server.send_signal(signal.SIGINT)
            _, errors = server.communicate(timeout=PATIENCE_S)
        finally:
            server.kill()
            server.wait()
    assert url.startswith("http://127.0.0.1:")
    assert kind.startswith("application/openmetrics-text")
    assert values_of(text)["starlink_dish_up"] == 1
    assert (server.returncode, errors) == (0, "ended by Ctrl-C (SIGINT)\n")


class Ended(socket.socket):
    """Socket that notes its end."""

    has_ended = False

    def shutdown(self, _how: int) -> None:
        """Note that the connection ends."""
        self.has_ended = True


def test_the_oldest_connection_of_a_caller_ends_and_no_other_callers() -> None:
    now = SimpleNamespace(s=0.0)
    connections = Connections(lambda: now.s)
    with ExitStack() as closing:
        own = [closing.enter_context(Ended()) for _ in range(MOST_OF_CALLER + 2)]
        other, late = closing.enter_context(Ended()), closing.enter_context(Ended())
        connections.add(other, "192.0.2.2")
        for one in own:
            connections.add(one, "192.0.2.1")
        assert [one.has_ended for one in own[:3]] == [True, True, False]
        assert not other.has_ended
        connections.remove(own[2])
        now.s = 29.0
        connections.add(late, "192.0.2.3")
        now.s = 30.0
        connections.end_old()
        assert other.has_ended
        assert all(one.has_ended for one in own[3:])
        assert not own[2].has_ended
        assert not late.has_ended


def test_connections_of_many_callers_are_limited_too() -> None:
    connections = Connections(lambda: 0.0)
    with ExitStack() as closing:
        opened = [closing.enter_context(Ended()) for _ in range(MOST + 1)]
        for number, one in enumerate(opened):
            connections.add(one, f"192.0.2.{number}")
        assert [one.has_ended for one in opened] == [True] + [False] * MOST


def test_scrapes_at_once_share_the_terminals_answers() -> None:
    shared, alone = Answers(), Answers()
    metrics, each = DishMetrics(shared, 3600.0), DishMetrics(alone)  # type: ignore[arg-type]
    scrapes = [metrics.collect() for _ in range(3)]
    assert shared.asked == ["status", "history", "location"]
    assert [found[-1].samples[0].value for found in scrapes] == [1, 2, 3]
    assert [found[:-1] for found in scrapes[1:]] == [scrapes[0][:-1]] * 2
    for _ in range(2):
        each.collect()
    assert alone.asked == ["status", "history", "location"] * 2


@pytest.mark.integration
@pytest.mark.parametrize(
    "sent", [b"", b"GET /metrics HTTP/1.1\r\n", b"GET /metrics HTTP/1.1\r\n\r\n"]
)
def test_callers_that_are_silent_or_do_not_read_lock_no_one_out(sent: bytes) -> None:
    server = start_server(Answers(), "127.0.0.1", 0)  # type: ignore[arg-type]
    try:
        with ExitStack() as closing:
            for _ in range(5 * MOST_OF_CALLER):
                address = ("127.0.0.1", server.server_port)
                silent = closing.enter_context(socket.create_connection(address, PATIENCE_S))
                silent.sendall(sent)
            url = f"http://127.0.0.1:{server.server_port}/metrics"
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                assert "\nstarlink_dish_up 1.0\n" in answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("listen", "status", "said"),
    [
        ("nowhere", 2, 'expected HOST:PORT, such as "127.0.0.1:7400"'),
        ("127.0.0.1:70000", 2, "expected HOST:PORT"),
        pytest.param("192.0.2.1:9817", 1, "cannot listen there", marks=pytest.mark.integration),
    ],
)
def test_a_wrong_address_is_told_in_a_line(
    skyhop: Skyhop, listen: str, status: int, said: str
) -> None:
    done = skyhop("dish", "serve", "--listen", listen)
    assert (done.returncode, done.stderr.count("\n")) == (status, 1), done.stderr
    assert said in done.stderr
