"""What a terminal's answers mean: samples of telemetry, outages in UTC, the obstruction map.

The functions take protocol messages, of a terminal or read by `messages`. Firmware differs: what
a terminal does not know is null, and what only newer ones say is passed over.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from skyhop.dish.gps import SECOND_NS, utc_of_gps_ns
from skyhop.dish.sky import MAX_THETA_DEG, Frame, Grid, Pointing
from skyhop.telemetry.fields import TIME, Sample

if TYPE_CHECKING:
    from google.protobuf.message import Message

CONNECTED = "CONNECTED"
SEARCHING = "SEARCHING"
"""What terminals' programs call an outage for want of a schedule."""

_FLOAT = struct.Struct("f")
_REBOOT_NS = 5 * SECOND_NS
"""A boot that seems later than before by more than this is another one."""
_DRIFT_NS = 2 * SECOND_NS
_OUTAGE_REASON = "EVENT_REASON_OUTAGE_"
_OBSTRUCTED_BELOW = 0.5


def sample_of(status: Message, now_ns: int) -> Sample:
    """Return a terminal's status as a sample of telemetry.

    Args:
        status: a `DishGetStatusResponse`, of any firmware.
        now_ns: when it was asked, UTC; the sample's second is the one that ended last.
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
    """Return CONNECTED, SEARCHING, or the cause of the outage that is going on."""
    outage = _part(status, "outage")
    if outage is None:
        return CONNECTED
    cause = _word(outage, "cause")
    return SEARCHING if cause == "NO_SCHEDULE" else cause


def alerts_of(status: Message) -> str:
    """Return the names of the alerts that are on, with commas."""
    alerts = _part(status, "alerts")
    if alerts is None:
        return ""
    return ",".join(one.name for one, value in alerts.ListFields() if value is True)


@dataclass(frozen=True)
class Outage:
    """A time without a connection, in UTC."""

    cause: str
    start_ns: int
    duration_ns: int
    did_switch: bool | None
    """Whether the terminal had another satellite afterwards; null where it does not say so."""


@dataclass(frozen=True)
class Event:
    """A line of the log that newer terminals keep, in UTC."""

    severity: str
    reason: str
    start_ns: int
    duration_ns: int


def outages_of(history: Message) -> list[Outage]:
    """Return the outages since the terminal's start, as old as it remembers them.

    Newer firmware has them in its event log instead, whose times are Unix's.
    """
    outages = [
        Outage(
            _word(outage, "cause"),
            utc_of_gps_ns(outage.start_timestamp_ns),
            outage.duration_ns,
            outage.did_switch,
        )
        for outage in getattr(history, "outages", ())
    ]
    return outages or [
        Outage(event.reason.removeprefix(_OUTAGE_REASON), event.start_ns, event.duration_ns, None)
        for event in events_of(history)
        if event.reason.startswith(_OUTAGE_REASON)
    ]


def events_of(history: Message) -> list[Event]:
    """Return the event log of newer firmware; empty where there is none."""
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
    """Return how many seconds a terminal remembers: 900, or 43,200 with early firmware."""
    return len(getattr(history, "pop_ping_drop_rate", ()))


def rows_of(history: Message, newest_ns: int, most: int | None = None) -> list[Sample]:
    """Return a terminal's last seconds as samples, the oldest first.

    Args:
        history: a `DishGetHistoryResponse`.
        newest_ns: the end of the newest second, UTC.
        most: how many, where not all.
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
    # A lost ping leaves the latency before it in the ring.
    assert drop_rate is None or isinstance(drop_rate, float), "of a ring"
    latency_ms = row["pop_ping_latency_ms"]
    assert latency_ms is None or isinstance(latency_ms, float), "of a ring"
    row["pop_ping_latency_ms"] = _latency(latency_ms, drop_rate)
    return row


@dataclass(frozen=True)
class Joined:
    """What a terminal's history adds to the one before."""

    rows: list[Sample]
    rebooted: bool
    missed_s: int
    """Seconds between the two that it does not remember any more."""


@dataclass
class Follower:
    """Joins one terminal's histories by `current`, its count of seconds since it was started.

    A second has one time however often it is told: the first history after a start says when that
    was, to the whole second, and it is corrected only when the clocks drift apart.
    """

    _current: int | None = field(default=None, init=False)
    _boot_ns: int = field(default=0, init=False)

    def join(self, history: Message, now_ns: int) -> Joined:
        """Return the seconds that are new, and whether the terminal was started anew.

        Args:
            history: a `DishGetHistoryResponse`.
            now_ns: when it was asked, UTC.
        """
        current = int(getattr(history, "current", 0))
        boot_ns = (now_ns // SECOND_NS - current) * SECOND_NS
        before = self._current
        rebooted = before is not None and (current < before or boot_ns > self._boot_ns + _REBOOT_NS)
        if before is None or rebooted or abs(boot_ns - self._boot_ns) > _DRIFT_NS:
            self._boot_ns = boot_ns
        self._current = current
        told = 0 if before is None or rebooted else before
        newest_ns = self._boot_ns + current * SECOND_NS
        rows = rows_of(history, newest_ns, current - told)
        missed_s = 0 if before is None or rebooted else current - told - len(rows)
        return Joined(rows, rebooted, missed_s)


@dataclass(frozen=True)
class ObstructionMap:
    """The sky as a terminal has seen it."""

    grid: Grid
    snr: Sequence[float]
    """Row after row from the top: from 0 to 1, and -1 where nothing was ever seen."""
    min_elevation_deg: float

    @property
    def seen(self) -> int:
        """How many pixels were ever seen."""
        return sum(value >= 0 for value in self.snr)

    @property
    def obstructed(self) -> int:
        """How many of these let less than half through."""
        return sum(0 <= value < _OBSTRUCTED_BELOW for value in self.snr)

    def rows(self) -> Iterator[Sequence[float]]:
        """Yield the rows from the top."""
        for begin in range(0, len(self.snr), self.grid.columns):
            yield self.snr[begin : begin + self.grid.columns]


def obstruction_map_of(message: Message, status: Message | None = None) -> ObstructionMap:
    """Return an obstruction map.

    Args:
        message: a `DishGetObstructionMapResponse`; its values are as many as rows times columns.
        status: what the terminal says of where it points; without it a map in the terminal's
            frame is taken for one of a terminal that lies flat and points north.
    """
    said: Any = message
    frame = Frame.TERMINAL if _word(message, "map_reference_frame") == "FRAME_UT" else Frame.EARTH
    grid = Grid(
        said.num_rows,
        said.num_cols,
        _number(message, "max_theta_deg") or MAX_THETA_DEG,
        frame,
        Pointing() if status is None else _pointing(status),
    )
    snr = [value if value >= 0 else -1.0 for value in said.snr]
    return ObstructionMap(grid, snr, _number(message, "min_elevation_deg") or 0.0)


def _pointing(status: Message) -> Pointing:
    azimuth_deg = _number(status, "boresight_azimuth_deg") or 0.0
    elevation_deg = _number(status, "boresight_elevation_deg")
    tilt_deg = _number(_part(status, "alignment_stats"), "tilt_angle_deg")
    if elevation_deg:
        tilt_deg = 90 - elevation_deg
    return Pointing(azimuth_deg, tilt_deg or 0.0)


def _part(message: Message | None, name: str) -> Any:
    """Return a part of a message; None where it or its name is missing."""
    if message is None or name not in message.DESCRIPTOR.fields_by_name:
        return None
    return getattr(message, name) if message.HasField(name) else None


def _word(message: Message, name: str) -> str:
    """Return an enumeration's word; its number where the firmware is newer than what it says."""
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
    """Return the shortest decimal of a single-precision value, as JSON has it; None for NaN."""
    if not math.isfinite(value):
        return None
    for digits in (6, 7, 8):
        text = f"{value:.{digits}g}"
        if _FLOAT.pack(float(text)) == _FLOAT.pack(value):
            return float(text)
    return float(f"{value:.9g}")


def _ring(history: Message, name: str, length: int) -> Sequence[float]:
    """Return a ring; empty where the terminal does not have it."""
    ring: Sequence[float] = getattr(history, name, ())
    return ring if len(ring) == length else ()


def _share(message: Message | None, name: str) -> float | None:
    value = _number(message, name)
    return value if value is not None and 0 <= value <= 1 else None


def _not_negative(value: float | None) -> float | None:
    return value if value is not None and value >= 0 else None


def _latency(latency_ms: float | None, drop_rate: float | None) -> float | None:
    """Return a second's latency; where no ping came back, or none was sent, it is not known."""
    lost = drop_rate is not None and drop_rate >= 1
    return None if lost or latency_ms is None or latency_ms <= 0 else latency_ms
