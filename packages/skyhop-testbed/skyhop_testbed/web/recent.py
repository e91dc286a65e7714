"""Newest telemetry of nodes for live charts, read from the journals of the telemetry store.

Reading a day's Parquet file needs polars, which takes 40 MB of memory. Samples of the last minutes
are lines in the day's journal, which this module reads on from where its last read ended. After the
store has folded a journal into the Parquet file, the journal starts again; samples that were read
before stay in memory.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from skyhop.telemetry.fields import TIME, Sample

Columns = dict[str, list[float | None]]
"""Telemetry by field, with the times in s in `time_s`."""
SPAN_S = 600
FIELDS = (
    "pop_ping_latency_ms",
    "pop_ping_drop_rate",
    "downlink_throughput_bps",
    "uplink_throughput_bps",
    "user_rx_bps",
    "user_tx_bps",
)
"""Telemetry fields of the live charts."""
_AHEAD_S = 60
"""Upper limit on how far a node's clock may be ahead, in s; later samples are ignored."""
_FIRST_READ_BYTES = 1 << 20
_FORGOTTEN_AFTER_NS = 600 * 10**9
_LAST_BYTES = 256
_LARGEST = 1e300
_S_NS = 10**9


@dataclass
class _NodeCache:
    """Samples of a node whose page is open, and read positions in its journals."""

    samples: dict[int, Sample] = field(default_factory=dict)
    read: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """Read position and last bytes before it, by the journal's file name."""
    last_used_ns: int = 0


class RecentTelemetry:
    """Reader of the last minutes of nodes' telemetry in a store's directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._caches: dict[str, _NodeCache] = {}
        self._lock = threading.Lock()

    def samples(self, node: str, now_ns: int, span_s: int = SPAN_S) -> list[Sample]:
        """Return a node's samples of the last `span_s` seconds, in order of time."""
        with self._lock:
            self._forget(now_ns)
            cache = self._caches.setdefault(node, _NodeCache())
            cache.last_used_ns = now_ns
            for at_ns in sorted({now_ns - SPAN_S * _S_NS, now_ns}):
                day = datetime.fromtimestamp(at_ns // _S_NS, UTC).strftime("%Y-%m-%d")
                _read_on(cache, self._directory / node / f"{day}.jsonl")
            for at in [
                a for a in cache.samples if not -SPAN_S * _S_NS <= a - now_ns < _AHEAD_S * _S_NS
            ]:
                del cache.samples[at]
            begin_ns = now_ns - span_s * _S_NS
            return [cache.samples[at] for at in sorted(cache.samples) if at >= begin_ns]

    def _forget(self, now_ns: int) -> None:
        old = [
            name
            for name, cache in self._caches.items()
            if cache.last_used_ns < now_ns - _FORGOTTEN_AFTER_NS
        ]
        for name in old:
            del self._caches[name]


def _read_on(cache: _NodeCache, journal: Path) -> None:
    place, last = cache.read.get(journal.name, (0, b""))
    try:
        with journal.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            # Compare the bytes before the position: a journal that was folded is a new file, maybe
            # with the same inode.
            file.seek(max(0, place - len(last)))
            if not last or file.read(len(last)) != last:
                place, last = max(0, size - _FIRST_READ_BYTES), b""
            file.seek(place)
            lines = file.read(4 * _FIRST_READ_BYTES)
    except OSError:
        return
    whole = lines[: lines.rfind(b"\n") + 1]
    if not whole:
        return
    cache.read[journal.name] = (place + len(whole), whole[-_LAST_BYTES:])
    for line in whole.splitlines():
        try:
            sample = json.loads(line)
            at_ns = sample[TIME]
        except (ValueError, KeyError, TypeError, RecursionError):
            # The first line may be incomplete, as reading began in its middle.
            continue
        if isinstance(at_ns, int):
            known = {name: value for name, value in sample.items() if _can_be_shown(value)}
            cache.samples[at_ns] = {**cache.samples.get(at_ns, {}), **known}


def columns(samples: Sequence[Sample], names: Sequence[str] = FIELDS) -> Columns:
    """Return samples as columns: `time_s` since 1970, and one per field, None where missing."""
    return {
        "time_s": [int(sample[TIME] or 0) / _S_NS for sample in samples],
        **{name: [_number(sample.get(name)) for sample in samples] for name in names},
    }


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None  # type: ignore[arg-type]


def _can_be_shown(value: object) -> bool:
    """Return whether a value is text, or a number within the range of JSON and floats."""
    if isinstance(value, int | float):
        return abs(value) < _LARGEST
    return isinstance(value, str)
