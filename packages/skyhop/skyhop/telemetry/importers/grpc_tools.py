"""starlink-grpc-tools: output of `dish_grpc_text.py status` or `bulk_history`, with header line.

Fields are those of starlink-grpc-core; times are UTC without a zone. A row of a terminal that did
not answer has four cells, the last of which is DISH_UNREACHABLE.
"""

from __future__ import annotations

from collections.abc import Iterator

from skyhop.telemetry.fields import ALERTS, TIME, UNREACHABLE, Sample
from skyhop.telemetry.gaps import last_full_second_ns
from skyhop.telemetry.importers.input_file import Importer, InputFile, Row

CLOCK = "datetimestamp_utc"

_NUMBERS = {
    "uptime": "uptime_s",
    "seconds_to_first_nonempty_slot": "seconds_to_first_nonempty_slot",
    "pop_ping_drop_rate": "pop_ping_drop_rate",
    "pop_ping_latency_ms": "pop_ping_latency_ms",
    "downlink_throughput_bps": "downlink_throughput_bps",
    "uplink_throughput_bps": "uplink_throughput_bps",
    "fraction_obstructed": "fraction_obstructed",
    "valid_s": "obstruction_valid_s",
    "direction_azimuth": "direction_azimuth",
    "direction_elevation": "direction_elevation",
    "gps_sats": "gps_sats",
    "power_w": "power_w",
}
_FLAGS = {
    "currently_obstructed": "currently_obstructed",
    "obstructed": "currently_obstructed",
    "is_snr_above_noise_floor": "snr_above_noise",
    "gps_ready": "gps_valid",
}


def samples(source: InputFile) -> Iterator[Sample]:
    """Yield the samples of a file, one per row."""
    if CLOCK not in source.columns:
        raise source.wrong(1, f"expected names of columns, {CLOCK} among them (option -H)")
    for row in source.rows():
        time_ns = last_full_second_ns(row.time_ns(CLOCK))
        if UNREACHABLE in row.cells.values():
            yield {TIME: time_ns, "state": UNREACHABLE}
        elif row.length < len(source.columns):
            raise row.wrong(f"has {row.length} cells, expected {len(source.columns)}")
        else:
            yield {TIME: time_ns, **_values(row)}


def _values(row: Row) -> Sample:
    values: Sample = {"state": row.text("state")}
    for theirs, ours in _NUMBERS.items():
        values[ours] = row.value(theirs)
    for theirs, ours in _FLAGS.items():
        if row.text(theirs) is not None:
            values[ours] = row.flag(theirs)
    if values["gps_sats"] is not None:
        values["gps_sats"] = int(row.needed("gps_sats"))
    values["alerts"] = _alerts(row)
    return {name: value for name, value in values.items() if value is not None}


def _alerts(row: Row) -> str | None:
    """Return the names of active alerts, from a column of bits or from a column per alert."""
    single = [name for name in row.cells if name.startswith("alert_")]
    bits = row.value("alerts")
    if bits is not None:
        if not 0 <= bits < 2**53 or bits != int(bits):
            raise row.wrong(f"alerts: expected bits, not {bits:g}")
        on = [name for bit, name in enumerate(ALERTS) if int(bits) >> bit & 1]
    elif single:
        on = [name.removeprefix("alert_") for name in single if row.flag(name)]
    else:
        return None
    return ",".join(on)


FORMAT = Importer(
    "grpc-tools",
    "starlink-grpc-tools: CSV of dish_grpc_text.py status or bulk_history, with its head (-H)",
    lambda source: CLOCK in source.columns and source.file.name != "grpc.csv",
    samples,
    basis="code",
)
