"""WetLinks: starlink.csv, net_ping.csv, net_iperf.csv, froggit.csv (the weather) of its Raw_Data.

Columns and units are described in the data set's text files; times are ISO 8601, taken as UTC.
`rain` of the weather station is not imported, because the period that it covers is not documented.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from skyhop.telemetry.fields import TIME, Sample
from skyhop.telemetry.importers.input_file import Importer, InputFile, Row

_ZERO_C = 273.15


@dataclass(frozen=True)
class _Kind:
    """Kind of CSV table in the data set."""

    clock: str
    """Name of the column with the times."""
    columns: Mapping[str, tuple[str, float, float]]
    """Other columns, each with its telemetry field, and the factor and offset of its unit."""


_KINDS = (
    _Kind(
        "timestamp",
        {
            "uplink": ("uplink_throughput_bps", 1e6, 0),
            "downlink": ("downlink_throughput_bps", 1e6, 0),
            "pop_ping_latency": ("pop_ping_latency_ms", 1, 0),
            "ping_drop": ("pop_ping_drop_rate", 0.01, 0),
            "fraction_obstructed": ("fraction_obstructed", 0.01, 0),
            "direction_azimuth": ("direction_azimuth", 1, 0),
            "direction_elevation": ("direction_elevation", 1, 0),
        },
    ),
    _Kind(
        "timestamp_end",
        {"ping_avg": ("probe_rtt_ms", 1, 0), "packet_loss": ("probe_loss", 0.01, 0)},
    ),
    _Kind(
        "timestamp_end",
        {"download": ("downlink_capacity_bps", 1, 0), "upload": ("uplink_capacity_bps", 1, 0)},
    ),
    _Kind(
        "timestamp",
        {
            "temp": ("weather_temp", 1, _ZERO_C),
            "humidity": ("weather_humidity", 1, 0),
            "winddir": ("weather_deg", 1, 0),
            "windspeed": ("weather_speed", 1, 0),
            "windgust": ("weather_gust", 1, 0),
            "barom": ("weather_pressure", 1, 0),
        },
    ),
)


def _samples(source: InputFile) -> Iterator[Sample]:
    kind = _kind(source)
    if kind is None:
        raise source.wrong(1, "expected WetLinks' starlink, net_ping, net_iperf or froggit")
    for row in source.rows():
        yield {TIME: row.time_ns(kind.clock), **_values(row, kind)}


def _values(row: Row, kind: _Kind) -> Sample:
    values: Sample = {"state": row.text("state")}
    for theirs, (ours, factor, offset) in kind.columns.items():
        found = row.value(theirs, factor)
        values[ours] = None if found is None else found + offset
    return {name: value for name, value in values.items() if value is not None}


def _kind(source: InputFile) -> _Kind | None:
    columns = set(source.columns)
    if "site_name" not in columns or "hop" in columns:
        return None
    return next((kind for kind in _KINDS if columns >= {kind.clock, *kind.columns}), None)


FORMAT = Importer(
    "wetlinks",
    "WetLinks: starlink.csv, net_ping.csv, net_iperf.csv, froggit.csv",
    lambda source: _kind(source) is not None,
    _samples,
    basis="documentation",
)
