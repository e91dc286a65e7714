"""The columns of telemetry: what a terminal says each second, and what its host adds.

Each word stands in files, triggers and tables, and is written down here once. A value that is not
known is null: a terminal that does not answer says nothing, not 0. `time_ns` is the second's end
in UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Type(StrEnum):
    """What a column holds."""

    NUMBER = "number"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    TEXT = "text"


class Source(StrEnum):
    """Who says it."""

    DISH = "dish"
    HOST = "host"
    """Counters of interfaces, the machine's load."""
    ORBIT = "orbit"
    PROBE = "probe"
    WEATHER = "weather"
    MODEL = "model"
    """A predictor."""
    CLOCK = "clock"


@dataclass(frozen=True)
class Field:
    """One column."""

    name: str
    unit: str
    type: Type
    source: Source
    period_s: float
    """How often it is updated; older than three of these, it is not known."""
    help: str = ""


_N, _I, _B, _T = Type.NUMBER, Type.INTEGER, Type.BOOLEAN, Type.TEXT
_WEATHER_PERIOD_S = 1800.0
ALERTS_COLUMN = "alerts"


def _weather(name: str, unit: str, kind: Type = _N) -> Field:
    return Field(f"weather_{name}", unit, kind, Source.WEATHER, _WEATHER_PERIOD_S)


FIELDS: tuple[Field, ...] = (
    Field("pop_ping_latency_ms", "ms", _N, Source.DISH, 1, "round trip to the point of presence"),
    Field("pop_ping_drop_rate", "", _N, Source.DISH, 1, "0 to 1"),
    Field(
        "downlink_throughput_bps", "bit/s", _N, Source.DISH, 1, "what is used, not what could be"
    ),
    Field("uplink_throughput_bps", "bit/s", _N, Source.DISH, 1, "what is used, not what could be"),
    Field("direction_azimuth", "deg", _N, Source.DISH, 1, "of the boresight, -180 to 180"),
    Field("direction_elevation", "deg", _N, Source.DISH, 1, "of the boresight"),
    Field("tilt", "deg", _N, Source.DISH, 1),
    Field("attitude_uncertainty", "deg", _N, Source.DISH, 1),
    Field("currently_obstructed", "", _B, Source.DISH, 1),
    Field("fraction_obstructed", "", _N, Source.DISH, 1, "of the sky, 0 to 1"),
    Field("obstruction_valid_s", "s", _N, Source.DISH, 1),
    Field("snr_above_noise", "", _B, Source.DISH, 1),
    Field("snr_persistently_low", "", _B, Source.DISH, 1),
    Field("seconds_to_first_nonempty_slot", "s", _N, Source.DISH, 1),
    Field("state", "", _T, Source.DISH, 1, "CONNECTED, SEARCHING, or an outage's cause"),
    Field("outage", "", _B, Source.DISH, 1),
    Field(ALERTS_COLUMN, "", _T, Source.DISH, 1, "those that are on, by name, with commas"),
    Field("uptime_s", "s", _N, Source.DISH, 1),
    Field("gps_valid", "", _B, Source.DISH, 1),
    Field("gps_sats", "", _I, Source.DISH, 1),
    Field("eth_speed_mbps", "Mbit/s", _N, Source.DISH, 1),
    Field("power_w", "W", _N, Source.DISH, 1, "from the history"),
    Field("host_rx_bps", "bit/s", _N, Source.HOST, 1, "all that the host's interface received"),
    Field("host_tx_bps", "bit/s", _N, Source.HOST, 1),
    Field("exp_rx_rate_bytes", "byte/s", _N, Source.HOST, 1, "of runs"),
    Field("exp_tx_rate_bytes", "byte/s", _N, Source.HOST, 1, "of runs"),
    Field("user_rx_bps", "bit/s", _N, Source.HOST, 1, "the owner's own: the terminal's less runs'"),
    Field("user_tx_bps", "bit/s", _N, Source.HOST, 1),
    Field("node_load", "", _N, Source.HOST, 1, "runnable tasks per processor"),
    Field("probe_rtt_ms", "ms", _N, Source.PROBE, 1),
    Field("probe_loss", "", _N, Source.PROBE, 1, "0 to 1"),
    Field("downlink_capacity_bps", "bit/s", _N, Source.PROBE, 1, "of a flow that fills the link"),
    Field("uplink_capacity_bps", "bit/s", _N, Source.PROBE, 1, "of a flow that fills the link"),
    Field("sat_count", "", _I, Source.ORBIT, 1, "in view"),
    Field("sat_dist_min", "m", _N, Source.ORBIT, 1),
    Field("sat_dist_mean", "m", _N, Source.ORBIT, 1),
    Field("sat_dist_max", "m", _N, Source.ORBIT, 1),
    Field("serving_satellite", "", _T, Source.ORBIT, 1, "as forecast"),
    Field("serving_elevation", "deg", _N, Source.ORBIT, 1, "as forecast"),
    Field("handover_in_s", "s", _N, Source.ORBIT, 1, "until the next one that is announced"),
    Field("predicted_latency_ms", "ms", _N, Source.MODEL, 1),
    Field("predicted_throughput_bps", "bit/s", _N, Source.MODEL, 1),
    Field("hour", "h", _N, Source.CLOCK, 1, "of the day, UTC"),
    _weather("id", "", _I),
    _weather("main", "", _T),
    _weather("desc", "", _T),
    _weather("temp", "K"),
    _weather("temp_min", "K"),
    _weather("temp_max", "K"),
    _weather("temp_mean", "K"),
    _weather("pressure", "hPa"),
    _weather("humidity", "%"),
    _weather("clouds", "%"),
    _weather("rain1h", "mm"),
    _weather("rain3h", "mm"),
    _weather("snow1h", "mm"),
    _weather("snow3h", "mm"),
    _weather("visibility", "m"),
    _weather("speed", "m/s"),
    _weather("gust", "m/s"),
    _weather("deg", "deg"),
)
"""In the order of columns; `time_ns` stands before them."""

BY_NAME: dict[str, Field] = {field.name: field for field in FIELDS}

ALERTS = (
    "motors_stuck", "thermal_shutdown", "thermal_throttle", "unexpected_location",
    "mast_not_near_vertical", "slow_ethernet_speeds", "roaming", "install_pending", "is_heating",
    "power_supply_thermal_throttle", "is_power_save_idle", "moving_while_not_mobile",
    "moving_fast_while_not_aviation", "dbf_telem_stale", "moving_too_fast_for_policy",
    "low_motor_current", "lower_signal_than_predicted", "slow_ethernet_speeds_100",
    "obstruction_map_reset", "dish_water_detected", "router_water_detected",
    "upsu_router_port_slow", "no_ethernet_link",
)  # fmt: skip
"""What a terminal warns of, in the order of its answer's fields, which is that of their bits in
starlink-grpc-tools; each may stand in the column `alerts`."""

ALERT_FIELDS: dict[str, Field] = {
    f"alerts_{name}": Field(f"alerts_{name}", "", _B, Source.DISH, 1) for name in ALERTS
}
"""One alert each, for triggers: read from the column `alerts`, and no column of its own."""

Value = float | int | bool | str | None
Sample = dict[str, Value]
"""One second of one node: `time_ns`, and any of `FIELDS`; what is not there is null."""


def said(field: Field, sample: Sample) -> Value:
    """Return what a sample says of a field, of one alert too; None where it says nothing."""
    if field.name not in ALERT_FIELDS:
        return sample.get(field.name)
    on = sample.get(ALERTS_COLUMN)
    return field.name.removeprefix("alerts_") in on.split(",") if isinstance(on, str) else None


def column_of(field: Field) -> str:
    """Return the column from which a field is read."""
    return ALERTS_COLUMN if field.name in ALERT_FIELDS else field.name


TIME = "time_ns"

UNREACHABLE = "DISH_UNREACHABLE"
"""The `state` of a terminal that did not answer, as starlink-grpc-tools have it."""
