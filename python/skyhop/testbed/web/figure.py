"""Makes one figure, series or report, as a process of its own: `... figure DIRECTORY < asked.json`.

It writes one file into the directory: what was asked for, or `failed`, which says why not. Files of
runs are others' work: they are read here, where little can be had and little be lost.
"""

from __future__ import annotations

import json
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyhop.errors import InputError, SkyhopError

if TYPE_CHECKING:
    import polars as pl

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


def main() -> int:
    """Make what standard input asks for."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    make(json.load(sys.stdin), Path(sys.argv[1]))
    return 0


def make(asked: dict[str, Any], directory: Path) -> None:
    """Write what was asked for into a directory, or why it cannot be made."""
    try:
        name, content = _KINDS[asked["kind"]](asked)
    except SkyhopError as error:
        name, content = "failed", _told(error, asked).encode()
    (directory / name).write_bytes(content)


def _told(error: SkyhopError, asked: dict[str, Any]) -> str:
    """Return what is wrong, without where the orchestrator keeps things."""
    text = str(error)
    for key in ("file", "directory", "telemetry"):
        place = Path(asked.get(key, "/"))
        text = text.replace(str(place), place.name)
    return re.sub(r"(/[^\s/:]+)+/(?=[^\s/]+)", "", text)[:300]


def _read(asked: dict[str, Any], fields: tuple[str, ...]) -> pl.DataFrame:
    from skyhop.telemetry.store import Store

    store = Store(Path(asked["telemetry"]))
    if asked["node"] not in store.nodes():
        raise InputError(f"there is no telemetry of {asked['node']} yet")
    frame = store.read([asked["node"]], fields, asked["from_ns"], asked["to_ns"])
    if frame.is_empty():
        raise InputError(f"there is no telemetry of {asked['node']} in this time")
    return frame


def _series(asked: dict[str, Any]) -> tuple[str, bytes]:
    """Make columns of means over equal times, and quantiles of the latency."""
    import numpy as np
    import polars as pl

    frame = _read(asked, _SERIES)
    span_ns = asked["to_ns"] - asked["from_ns"]
    step_ns = max(10**9, -(-span_ns // _BINS // 10**9) * 10**9)
    at = (pl.col("time_ns") - asked["from_ns"]) // step_ns * step_ns + asked["from_ns"]
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


def _orientation(asked: dict[str, Any]) -> tuple[str, bytes]:
    from skyhop.analysis.orientation import FIELDS, by_orientation
    from skyhop.figures.orientation import orientation_figure

    found = by_orientation(_read(asked, FIELDS), permutations=199)
    return _drawn(orientation_figure(found, width=asked["width"]))


def _spikes(asked: dict[str, Any]) -> tuple[str, bytes]:
    from skyhop.analysis.spikes import find_spikes, series_of
    from skyhop.figures.spikes import spikes_figure

    frame = _read(asked, (_LATENCY, _DROP))
    found = find_spikes(series_of(frame, _LATENCY, _DROP, asked["node"]))
    return _drawn(spikes_figure(found, width=asked["width"]))


def _segments(asked: dict[str, Any]) -> tuple[str, bytes]:
    from skyhop.analysis.dissection import dissect
    from skyhop.figures.dissection import dissection_figure
    from skyhop.telemetry.traces import read_traces

    traces = read_traces(Path(asked["file"]))
    return _drawn(dissection_figure(dissect(traces), width=asked["width"]))


def _sky(asked: dict[str, Any]) -> tuple[str, bytes]:
    from skyhop.dish.messages import seen_in
    from skyhop.figures.obstruction import draw_obstruction

    seen = seen_in(Path(asked["file"]))
    return _drawn(draw_obstruction(seen, "Obstruction map", asked["width"]))


def _report(asked: dict[str, Any]) -> tuple[str, bytes]:
    """Make skyhop's own report of a run directory, in one file."""
    from skyhop.report.page import write_report

    with tempfile.TemporaryDirectory() as aside:
        # The run directory is the orchestrator's own copy: it is read where it cannot be changed.
        run = Path(aside) / "run"
        shutil.copytree(asked["directory"], run, symlinks=True)
        page = write_report([run], Path(aside) / "report.html")
        return "report.html", page.read_bytes()


_KINDS: dict[str, Callable[[dict[str, Any]], tuple[str, bytes]]] = {
    "series": _series,
    "orientation": _orientation,
    "spikes": _spikes,
    "segments": _segments,
    "sky": _sky,
    "report": _report,
}

if __name__ == "__main__":
    sys.exit(main())
