"""NUWiNS' drives of the SIGMETRICS '26 paper: terminal status, pings, TCP throughput.

Three kinds of files of its README are read: `starlink_metric.*.csv` (every 500 ms),
`icmp_ping.*.csv` (`utc_ts`, `rtt_ms`), and `OPERATOR_tcp_downlink.csv` or `..._uplink.csv` (`time`,
`throughput_mbps`, every 500 ms; flows that fill the link). Samples are means over seconds; a flag
takes its last value within the second.
"""

from __future__ import annotations

from collections.abc import Iterator

from skyhop.telemetry.fields import TIME, Sample, Value
from skyhop.telemetry.importers.input_file import (
    Importer,
    InputFile,
    Probe,
    Row,
    SecondMeans,
    end_of_second,
    read_probes,
    second_means,
)
from skyhop.telemetry.importers.mahimahi import capacity

_METRIC = {"utc_ts", "latency_ms", "tput_dl_bps", "tput_ul_bps"}
_PING = {"utc_ts", "rtt_ms"}
_RATE = {"time", "throughput_mbps", "retrans"}
_NUMBERS = {
    "latency_ms": "pop_ping_latency_ms",
    "tput_dl_bps": "downlink_throughput_bps",
    "tput_ul_bps": "uplink_throughput_bps",
    "obstruction_fraction": "fraction_obstructed",
    "obstruction_valid_s": "obstruction_valid_s",
}
_FLAGS = {
    "snr_above_noise_floor": "snr_above_noise",
    "snr_persistently_low": "snr_persistently_low",
    "obstruction_flag": "currently_obstructed",
}


def _samples(source: InputFile) -> Iterator[Sample]:
    columns = set(source.columns)
    if columns >= _METRIC:
        yield from _metrics(source)
    elif columns >= _PING:
        yield from second_means(_probes(source), with_losses=True)
    elif columns >= _RATE:
        yield from _rates(source)
    else:
        raise source.wrong(1, "expected columns of starlink_metric, icmp_ping or tcp_downlink")


def _metrics(source: InputFile) -> Iterator[Sample]:
    seconds = SecondMeans()
    flags: dict[Value, Sample] = {}
    for row in source.rows():
        at_ns = row.time_ns("utc_ts")
        means = {ours: row.value(theirs) for theirs, ours in _NUMBERS.items()}
        for sample in seconds.add(at_ns, means):
            yield {**sample, **flags.pop(sample[TIME], {})}
        flags[end_of_second(at_ns)] = _flags(row)
    for sample in seconds.flush():
        yield {**sample, **flags.pop(sample[TIME], {})}


def _flags(row: Row) -> Sample:
    flags: Sample = {ours: row.flag(theirs) for theirs, ours in _FLAGS.items()}
    if "outage_cause" in row.cells:
        cause = row.text("outage_cause")
        flags["outage"] = cause is not None
        flags["state"] = "CONNECTED" if cause is None else _state(cause)
    return flags


def _state(cause: str) -> str:
    return "SEARCHING" if cause == "NO_SCHEDULE" else cause


def _probes(source: InputFile) -> Iterator[Probe]:
    if not set(source.columns) >= _PING:
        raise source.wrong(1, f"expected columns {', '.join(sorted(_PING))}")
    yield from read_probes(source, "csv")[0]


def _rates(source: InputFile) -> Iterator[Sample]:
    name, seconds = capacity(source), SecondMeans()
    for row in source.rows():
        at_ns, mbps = row.time_ns("time"), row.value("throughput_mbps")
        if mbps is not None and mbps < 0:
            raise row.wrong(f"throughput_mbps: {mbps:g} is less than 0")
        yield from seconds.add(at_ns, {name: None if mbps is None else mbps * 1e6})
    yield from seconds.flush()


FORMAT = Importer(
    "nuwins",
    "NUWiNS' SIGMETRICS '26 drives: starlink_metric.*.csv, icmp_ping.*.csv, *_tcp_*link.csv",
    lambda source: any(set(source.columns) >= known for known in (_METRIC, _PING, _RATE)),
    _samples,
    basis="documentation",
    probes=_probes,
)
