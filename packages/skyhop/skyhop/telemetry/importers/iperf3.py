"""Reports of an iperf3 client (`iperf3 --json`): rate per interval, in one or both directions.

The client sends on the uplink; with -R it receives on the downlink, with --bidir it does both. The
file is read as by `skyhop path import`. Times of intervals count from the second in which the test
started; intervals that the client omitted (-O) are not used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from skyhop.telemetry.fields import Sample
from skyhop.telemetry.importers.input_file import SECOND_NS, Importer, InputFile, SecondMeans

_UP, _DOWN = "uplink_capacity_bps", "downlink_capacity_bps"


def _samples(source: InputFile) -> Iterator[Sample]:
    """Yield a sample per second; a longer interval counts in each of its seconds."""
    from skyhop import _core

    intervals, account = _core.read_iperf3(source.content, str(source.file))
    source.notes.append(account)
    seconds = SecondMeans()
    for begin_ns, end_ns, down_bps, up_bps in intervals:
        pieces = max(1, math.floor((end_ns - begin_ns) / SECOND_NS + 0.5))
        for piece in range(pieces):
            at_ns = begin_ns + round((piece + 0.5) * (end_ns - begin_ns) / pieces)
            yield from seconds.add(at_ns, {_DOWN: down_bps, _UP: up_bps})
    yield from seconds.flush()


FORMAT = Importer(
    "iperf3",
    "iperf3: output of a client with --json or --json-stream",
    lambda source: source.log_format == "iperf3",
    _samples,
)
