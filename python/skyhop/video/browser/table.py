"""What a browser told of a film, as the rows that every session has."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

from skyhop import _core
from skyhop.data.files import write_files
from skyhop.runs import Run
from skyhop.video.browser.server import PORT

_NS = 1_000_000_000
_TABLE = "chunks"
_SHORTEST_STALL_S = 0.01
"""Less is two events in one breath, as where the picture first moves."""
_SMALL = ("flow", "connection", "chunk", "track")


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


def add_film(
    run: Run,
    watched: Mapping[str, Any],
    film: _core.Film,
    rows: Sequence[Mapping[str, Any]],
    startup_s: float | None,
) -> None:
    """Give a run the table of a film's chunks, and its summary what they amount to.

    Args:
        run: of the programs that played it.
        watched: what was watched and how, so that it can be watched again; `qoe` is among it.
        film: the film.
        rows: of `chunk_rows`.
        startup_s: when the picture first moved.

    Raises:
        RunError: they cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    flow = _busiest(run)
    types = {
        name: pa.int32() if name in _SMALL else pa.int64() for name in _core.RUN_COLUMNS[_TABLE]
    }
    whole = [{**_of_all_tables(row, flow), **row} for row in rows]
    content = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(whole, pa.schema(list(types.items()))), content)
    tracks, stalls = [row["track"] for row in rows], [row["stall_ns"] for row in rows]
    app = {
        "id": flow,
        **_summed_up(rows),
        "startup_ns": _ns(startup_s or 0.0),
        "qoe": _core.score_chunks(film, watched["qoe"], tracks, stalls) if rows else None,
    }
    summary = {**run.summary, "apps": [*run.summary.get("apps", ()), app]}
    contents = {
        f"{_TABLE}.parquet": content.getvalue(),
        "summary.json": json.dumps(summary, indent=2).encode(),
        "run.json": json.dumps({**run.info, "film": dict(watched)}, indent=2).encode(),
    }
    write_files(run.directory, contents)


def _busiest(run: Run) -> int:
    """Return the flow that carried most of what the film's server sent."""
    flows = [flow for flow in run.summary["flows"] if f":{PORT} ->" in flow["connection"]]
    return int(max(flows, key=lambda flow: flow.get("goodput_bps") or 0)["id"]) if flows else 0


def _of_all_tables(row: Mapping[str, Any], flow: int) -> dict[str, Any]:
    """Return the columns that all tables of applications have."""
    return {
        "flow": flow, "connection": 0, "seq": row["chunk"], "t_ns": row["asked_ns"],
        "sent_bytes": 0, "answered_bytes": row["size_bytes"], "connect_ns": None,
        "first_byte_ns": None, "latency_ns": row["arrived_ns"] - row["asked_ns"],
    }  # fmt: skip


def _summed_up(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    took_us = sorted((row["arrived_ns"] - row["asked_ns"]) // 1000 for row in rows)
    latencies = {
        f"latency_p{share}_us": took_us[len(took_us) * share // 100] if took_us else None
        for share in (50, 95, 99)
    }
    tracks, bitrates = [row["track"] for row in rows], [row["bitrate_bps"] for row in rows]
    return {
        "kind": "dash", "completed": len(rows), "failed": 0, **latencies,
        "stall_ns": sum(row["stall_ns"] for row in rows),
        "stalls": sum(row["stall_ns"] > 0 for row in rows),
        "switches": sum(one != other for one, other in pairwise(tracks)),
        "mean_bitrate_bps": round(sum(bitrates) / max(1, len(bitrates))),
        "abandoned_bytes": sum(row["abandoned_bytes"] for row in rows),
    }  # fmt: skip


def _stalls(
    told: Mapping[str, Any], rows: Sequence[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield how long the picture stood still, each time with the chunk that ended it."""
    for stall in told["stalls"]:
        if stall["took_s"] < _SHORTEST_STALL_S:
            continue
        ended_ns = _ns(stall["at_s"] + stall["took_s"])
        in_time = [row for row in rows if row["arrived_ns"] <= ended_ns]
        if in_time:
            yield max(in_time, key=lambda row: row["arrived_ns"]), _ns(stall["took_s"])


def _ns(seconds: float) -> int:
    return round(seconds * _NS)
