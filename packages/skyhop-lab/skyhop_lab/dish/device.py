"""Request handlers of an emulated terminal; they refuse requests as real terminals do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from skyhop.telemetry.gps import SECOND_NS
from skyhop_lab.dish.feed import AnswerSource
from skyhop_testbed.dish import device_pb2
from skyhop_testbed.dish.device_pb2 import Request, Response

API_VERSION = 17

_DAY_MINUTES = 24 * 60
_SIGMA_M = 5.0
_SLOT_S, _SLOT_OFFSET_S = 15, 12


class Refusal(Enum):
    """Reason why a terminal refuses a request, as a gRPC status code."""

    PERMISSION_DENIED = "PERMISSION_DENIED"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"


class RefusedError(Exception):
    """Refusal of a request, with gRPC status code and message."""

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal


@dataclass(frozen=True)
class Place:
    """Position that the emulated terminal reports."""

    latitude_deg: float
    longitude_deg: float
    altitude_m: float = 0.0


class Device:
    """Emulated terminal: dispatches requests to their handlers.

    Args:
        source: source of status, history and obstruction map.
        place: position to report; without one, requests for the position are refused.
    """

    def __init__(self, source: AnswerSource, place: Place | None = None) -> None:
        self._source = source
        self._place = place
        self._config: device_pb2.DishConfig | None = None
        self._inhibit_gps: bool | None = None
        self._handlers: dict[str, Callable[[Request, Response, int], None]] = {
            "reboot": self._reboot,
            "get_status": self._get_status,
            "get_history": self._get_history,
            "get_device_info": self._get_device_info,
            "get_location": self._get_location,
            "get_diagnostics": self._get_diagnostics,
            "dish_stow": self._stow,
            "dish_get_context": self._get_context,
            "dish_get_obstruction_map": self._get_map,
            "dish_clear_obstruction_map": self._clear_map,
            "dish_get_config": self._get_config,
            "dish_power_save": self._power_save,
            "dish_inhibit_gps": self._set_gps,
        }

    def handle(self, request: Request, now_ns: int) -> Response:
        """Return the answer to a request.

        Raises:
            RefusedError: the request is not known, not allowed, or has invalid values.
        """
        what = request.WhichOneof("request")
        if what is None:
            raise RefusedError(Refusal.UNIMPLEMENTED, "Unimplemented: request is not known")
        response = Response(id=request.id, api_version=API_VERSION)
        response.status.SetInParent()
        self._handlers[what](request, response, now_ns)
        return response

    def tick(self, now_ns: int) -> None:
        """Advance the source to this time, so that the next request takes less work."""
        self._source.status(now_ns)

    def _status(self, now_ns: int) -> device_pb2.DishGetStatusResponse:
        status = self._source.status(now_ns)
        status.config.CopyFrom(self._present_config(status))
        if self._inhibit_gps is not None:
            status.gps_stats.inhibit_gps = self._inhibit_gps
        return status

    def _present_config(self, status: device_pb2.DishGetStatusResponse) -> device_pb2.DishConfig:
        """Return the current configuration; initially, that in the source's status."""
        if self._config is None:
            self._config = device_pb2.DishConfig()
            self._config.CopyFrom(status.config)
        return self._config

    def _get_status(self, _: Request, response: Response, now_ns: int) -> None:
        response.dish_get_status.CopyFrom(self._status(now_ns))

    def _get_history(self, _: Request, response: Response, now_ns: int) -> None:
        response.dish_get_history.CopyFrom(self._source.history(now_ns))

    def _get_device_info(self, _: Request, response: Response, now_ns: int) -> None:
        response.get_device_info.device_info.CopyFrom(self._source.status(now_ns).device_info)

    def _get_diagnostics(self, _: Request, response: Response, now_ns: int) -> None:
        info = self._source.status(now_ns).device_info
        response.dish_get_diagnostics.id = info.id
        response.dish_get_diagnostics.hardware_version = info.hardware_version
        response.dish_get_diagnostics.software_version = info.software_version

    def _get_location(self, request: Request, response: Response, now_ns: int) -> None:  # noqa: ARG002
        if self._place is None:
            raise RefusedError(Refusal.PERMISSION_DENIED, "GetLocation requests are not enabled")
        location = response.get_location
        location.lla.lat = self._place.latitude_deg
        location.lla.lon = self._place.longitude_deg
        location.lla.alt = self._place.altitude_m
        location.source = device_pb2.GNC_FUSED
        location.sigma_m = _SIGMA_M

    def _get_context(self, _: Request, response: Response, now_ns: int) -> None:
        status, context = self._source.status(now_ns), response.dish_get_context
        context.device_info.CopyFrom(status.device_info)
        context.device_state.CopyFrom(status.device_state)
        context.obstruction_fraction = status.obstruction_stats.fraction_obstructed
        context.obstruction_valid_s = status.obstruction_stats.valid_s
        context.obstruction_current = status.obstruction_stats.currently_obstructed
        context.obstruction_time = status.obstruction_stats.time_obstructed
        context.disablement_code = status.disablement_code
        in_slot_s = (now_ns / SECOND_NS - _SLOT_OFFSET_S) % _SLOT_S
        context.seconds_to_slot_end = _SLOT_S - in_slot_s
        context.pop_ping_drop_rate_15s_mean, context.pop_ping_latency_ms_15s_mean = _means(
            self._source.history(now_ns)
        )

    def _get_map(self, _: Request, response: Response, now_ns: int) -> None:
        response.dish_get_obstruction_map.CopyFrom(self._source.obstruction_map(now_ns))

    def _clear_map(self, _: Request, response: Response, now_ns: int) -> None:
        self._source.clear_obstruction_map(now_ns)
        response.dish_clear_obstruction_map.SetInParent()

    def _reboot(self, _: Request, response: Response, now_ns: int) -> None:
        self._source.reboot(now_ns)
        response.reboot.SetInParent()

    def _stow(self, request: Request, response: Response, now_ns: int) -> None:
        self._source.stow(now_ns, stowed=not request.dish_stow.unstow)
        response.dish_stow.SetInParent()

    def _get_config(self, _: Request, response: Response, now_ns: int) -> None:
        config = self._present_config(self._source.status(now_ns))
        response.dish_get_config.dish_config.CopyFrom(config)

    def _power_save(self, request: Request, response: Response, now_ns: int) -> None:  # noqa: ARG002
        """Store the times of power saving, without effect: the emulated terminal never sleeps."""
        wanted = request.dish_power_save
        if wanted.power_save_start_minutes >= _DAY_MINUTES:
            raise RefusedError(Refusal.INVALID_ARGUMENT, "invalid start: not within a day")
        if not 0 < wanted.power_save_duration_minutes <= _DAY_MINUTES:
            raise RefusedError(Refusal.INVALID_ARGUMENT, "invalid duration: expected 1 to 1440")
        config = self._present_config(self._source.status(now_ns))
        config.power_save_start_minutes = wanted.power_save_start_minutes
        config.power_save_duration_minutes = wanted.power_save_duration_minutes
        config.power_save_mode = wanted.enable_power_save

    def _set_gps(self, request: Request, response: Response, now_ns: int) -> None:  # noqa: ARG002
        self._inhibit_gps = request.dish_inhibit_gps.inhibit_gps
        response.dish_inhibit_gps.inhibit_gps = self._inhibit_gps


def _means(history: device_pb2.DishGetHistoryResponse) -> tuple[float, float]:
    """Return the mean drop rate and the mean latency (ms) over the last 15 s."""
    ring = len(history.pop_ping_drop_rate)
    newest = range(history.current - min(history.current, ring, _SLOT_S), history.current)
    if not newest:
        return 0.0, 0.0
    drops = [history.pop_ping_drop_rate[second % ring] for second in newest]
    latencies_ms = [history.pop_ping_latency_ms[second % ring] for second in newest]
    return sum(drops) / len(drops), sum(latencies_ms) / len(latencies_ms)
