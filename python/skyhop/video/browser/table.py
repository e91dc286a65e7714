"""What a browser told of a film, as the rows that every session has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

_NS = 1_000_000_000


def chunk_rows(told: Mapping[str, Any], bitrates_bps: Sequence[int]) -> list[dict[str, Any]]:
    """Return a row per chunk; times count from when the player was told to begin, in ns.

    Args:
        told: what the page sent when the film was over.
        bitrates_bps: of the tracks.
    """
    came = sorted(told["chunks"], key=lambda one: (one["chunk"], one["arrived_s"]))
    rows: list[dict[str, Any]] = []
    before_s = 0.0
    for chunk, group in groupby(came, key=lambda one: one["chunk"]):
        # dash.js takes another track's in place of one that it has, where there is time.
        *replaced, kept = group
        given_up = (one for one in told["abandoned"] if one["chunk"] == chunk)
        wasted = sum(one["size_bytes"] for one in replaced)
        rows.append(
            {
                "chunk": chunk,
                "track": kept["track"],
                "bitrate_bps": bitrates_bps[kept["track"]],
                "size_bytes": kept["size_bytes"],
                "asked_ns": _ns(kept["asked_s"]),
                "arrived_ns": _ns(kept["arrived_s"]),
                "stall_ns": 0,
                # What has just come is not yet in dash.js's buffer.
                "buffer_ns": _ns(kept["buffer_s"]),
                "waited_ns": max(0, _ns(kept["asked_s"] - before_s)) if rows else 0,
                "abandoned_bytes": wasted + sum(one["received_bytes"] for one in given_up),
                "predicted_bps": told["predicted_bps"].get(str(chunk)),
            }
        )
        before_s = kept["arrived_s"]
    for row, stall_ns in _stalls(told, rows):
        row["stall_ns"] += stall_ns
    return rows


def _stalls(
    told: Mapping[str, Any], rows: Sequence[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield how long the picture stood still, each time with the chunk that ended it."""
    for stall in told["stalls"]:
        ended_ns = _ns(stall["at_s"] + stall["took_s"])
        in_time = [row for row in rows if row["arrived_ns"] <= ended_ns]
        if in_time:
            yield max(in_time, key=lambda row: row["arrived_ns"]), _ns(stall["took_s"])


def _ns(seconds: float) -> int:
    return round(seconds * _NS)
