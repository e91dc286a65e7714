"""Report of an iperf3 client (`iperf3 --json`): rate per interval, in one or both directions.

The client sends on the uplink; with -R it receives on the downlink, with --bidir it does both.
Times of intervals count from the second in which the test started; intervals that the client
omitted (-O) are not used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from skyhop.errors import InputError
from skyhop.telemetry.fields import Sample
from skyhop.telemetry.importers.input_file import (
    LATEST_NS,
    SECOND_NS,
    Importer,
    InputFile,
    SecondMeans,
)

_UP, _DOWN = "uplink_capacity_bps", "downlink_capacity_bps"
_LONGEST_S = 30 * 86_400.0
_LARGEST_BPS = 1e15


def _samples(source: InputFile) -> Iterator[Sample]:
    try:
        report = json.loads("\n".join(source.lines))
        if report.get("error") and not report["intervals"]:
            reason = " ".join(str(report["error"]).split())[:200]
            raise InputError(f"{source.file}: iperf3 did not measure: {reason}")
        start = report["start"]
        begin_ns = int(start["timestamp"]["timesecs"]) * SECOND_NS
        is_reverse = bool(start["test_start"].get("reverse", 0))
        intervals = list(report["intervals"])
        rates = [_rates(interval, is_reverse) for interval in intervals]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise InputError(f"{source.file}: is not what iperf3 --json prints") from None
    if not 0 <= begin_ns < LATEST_NS:
        raise InputError(f"{source.file}: its time is not between 1970 and 2100")
    yield from _in_seconds(begin_ns, rates)


def _rates(interval: Mapping[str, Any], is_reverse: bool) -> tuple[float, float, dict[str, float]]:
    """Return an interval's begin and end in s, and its rates; no rates if it was omitted."""
    whole = interval["sum"]
    begin_s, end_s = float(whole["start"]), float(whole["end"])
    if not 0 <= begin_s <= end_s < _LONGEST_S:
        raise ValueError(begin_s)
    found = {_DOWN if is_reverse else _UP: _bps(whole)}
    if "sum_bidir_reverse" in interval:
        found[_UP if is_reverse else _DOWN] = _bps(interval["sum_bidir_reverse"])
    return begin_s, end_s, {} if whole.get("omitted") else found


def _bps(total: Mapping[str, Any]) -> float:
    bps = float(total["bits_per_second"])
    if not 0 <= bps < _LARGEST_BPS:
        raise ValueError(bps)
    return bps


def _in_seconds(
    begin_ns: int, rates: list[tuple[float, float, dict[str, float]]]
) -> Iterator[Sample]:
    """Yield a sample per second; a longer interval counts in each of its seconds."""
    seconds = SecondMeans()
    for begin_s, end_s, found in rates:
        pieces = max(1, math.floor(end_s - begin_s + 0.5))
        for piece in range(pieces):
            at_s = begin_s + (piece + 0.5) * (end_s - begin_s) / pieces
            yield from seconds.add(begin_ns + round(at_s * SECOND_NS), found)
    yield from seconds.flush()


def _matches(source: InputFile) -> bool:
    return source.lines[0].lstrip().startswith("{") and any(
        '"connected"' in line for line in source.head
    )


FORMAT = Importer("iperf3", "iperf3: output of a client with --json", _matches, _samples)
