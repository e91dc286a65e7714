"""Starlink-Emulator's files of a row per 100 ms, such as lagos.csv: rates, one-way delays, losses.

Columns: `ul_Mbps,dl_Mbps,ul_owd_ms,dl_owd_ms,ul_loss,dl_loss,t_ms`, with or without a header line;
t_ms counts from the start of the measurement. The links were filled, so the rates are capacities.
Samples are means over seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from skyhop.telemetry.fields import Sample
from skyhop.telemetry.importers.input_file import LATEST_NS, Importer, InputFile, Row, SecondMeans


class Direction(NamedTuple):
    """State of one direction in a step: rate in Mbit/s, one-way delay in ms, share of losses."""

    rate_mbps: float
    delay_ms: float
    loss: float


class Step(NamedTuple):
    """Row of a file: the start of its step in ns since 1970 or the file's start, and both ways."""

    time_ns: int
    up: Direction
    down: Direction


_COLUMNS = ["ul_Mbps", "dl_Mbps", "ul_owd_ms", "dl_owd_ms", "ul_loss", "dl_loss", "t_ms"]


def steps(source: InputFile) -> Iterator[Step]:
    """Yield the rows of a file."""
    for row in source.rows(None if _is_named(source) else _COLUMNS):
        at_ns = source.start_ns + round(row.needed("t_ms") * 1e6)
        if not 0 <= at_ns < LATEST_NS:
            raise row.wrong("t_ms: is no time of a measurement")
        up, down = (
            Direction(row.needed(f"{way}_Mbps"), row.needed(f"{way}_owd_ms"),
                      _share(row, f"{way}_loss"))
            for way in ("ul", "dl")
        )  # fmt: skip
        yield Step(at_ns, up, down)


def _samples(source: InputFile) -> Iterator[Sample]:
    seconds = SecondMeans()
    for at_ns, up, down in steps(source):
        yield from seconds.add(
            at_ns,
            {
                "downlink_capacity_bps": down.rate_mbps * 1e6,
                "uplink_capacity_bps": up.rate_mbps * 1e6,
                "probe_rtt_ms": up.delay_ms + down.delay_ms,
                "probe_loss": 1 - (1 - up.loss) * (1 - down.loss),
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


def matches(source: InputFile) -> bool:
    """Return whether a file has these columns, by its first line."""
    first = source.lines[0].split(",")
    return _is_named(source) or (
        len(first) == len(_COLUMNS) and all(c.strip().replace(".", "", 1).isdigit() for c in first)
    )


FORMAT = Importer(
    "lagos", "Starlink-Emulator: rates, one-way delays and losses of 100 ms", matches, _samples
)
