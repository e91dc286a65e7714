"""Conversion of a terminal's answers to telemetry, outages in UTC and obstruction maps.

The functions take protobuf messages from a terminal, or from a file by `messages`. Firmware
versions differ: values that a terminal does not report are null, and unknown fields of newer
firmware are ignored.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from skyhop.telemetry.fields import FIELDS, TIME, Origin, Sample
from skyhop.telemetry.gps import SECOND_NS, utc_of_gps_ns
from skyhop.telemetry.obstruction import MAX_THETA_DEG, Frame, Grid, ObstructionMap, Pointing

if TYPE_CHECKING:
    from google.protobuf.message import Message

CONNECTED = "CONNECTED"
SEARCHING = "SEARCHING"
"""State during an outage of cause NO_SCHEDULE; programs of the operator show it by this name."""

_HISTORY_FIELDS = ("power_w", "outage_s")
STATUS_FIELDS = tuple(
    f.name for f in FIELDS if f.origin is Origin.DISH and f.name not in _HISTORY_FIELDS
)
"""Fields of telemetry that a terminal's status has; only the history has the power."""

_FLOAT = struct.Struct("f")
_REBOOT_NS = 5 * SECOND_NS
"""Change in ns of the computed boot time above which the terminal must have rebooted."""
_DRIFT_NS = 2 * SECOND_NS
"""Change in ns of the computed boot time above which it is corrected for drift of the clocks."""
_OUTAGE_REASON = "EVENT_REASON_OUTAGE_"


def sample_of(status: Message, now_ns: int) -> Sample:
    """Convert a terminal's status to a sample of telemetry.

    Args:
        status: a `DishGetStatusResponse`, of any firmware.
        now_ns: time of the request in ns since 1970 (UTC); the sample is about the last full
            second before it.
    """
    obstruction, alignment = _part(status, "obstruction_stats"), _part(status, "alignment_stats")
    gps = _part(status, "gps_stats")
    drop_rate = _share(status, "pop_ping_drop_rate")
    slot_s = _number(status, "seconds_to_first_nonempty_slot")
    return {
        TIME: now_ns // SECOND_NS * SECOND_NS,
        "pop_ping_latency_ms": _latency(_number(status, "pop_ping_latency_ms"), drop_rate),
        "pop_ping_drop_rate": drop_rate,
        "downlink_throughput_bps": _not_negative(_number(status, "downlink_throughput_bps")),
        "uplink_throughput_bps": _not_negative(_number(status, "uplink_throughput_bps")),
        "direction_azimuth": _number(status, "boresight_azimuth_deg"),
        "direction_elevation": _number(status, "boresight_elevation_deg"),
        "tilt": _number(alignment, "tilt_angle_deg"),
        "attitude_uncertainty": _number(alignment, "attitude_uncertainty_deg"),
        "currently_obstructed": getattr(obstruction, "currently_obstructed", None),
        "fraction_obstructed": _share(obstruction, "fraction_obstructed"),
        "obstruction_valid_s": _not_negative(_number(obstruction, "valid_s")),
        "snr_above_noise": getattr(status, "is_snr_above_noise_floor", None),
        "snr_persistently_low": getattr(status, "is_snr_persistently_low", None),
        "seconds_to_first_nonempty_slot": _not_negative(slot_s),
        "state": state_of(status),
        "outage": _part(status, "outage") is not None,
        "alerts": alerts_of(status),
        "uptime_s": getattr(_part(status, "device_state"), "uptime_s", None),
        "gps_valid": getattr(gps, "gps_valid", None),
        "gps_sats": getattr(gps, "gps_sats", None),
        "eth_speed_mbps": getattr(status, "eth_speed_mbps", None) or None,
    }


def state_of(status: Message) -> str:
    """Return CONNECTED, SEARCHING, or the cause of the current outage."""
    outage = _part(status, "outage")
    if outage is None:
        return CONNECTED
    cause = _word(outage, "cause")
    return SEARCHING if cause == "NO_SCHEDULE" else cause


def alerts_of(status: Message) -> str:
    """Return the names of the active alerts, separated by commas."""
    alerts = _part(status, "alerts")
    if alerts is None:
        return ""
    return ",".join(one.name for one, value in alerts.ListFields() if value is True)


@dataclass(frozen=True)
class Outage:
    """Period without a connection; times in ns since 1970 (UTC)."""

    cause: str
    start_ns: int
    duration_ns: int
    did_switch: bool | None
    """Whether the terminal switched to another satellite; None if it does not report this."""


@dataclass(frozen=True)
class Event:
    """Entry of the event log of newer firmware; times in ns since 1970 (UTC)."""

    severity: str
    reason: str
    start_ns: int
    duration_ns: int


def outages_of(history: Message) -> list[Outage]:
    """Return the outages in a terminal's history, at most those since its boot.

    Older firmware lists outages with GPS times; newer firmware has them in its event log, with Unix
    times.
    """
    outages = [_outage_of(outage) for outage in getattr(history, "outages", ())]
    return outages or [
        Outage(event.reason.removeprefix(_OUTAGE_REASON), event.start_ns, event.duration_ns, None)
        for event in events_of(history)
        if event.reason.startswith(_OUTAGE_REASON)
    ]


def current_outage(status: Message) -> Outage | None:
    """Return the present outage; None while the terminal is connected."""
    outage = _part(status, "outage")
    return None if outage is None else _outage_of(outage)


def _outage_of(outage: Any) -> Outage:
    start_ns = utc_of_gps_ns(outage.start_timestamp_ns)
    return Outage(_word(outage, "cause"), start_ns, outage.duration_ns, outage.did_switch)


def events_of(history: Message) -> list[Event]:
    """Return the event log of newer firmware; empty with older firmware."""
    log = _part(history, "event_log")
    return [
        Event(
            _word(event, "severity"),
            _word(event, "reason"),
            event.start_timestamp_ns,
            event.duration_ns,
        )
        for event in getattr(log, "events", ())
    ]


def ring_length(history: Message) -> int:
    """Return the length of the ring buffers in seconds: 900, or 43,200 with early firmware."""
    return len(getattr(history, "pop_ping_drop_rate", ()))


def rows_of(history: Message, newest_ns: int, most: int | None = None) -> list[Sample]:
    """Convert a terminal's history to samples, the oldest first.

    Args:
        history: a `DishGetHistoryResponse`.
        newest_ns: end of the newest second, in ns since 1970 (UTC).
        most: largest number of samples to return, the newest ones; by default all.
    """
    ring, current = ring_length(history), int(getattr(history, "current", 0))
    known = min(ring, current, ring if most is None else most)
    seconds = range(current - known, current)
    columns = {
        "pop_ping_latency_ms": _ring(history, "pop_ping_latency_ms", ring),
        "pop_ping_drop_rate": _ring(history, "pop_ping_drop_rate", ring),
        "downlink_throughput_bps": _ring(history, "downlink_throughput_bps", ring),
        "uplink_throughput_bps": _ring(history, "uplink_throughput_bps", ring),
        "power_w": _ring(history, "power_in", ring),
    }
    return [
        _row(columns, second % ring, newest_ns - (current - 1 - second) * SECOND_NS)
        for second in seconds
    ]


def _row(columns: dict[str, Sequence[float]], place: int, time_ns: int) -> Sample:
    row: Sample = {TIME: time_ns}
    for name, ring in columns.items():
        row[name] = _not_negative(_shortest(ring[place])) if ring else None
    drop_rate = row["pop_ping_drop_rate"]
    # After a lost ping, the ring buffer repeats the previous latency.
    assert drop_rate is None or isinstance(drop_rate, float), "rings hold floats"
    latency_ms = row["pop_ping_latency_ms"]
    assert latency_ms is None or isinstance(latency_ms, float), "rings hold floats"
    row["pop_ping_latency_ms"] = _latency(latency_ms, drop_rate)
    return row


@dataclass(frozen=True)
class NewRows:
    """Seconds of a terminal's history that are new since the previous history."""

    rows: list[Sample]
    rebooted: bool
    """Whether the terminal was rebooted since the previous history."""
    missed_s: int
    """Number of seconds after the previous history that this history no longer contains."""


@dataclass
class Follower:
    """Joins successive histories of a terminal by `current`, the number of seconds since boot.

    The boot time is computed from the first history after a boot, rounded to a whole second, so
    that a second has the same time in every history. It is corrected only if the clocks drift
    apart.
    """

    _current: int | None = field(default=None, init=False)
    _boot_ns: int = field(default=0, init=False)

    def join(self, history: Message, now_ns: int) -> NewRows:
        """Return the new seconds of a history, and whether the terminal was rebooted.

        Args:
            history: a `DishGetHistoryResponse`.
            now_ns: time of the request in ns since 1970 (UTC).
        """
        current = int(getattr(history, "current", 0))
        boot_ns = (now_ns // SECOND_NS - current) * SECOND_NS
        before = self._current
        rebooted = before is not None and (current < before or boot_ns > self._boot_ns + _REBOOT_NS)
        if before is None or rebooted or abs(boot_ns - self._boot_ns) > _DRIFT_NS:
            self._boot_ns = boot_ns
        self._current = current
        known = 0 if before is None or rebooted else before
        newest_ns = self._boot_ns + current * SECOND_NS
        rows = rows_of(history, newest_ns, current - known)
        missed_s = 0 if before is None or rebooted else current - known - len(rows)
        return NewRows(rows, rebooted, missed_s)


def obstruction_map_of(message: Message, status: Message | None = None) -> ObstructionMap:
    """Convert an answer to an obstruction map.

    Args:
        message: a `DishGetObstructionMapResponse` with as many values as rows times columns.
        status: the terminal's status, for its direction; without it, the terminal of a map in the
            terminal's frame is assumed to lie flat, with azimuth 0.
    """
    answer: Any = message
    frame = Frame.TERMINAL if _word(message, "map_reference_frame") == "FRAME_UT" else Frame.EARTH
    grid = Grid(
        answer.num_rows,
        answer.num_cols,
        _number(message, "max_theta_deg") or MAX_THETA_DEG,
        frame,
        Pointing() if status is None else _pointing(status),
    )
    snr = [value if value >= 0 else -1.0 for value in answer.snr]
    return ObstructionMap(grid, snr, _number(message, "min_elevation_deg") or 0.0)


def _pointing(status: Message) -> Pointing:
    azimuth_deg = _number(status, "boresight_azimuth_deg") or 0.0
    elevation_deg = _number(status, "boresight_elevation_deg")
    tilt_deg = _number(_part(status, "alignment_stats"), "tilt_angle_deg")
    if elevation_deg:
        tilt_deg = 90 - elevation_deg
    return Pointing(azimuth_deg, tilt_deg or 0.0)


def _part(message: Message | None, name: str) -> Any:
    """Return a sub-message; None if it is not set or the firmware does not know it."""
    if message is None or name not in message.DESCRIPTOR.fields_by_name:
        return None
    return getattr(message, name) if message.HasField(name) else None


def _word(message: Message, name: str) -> str:
    """Return the name of an enumeration's value; its number if the name is not known."""
    known = message.DESCRIPTOR.fields_by_name.get(name)
    if known is None or known.enum_type is None:
        return ""
    number: int = getattr(message, name)
    value = known.enum_type.values_by_number.get(number)
    return str(number) if value is None else str(value.name)


def _number(message: Message | None, name: str) -> float | None:
    value = getattr(message, name, None)
    return None if value is None else _shortest(value)


def _shortest(value: float) -> float | None:
    """Return the shortest decimal of a single-precision value, as in JSON; None if not finite."""
    if not math.isfinite(value):
        return None
    for digits in (6, 7, 8):
        text = f"{value:.{digits}g}"
        if _FLOAT.pack(float(text)) == _FLOAT.pack(value):
            return float(text)
    return float(f"{value:.9g}")


def _ring(history: Message, name: str, length: int) -> Sequence[float]:
    """Return a ring buffer; empty if the terminal does not have it with this length."""
    ring: Sequence[float] = getattr(history, name, ())
    return ring if len(ring) == length else ()


def _share(message: Message | None, name: str) -> float | None:
    value = _number(message, name)
    return value if value is not None and 0 <= value <= 1 else None


def _not_negative(value: float | None) -> float | None:
    return value if value is not None and value >= 0 else None


def _latency(latency_ms: float | None, drop_rate: float | None) -> float | None:
    """Return a second's latency; None if no ping was sent or none was answered."""
    lost = drop_rate is not None and drop_rate >= 1
    return None if lost or latency_ms is None or latency_ms <= 0 else latency_ms
