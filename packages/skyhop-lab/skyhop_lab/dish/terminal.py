"""Emulated terminal that computes status, history and obstruction map from a feed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

from skyhop.telemetry.gps import SECOND_NS, gps_of_utc_ns
from skyhop.telemetry.obstruction import Frame, Grid, Pointing
from skyhop_lab.dish.boresight import Boresight
from skyhop_lab.dish.feed import Feed, Interruption, Second
from skyhop_lab.dish.recorded import unseen_map
from skyhop_testbed.dish import device_pb2
from skyhop_testbed.dish.device_pb2 import DishOutage

RING = 900
"""Default length of a terminal's ring buffers in seconds."""
BOOT_S = 20
"""Time in s without a connection after a reboot; real terminals take minutes."""

_LEAST_OUTAGE_NS = 100_000_000
"""Shortest interruption in ns that counts as an outage; the shortest observed outage is 0.12 s."""
_MOST_OUTAGES = 4096
_PROLONGED_NS = 2 * SECOND_NS
_POWER_W = 50.0
"""Constant power in W that the terminal reports."""
_MOST_CATCH_UP_S = 3600
"""Largest number of seconds to compute after a time without requests; older ones are skipped."""


@dataclass
class _Outage:
    """Outage, with times in UTC; it is in progress if it ends at the end of the last second."""

    cause: DishOutage.Cause.ValueType
    begin_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.begin_ns

    def message(self) -> DishOutage:
        return DishOutage(
            cause=self.cause,
            start_timestamp_ns=gps_of_utc_ns(self.begin_ns),
            duration_ns=self.length_ns,
        )


@dataclass
class _Rings:
    """Ring buffers of one value per second; `current` counts the seconds since boot."""

    length: int
    current: int = 0
    drop_rate: list[float] = field(init=False)
    latency_ms: list[float] = field(init=False)
    downlink_bps: list[float] = field(init=False)
    uplink_bps: list[float] = field(init=False)
    power_w: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.drop_rate = [0.0] * self.length
        self.latency_ms = [0.0] * self.length
        self.downlink_bps = [0.0] * self.length
        self.uplink_bps = [0.0] * self.length
        self.power_w = [0.0] * self.length

    def add(self, second: Second) -> None:
        place, before = self.current % self.length, (self.current - 1) % self.length
        lost = second.latency_ms is None
        # Without an answered ping, the previous latency is repeated, as in real terminals.
        self.latency_ms[place] = self.latency_ms[before] if lost else second.latency_ms or 0.0
        self.drop_rate[place] = second.drop_rate
        self.downlink_bps[place] = second.downlink_bps
        self.uplink_bps[place] = second.uplink_bps
        self.power_w[place] = _POWER_W
        self.current += 1

    @property
    def newest(self) -> int:
        return (self.current - 1) % self.length


class Terminal:
    """Emulated terminal whose measurements come from a feed.

    Args:
        feed: source of the measurements of each second.
        begin_ns: start of the feed's second 0, in ns since 1970 (UTC).
        seed: seed of the direction of the boresight.
        ring: length of the ring buffers in seconds.
        frame: frame of reference of the obstruction map.
    """

    def __init__(
        self,
        feed: Feed,
        begin_ns: int,
        *,
        seed: int = 1,
        ring: int = RING,
        frame: Frame = Frame.EARTH,
    ) -> None:
        self._feed = feed
        self._begin_ns = begin_ns
        self._boresight = Boresight(seed)
        self._frame = frame
        self._rings = _Rings(ring)
        self._consumed = 0
        self._boot_ns = begin_ns
        self._booted_at = 0
        self._bootcount = 1
        self._stowed = False
        self._outages: list[_Outage] = []
        self._map = unseen_map()
        self._seen_s = self._obstructed_s = 0
        self._last: Second | None = None
        self._set_frame()

    def status(self, now_ns: int) -> device_pb2.DishGetStatusResponse:
        """Return the status, with values of the last known second."""
        self._advance(now_ns)
        status = device_pb2.DishGetStatusResponse(
            device_info=self._info(),
            stow_requested=self._stowed,
            eth_speed_mbps=1000,
            is_snr_above_noise_floor=True,
            mobility_class=device_pb2.STATIONARY,
            class_of_service=device_pb2.CONSUMER,
            software_update_state=device_pb2.IDLE,
            has_actuators=device_pb2.HAS_ACTUATORS_NO,
            disablement_code=device_pb2.OKAY,
            has_signed_cals=True,
        )
        status.device_state.uptime_s = max(now_ns - self._boot_ns, 0) // SECOND_NS
        status.gps_stats.gps_valid = True
        status.gps_stats.gps_sats = 14
        status.alerts.SetInParent()
        for part in ("scp", "l1l2", "xphy", "aap", "rf"):
            setattr(status.ready_states, part, True)
        self._add_newest(status)
        self._add_pointing(status)
        self._add_obstructions(status)
        return status

    def history(self, now_ns: int) -> device_pb2.DishGetHistoryResponse:
        """Return ring buffers and outages; outages are in GPS time, and as events in Unix time."""
        self._advance(now_ns)
        rings = self._rings
        outages = [one for one in self._outages if one.length_ns >= _LEAST_OUTAGE_NS]
        log = device_pb2.EventLog(start_timestamp_ns=self._boot_ns, current_timestamp_ns=now_ns)
        log.events.extend(
            device_pb2.UXEvent(
                severity=device_pb2.EVENT_SEVERITY_CAUTION,
                reason=_reason(one.cause),
                start_timestamp_ns=one.begin_ns,
                duration_ns=one.length_ns,
            )
            for one in outages
        )
        return device_pb2.DishGetHistoryResponse(
            current=rings.current,
            pop_ping_drop_rate=rings.drop_rate,
            pop_ping_latency_ms=rings.latency_ms,
            downlink_throughput_bps=rings.downlink_bps,
            uplink_throughput_bps=rings.uplink_bps,
            power_in=rings.power_w,
            outages=[one.message() for one in outages],
            event_log=log,
        )

    def obstruction_map(self, now_ns: int) -> device_pb2.DishGetObstructionMapResponse:
        """Return the obstruction map; it has observations in directions of serving satellites."""
        self._advance(now_ns)
        return self._map

    def clear_obstruction_map(self, now_ns: int) -> None:
        """Delete all observations from the obstruction map."""
        self._advance(now_ns)
        self._map = unseen_map()
        self._seen_s = self._obstructed_s = 0
        self._set_frame()

    def reboot(self, now_ns: int) -> None:
        """Reboot: clear ring buffers and outages, and have no connection for `BOOT_S` seconds."""
        self._advance(now_ns)
        self._rings = _Rings(self._rings.length)
        self._outages, self._last = [], None
        self._boot_ns, self._booted_at = now_ns, self._consumed + BOOT_S
        begin_ns = self._consumed * SECOND_NS
        self._add_interruption(Interruption(begin_ns, begin_ns, DishOutage.BOOTING))
        self._bootcount += 1

    def stow(self, now_ns: int, *, stowed: bool) -> None:
        """Stow or unstow the terminal; a stowed terminal has no connection."""
        self._advance(now_ns)
        self._stowed = stowed

    def _advance(self, now_ns: int) -> None:
        """Process all seconds of the feed that are over and whose measurements are known."""
        over = (now_ns - self._begin_ns) // SECOND_NS
        if over - self._consumed > _MOST_CATCH_UP_S:
            self._rings.current += over - self._consumed - _MOST_CATCH_UP_S
            self._consumed = over - _MOST_CATCH_UP_S
        surely_known = over - self._feed.lag_s
        while self._consumed < over and (
            self._consumed < surely_known or self._feed.is_known(self._consumed)
        ):
            self._consume(self._offline(self._consumed) or self._feed.second(self._consumed))

    def _offline(self, index: int) -> Second | None:
        """Return the values of a second while booting or stowed; None if the terminal is online."""
        if index >= self._booted_at and not self._stowed:
            return None
        cause = DishOutage.STOWED if self._stowed else DishOutage.BOOTING
        whole = Interruption(index * SECOND_NS, (index + 1) * SECOND_NS, cause)
        return Second(drop_rate=1.0, latency_ms=None, interruptions=(whole,))

    def _consume(self, second: Second) -> None:
        self._rings.add(second)
        self._last = second
        for each in second.interruptions:
            self._add_interruption(each)
        del self._outages[:-_MOST_OUTAGES]
        if second.serving_deg is not None:
            self._add_observation(second)
        self._consumed += 1

    def _add_interruption(self, new: Interruption) -> None:
        begin_ns, end_ns = self._begin_ns + new.begin_ns, self._begin_ns + new.end_ns
        last = self._outages[-1] if self._outages else None
        if last is not None and last.cause == new.cause and last.end_ns >= begin_ns:
            last.end_ns = max(last.end_ns, end_ns)
            return
        if last is not None and last.length_ns < _LEAST_OUTAGE_NS:
            self._outages.pop()
        self._outages.append(_Outage(new.cause, begin_ns, end_ns))

    def _add_observation(self, second: Second) -> None:
        """Mark the serving satellite's direction in the map as clear or obstructed."""
        assert second.serving_deg is not None, "checked by the caller"
        self._seen_s += 1
        self._obstructed_s += second.obstructed
        place = self._grid().pixel(*second.serving_deg)
        if place is not None:
            row, column = place
            self._map.snr[row * self._map.num_cols + column] = 0.0 if second.obstructed else 1.0

    def _pointing(self) -> Pointing:
        return self._boresight.at(max(self._consumed - 1, 0))

    def _grid(self) -> Grid:
        pointing = self._pointing() if self._frame == Frame.TERMINAL else Pointing()
        return Grid(frame=self._frame, pointing=pointing)

    def _set_frame(self) -> None:
        is_earth = self._frame == Frame.EARTH
        self._map.map_reference_frame = device_pb2.FRAME_EARTH if is_earth else device_pb2.FRAME_UT

    def _info(self) -> device_pb2.DeviceInfo:
        return device_pb2.DeviceInfo(
            id="ut00000000-00000000-emulated",
            hardware_version="rev4_emulated",
            software_version="skyhop.emulated.release",
            country_code="US",
            bootcount=self._bootcount,
        )

    def _add_newest(self, status: device_pb2.DishGetStatusResponse) -> None:
        rings = self._rings
        if rings.current:
            status.pop_ping_drop_rate = rings.drop_rate[rings.newest]
            status.pop_ping_latency_ms = rings.latency_ms[rings.newest]
            status.downlink_throughput_bps = rings.downlink_bps[rings.newest]
            status.uplink_throughput_bps = rings.uplink_bps[rings.newest]
        newest_end_ns = self._begin_ns + self._consumed * SECOND_NS
        last = self._outages[-1] if self._outages else None
        if last is not None and last.end_ns >= newest_end_ns:
            status.pop_ping_drop_rate = status.pop_ping_drop_rate if rings.current else 1.0
            status.outage.CopyFrom(last.message())
            status.is_snr_above_noise_floor = False
            status.seconds_to_first_nonempty_slot = -1.0

    def _add_pointing(self, status: device_pb2.DishGetStatusResponse) -> None:
        pointing = self._pointing()
        elevation_deg = 90 - pointing.tilt_deg
        status.boresight_azimuth_deg = pointing.azimuth_deg
        status.boresight_elevation_deg = elevation_deg
        alignment = status.alignment_stats
        alignment.has_actuators = device_pb2.HAS_ACTUATORS_NO
        alignment.tilt_angle_deg = pointing.tilt_deg
        alignment.boresight_azimuth_deg = pointing.azimuth_deg
        alignment.boresight_elevation_deg = elevation_deg
        alignment.desired_boresight_azimuth_deg = 0.0
        alignment.desired_boresight_elevation_deg = 65.0
        alignment.attitude_estimation_state = device_pb2.FILTER_CONVERGED
        alignment.attitude_uncertainty_deg = 0.5
        # Rotation from north-east-down to the terminal's axes: first by azimuth, then by tilt.
        half, lean = math.radians(pointing.azimuth_deg) / 2, math.radians(pointing.tilt_deg) / 2
        quaternion = status.ned2dish_quaternion
        quaternion.q_scalar = math.cos(half) * math.cos(lean)
        quaternion.q_x = -math.sin(half) * math.sin(lean)
        quaternion.q_y = math.cos(half) * math.sin(lean)
        quaternion.q_z = math.sin(half) * math.cos(lean)

    def _add_obstructions(self, status: device_pb2.DishGetStatusResponse) -> None:
        seen = sum(value >= 0 for value in self._map.snr)
        dark = sum(value == 0 for value in self._map.snr)
        stats = status.obstruction_stats
        stats.fraction_obstructed = dark / seen if seen else 0.0
        stats.valid_s = self._seen_s
        stats.patches_valid = seen
        stats.time_obstructed = self._obstructed_s / self._seen_s if self._seen_s else 0.0
        stats.currently_obstructed = self._last is not None and self._last.obstructed
        long = [
            one
            for one in self._outages
            if one.cause == DishOutage.OBSTRUCTED and one.length_ns >= _PROLONGED_NS
        ]
        stats.avg_prolonged_obstruction_valid = bool(long)
        stats.avg_prolonged_obstruction_interval_s = math.nan
        if long:
            mean_ns = sum(one.length_ns for one in long) / len(long)
            stats.avg_prolonged_obstruction_duration_s = mean_ns / SECOND_NS
        if len(long) > 1:
            gaps_ns = [later.begin_ns - one.begin_ns for one, later in pairwise(long)]
            mean_ns = sum(gaps_ns) / len(gaps_ns)
            stats.avg_prolonged_obstruction_interval_s = mean_ns / SECOND_NS


def _reason(cause: DishOutage.Cause.ValueType) -> device_pb2.EventReason.ValueType:
    """Return the event log's reason for the cause of an outage."""
    name = f"EVENT_REASON_OUTAGE_{DishOutage.Cause.Name(cause)}"
    known = name in device_pb2.EventReason.keys()  # noqa: SIM118 (not a mapping)
    return device_pb2.EventReason.Value(name) if known else device_pb2.EVENT_REASON_OUTAGE_UNKNOWN
