"""Starlink-Emulator's files of a row per 100 ms, such as lagos.csv: rates, one-way delays, losses.

Columns: `ul_Mbps,dl_Mbps,ul_owd_ms,dl_owd_ms,ul_loss,dl_loss,t_ms`, with or without a header line;
t_ms counts from the start of the measurement. The links were filled, so the rates are capacities.
Samples are means over seconds.
"""

from __future__ import annotations

from collections.abc import Iterator

from skyhop.telemetry.fields import Sample
from skyhop.telemetry.importers.input_file import LATEST_NS, Importer, InputFile, Row, SecondMeans

_COLUMNS = ["ul_Mbps", "dl_Mbps", "ul_owd_ms", "dl_owd_ms", "ul_loss", "dl_loss", "t_ms"]


def _samples(source: InputFile) -> Iterator[Sample]:
    seconds = SecondMeans()
    for row in source.rows(None if _is_named(source) else _COLUMNS):
        at_ns = source.start_ns + round(row.needed("t_ms") * 1e6)
        if not 0 <= at_ns < LATEST_NS:
            raise row.wrong("t_ms: is no time of a measurement")
        up_loss, down_loss = _share(row, "ul_loss"), _share(row, "dl_loss")
        yield from seconds.add(
            at_ns,
            {
                "downlink_capacity_bps": row.needed("dl_Mbps") * 1e6,
                "uplink_capacity_bps": row.needed("ul_Mbps") * 1e6,
                "probe_rtt_ms": row.needed("ul_owd_ms") + row.needed("dl_owd_ms"),
                "probe_loss": 1 - (1 - up_loss) * (1 - down_loss),
            },
        )
    yield from seconds.flush()


def _share(row: Row, name: str) -> float:
    share = row.needed(name)
    if not 0 <= share <= 1:
        raise row.wrong(f"{name}: expected 0 to 1, not {share:g}")
    return share


def _is_named(source: InputFile) -> bool:
    return [name.lower() for name in source.columns] == [name.lower() for name in _COLUMNS]


def _matches(source: InputFile) -> bool:
    first = source.lines[0].split(",")
    return _is_named(source) or (
        len(first) == len(_COLUMNS) and all(c.strip().replace(".", "", 1).isdigit() for c in first)
    )


FORMAT = Importer(
    "lagos", "Starlink-Emulator: rates, one-way delays and losses of 100 ms", _matches, _samples
)
