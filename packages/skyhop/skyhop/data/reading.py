"""Conversion of runs (`Run`) and paths (`Path`) to records of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath

import numpy as np
import polars as pl

from skyhop._core import DIRECTIONS, LOSS_REASONS, PATH_LINK, PHASE_KINDS
from skyhop.data.arrays import FloatArray
from skyhop.data.paths import Path, read_path
from skyhop.data.records import (
    SHOWN_EVENT_KINDS,
    AppSeries,
    Events,
    FilmSeries,
    FlowSeries,
    LinkSeries,
    PathRecord,
    Phases,
    ProbeSeries,
    RouteSeries,
    RunRecord,
)
from skyhop.data.run_headers import RunHeader, read_run_headers, run_header
from skyhop.data.runs import Run
from skyhop.errors import InputError

_FLOW_COLUMNS = (
    "t_ns", "flow", "goodput_bps", "cwnd_packets", "ssthresh_packets", "srtt_us",
    "inflight_packets", "retransmits",
)  # fmt: skip
_LINK_COLUMNS = ("t_ns", "link", "direction", "backlog_bytes", "delivered_bytes")
_EVENT_COLUMNS = ("t_ns", "kind", "outage_ns")
_PROBE_COLUMNS = ("probe", "seq", "t_ns", "rtt_ns", "scheduled_rtt_ns")
_ROUTE_COLUMNS = ("t_ns", "from", "to", "way", "satellites")
_APP_COLUMNS = ("flow", "t_ns", "latency_ns")
_CALL_COLUMNS = (*_APP_COLUMNS, "direction", "mos")
FILM = "chunks"
"""Name of the table of adaptive video: one row per chunk."""
_FILM_COLUMNS = (
    "flow", "t_ns", "asked_ns", "arrived_ns", "bitrate_bps", "buffer_ns", "stall_ns",
)  # fmt: skip


def read_runs(
    directories: Sequence[FilePath | str], *, force_size: bool = False
) -> list[RunRecord]:
    """Read the runs in directories; they are found and named as by `read_run_headers`.

    Args:
        directories: run directories, or directories of runs.
        force_size: read the tables even if they take much memory.

    Raises:
        InputError: no directory is given, or a directory is not a run directory or is too large.
    """
    headers = read_run_headers(directories)
    return [_record(header, Run(header.directory, force_size=force_size)) for header in headers]


def run_record(run: Run) -> RunRecord:
    """Return a run as arrays.

    Raises:
        InputError: a file of the run is missing, damaged, or lacks a key or a column.
    """
    return _record(run_header(run), run)


def _record(header: RunHeader, run: Run) -> RunRecord:
    directory, summary = header.directory, header.summary
    flows = _checked(run.flows, _FLOW_COLUMNS, directory / "flows.parquet")
    link = _checked(run.link, _LINK_COLUMNS, directory / "link.parquet")
    events = _checked(run.events, _EVENT_COLUMNS, directory / "events.parquet")
    has_probes = (directory / "probes.parquet").exists()
    path_file = directory / "path.parquet"
    return RunRecord(
        directory=directory,
        name=header.name,
        manifest=header.manifest,
        summary=summary,
        flows={
            int(flow["id"]): _flow_series(flows.filter(pl.col("flow") == flow["id"]))
            for flow in summary["flows"]
        },
        link=_link_series_by_name(link),
        events=_events(events),
        announced_s=_floats(
            events.filter(pl.col("kind") == "announcement").sort("t_ns"), "t_ns", 1e9
        ),
        phases=_phases(events),
        probes=_probe_series(_checked(run.probes, _PROBE_COLUMNS, directory / "probes.parquet"))
        if has_probes
        else {},
        apps=_app_series(
            {
                name: _checked(
                    table,
                    _CALL_COLUMNS if name == "calls" else _APP_COLUMNS,
                    directory / f"{name}.parquet",
                )
                for name, table in run.apps.items()
            }
        ),
        films=_films(run.apps.get(FILM), directory / f"{FILM}.parquet"),
        path=path_record(read_path(path_file, force_size=run.force_size))
        if path_file.exists()
        else None,
        routes=_routes(_checked(run.routes, _ROUTE_COLUMNS, directory / "routes.parquet"))
        if (directory / "routes.parquet").exists()
        else {},
    )


def _films(table: pl.DataFrame | None, origin: FilePath) -> dict[int, FilmSeries]:
    if table is None:
        return {}
    frame = _checked(table, _FILM_COLUMNS, origin).drop_nulls("arrived_ns").sort("arrived_ns")
    films = {}
    for (flow,), rows in frame.group_by("flow", maintain_order=True):
        # `t_ns` (time of the request) counts from the run's start, other times from the session's.
        began_s = (_floats(rows, "t_ns", 1e9) - _floats(rows, "asked_ns", 1e9))[0]
        films[int(flow)] = FilmSeries(
            arrived_s=began_s + _floats(rows, "arrived_ns", 1e9),
            bitrate_mbps=_floats(rows, "bitrate_bps", 1e6),
            buffer_s=_floats(rows, "buffer_ns", 1e9),
            stall_s=_floats(rows, "stall_ns", 1e9),
        )
    return films


def path_record(path: Path) -> PathRecord:
    """Return a path as arrays.

    Raises:
        InputError: the path has no frames.
    """
    frame = path.frames
    if frame.is_empty():
        raise InputError("the path has no frames")
    frame = frame.sort("t_ns")
    nodes = frame.get_column("nodes")
    lengths = _floats(pl.DataFrame({"n": nodes.list.len()}), "n")
    return PathRecord(
        header=path.header,
        t_s=_floats(frame, "t_ns", 1e9),
        delay_ms=_floats(frame, "delay_ns", 1e6),
        delay_back_ms=_floats(frame, "delay_back_ns", 1e6),
        hops=np.where(lengths > 0, lengths - 1, np.nan),
        rate_mbps=_floats(frame, "rate_bps", 1e6),
        same_nodes=np.asarray((nodes == nodes.shift(1)).fill_null(False).to_numpy(), dtype=bool),
        events=_events(frame.select(pl.col("events").explode()).drop_nulls().unnest("events")),
    )


def _checked(frame: pl.DataFrame, columns: Sequence[str], origin: FilePath) -> pl.DataFrame:
    for column in columns:
        if column not in frame.columns:
            raise InputError(f"{origin}: the column `{column}` is missing")
    return frame


def _floats(frame: pl.DataFrame, column: str, scale: float = 1.0) -> FloatArray:
    """Return a column divided by `scale`, shape (n,), NaN for null."""
    values = frame.get_column(column).cast(pl.Float64).fill_null(np.nan).to_numpy()
    return np.asarray(values, dtype=np.float64) / scale


def _flow_series(frame: pl.DataFrame) -> FlowSeries:
    frame = frame.sort("t_ns")
    return FlowSeries(
        t_s=_floats(frame, "t_ns", 1e9),
        goodput_mbps=_floats(frame, "goodput_bps", 1e6),
        cwnd_packets=_floats(frame, "cwnd_packets"),
        ssthresh_packets=_floats(frame, "ssthresh_packets"),
        srtt_ms=_floats(frame, "srtt_us", 1e3),
        ack_rtt_ms=_ack_rtt_ms(frame),
        retransmits=_floats(frame, "retransmits"),
        marks=_marks(frame),
    )


def _link_series_by_name(frame: pl.DataFrame) -> dict[str, LinkSeries]:
    names = frame.get_column("link").unique(maintain_order=True).to_list() or [PATH_LINK]
    if names == [PATH_LINK]:
        labels = {(PATH_LINK, direction): direction for direction in DIRECTIONS}
    else:
        labels = {
            (name, direction): name if direction == DIRECTIONS[0] else f"{name} back"
            for name in names
            for direction in DIRECTIONS
        }
    # One pass over the table: a network has thousands of links.
    parts = frame.partition_by("link", "direction", as_dict=True)
    return {label: _link_series(parts.get(key, frame.clear())) for key, label in labels.items()}


def _link_series(frame: pl.DataFrame) -> LinkSeries:
    frame = frame.sort("t_ns")
    return LinkSeries(
        t_s=_floats(frame, "t_ns", 1e9),
        backlog_bytes=_floats(frame, "backlog_bytes"),
        delivered_bytes=_floats(frame, "delivered_bytes"),
        # Runs of older versions lack the column, and have no background.
        background_bytes=_floats_or_zeros(frame, "background_bytes"),
        # Runs of older versions lack the columns of later reasons, and have no such drops.
        drops={reason: _floats_or_zeros(frame, f"drops_{reason}") for reason in LOSS_REASONS},
        marks=_marks(frame),
    )


def _ack_rtt_ms(frame: pl.DataFrame) -> FloatArray:
    # Runs of older versions lack the column.
    if "ack_rtt_us" not in frame.columns:
        return np.full(len(frame), np.nan)
    return _floats(frame, "ack_rtt_us", 1e3)


def _marks(frame: pl.DataFrame) -> FloatArray:
    # Runs of versions without ECN lack the column, and have no marks.
    return _floats_or_zeros(frame, "marks")


def _floats_or_zeros(frame: pl.DataFrame, column: str) -> FloatArray:
    return _floats(frame, column) if column in frame.columns else np.zeros(len(frame))


def _probe_series(frame: pl.DataFrame) -> dict[int, ProbeSeries]:
    probes = {}
    for probe in frame.get_column("probe").unique().sort().to_list():
        rows = frame.filter(pl.col("probe") == probe).sort("t_ns")
        probes[int(probe)] = ProbeSeries(
            t_s=_floats(rows, "t_ns", 1e9),
            rtt_ms=_floats(rows, "rtt_ns", 1e6),
            scheduled_rtt_ms=_floats(rows, "scheduled_rtt_ns", 1e6),
        )
    return probes


def _routes(frame: pl.DataFrame) -> dict[tuple[str, str], RouteSeries]:
    found = {}
    for (sender, receiver), rows in frame.group_by("from", "to", maintain_order=True):
        if rows.get_column("way").n_unique() == 1:
            in_order = rows.sort("t_ns")
            texts = in_order.get_column("satellites").fill_null("").to_list()
            satellites = [tuple(map(int, text.split("-"))) if text else () for text in texts]
            found[(str(sender), str(receiver))] = RouteSeries(
                _floats(in_order, "t_ns", 1e9), satellites
            )
    return found


def _app_series(frames: Mapping[str, pl.DataFrame]) -> dict[int, AppSeries]:
    apps = {}
    for name, frame in frames.items():
        for flow in frame.get_column("flow").unique().to_list():
            rows = frame.filter(pl.col("flow") == flow).sort("t_ns")
            apps[int(flow)] = AppSeries(
                table=name,
                t_s=_floats(rows, "t_ns", 1e9),
                latency_ms=_floats(rows, "latency_ns", 1e6),
                mos=_opinions(rows) if name == "calls" else {},
            )
    return dict(sorted(apps.items()))


def _opinions(calls: pl.DataFrame) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Return, by direction, a call's mean opinion scores and the starts (s) of their windows."""
    found = {}
    for direction in ("forward", "back"):
        rows = calls.filter(pl.col("direction") == direction)
        if len(rows):
            found[direction] = (_floats(rows, "mos", 1.0), _floats(rows, "t_ns", 1e9))
    return found


def _events(frame: pl.DataFrame) -> Events:
    frame = frame.filter(pl.col("kind").is_in(SHOWN_EVENT_KINDS)).sort("t_ns", maintain_order=True)
    return Events(
        t_s=_floats(frame, "t_ns", 1e9),
        kinds=tuple(frame.get_column("kind").to_list()),
        outage_s=_floats(frame.with_columns(pl.col("outage_ns").fill_null(0)), "outage_ns", 1e9),
    )


def _phases(frame: pl.DataFrame) -> Phases:
    frame = frame.filter(pl.col("kind").is_in(PHASE_KINDS)).sort("t_ns", maintain_order=True)
    # Runs of versions without announcements lack the column, and have no phases.
    length_s = _floats(frame, "length_ns", 1e9) if len(frame) else np.empty(0)
    return Phases(
        begin_s=_floats(frame, "t_ns", 1e9),
        length_s=length_s,
        kinds=tuple(frame.get_column("kind").to_list()),
        flows=tuple(frame.get_column("flow").to_list()) if len(frame) else (),
    )
