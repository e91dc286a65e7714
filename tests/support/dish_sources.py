"""Emulated terminals for tests: their answers, and a clock that a test sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import starlink_grpc

from skyhop_lab.dish.device import Device, Place
from skyhop_lab.dish.feed import AnswerSource, Interruption, Second
from skyhop_lab.dish.server import Server
from skyhop_testbed.dish import device_pb2
from skyhop_testbed.dish.device_pb2 import DishOutage

S = 10**9
BEGIN_NS = 1_800_000_000 * S
PATIENCE_S = 20


def recorded_history(current: int = 13, ring: int = 8) -> device_pb2.DishGetHistoryResponse:
    """Return a history in which every value encodes its second."""
    history = device_pb2.DishGetHistoryResponse(current=current)
    seconds = [0] * ring
    for second in range(max(current - ring, 0), current):
        seconds[second % ring] = second
    history.pop_ping_drop_rate.extend(1.0 if second % 5 == 0 else 0.0 for second in seconds)
    history.pop_ping_latency_ms.extend(30.25 + second for second in seconds)
    history.downlink_throughput_bps.extend(1e6 + second for second in seconds)
    history.uplink_throughput_bps.extend(1e5 + second for second in seconds)
    history.power_in.extend(40.5 + second for second in seconds)
    for cause in (DishOutage.NO_SATS, DishOutage.OBSTRUCTED):
        history.outages.append(
            DishOutage(
                cause=cause,
                start_timestamp_ns=1_399_258_788_500_715_800 + cause,
                duration_ns=820_049_309,
                did_switch=cause == DishOutage.OBSTRUCTED,
            )
        )
    return history


def recorded_status() -> device_pb2.DishGetStatusResponse:
    """Return a status with all fields that skyhop reads."""
    status = device_pb2.DishGetStatusResponse(
        pop_ping_drop_rate=0.25,
        pop_ping_latency_ms=26.808062,
        downlink_throughput_bps=74222.41,
        uplink_throughput_bps=54291.07,
        boresight_azimuth_deg=-10.603605,
        boresight_elevation_deg=72.13238,
        seconds_to_first_nonempty_slot=1.5,
        eth_speed_mbps=1000,
        is_snr_above_noise_floor=True,
        is_snr_persistently_low=True,
        has_actuators=device_pb2.HAS_ACTUATORS_YES,
        disablement_code=device_pb2.IN_OCEAN,
    )
    status.device_info.id = "ut-1"
    status.device_info.hardware_version = "rev9"
    status.device_info.software_version = "2026.1"
    status.device_state.uptime_s = 6328
    status.obstruction_stats.fraction_obstructed = 0.13378248
    status.obstruction_stats.valid_s = 3135
    status.obstruction_stats.currently_obstructed = True
    status.obstruction_stats.avg_prolonged_obstruction_duration_s = 6.5
    status.obstruction_stats.avg_prolonged_obstruction_interval_s = 396.5
    status.alerts.roaming = status.alerts.upsu_router_port_slow = True
    status.gps_stats.gps_valid = True
    status.gps_stats.gps_sats = 5
    status.alignment_stats.tilt_angle_deg = 17.91243
    status.alignment_stats.attitude_uncertainty_deg = 2.170362
    status.config.power_save_start_minutes = 30
    return status


@dataclass
class Clock:
    """Clock that a test sets."""

    now_ns: int = BEGIN_NS

    def __call__(self) -> int:
        """Return the time that the test has set."""
        return self.now_ns


@contextmanager
def served(
    source: AnswerSource, place: Place | None = None, clock: Clock | None = None
) -> Iterator[str]:
    """Serve an emulated terminal with a source; yield its address."""
    with Server(Device(source, place), "127.0.0.1:0", clock or Clock()) as server:
        yield server.address


@contextmanager
def context(address: str) -> Iterator[starlink_grpc.ChannelContext]:
    """Yield starlink-grpc-core's context of a terminal."""
    found = starlink_grpc.ChannelContext(address)
    try:
        yield found
    finally:
        found.close()


NUMBERS = {
    "Request": {
        "reboot": 1001, "get_status": 1004, "get_history": 1007, "get_device_info": 1008,
        "get_location": 1017, "dish_stow": 2002, "dish_get_context": 2003,
        "dish_get_obstruction_map": 2008, "dish_get_config": 2011, "dish_power_save": 2013,
        "dish_inhibit_gps": 2014, "dish_clear_obstruction_map": 2017, "get_diagnostics": 6000,
    },
    "Response": {
        "dish_get_status": 2004, "dish_get_history": 2006, "dish_get_obstruction_map": 2008,
        "dish_clear_obstruction_map": 2015, "get_location": 1017, "get_device_info": 1004,
        "dish_get_config": 2011, "dish_inhibit_gps": 2013, "dish_get_diagnostics": 6001,
    },
    "DishGetStatusResponse": {
        "device_info": 1, "device_state": 2, "seconds_to_first_nonempty_slot": 1002,
        "pop_ping_drop_rate": 1003, "obstruction_stats": 1004, "alerts": 1005,
        "downlink_throughput_bps": 1007, "uplink_throughput_bps": 1008,
        "pop_ping_latency_ms": 1009, "boresight_azimuth_deg": 1011,
        "boresight_elevation_deg": 1012, "outage": 1014, "gps_stats": 1015,
        "eth_speed_mbps": 1016, "is_snr_above_noise_floor": 1018,
        "is_snr_persistently_low": 1022, "alignment_stats": 1027, "ned2dish_quaternion": 1049,
    },
    "DishGetHistoryResponse": {
        "current": 1, "pop_ping_drop_rate": 1001, "pop_ping_latency_ms": 1002,
        "downlink_throughput_bps": 1003, "uplink_throughput_bps": 1004, "outages": 1009,
        "power_in": 1010, "event_log": 1011,
    },
    "DishObstructionStats": {
        "fraction_obstructed": 1, "valid_s": 4, "currently_obstructed": 5,
        "avg_prolonged_obstruction_duration_s": 6, "avg_prolonged_obstruction_interval_s": 7,
        "time_obstructed": 9, "patches_valid": 10,
    },
    "AlignmentStats": {
        "tilt_angle_deg": 3, "boresight_azimuth_deg": 4, "boresight_elevation_deg": 5,
        "attitude_uncertainty_deg": 7, "desired_boresight_azimuth_deg": 8,
        "desired_boresight_elevation_deg": 9,
    },
    "DishGetObstructionMapResponse": {
        "num_rows": 1, "num_cols": 2, "snr": 3, "min_elevation_deg": 4, "max_theta_deg": 5,
        "map_reference_frame": 6,
    },
    "DishOutage": {"cause": 1, "start_timestamp_ns": 2, "duration_ns": 3, "did_switch": 4},
}  # fmt: skip
"""Numbers of protobuf fields, by message, as observed in real terminals."""


MADE_UP = {
    "dishGetHistory": {
        "current": "7",
        "popPingDropRate": [0, 0.06666667, 1],
        "popPingLatencyMs": [29.5, 30.25, "31"],
        "downlinkThroughputBps": [1e6, 2e6, 3e6],
        "uplinkThroughputBps": [1e5, 2e5, 3e5],
        "powerIn": [40, 41, 42],
        "outages": [
            {
                "cause": "NO_PINGS",
                "startTimestampNs": "1399258788500715800",
                "durationNs": "820049309",
                "didSwitch": True,
            }
        ],
        "eventLog": {"events": [{"reason": "EVENT_REASON_OUTAGE_NO_PINGS", "durationNs": "1"}]},
    }
}


@dataclass
class Steady:
    """Feed in which second n has a latency of n + 10 ms, and some seconds are lost."""

    lost: Sequence[int] | set[int] = ()
    serving_deg: tuple[float, float] | None = None
    lag_s: int = 0

    def is_known(self, _index: int) -> bool:
        """Return true: every second is known at its end."""
        return True

    def second(self, index: int) -> Second:
        """Return second `index` of the feed."""
        if index in self.lost:
            whole = Interruption(index * S, (index + 1) * S, DishOutage.NO_SATS)
            return Second(1.0, None, interruptions=(whole,))
        return Second(0.0, index + 10.0, 2e6, 1e6, serving_deg=self.serving_deg)
