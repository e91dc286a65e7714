"""starlink-grpc-tools: output of `dish_grpc_text.py` with its header line; tables of its SQLite.

Fields are those of starlink-grpc-core; times are UTC without a zone, or seconds since 1970. A row
of a terminal that did not answer has four cells, the last of which is DISH_UNREACHABLE. A row of
statistics of the history (`ping_drop`, `ping_latency`, `usage`, `power`) is of the seconds up to
its time: its means count in each of these. Tables of SQLite are read from an export as CSV.
"""

from __future__ import annotations

from collections.abc import Iterator

from skyhop.telemetry.fields import ALERTS, TIME, UNREACHABLE, Sample
from skyhop.telemetry.gaps import SECOND_NS, last_full_second_ns
from skyhop.telemetry.importers.input_file import Importer, InputFile, Row

CLOCK = "datetimestamp_utc"
_TABLE_CLOCK, _TABLE_ID = "time", "id"
"""Columns of each table of its SQLite database."""
_SAMPLES = "samples"
_STATISTICS = {
    "mean_all_ping_latency": ("pop_ping_latency_ms", None),
    "total_ping_drop": ("pop_ping_drop_rate", 1.0),
    "download_usage": ("downlink_throughput_bps", 8.0),
    "upload_usage": ("uplink_throughput_bps", 8.0),
    "mean_power": ("power_w", None),
}
"""Statistics of some seconds: the field, and the factor of a sum, which the seconds divide."""
_LONGEST_S = 86_400
"""Largest number of seconds of a statistic; the longest history has 43,200."""

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
    clock = _clock(source)
    if clock is None:
        raise source.wrong(1, f"expected names of columns, {CLOCK} among them (option -H)")
    last_ns = 0
    for row in source.rows():
        time_ns = last_full_second_ns(row.time_ns(clock))
        if UNREACHABLE in row.cells.values():
            yield {TIME: time_ns, "state": UNREACHABLE}
        elif row.length < len(source.columns):
            raise row.wrong(f"has {row.length} cells, expected {len(source.columns)}")
        else:
            means, seconds = _statistics(row)
            first_ns = max(last_ns, time_ns - seconds * SECOND_NS) + SECOND_NS
            for earlier_ns in range(first_ns, time_ns, SECOND_NS):
                yield {TIME: earlier_ns, **means}
            yield {TIME: time_ns, **_values(row), **means}
        last_ns = time_ns


def _clock(source: InputFile) -> str | None:
    """Return the column of the time, None in a table of another program."""
    columns = set(source.columns)
    if CLOCK in columns:
        return CLOCK
    is_table = columns >= {_TABLE_CLOCK, _TABLE_ID} and not columns.isdisjoint(
        {*_NUMBERS, *_STATISTICS}
    )
    return _TABLE_CLOCK if is_table else None


def _statistics(row: Row) -> tuple[Sample, int]:
    """Return the means of the seconds before a row's time, and the number of seconds."""
    if not any(name in row.cells for name in _STATISTICS):
        return {}, 1
    # The table of usage in the database has no number of seconds.
    seconds = row.value(_SAMPLES)
    if seconds is None or not 0 < seconds <= _LONGEST_S:
        return {}, 1
    means: Sample = {}
    for theirs, (ours, factor) in _STATISTICS.items():
        value = row.value(theirs)
        if value is not None:
            means[ours] = value if factor is None else value * factor / seconds
    note = "means of several seconds, which count in each of them"
    if seconds > 1 and means and note not in row.source.notes:
        row.source.notes.append(note)
    return means, int(seconds)


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
    "starlink-grpc-tools: CSV of dish_grpc_text.py with its head (-H), or of a table of its SQLite",
    lambda source: _clock(source) is not None and source.file.name != "grpc.csv",
    samples,
    basis="code",
)
