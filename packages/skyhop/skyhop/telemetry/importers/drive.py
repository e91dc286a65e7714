"""Satellite-vs-Cellular: UDP or TCP throughput per second, from a moving car.

Files are either as published, `time,throughput,speed,...` with times such as "2023-04-12 10:40:20
CDT" and throughput in Mbit/s, or have the columns `segment,unix_s,mbps,speed`. The flow filled the
link, so its rate is a capacity. The direction is taken from the file's name or the options.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from skyhop.telemetry.fields import TIME, Sample
from skyhop.telemetry.importers.input_file import (
    LATEST_NS,
    SECOND_NS,
    Importer,
    InputFile,
    Row,
    end_of_second,
    iso_ns,
)
from skyhop.telemetry.importers.mahimahi import capacity

_OFFSETS_H = {
    "UTC": 0, "EDT": -4, "EST": -5, "CDT": -5, "CST": -6, "MDT": -6, "MST": -7, "PDT": -7,
    "PST": -8,
}  # fmt: skip
_LOCAL = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) ([A-Z]{3})")
_MADE, _PUBLISHED = {"unix_s", "mbps"}, {"time", "throughput", "speed"}


def _samples(source: InputFile) -> Iterator[Sample]:
    columns = set(source.columns)
    if not (columns >= _MADE or columns >= _PUBLISHED):
        raise source.wrong(1, "expected segment,unix_s,mbps,speed or time,throughput,speed,...")
    name, rate = capacity(source), "mbps" if columns >= _MADE else "throughput"
    for row in source.rows():
        at_ns = row.time_ns("unix_s") if columns >= _MADE else _local_ns(row)
        mbps = row.value(rate)
        if mbps is not None and mbps < 0:
            raise row.wrong(f"{rate}: {mbps:g} is less than 0")
        yield {TIME: end_of_second(at_ns), name: None if mbps is None else mbps * 1e6}


def _local_ns(row: Row) -> int:
    text = row.text("time") or ""
    found = _LOCAL.fullmatch(text)
    local_ns = iso_ns(found[1]) if found else None
    if found is None or local_ns is None or found[2] not in _OFFSETS_H:
        raise row.wrong(f'time: expected such as "2023-04-12 10:40:20 CDT", not "{text[:40]}"')
    at_ns = local_ns - _OFFSETS_H[found[2]] * 3600 * SECOND_NS
    if not 0 <= at_ns < LATEST_NS:
        raise row.wrong(f'time: "{text}" is no time between 1970 and 2100')
    return at_ns


FORMAT = Importer(
    "drive",
    "Satellite-vs-Cellular: throughput per second from a moving car",
    lambda source: set(source.columns) >= _MADE or set(source.columns) >= _PUBLISHED,
    _samples,
)
