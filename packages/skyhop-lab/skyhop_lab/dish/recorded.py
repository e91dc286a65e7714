"""Replay of recorded answers: first as recorded, then with their seconds repeated.

If the n seconds of a ring buffer repeat again and again, its content never changes. Only `current`
advances, so that the newest value moves through the ring buffer.
"""

from __future__ import annotations

from skyhop.telemetry.gps import SECOND_NS, gps_of_utc_ns
from skyhop.telemetry.obstruction import MAX_THETA_DEG, MIN_ELEVATION_DEG, SIDE
from skyhop_testbed.dish import device_pb2
from skyhop_testbed.dish.device_pb2 import DishOutage

_RINGS = (
    ("pop_ping_drop_rate", "pop_ping_drop_rate"),
    ("pop_ping_latency_ms", "pop_ping_latency_ms"),
    ("downlink_throughput_bps", "downlink_throughput_bps"),
    ("uplink_throughput_bps", "uplink_throughput_bps"),
)


def unseen_map() -> device_pb2.DishGetObstructionMapResponse:
    """Return an obstruction map without observations."""
    return device_pb2.DishGetObstructionMapResponse(
        num_rows=SIDE,
        num_cols=SIDE,
        snr=[-1.0] * (SIDE * SIDE),
        min_elevation_deg=MIN_ELEVATION_DEG,
        max_theta_deg=MAX_THETA_DEG,
        map_reference_frame=device_pb2.FRAME_EARTH,
    )


class RecordedAnswers:
    """Source of answers that replays recorded ones.

    Args:
        begin_ns: start of the replay in ns since 1970 (UTC); in its first second, answers are
            exactly as recorded.
        status: the recorded status.
        history: the recorded history; without it, the status does not change.
        seen: the recorded obstruction map; without it, the map has no observations.
    """

    def __init__(
        self,
        begin_ns: int,
        status: device_pb2.DishGetStatusResponse,
        history: device_pb2.DishGetHistoryResponse | None = None,
        seen: device_pb2.DishGetObstructionMapResponse | None = None,
    ) -> None:
        self._begin_ns = begin_ns
        self._status = status
        self._history = device_pb2.DishGetHistoryResponse() if history is None else history
        self._map = unseen_map() if seen is None else seen
        self._current = self._history.current
        self._uptime_s = status.device_state.uptime_s
        self._stowed_ns: int | None = None

    def status(self, now_ns: int) -> device_pb2.DishGetStatusResponse:
        """Return the recorded status; after the first second, with values from the ring buffers."""
        status = device_pb2.DishGetStatusResponse()
        status.CopyFrom(self._status)
        elapsed_s = self._elapsed_s(now_ns)
        status.device_state.uptime_s = self._uptime_s + elapsed_s
        ring, current = len(self._history.pop_ping_drop_rate), self._current + elapsed_s
        if elapsed_s and ring and current:
            for name, ring_name in _RINGS:
                values = getattr(self._history, ring_name)
                if values:
                    setattr(status, name, values[(current - 1) % ring])
        if self._stowed_ns is not None:
            status.stow_requested = True
            status.pop_ping_drop_rate = 1.0
            status.outage.CopyFrom(
                DishOutage(
                    cause=DishOutage.STOWED,
                    start_timestamp_ns=gps_of_utc_ns(self._stowed_ns),
                    duration_ns=max(now_ns - self._stowed_ns, 0),
                )
            )
        return status

    def history(self, now_ns: int) -> device_pb2.DishGetHistoryResponse:
        """Return the recorded history; `current` is advanced by the seconds since the start."""
        history = device_pb2.DishGetHistoryResponse()
        history.CopyFrom(self._history)
        history.current = self._current + self._elapsed_s(now_ns)
        return history

    def obstruction_map(self, now_ns: int) -> device_pb2.DishGetObstructionMapResponse:  # noqa: ARG002
        """Return the recorded obstruction map."""
        return self._map

    def clear_obstruction_map(self, now_ns: int) -> None:  # noqa: ARG002
        """Replace the recorded map by one without observations."""
        self._map = unseen_map()

    def reboot(self, now_ns: int) -> None:
        """Restart the counters of seconds from 0, and delete the recorded outages."""
        self._begin_ns, self._current, self._uptime_s = now_ns, 0, 0
        del self._history.outages[:]
        self._history.ClearField("event_log")

    def stow(self, now_ns: int, *, stowed: bool) -> None:
        """Stow or unstow the terminal; while stowed, the status has a STOWED outage."""
        self._stowed_ns = now_ns if stowed else None

    def _elapsed_s(self, now_ns: int) -> int:
        return max(now_ns - self._begin_ns, 0) // SECOND_NS
