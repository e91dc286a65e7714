"""iperf3's own report, `iperf3 --json`: the rate of each interval, in either direction or both.

A client's report: what it sends goes up, with -R down, with --bidir both. Intervals begin with the
second in which the report says that the test began; those that -O left out are not used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from skyhop.errors import InputError
from skyhop.telemetry.fields import Sample
from skyhop.telemetry.importers.source import (
    LATEST_NS,
    SECOND_NS,
    Importer,
    Seconds,
    Source,
)

_UP, _DOWN = "uplink_capacity_bps", "downlink_capacity_bps"
_LONGEST_S = 30 * 86_400.0
_LARGEST_BPS = 1e15


def _samples(source: Source) -> Iterator[Sample]:
    try:
        report = json.loads("\n".join(source.lines))
        if report.get("error") and not report["intervals"]:
            said = " ".join(str(report["error"]).split())[:200]
            raise InputError(f"{source.file}: iperf3 did not measure: {said}")
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
    """Return an interval's begin and end in s, and its rates; none where it was left out."""
    whole = interval["sum"]
    begin_s, end_s = float(whole["start"]), float(whole["end"])
    if not 0 <= begin_s <= end_s < _LONGEST_S:
        raise ValueError(begin_s)
    found = {_DOWN if is_reverse else _UP: _bps(whole)}
    if "sum_bidir_reverse" in interval:
        found[_UP if is_reverse else _DOWN] = _bps(interval["sum_bidir_reverse"])
    return begin_s, end_s, {} if whole.get("omitted") else found


def _bps(whole: Mapping[str, Any]) -> float:
    bps = float(whole["bits_per_second"])
    if not 0 <= bps < _LARGEST_BPS:
        raise ValueError(bps)
    return bps


def _in_seconds(
    begin_ns: int, rates: list[tuple[float, float, dict[str, float]]]
) -> Iterator[Sample]:
    """Yield a sample per second; intervals that are longer count in each of their seconds."""
    seconds = Seconds()
    for begin_s, end_s, found in rates:
        pieces = max(1, math.floor(end_s - begin_s + 0.5))
        for piece in range(pieces):
            at_s = begin_s + (piece + 0.5) * (end_s - begin_s) / pieces
            yield from seconds.add(begin_ns + round(at_s * SECOND_NS), found)
    yield from seconds.rest()


def _is_it(source: Source) -> bool:
    return source.lines[0].lstrip().startswith("{") and any(
        '"connected"' in line for line in source.head
    )


FORMAT = Importer("iperf3", "iperf3: what a client prints with --json", _is_it, _samples)
