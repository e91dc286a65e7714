"""Tables of users' own programs, as CSV: a time, and columns with the names of telemetry's fields.

`skyhop telemetry show --csv` writes such a table. Its `time_ns` is the end of the second; its rows
are kept as they are. Rows with another time are averaged over seconds; flags and text take their
last value within the second. Some short names of columns are known, too. A latency of 0 or less
means that no ping was answered.
"""

from __future__ import annotations

from collections.abc import Iterator

from skyhop.telemetry.fields import BY_NAME, TIME, Sample, Type, Value
from skyhop.telemetry.importers.input_file import (
    Importer,
    InputFile,
    Row,
    SecondMeans,
    end_of_second,
)

_CLOCKS = (TIME, "unix_ns", "unix_ms", "unix_s", "utc_ts", "datetime", "timestamp", "time")
_SHORT = {
    "latency_ms": "pop_ping_latency_ms",
    "drop_rate": "pop_ping_drop_rate",
    "down_bps": "downlink_throughput_bps",
    "up_bps": "uplink_throughput_bps",
    "azimuth_deg": "direction_azimuth",
    "elevation_deg": "direction_elevation",
    "rtt_ms": "probe_rtt_ms",
}
"""Fields by short names of columns."""
_LATENCIES = ("pop_ping_latency_ms", "probe_rtt_ms")
_NODE = "node"


def _samples(source: InputFile) -> Iterator[Sample]:
    clock, fields = _clock(source), _fields(source)
    if clock is None or not fields:
        raise source.wrong(
            1, f"expected names of columns: {TIME}, unix_s or time, and fields of telemetry"
        )
    rows = _rows_of_one_node(source)
    if clock == TIME:
        for row in rows:
            values: Sample = {ours: _value(row, theirs, ours) for theirs, ours in fields.items()}
            yield {TIME: row.time_ns(clock), **_known(values)}
        return
    yield from _means(rows, clock, fields)


def _means(rows: Iterator[Row], clock: str, fields: dict[str, str]) -> Iterator[Sample]:
    """Yield the sample of each second, from rows in the order of their times."""
    seconds = SecondMeans()
    others: dict[int, Sample] = {}
    for row in rows:
        at_ns = row.time_ns(clock)
        means: dict[str, float | None] = {}
        last: Sample = {}
        for theirs, ours in fields.items():
            value = _value(row, theirs, ours)
            if BY_NAME[ours].type is not Type.NUMBER:
                last[ours] = value
            else:
                means[ours] = None if value is None else float(value)
        for sample in seconds.add(at_ns, means):
            yield {**sample, **others.pop(int(sample[TIME] or 0), {})}
        if known := _known(last):
            others.setdefault(end_of_second(at_ns), {}).update(known)
    for sample in seconds.flush():
        yield {**sample, **others.pop(int(sample[TIME] or 0), {})}
    # Seconds without any number.
    for at_ns, known in others.items():
        yield {TIME: at_ns, **known}


def _known(values: Sample) -> Sample:
    """Return a sample without the unknown values."""
    return {name: value for name, value in values.items() if value is not None}


def _value(row: Row, theirs: str, ours: str) -> Value:
    """Return a cell as the value of a field; None if it is empty or stands for no answer."""
    kind = BY_NAME[ours].type
    if kind is Type.TEXT:
        return row.text(theirs)
    if kind is Type.BOOLEAN:
        return row.flag(theirs)
    value = row.value(theirs)
    if value is None or (ours in _LATENCIES and value <= 0):
        return None
    return round(value) if kind is Type.INTEGER else value


def _rows_of_one_node(source: InputFile) -> Iterator[Row]:
    """Yield the rows of a table, which may name the node: only one, as its samples merge."""
    node: str | None = None
    for row in source.rows():
        if _NODE in row.cells:
            named = row.text(_NODE)
            if node is not None and named != node:
                raise row.wrong(f'is of the node "{named}", and others of "{node}": import one')
            node = named
        yield row


def _clock(source: InputFile) -> str | None:
    """Return the column of the time."""
    return next((name for name in _CLOCKS if name in source.columns), None)


def _fields(source: InputFile) -> dict[str, str]:
    """Return the fields of a table by its columns."""
    names = {name: _SHORT.get(name, name) for name in source.columns}
    return {theirs: ours for theirs, ours in names.items() if ours in BY_NAME}


def _is_table(source: InputFile) -> bool:
    """Return whether a file has a time and a field other than a round trip, as `rtt` has it."""
    return _clock(source) is not None and bool(set(_fields(source)) - {"rtt_ms"})


FORMAT = Importer(
    "table",
    "CSV of your own: a time (time_ns, unix_s, time, …) and columns named as the fields above",
    _is_table,
    _samples,
    basis="code",
    is_general=True,
)
