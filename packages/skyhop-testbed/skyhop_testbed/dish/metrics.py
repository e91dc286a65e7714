"""A terminal's status as metrics for Prometheus, by the names of the Starlink exporters in use.

The names are those of joshuasing/starlink_exporter, and of danopstech/starlink_exporter where that
one has others. A value that the terminal does not report has no metric.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from skyhop.errors import RunError
from skyhop.telemetry.fields import ALERT_FIELDS, Sample, Value, field_value
from skyhop_testbed.dish.readings import current_outage, outages_of, rows_of, sample_of

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from prometheus_client.metrics_core import Metric

    from skyhop_testbed.dish.client import Dish

STATES = {"CONNECTED": 1, "SEARCHING": 2, "BOOTING": 3}
"""Numbers of `starlink_dish_state`, as early firmware reported them; 0 for other states."""


@dataclass(frozen=True)
class Gauge:
    """Metric with the value of one field of telemetry."""

    name: str
    field: str
    about: str
    factor: float = 1.0
    """Factor from the field's unit to the metric's."""


GAUGES = (
    Gauge("uptime_seconds", "uptime_s", "Time since the terminal's start"),
    Gauge("pop_ping_latency_seconds", "pop_ping_latency_ms", "RTT to the PoP", 1e-3),
    Gauge("pop_ping_drop_ratio", "pop_ping_drop_rate", "Share of the lost pings to the PoP"),
    Gauge("downlink_throughput_bps", "downlink_throughput_bps", "Traffic to the user in bit/s"),
    Gauge("downlink_throughput_bytes", "downlink_throughput_bps", "In bit/s despite its name"),
    Gauge("uplink_throughput_bps", "uplink_throughput_bps", "Traffic of the user in bit/s"),
    Gauge("uplink_throughput_bytes", "uplink_throughput_bps", "In bit/s despite its name"),
    Gauge("currently_obstructed", "currently_obstructed", "Whether an obstacle is in the view"),
    Gauge("fraction_obstruction_ratio", "fraction_obstructed", "Obstructed share of the sky"),
    Gauge("obstruction_valid_seconds", "obstruction_valid_s", "Time that the obstructions cover"),
    Gauge("valid_seconds", "obstruction_valid_s", "Time that the obstructions cover"),
    Gauge("snr_above_noise_floor", "snr_above_noise", "Whether the SNR is above the noise floor"),
    Gauge("snr_persistently_low", "snr_persistently_low", "Whether the SNR is low for long"),
    Gauge(
        "seconds_to_first_nonempty_slot",
        "seconds_to_first_nonempty_slot",
        "Time to the next slot with a satellite",
    ),
    Gauge(
        "first_nonempty_slot_seconds",
        "seconds_to_first_nonempty_slot",
        "Time to the next slot with a satellite",
    ),
    Gauge("gps_valid", "gps_valid", "Whether the position by GPS is valid"),
    Gauge("gps_satellites", "gps_sats", "Number of GPS satellites in view"),
    Gauge("tilt_angle_deg", "tilt", "Tilt of the boresight from the zenith"),
    Gauge("attitude_uncertainty_deg", "attitude_uncertainty", "Uncertainty of the attitude"),
    Gauge("boresight_azimuth_deg", "direction_azimuth", "Azimuth of the boresight"),
    Gauge("bore_sight_azimuth_deg", "direction_azimuth", "Azimuth of the boresight"),
    Gauge("boresight_elevation_deg", "direction_elevation", "Elevation of the boresight"),
    Gauge("bore_sight_elevation_deg", "direction_elevation", "Elevation of the boresight"),
    Gauge("eth_speed_mbps", "eth_speed_mbps", "Speed of the Ethernet link in Mbit/s"),
)
"""Metrics of one field each, below `starlink_dish_`."""

_ALERT_NAMES = {
    "lower_signal_than_predicted": ("signal_lower_than_predicted",),
    "slow_ethernet_speeds": ("slow_ethernet_speeds", "slow_eth_speeds"),
}
"""Names of alerts in metrics, where they are not the terminal's."""


class DishMetrics(Collector):
    """Metrics of one terminal; each collection asks the terminal.

    Args:
        dish: the terminal.
        shared_s: time in s for which later scrapes get the same answers of the terminal.
    """

    def __init__(self, dish: Dish, shared_s: float = 0.0) -> None:
        self._dish, self._shared_s = dish, shared_s
        self._answers: list[Metric] = []
        self._answered_s = -math.inf
        self._scrapes = 0
        # The server has a thread per request; the client of a terminal is for one thread.
        self._lock = threading.Lock()

    def describe(self) -> list[Metric]:
        """Return nothing, so that the registration does not ask the terminal."""
        return []

    def collect(self) -> list[Metric]:
        """Return the terminal's metrics; if it does not answer, only that it is not up."""
        with self._lock:
            self._scrapes += 1
            # Scrapes that waited for another one's answers get these, so that a caller with many
            # requests does not keep the terminal busy and the others waiting.
            if time.monotonic() >= self._answered_s + self._shared_s:
                self._answers = self._ask()
                self._answered_s = time.monotonic()
            count = float(self._scrapes)
            return [
                *self._answers,
                CounterMetricFamily("starlink_exporter_scrapes", "Number of scrapes", count),
            ]

    def _ask(self) -> list[Metric]:
        """Ask the terminal, and return its metrics."""
        begin_s = time.perf_counter()
        try:
            found, is_up = list(self._of_terminal()), 1.0
        except RunError:
            found, is_up = [], 0.0
        lasted_s = time.perf_counter() - begin_s
        return [
            _gauge("up", "Whether the terminal answered", is_up),
            _gauge("scrape_duration_seconds", "Duration of the requests", lasted_s),
            GaugeMetricFamily(
                "starlink_exporter_scrape_duration_seconds",
                "Duration of the requests to the terminal",
                lasted_s,
            ),
            *found,
        ]

    def _of_terminal(self) -> Iterator[Metric]:
        status = self._dish.status()
        yield from gauges_of(sample_of(status, 0))
        yield from _infos_of(status)
        # A terminal whose status is known is up, even if it refuses other requests.
        with suppress(RunError):
            yield from _of_history(self._dish.history())
        with suppress(RunError):
            place = self._dish.location()
            if place is not None:
                yield _gauge("location_latitude_deg", "Latitude", place.latitude_deg)
                yield _gauge("location_longitude_deg", "Longitude", place.longitude_deg)
                yield _gauge("location_altitude_meters", "Altitude", place.altitude_m)


def gauges_of(sample: Sample) -> Iterator[Metric]:
    """Yield the gauges of a sample: the known fields, the state and each alert."""
    for gauge in GAUGES:
        value = _number(sample.get(gauge.field))
        if value is not None:
            yield _gauge(gauge.name, gauge.about, value * gauge.factor)
    state = STATES.get(str(sample.get("state")), 0)
    yield _gauge("state", "1: connected, 2: searching, 3: booting, 0: other", state)
    for field in ALERT_FIELDS.values():
        alert = field.name.removeprefix("alerts_")
        value = _number(field_value(field, sample))
        if value is not None:
            for name in _ALERT_NAMES.get(alert, (alert,)):
                yield _gauge(f"alert_{name}", f"Whether the terminal has the alert {alert}", value)


def _of_history(history: Message) -> Iterator[Metric]:
    power_w = next((_number(row["power_w"]) for row in rows_of(history, 0, 1)), None)
    if power_w is not None:
        yield _gauge("power_input_watts", "Power of the last second", power_w)
    outages = float(len(outages_of(history)))
    yield _gauge("history_outages_count", "Number of outages in the history", outages)


def _infos_of(status: Message) -> Iterator[Metric]:
    """Yield the terminal's versions, and its present outage if there is one."""
    device: Any = status.device_info  # type: ignore[attr-defined]
    labels = {
        "device_id": device.id,
        "hardware_version": device.hardware_version,
        "software_version": device.software_version,
        "country_code": device.country_code,
        "utc_offset": str(device.utc_offset_s),
    }
    yield InfoMetricFamily("starlink_dish", "The terminal and its versions", labels)
    outage = current_outage(status)
    if outage is not None:
        words = {"cause": outage.cause, "did_switch": str(bool(outage.did_switch)).lower()}
        yield InfoMetricFamily("starlink_dish_outage", "The present outage", words)
        begin_s, lasts_s = outage.start_ns / 1e9, outage.duration_ns / 1e9
        yield _gauge("outage_start_timestamp_seconds", "Start of the present outage", begin_s)
        yield _gauge("outage_duration_seconds", "Duration of the present outage", lasts_s)


def _gauge(name: str, about: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"starlink_dish_{name}", about, value)


def _number(value: Value) -> float | None:
    return None if value is None or isinstance(value, str) else float(value)
