"""Recorded answer to get_history, as grpcurl prints it: ring buffers of the last 900 s or so.

The newest value of a ring buffer is at index (current - 1) modulo its length. The answer holds no
time: `--start` gives the end of the oldest second.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME, Sample
from skyhop.telemetry.gaps import SECOND_NS, last_full_second_ns
from skyhop.telemetry.importers.input_file import Importer, InputFile, Row

_DROP, _LATENCY = "popPingDropRate", "popPingLatencyMs"
_RINGS = {
    _DROP: "pop_ping_drop_rate",
    _LATENCY: "pop_ping_latency_ms",
    "downlinkThroughputBps": "downlink_throughput_bps",
    "uplinkThroughputBps": "uplink_throughput_bps",
    "powerIn": "power_w",
}
_LONGEST = 1_000_000
"""Largest length of a ring buffer in seconds; early firmware had 43,200."""


def _samples(source: InputFile) -> Iterator[Sample]:
    try:
        history = json.loads("\n".join(source.lines))["dishGetHistory"]
        current = int(history.get("current", 0))
        rings = {name: list(history[name]) for name in _RINGS if name in history}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _unlike(source) from None
    length = len(rings.get(_DROP, ()))
    if not 0 < length <= _LONGEST or any(len(ring) != length for ring in rings.values()):
        raise _unlike(source)
    if current < 0:
        raise _unlike(source)
    first_ns = last_full_second_ns(source.start_ns)
    for number, at in enumerate(_places(current, length)):
        row = Row(source, 1, {name: _text(ring[at]) for name, ring in rings.items()})
        values: Sample = {ours: row.value(theirs) for theirs, ours in _RINGS.items()}
        # After a lost ping the ring buffer repeats the previous latency; 0 means no latency.
        if (row.value(_DROP) or 0) >= 1 or not row.value(_LATENCY):
            values["pop_ping_latency_ms"] = None
        yield {TIME: first_ns + number * SECOND_NS, **values}


def _places(current: int, length: int) -> Sequence[int]:
    """Return the indices of the values of a ring buffer, oldest first."""
    if current <= length:
        return range(current)
    return [(current + step) % length for step in range(length)]


def _text(value: Any) -> str:
    return "" if isinstance(value, bool | list | dict) else str(value)


def _unlike(source: InputFile) -> InputError:
    return InputError(f"{source.file}: is not get_history as grpcurl prints it")


FORMAT = Importer(
    "grpcurl",
    "a terminal's recorded get_history, as grpcurl prints it",
    lambda source: any("dishGetHistory" in line for line in source.head),
    _samples,
)
