"""The newest telemetry of nodes, for charts that move: read from the store's journals.

A day's file needs pyarrow, which would double what the orchestrator takes of memory; what is not
older than some minutes stands as lines in the day's journal, and is read on from where the last
look ended. A journal that was folded meanwhile begins anew; what was seen of it stays.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from skyhop.telemetry.fields import TIME

SPAN_S = 600
FIELDS = (
    "pop_ping_latency_ms",
    "pop_ping_drop_rate",
    "downlink_throughput_bps",
    "uplink_throughput_bps",
    "user_rx_bps",
    "user_tx_bps",
)
"""Those of the live charts."""
_AHEAD_S = 60
"""A node's clock may be so far ahead."""
_FIRST_LOOK_BYTES = 1 << 20
_FORGOTTEN_AFTER_NS = 600 * 10**9
_LAST_BYTES = 256
_LARGEST = 1e300
_S_NS = 10**9


@dataclass
class _Watched:
    """A node that somebody looks at."""

    samples: dict[int, dict[str, Any]] = field(default_factory=dict)
    read: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """By journal: how far it was read, and what stood last there."""
    looked_ns: int = 0


class Recent:
    """The last minutes of nodes' telemetry, from a store's directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._watched: dict[str, _Watched] = {}
        self._lock = threading.Lock()

    def samples(self, node: str, now_ns: int, span_s: int = SPAN_S) -> list[dict[str, Any]]:
        """Return a node's samples of the last so many seconds, by time; `node` is one's name."""
        with self._lock:
            self._forget(now_ns)
            watched = self._watched.setdefault(node, _Watched())
            watched.looked_ns = now_ns
            for at_ns in sorted({now_ns - SPAN_S * _S_NS, now_ns}):
                day = datetime.fromtimestamp(at_ns // _S_NS, UTC).strftime("%Y-%m-%d")
                _read_on(watched, self._directory / node / f"{day}.jsonl")
            for at in [
                a for a in watched.samples if not -SPAN_S * _S_NS <= a - now_ns < _AHEAD_S * _S_NS
            ]:
                del watched.samples[at]
            begin_ns = now_ns - span_s * _S_NS
            return [watched.samples[at] for at in sorted(watched.samples) if at >= begin_ns]

    def _forget(self, now_ns: int) -> None:
        old = [
            name
            for name, watched in self._watched.items()
            if watched.looked_ns < now_ns - _FORGOTTEN_AFTER_NS
        ]
        for name in old:
            del self._watched[name]


def _read_on(watched: _Watched, journal: Path) -> None:
    place, last = watched.read.get(journal.name, (0, b""))
    try:
        with journal.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            # A journal that was folded is another one now: its file may even have the same number.
            file.seek(max(0, place - len(last)))
            if not last or file.read(len(last)) != last:
                place, last = max(0, size - _FIRST_LOOK_BYTES), b""
            file.seek(place)
            lines = file.read(4 * _FIRST_LOOK_BYTES)
    except OSError:
        return
    whole = lines[: lines.rfind(b"\n") + 1]
    if not whole:
        return
    watched.read[journal.name] = (place + len(whole), whole[-_LAST_BYTES:])
    for line in whole.splitlines():
        try:
            sample = json.loads(line)
            at_ns = sample[TIME]
        except (ValueError, KeyError, TypeError, RecursionError):
            # The first one may begin in its middle.
            continue
        if isinstance(at_ns, int):
            known = {name: value for name, value in sample.items() if _can_be_shown(value)}
            watched.samples[at_ns] = {**watched.samples.get(at_ns, {}), **known}


def columns(samples: Sequence[dict[str, Any]], names: Sequence[str] = FIELDS) -> dict[str, Any]:
    """Return samples as columns: `time_s` since 1970, and one per name, null where not known."""
    return {
        "time_s": [sample[TIME] / _S_NS for sample in samples],
        **{name: [_number(sample.get(name)) for sample in samples] for name in names},
    }


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None  # type: ignore[arg-type]


def _can_be_shown(value: object) -> bool:
    """Return whether a value is a text, or a number that floats and JSON have."""
    if isinstance(value, int | float):
        return abs(value) < _LARGEST
    return isinstance(value, str)
