"""Starlink on the Autobahn: throughput.csv (iperf3 in both directions, 1 Hz), RTT*.csv (pings).

Rates are in Mbit/s, of flows that filled the link; times are GMT. A ping's `time` is its RTT in ms,
and its `lost` is true if it was not answered. Files without the column `lost` have answered pings
only.
"""

from __future__ import annotations

from collections.abc import Iterator

from skyhop.telemetry.fields import TIME, Sample
from skyhop.telemetry.importers.input_file import (
    Importer,
    InputFile,
    Probe,
    end_of_second,
    second_means,
)

_RATES = {
    "download": ("timestamp_start_dl", "downlink_capacity_bps"),
    "upload": ("timestamp_start_ul", "uplink_capacity_bps"),
}
_PING = {"timestamp", "icmp_seq", "ttl", "time"}


def _has_rates(source: InputFile) -> bool:
    return any({rate, start} <= set(source.columns) for rate, (start, _) in _RATES.items())


def _samples(source: InputFile) -> Iterator[Sample]:
    if not _has_rates(source):
        yield from second_means(_probes(source), with_losses="lost" in source.columns)
        return
    for row in source.rows():
        for rate, (start, name) in _RATES.items():
            mbps = row.value(rate)
            if mbps is None:
                continue
            if mbps < 0:
                raise row.wrong(f"{rate}: {mbps:g} is less than 0")
            # Intervals begin within a millisecond of the second.
            yield {TIME: end_of_second(row.time_ns(start)), name: mbps * 1e6}


def _probes(source: InputFile) -> Iterator[Probe]:
    if not set(source.columns) >= _PING:
        raise source.wrong(1, "expected columns such as timestamp_start_dl,download, or a ping's")
    for row in source.rows():
        at_ns = row.time_ns("timestamp")
        if row.flag("lost"):
            yield Probe(at_ns, None)
            continue
        rtt_ms = row.needed("time")
        if rtt_ms < 0:
            raise row.wrong(f"time: {rtt_ms:g} is less than 0")
        yield Probe(at_ns, rtt_ms)


FORMAT = Importer(
    "autobahn",
    "Starlink on the Autobahn: throughput.csv, RTT*.csv",
    lambda source: _has_rates(source) or set(source.columns) >= _PING,
    _samples,
    basis="documentation",
    probes=_probes,
)
