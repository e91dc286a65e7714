"""LEOViz: GRPC_STATUS-*.csv, the terminal's status about once a second.

The importer also reads GetStatus-*.txt, a single answer as grpcurl prints it, whose time is in the
file's name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME, Sample
from skyhop.telemetry.gaps import last_full_second_ns
from skyhop.telemetry.importers.input_file import Importer, InputFile, Row, iso_ns

_COLUMNS = {
    "popPingLatencyMs": "pop_ping_latency_ms",
    "downlinkThroughputBps": "downlink_throughput_bps",
    "uplinkThroughputBps": "uplink_throughput_bps",
    "tiltAngleDeg": "tilt",
    "boresightAzimuthDeg": "direction_azimuth",
    "boresightElevationDeg": "direction_elevation",
    "attitudeUncertaintyDeg": "attitude_uncertainty",
}
_NAME = re.compile(r"(\d{4}-\d\d-\d\d)-(\d\d)-(\d\d)-(\d\d)")


def _samples(source: InputFile) -> Iterator[Sample]:
    if _is_answer(source):
        yield _answer(source)
        return
    if not {"timestamp", "popPingLatencyMs"} <= set(source.columns):
        raise source.wrong(1, "expected LEOViz' columns, timestamp and popPingLatencyMs among them")
    for row in source.rows():
        values = {ours: row.value(theirs) for theirs, ours in _COLUMNS.items()}
        yield {TIME: last_full_second_ns(row.time_ns("timestamp")), **values}


def _answer(source: InputFile) -> Sample:
    """Parse an answer to `get_status` as grpcurl prints it; grpcurl omits values 0 and false."""
    try:
        status = json.loads("\n".join(source.lines))["dishGetStatus"]
        inner = {**status, **status.get("alignmentStats", {})}
        stats, gps = status.get("obstructionStats", {}), status.get("gpsStats", {})
        alerts = [_snake(name) for name, is_on in status.get("alerts", {}).items() if is_on is True]
        uptime = status.get("deviceState", {}).get("uptimeS", "0")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(f"{source.file}: is not get_status as grpcurl prints it") from None
    row = Row(source, 1, {name: _text(inner, name) for name in _COLUMNS} | {"uptimeS": str(uptime)})
    sample: Sample = {ours: row.value(theirs) or 0.0 for theirs, ours in _COLUMNS.items()}
    more = Row(source, 1, {
        "drop": _text(status, "popPingDropRate"), "fraction": _text(stats, "fractionObstructed"),
        "valid": _text(stats, "validS"), "sats": _text(gps, "gpsSats"),
        "speed": _text(status, "ethSpeedMbps"),
    })  # fmt: skip
    return {
        TIME: last_full_second_ns(_time_ns(source)),
        **sample,
        "uptime_s": row.value("uptimeS"),
        "pop_ping_drop_rate": more.value("drop") or 0.0,
        "fraction_obstructed": more.value("fraction") or 0.0,
        "obstruction_valid_s": more.value("valid"),
        "gps_sats": round(more.value("sats") or 0),
        "eth_speed_mbps": more.value("speed"),
        "currently_obstructed": stats.get("currentlyObstructed") is True,
        "snr_above_noise": status.get("isSnrAboveNoiseFloor") is True,
        "gps_valid": gps.get("gpsValid") is True,
        "outage": "outage" in status,
        "state": "CONNECTED" if "outage" not in status else _cause(status["outage"]),
        "alerts": ",".join(alerts),
    }


def _text(content: Mapping[str, Any], name: str) -> str:
    return str(content.get(name, ""))


def _cause(outage: object) -> str:
    cause = str(outage.get("cause", "UNKNOWN")) if isinstance(outage, dict) else "UNKNOWN"
    return "SEARCHING" if cause == "NO_SCHEDULE" else cause


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", str(name)).lower()


def _time_ns(source: InputFile) -> int:
    found = _NAME.search(source.file.name)
    named_ns = iso_ns(f"{found[1]}T{found[2]}:{found[3]}:{found[4]}Z") if found else None
    at_ns = source.options.start_ns if source.options.start_ns is not None else named_ns
    if at_ns is None:
        raise InputError(f"{source.file}: neither the file nor its name says when: give --start")
    return at_ns


def _is_answer(source: InputFile) -> bool:
    return source.lines[0].lstrip().startswith("{")


FORMAT = Importer(
    "leoviz",
    "LEOViz: GRPC_STATUS-*.csv, and GetStatus-*.txt (one answer, as grpcurl prints it)",
    lambda source: (
        {"timestamp", "popPingLatencyMs"} <= set(source.columns)
        or (_is_answer(source) and any("dishGetStatus" in line for line in source.head))
    ),
    _samples,
)
