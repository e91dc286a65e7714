"""Columns of telemetry: values that a terminal reports per second, and values that its host adds.

The names are used in files, triggers and tables. An unknown value is null: samples of a terminal
that does not answer have nulls, not zeros. `time_ns` is the end of the second, in ns since 1970
(UTC).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from skyhop.data.near_names import did_you_mean
from skyhop.errors import InputError


class Type(StrEnum):
    """Type of a column's values."""

    NUMBER = "number"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    TEXT = "text"


class Origin(StrEnum):
    """Origin of a column's values."""

    DISH = "dish"
    HOST = "host"
    """Counters of the host's interfaces, and its load."""
    ORBIT = "orbit"
    """Positions of satellites computed from element sets."""
    PROBE = "probe"
    WEATHER = "weather"
    MODEL = "model"
    """Predictor of `skyhop.predict`, run by the agent."""
    CLOCK = "clock"


@dataclass(frozen=True)
class Field:
    """Column of telemetry: name, unit, type and origin."""

    name: str
    unit: str
    type: Type
    origin: Origin
    period_s: float
    """Interval of updates in s; a value older than three intervals counts as unknown."""
    help: str = ""


_N, _I, _B, _T = Type.NUMBER, Type.INTEGER, Type.BOOLEAN, Type.TEXT
_WEATHER_PERIOD_S = 1800.0
ALERTS_COLUMN = "alerts"


def _weather(name: str, unit: str, kind: Type = _N) -> Field:
    return Field(f"weather_{name}", unit, kind, Origin.WEATHER, _WEATHER_PERIOD_S)


FIELDS: tuple[Field, ...] = (
    Field("pop_ping_latency_ms", "ms", _N, Origin.DISH, 1, "round trip to the point of presence"),
    Field("pop_ping_drop_rate", "", _N, Origin.DISH, 1, "0 to 1"),
    Field("downlink_throughput_bps", "bit/s", _N, Origin.DISH, 1, "rate in use, not the capacity"),
    Field("uplink_throughput_bps", "bit/s", _N, Origin.DISH, 1, "rate in use, not the capacity"),
    Field("direction_azimuth", "deg", _N, Origin.DISH, 1, "the boresight's, -180 to 180"),
    Field("direction_elevation", "deg", _N, Origin.DISH, 1, "the boresight's"),
    Field("tilt", "deg", _N, Origin.DISH, 1),
    Field("attitude_uncertainty", "deg", _N, Origin.DISH, 1),
    Field("currently_obstructed", "", _B, Origin.DISH, 1),
    Field("fraction_obstructed", "", _N, Origin.DISH, 1, "share of the sky, 0 to 1"),
    Field("obstruction_valid_s", "s", _N, Origin.DISH, 1),
    Field("snr_above_noise", "", _B, Origin.DISH, 1),
    Field("snr_persistently_low", "", _B, Origin.DISH, 1),
    Field("seconds_to_first_nonempty_slot", "s", _N, Origin.DISH, 1),
    Field("state", "", _T, Origin.DISH, 1, "CONNECTED, SEARCHING, or an outage's cause"),
    Field("outage", "", _B, Origin.DISH, 1),
    Field("outage_s", "s", _N, Origin.DISH, 1, "length of the outage that ended at this time"),
    Field(ALERTS_COLUMN, "", _T, Origin.DISH, 1, "names of the active alerts, with commas"),
    Field("uptime_s", "s", _N, Origin.DISH, 1),
    Field("gps_valid", "", _B, Origin.DISH, 1),
    Field("gps_sats", "", _I, Origin.DISH, 1),
    Field("eth_speed_mbps", "Mbit/s", _N, Origin.DISH, 1),
    Field("power_w", "W", _N, Origin.DISH, 1, "from the history"),
    Field("host_rx_bps", "bit/s", _N, Origin.HOST, 1, "all traffic of the host's interface"),
    Field("host_tx_bps", "bit/s", _N, Origin.HOST, 1),
    Field("exp_rx_rate_bytes", "byte/s", _N, Origin.HOST, 1, "traffic of runs"),
    Field("exp_tx_rate_bytes", "byte/s", _N, Origin.HOST, 1, "traffic of runs"),
    Field("user_rx_bps", "bit/s", _N, Origin.HOST, 1, "the owner's: the terminal's minus runs'"),
    Field("user_tx_bps", "bit/s", _N, Origin.HOST, 1),
    Field("node_load", "", _N, Origin.HOST, 1, "runnable tasks per processor"),
    Field("probe_rtt_ms", "ms", _N, Origin.PROBE, 1),
    Field("probe_loss", "", _N, Origin.PROBE, 1, "0 to 1"),
    Field("downlink_capacity_bps", "bit/s", _N, Origin.PROBE, 1, "rate of a saturating flow"),
    Field("uplink_capacity_bps", "bit/s", _N, Origin.PROBE, 1, "rate of a saturating flow"),
    Field("sat_count", "", _I, Origin.ORBIT, 1, "satellites in view"),
    Field("sat_dist_min", "m", _N, Origin.ORBIT, 1),
    Field("sat_dist_mean", "m", _N, Origin.ORBIT, 1),
    Field("sat_dist_max", "m", _N, Origin.ORBIT, 1),
    Field("serving_satellite", "", _T, Origin.ORBIT, 1, "forecast"),
    Field("serving_elevation", "deg", _N, Origin.ORBIT, 1, "forecast"),
    Field("handover_in_s", "s", _N, Origin.ORBIT, 1, "time to the next forecast handover"),
    Field("predicted_latency_ms", "ms", _N, Origin.MODEL, 1),
    Field("predicted_throughput_bps", "bit/s", _N, Origin.MODEL, 1),
    Field("hour", "h", _N, Origin.CLOCK, 1, "hour of the day, UTC"),
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
"""All columns except `time_ns`, in the order of tables; `time_ns` precedes them."""

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
"""Alerts of a terminal, in the order of the fields of DishAlerts, which is that of the bits in
starlink-grpc-tools; the column `alerts` holds their names."""

ALERT_FIELDS: dict[str, Field] = {
    f"alerts_{name}": Field(f"alerts_{name}", "", _B, Origin.DISH, 1) for name in ALERTS
}
"""Fields of single alerts, for triggers; they are read from the column `alerts`."""

Value = float | int | bool | str | None
Sample = dict[str, Value]
"""Values of one second of one node: `time_ns`, and any of `FIELDS`; missing fields are null."""


def unknown_field(name: str) -> InputError:
    """Return the error for a name that is no column of telemetry."""
    hint = did_you_mean(name, BY_NAME)
    return InputError(
        f'telemetry: there is no field "{name}"{hint}: skyhop docs telemetry-fields lists them'
    )


def field_value(field: Field, sample: Sample) -> Value:
    """Return a sample's value of a field or of a single alert; None if it is not known."""
    if field.name not in ALERT_FIELDS:
        return sample.get(field.name)
    on = sample.get(ALERTS_COLUMN)
    return field.name.removeprefix("alerts_") in on.split(",") if isinstance(on, str) else None


def column_of(field: Field) -> str:
    """Return the name of the column that holds a field: `alerts` for a single alert."""
    return ALERTS_COLUMN if field.name in ALERT_FIELDS else field.name


TIME = "time_ns"

UNREACHABLE = "DISH_UNREACHABLE"
"""Value of `state` while a terminal does not answer, as in starlink-grpc-tools."""
