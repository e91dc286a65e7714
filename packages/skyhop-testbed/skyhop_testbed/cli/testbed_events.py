"""Formatting of a run's events for `skyhop testbed run`, one line per event."""

from __future__ import annotations

import sys
from typing import Any

from skyhop.cli.terminal import shown_text
from skyhop_testbed.cli.testbed_shared import when

_HIDDEN = frozenset({"began_ns", "start_ns", "end_ns", "fence"})
"""Keys of details that are not printed: event times show them, or users do not need them."""


def print_events(events: list[dict[str, Any]]) -> None:
    """Print the events of a run: time, state, reason, actor and details."""
    for each in events:
        reason = f"({each['reason']})" if each["reason"] else ""
        words = [each["state"], reason, each["actor"], _details_text(each["details"])]
        print(f"{when(each['at_ns'])}  {shown_text(' '.join(word for word in words if word))}")
    sys.stdout.flush()


def _details_text(details: dict[str, Any]) -> str:
    """Return an event's details in words and units; unknown details as key and value."""
    parts = []
    for key, value in details.items():
        if value in (None, "") or key in _HIDDEN:
            continue
        if key == "traffic" and isinstance(value, dict):
            parts.append(_traffic(value))
        elif key == "partial":
            parts.append("files so far" if value else "")
        elif key == "ended_ns" and isinstance(value, int):
            began_ns = details.get("began_ns")
            if isinstance(began_ns, int):
                parts.append(f"ran for {(value - began_ns) / 1e9:.1f} s")
        elif key in ("text", "message"):
            parts.append(str(value))
        elif key in _WORDS:
            parts.append(_WORDS[key].format(value))
        else:
            parts.append(f"{key} {value}")
    return "; ".join(part for part in parts if part)


_WORDS = {
    "exit": "exit status {}",
    "signal": "signal {}",
    "port": "port {}",
    "run": "now run {}",
    "because": "because of {}",
    "clock_offset_ms": "its clock is {:+.0f} ms off",
}


def _traffic(moved: dict[str, Any]) -> str:
    """Return the traffic of a run in words, and how the traffic was counted."""
    sizes = [_size(moved.get(key)) for key in ("rx_bytes", "tx_bytes")]
    how = f" ({moved['counted']})" if moved.get("counted") else ""
    return f"received {sizes[0]}, sent {sizes[1]}{how}"


def _size(count: object) -> str:
    if not isinstance(count, int | float):
        return "an unknown amount"
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count:g} byte"
