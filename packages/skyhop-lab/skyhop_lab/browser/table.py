"""Table of a session's chunks from the browser's events, with the columns of simulated sessions."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

from skyhop import _core
from skyhop.data.files import write_files
from skyhop.data.runs import Run
from skyhop_lab.browser.server import PORT

_NS = 1_000_000_000
_TABLE = "chunks"
_SHORTEST_STALL_S = 0.01
"""Shortest stall that counts, in s; at the start dash.js waits and plays in quick succession."""
_SMALL = ("flow", "connection", "chunk", "track")


def chunk_rows(session: Mapping[str, Any], bitrates_bps: Sequence[int]) -> list[dict[str, Any]]:
    """Return one row per chunk; times are in ns since the start of the page.

    Args:
        session: JSON object that the page sent at the end of the film.
        bitrates_bps: bitrates of the tracks.
    """
    loaded = sorted(session["chunks"], key=lambda one: (one["chunk"], one["arrived_s"]))
    rows: list[dict[str, Any]] = []
    before_s = 0.0
    for chunk, group in groupby(loaded, key=lambda one: one["chunk"]):
        # With enough buffer, dash.js replaces a chunk by the same chunk in a better track.
        *replaced, kept = group
        abandoned = (one for one in session["abandoned"] if one["chunk"] == chunk)
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
                "abandoned_bytes": wasted + sum(one["received_bytes"] for one in abandoned),
                "predicted_bps": session["predicted_bps"].get(str(chunk)),
            }
        )
        before_s = kept["arrived_s"]
    for row, stall_ns in _stalls(session, rows):
        row["stall_ns"] += stall_ns
    return rows


def add_film(
    run: Run,
    settings: Mapping[str, Any],
    film: _core.Film,
    rows: Sequence[Mapping[str, Any]],
    startup_s: float | None,
) -> None:
    """Add the table of a film's chunks to a run, and their sums and means to its summary.

    Args:
        run: live run of the programs that played the film.
        settings: options of the session for run.json, so that it can be repeated; has `qoe`.
        film: the film that was played.
        rows: rows that `chunk_rows` returned.
        startup_s: time from the start of the page to the beginning of playback, in s.

    Raises:
        RunError: the files cannot be written.
    """
    import polars as pl

    flow = _busiest_flow(run)
    types = {name: pl.Int32 if name in _SMALL else pl.Int64 for name in _core.RUN_COLUMNS[_TABLE]}
    whole = [{**_application_columns(row, flow), **row} for row in rows]
    content = io.BytesIO()
    pl.DataFrame(whole, types).write_parquet(content)
    tracks, stalls = [row["track"] for row in rows], [row["stall_ns"] for row in rows]
    app = {
        "id": flow,
        **_totals(rows),
        "startup_ns": _ns(startup_s or 0.0),
        "qoe": _core.score_chunks(film, settings["qoe"], tracks, stalls) if rows else None,
    }
    summary = {**run.summary, "apps": [*run.summary.get("apps", ()), app]}
    contents = {
        f"{_TABLE}.parquet": content.getvalue(),
        "summary.json": json.dumps(summary, indent=2).encode(),
        "run.json": json.dumps({**run.info, "film": dict(settings)}, indent=2).encode(),
    }
    write_files(run.directory, contents)


def _busiest_flow(run: Run) -> int:
    """Return the id of the flow of the film's server with the highest goodput."""
    flows = [flow for flow in run.summary["flows"] if f":{PORT} ->" in flow["connection"]]
    return int(max(flows, key=lambda flow: flow.get("goodput_bps") or 0)["id"]) if flows else 0


def _application_columns(row: Mapping[str, Any], flow: int) -> dict[str, Any]:
    """Return the columns that the tables of all applications have."""
    return {
        "flow": flow, "connection": 0, "seq": row["chunk"], "t_ns": row["asked_ns"],
        "sent_bytes": 0, "answered_bytes": row["size_bytes"], "connect_ns": None,
        "first_byte_ns": None, "latency_ns": row["arrived_ns"] - row["asked_ns"],
    }  # fmt: skip


def _totals(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
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
    session: Mapping[str, Any], rows: Sequence[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the duration of each stall in ns, with the row of the chunk that ended it."""
    for stall in session["stalls"]:
        if stall["took_s"] < _SHORTEST_STALL_S:
            continue
        ended_ns = _ns(stall["at_s"] + stall["took_s"])
        in_time = [row for row in rows if row["arrived_ns"] <= ended_ns]
        if in_time:
            yield max(in_time, key=lambda row: row["arrived_ns"]), _ns(stall["took_s"])


def _ns(seconds: float) -> int:
    return round(seconds * _NS)
