"""Subprocess that makes one figure, series or report: `... figure DIRECTORY < query.json`.

It writes one file into the directory: the result, or `failed` with the reason. Files of runs are
untrusted; this process reads them with limited memory and time, apart from the orchestrator.
"""

from __future__ import annotations

import json
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from skyhop.errors import InputError, SkyhopError

if TYPE_CHECKING:
    import polars as pl

    from skyhop.data.figure_files import FigureWidth
    from skyhop.figures.style import Sheet

_MEMORY_BYTES = 4 << 30
_CPU_S = 50
_LATENCY, _DROP = "pop_ping_latency_ms", "pop_ping_drop_rate"
_SERIES = (
    _LATENCY, _DROP, "downlink_throughput_bps", "uplink_throughput_bps", "user_rx_bps",
    "user_tx_bps", "fraction_obstructed",
)  # fmt: skip
_QUANTILES = 201
_BINS = 288


@dataclass(frozen=True)
class Query:
    """Query of a figure, series or report; which fields it has depends on its kind."""

    kind: str
    telemetry: str
    node: str = ""
    from_ns: int = 0
    to_ns: int = 0
    file: str = ""
    changed_ns: int = 0
    """Time of the file's last change, which makes the figure of a changed file another one."""
    directory: str = ""
    run: str = ""
    width: FigureWidth = "page"


def main() -> int:
    """Answer the query on standard input, with limits on memory and CPU time."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = _MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(_MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    make(Query(**json.load(sys.stdin)), Path(sys.argv[1]))
    return 0


def make(query: Query, directory: Path) -> None:
    """Write the result of a query into a directory, or the file `failed` with the reason."""
    try:
        name, content = _KINDS[query.kind](query)
    except SkyhopError as error:
        name, content = "failed", _public_message(error, query).encode()
    (directory / name).write_bytes(content)


def _public_message(error: SkyhopError, query: Query) -> str:
    """Return an error's message without paths of the orchestrator, at most 300 characters."""
    text = str(error)
    for each in (query.file, query.directory, query.telemetry):
        place = Path(each or "/")
        text = text.replace(str(place), place.name)
    return re.sub(r"(/[^\s/:]+)+/(?=[^\s/]+)", "", text)[:300]


def _read(query: Query, fields: tuple[str, ...]) -> pl.DataFrame:
    from skyhop.telemetry.store import Store

    store = Store(Path(query.telemetry))
    if query.node not in store.nodes():
        raise InputError(f"there is no telemetry of {query.node} yet")
    frame = store.read([query.node], fields, query.from_ns, query.to_ns)
    if frame.is_empty():
        raise InputError(f"there is no telemetry of {query.node} in this time range")
    return frame


def _series(query: Query) -> tuple[str, bytes]:
    """Return telemetry as JSON: means over equal intervals, and 201 quantiles of the latency."""
    import numpy as np
    import polars as pl

    frame = _read(query, _SERIES)
    # The telemetry of a young node fills the axis.
    begin_ns = max(query.from_ns, int(frame["time_ns"].min()))  # type: ignore[arg-type]
    span_ns = query.to_ns - begin_ns
    step_ns = max(10**9, -(-span_ns // _BINS // 10**9) * 10**9)
    at = (pl.col("time_ns") - begin_ns) // step_ns * step_ns + begin_ns
    binned = (
        frame.group_by(at.alias("time_ns"))
        .agg(
            *(pl.col(name).mean() for name in _SERIES),
            low=pl.col(_LATENCY).quantile(0.05),
            high=pl.col(_LATENCY).quantile(0.95),
        )
        .sort("time_ns")
    )
    known = frame[_LATENCY].drop_nulls().drop_nans().to_numpy()
    shares = np.linspace(0, 1, _QUANTILES)
    found = {
        "step_s": step_ns / 1e9,
        "samples": frame.height,
        "time_s": [at_ns / 1e9 for at_ns in binned["time_ns"]],
        **{name: _plain(binned[name]) for name in (*_SERIES, "low", "high")},
        "cdf": [round(float(x), 3) for x in np.quantile(known, shares)] if len(known) else [],
    }
    return "series.json", json.dumps(found).encode()


def _plain(column: pl.Series) -> list[float | None]:
    values = column.to_list()
    return [None if v is None or v != v else float(f"{float(v):.6g}") for v in values]  # noqa: PLR0124


def _drawn(sheet: Sheet) -> tuple[str, bytes]:
    from skyhop.figures.style import figure_bytes

    return "figure.png", figure_bytes(sheet, "png")


@contextmanager
def _if_enough() -> Iterator[None]:
    """Say of an error of an analysis that the telemetry is not enough for it yet."""
    try:
        yield
    except InputError as error:
        raise InputError(f"not enough data yet: {error}") from None


def _orientation(query: Query) -> tuple[str, bytes]:
    from skyhop.analysis.orientation import FIELDS, by_orientation
    from skyhop.figures.orientation import orientation_figure

    frame = _read(query, FIELDS)
    with _if_enough():
        found = by_orientation(frame, permutations=199)
    return _drawn(orientation_figure(found, width=query.width))


def _spikes(query: Query) -> tuple[str, bytes]:
    from skyhop.analysis.spikes import find_spikes, series_of
    from skyhop.figures.spikes import spikes_figure

    frame = _read(query, (_LATENCY, _DROP))
    with _if_enough():
        found = find_spikes(series_of(frame, _LATENCY, _DROP, query.node))
    return _drawn(spikes_figure(found, width=query.width))


def _segments(query: Query) -> tuple[str, bytes]:
    from skyhop.analysis.dissection import dissect
    from skyhop.figures.dissection import dissection_figure
    from skyhop.telemetry.traces import read_traces

    traces = read_traces(Path(query.file))
    return _drawn(dissection_figure(dissect(traces), width=query.width))


def _sky(query: Query) -> tuple[str, bytes]:
    from skyhop.figures.obstruction import draw_obstruction
    from skyhop.telemetry.maps import read_map

    seen = read_map(Path(query.file))
    return _drawn(draw_obstruction(seen, "Obstruction map", query.width))


def _report(query: Query) -> tuple[str, bytes]:
    """Return skyhop's report of a run directory, as one HTML file."""
    from skyhop.report.page import write_report

    with tempfile.TemporaryDirectory() as aside:
        # Work on a copy: the original is the orchestrator's.
        run = Path(aside) / "run"
        shutil.copytree(query.directory, run, symlinks=True)
        page = write_report([run], Path(aside) / "report.html")
        return "report.html", page.read_bytes()


_KINDS: dict[str, Callable[[Query], tuple[str, bytes]]] = {
    "series": _series,
    "orientation": _orientation,
    "spikes": _spikes,
    "segments": _segments,
    "sky": _sky,
    "report": _report,
}

if __name__ == "__main__":
    sys.exit(main())
