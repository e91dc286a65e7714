"""Details of a run's events in words and units, for the command line and the web pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_HIDDEN = frozenset({"began_ns", "start_ns", "end_ns", "fence"})
"""Keys that are not shown: the times of events show them, or users do not need them."""
_WORDS = {
    "exit": "exit status {}",
    "signal": "signal {}",
    "port": "port {}",
    "run": "now run {}",
    "because": "because of {}",
    "clock_offset_ms": "its clock is {:+.0f} ms off",
}


def words_of(details: Mapping[str, Any]) -> dict[str, str]:
    """Return details in words and units, by their keys; unknown ones as key and value."""
    found = {}
    for key, value in details.items():
        if value in (None, "") or key in _HIDDEN:
            continue
        if key == "traffic" and isinstance(value, dict):
            said = _traffic(value)
        elif key == "partial":
            said = "files so far" if value else ""
        elif key == "ended_ns" and isinstance(value, int):
            began_ns = details.get("began_ns")
            lasted_s = (value - began_ns) / 1e9 if isinstance(began_ns, int) else None
            said = "" if lasted_s is None else f"ran for {lasted_s:.1f} s"
        elif key in ("text", "message"):
            said = str(value)
        elif key in _WORDS:
            try:
                said = _WORDS[key].format(value)
            except ValueError:
                said = f"{key} {value}"
        else:
            said = f"{key} {value}"
        if said:
            found[key] = said
    return found


def without_repetitions(events: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the details of each event in words, without those that an earlier event had.

    The end of a run reports again what the end of its program has reported.
    """
    told: dict[str, str] = {}
    found = []
    for details in events:
        new = {key: said for key, said in words_of(details).items() if told.get(key) != said}
        told |= new
        found.append(new)
    return found


def _traffic(moved: Mapping[str, Any]) -> str:
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
