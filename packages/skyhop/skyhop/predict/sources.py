"""Reading of data for predictors: run directories, path files, telemetry, published measurements.

DIRECTORY of a run        round trips of probes, goodput of flows and the path's geometry
DIRECTORY of telemetry    telemetry stored by `skyhop telemetry` or the testbed's agents
FILE.parquet              a frame written by `write_frame`, or a path file
any other FILE            a file of a format of `skyhop telemetry import`
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from skyhop.errors import InputError
from skyhop.predict.frame import POSITION, SECOND_NS, complete_frame, is_frame, parquet, read_frame
from skyhop.predict.windows import EARLIEST_UTC_NS
from skyhop.telemetry.fields import TIME

if TYPE_CHECKING:
    from skyhop.data.arrays import FloatArray
    from skyhop.data.paths import Path as MeasuredPath

Direction = Literal["down", "up"]
PerSecond = Literal["median", "mean", "first"]
_TELEMETRY = {
    "pop_ping_drop_rate": "drop",
    "downlink_throughput_bps": "rx_bps",
    "uplink_throughput_bps": "tx_bps",
    "direction_azimuth": "azimuth",
    "direction_elevation": "elevation",
    "sat_count": "sat_count",
    "sat_dist_min": "sat_dist_min",
    "sat_dist_mean": "sat_dist_mean",
    "sat_dist_max": "sat_dist_max",
    "serving_elevation": "serving_el",
    "handover_in_s": "serving_changes_in_s",
    "fraction_obstructed": "obstruction",
}
"""Columns of the frame, by the field of telemetry that they are made from."""
_LATENCIES = {"probe_rtt_ms": "probe_loss", "pop_ping_latency_ms": "pop_ping_drop_rate"}
"""Fields of latency with their fields of loss, preferred ones first."""


@dataclass(frozen=True)
class Options:
    """Options of reading data.

    Attributes:
        direction: direction of the throughput.
        per_second: statistic of the RTTs within a second that is its latency, for files with single
            RTTs.
        place: the terminal's latitude and longitude in degrees, and altitude in m.
        elements: element sets, or a constellation, for the satellites above the terminal.
        handover: the handover policy that determines the serving satellite.
    """

    direction: Direction = "down"
    per_second: PerSecond = "median"
    place: tuple[float, float, float] | None = None
    elements: str | None = None
    handover: str = "max-elevation-grid"


@dataclass(frozen=True)
class DataSource:
    """File or directory of data, with its digest."""

    name: str
    kind: str
    sha256: str
    seconds: int


@dataclass(frozen=True)
class Data:
    """Data to train or test models with.

    Attributes:
        frame: rows of seconds, from `frame.complete_frame`.
        sources: files and directories from which the data were read.
        options: options with which the data were read.
    """

    frame: pl.DataFrame
    sources: Sequence[DataSource] = ()
    options: Options = field(default_factory=Options)


def read_data(names: Sequence[str | Path], options: Options | None = None) -> Data:
    """Read data of any of the module's kinds into one frame.

    Args:
        names: files and directories.
        options: options of reading.

    Raises:
        InputError: a source is of no known kind, damaged or empty, or two have seconds of the same
            node in common.
        RunError: a source cannot be read.
    """
    options = options or Options()
    frames, sources = [], []
    for name in names:
        place = Path(name)
        kind, rows = _read(place, options)
        if not rows.height:
            raise InputError(f"{place}: has no seconds")
        frames.append(_with_grid_phase(complete_frame(rows)))
        sources.append(DataSource(place.name, kind, digest(place), frames[-1].height))
    if not frames:
        raise InputError("no data were given")
    frame = pl.concat(frames)
    if frame.select("node", TIME).is_duplicated().any():
        raise InputError("two of the data have seconds of the same node in common: give one")
    frame = complete_frame(frame)
    if options.place is not None:
        placed = zip(POSITION, options.place, strict=True)
        frame = frame.with_columns(pl.lit(value).alias(name) for name, value in placed)
    if options.elements is not None:
        from skyhop.predict.sky import with_satellites

        frame = with_satellites(frame, options.elements, options.handover)
    return Data(frame, sources, options)


def digest(place: Path) -> str:
    """Return the SHA-256 of a file, or of a directory's files and their names."""
    total = hashlib.sha256()
    files = sorted(f for f in place.rglob("*") if f.is_file()) if place.is_dir() else [place]
    for file in files:
        if place.is_dir():
            total.update(f"{file.relative_to(place)}\0".encode())
        total.update(file.read_bytes())
    return total.hexdigest()


def _read(place: Path, options: Options) -> tuple[str, pl.DataFrame]:
    if place.is_dir():
        is_run = (place / "summary.json").is_file()
        reader: Callable[[Path, Options], pl.DataFrame] = _read_run if is_run else _read_telemetry
        return "run" if is_run else "telemetry", reader(place, options)
    if not place.is_file():
        raise InputError(f"{place}: there is no such file or directory")
    if place.suffix == ".parquet":
        if is_frame(parquet(place).columns):
            return "frame", read_frame(place)
        from skyhop.data.paths import read_path

        return "path", _path_rows(read_path(place), node_name(place))
    return _read_imported(place, options)


def node_name(place: Path) -> str:
    """Return the node name for a file that does not contain one.

    >>> node_name(Path("rtt/victoria_1.csv.gz"))
    'victoria_1'
    """
    return place.name.partition(".")[0].lower() or "node"


def _with_grid_phase(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame with the phase of the 15 s grid, if its times are real times in UTC."""
    from skyhop.data.serving_satellites import GRID_OFFSET_S, GRID_PERIOD_S

    # Phase at the start of the second: a second with phase 0 contains a moment of the grid.
    begin_s = pl.col(TIME) // SECOND_NS - 1
    phase = (begin_s - GRID_OFFSET_S) % GRID_PERIOD_S
    is_utc = pl.col(TIME) >= EARLIEST_UTC_NS
    known = pl.when(is_utc).then(phase.cast(pl.Float64)).otherwise(None)
    return frame.with_columns(pl.coalesce("grid_phase_s", known).alias("grid_phase_s"))


# --- telemetry, and files of its importers ---


def _read_telemetry(place: Path, options: Options) -> pl.DataFrame:
    from skyhop.telemetry.store import Store

    store = Store(place)
    if not store.nodes():
        raise InputError(f"{place}: is neither a run directory nor one of telemetry")
    return _telemetry_rows(store.read(fields=fields_of_telemetry(options)), options)


def fields_of_telemetry(options: Options) -> list[str]:
    """Return the fields of telemetry from which the frame is made."""
    names = [*_TELEMETRY, *_LATENCIES, *_LATENCIES.values(), _capacity(options)]
    return list(dict.fromkeys(names))


def seconds_of_telemetry(rows: pl.DataFrame, options: Options) -> pl.DataFrame:
    """Convert telemetry to a frame, as `read_data` does.

    Args:
        rows: `node`, `time_ns` and `fields_of_telemetry`, from `Store.read`.
        options: options of reading.

    Raises:
        InputError: there are no rows.
    """
    return _with_grid_phase(complete_frame(_telemetry_rows(rows, options)))


def _read_imported(place: Path, options: Options) -> tuple[str, pl.DataFrame]:
    from skyhop.telemetry import importers

    found = importers.detect_format(importers.input_file.read_input(place, importers.Options()))
    asked = importers.Options(direction=options.direction)
    name = node_name(place)
    if found.probes is not None:
        probes = importers.probes(place, found.name, asked)
        rows = pl.DataFrame(
            {"time_ns": [p.time_ns for p in probes], "rtt_ms": [p.rtt_ms for p in probes],
             "times": [p.times for p in probes]},
            schema={TIME: pl.Int64, "rtt_ms": pl.Float64, "times": pl.Int64},
        )  # fmt: skip
        return found.name, _probe_rows(rows, options).with_columns(node=pl.lit(name))
    samples = [dict(sample) for sample in importers.import_samples(place, found.name, asked)]
    rows = pl.DataFrame(samples, infer_schema_length=None).with_columns(node=pl.lit(name))
    return found.name, _telemetry_rows(rows, options)


def _telemetry_rows(rows: pl.DataFrame, options: Options) -> pl.DataFrame:
    """Convert samples of telemetry to rows of the frame, with the means of each second."""
    known = set(rows.columns)
    second = (pl.col(TIME) // SECOND_NS * SECOND_NS).alias(TIME)
    columns = {field: name for field, name in _TELEMETRY.items() if field in known}
    columns.pop("pop_ping_drop_rate", None)
    if _capacity(options) in known:
        columns[_capacity(options)] = "capacity_bps"
    latency = [field for field in _LATENCIES if field in known]
    means = [pl.col(field).mean().alias(name) for field, name in columns.items()]
    made = [pl.coalesce(latency).mean().alias("latency_ms")] if latency else []
    drops = [_LATENCIES[field] for field in latency if _LATENCIES[field] in known]
    made += [pl.coalesce(drops).mean().alias("drop")] if drops else []
    return rows.group_by("node", second).agg(*means, *made)


def _capacity(options: Options) -> str:
    return f"{options.direction}link_capacity_bps"


def _probe_rows(rows: pl.DataFrame, options: Options) -> pl.DataFrame:
    """Convert single RTTs to rows of the frame: statistic and share of losses of each second."""
    second = ((pl.col(TIME) // SECOND_NS + 1) * SECOND_NS).alias("end_ns")
    known = pl.col("rtt_ms").drop_nulls()
    of_second = {"median": known.median(), "mean": known.mean(), "first": known.first()}
    lost = pl.col("times").filter(pl.col("rtt_ms").is_null()).sum() / pl.col("times").sum()
    found = (
        rows.sort(TIME)
        .group_by(second)
        .agg(of_second[options.per_second].alias("latency_ms"), lost.alias("drop"))
        .rename({"end_ns": TIME})
    )
    # A file without any loss most likely does not record losses: leave out `drop`.
    return found if rows["rtt_ms"].null_count() else found.drop("drop")


# --- runs and paths of skyhop ---


def _read_run(place: Path, options: Options) -> pl.DataFrame:
    from skyhop.data.runs import Run

    run = Run(place)
    path = run.path
    start_ns = 0 if path is None else _start_ns(path.header)
    frames = []
    probes = run.probes
    if probes.height:
        first = probes.filter(pl.col("probe") == probes["probe"].min())
        rows = first.select(
            (pl.col("t_ns") + start_ns).alias(TIME),
            (pl.col("rtt_ns") / 1e6).alias("rtt_ms"),
            pl.lit(1).alias("times"),
        )
        frames.append(_probe_rows(rows, options))
    flows = run.flows
    if flows.height:
        frames.append(_flow_rows(flows, start_ns))
    if not frames:
        raise InputError(f"{place}: has neither probes nor TCP flows to learn from")
    rows = frames[0]
    for other in frames[1:]:
        rows = rows.join(other, on=TIME, how="full", coalesce=True)
    rows = rows.with_columns(node=pl.lit(node_name(place)))
    if path is None or not path.header.get("constellation"):
        return rows
    return _with_satellites_of_path(rows, path, start_ns)


def _flow_rows(flows: pl.DataFrame, start_ns: int) -> pl.DataFrame:
    """Return the sum of all flows' goodputs in each second; samples are weighted by duration."""
    samples = flows.sort("flow", "t_ns").with_columns(
        length_ns=pl.col("t_ns") - pl.col("t_ns").shift(1, fill_value=0).over("flow")
    )
    # A sample counts in the second in which it ends; runs have at least one sample per second.
    second = ((pl.col("t_ns") - 1) // SECOND_NS + 1) * SECOND_NS + start_ns
    bits = (pl.col("goodput_bps") * pl.col("length_ns")).sum() / SECOND_NS
    return samples.group_by(second.alias(TIME)).agg(bits.alias("rx_bps"))


def frame_of_path(path: MeasuredPath, rates_bps: FloatArray, column: str) -> pl.DataFrame:
    """Return the seconds of a path as a frame, with the given rates of its link as a column.

    The path is repeated if there are more rates than it has seconds.

    Args:
        path: path that gives RTTs, losses and satellites.
        rates_bps: rates of the seconds in bit/s, shape (n,).
        column: name of the column for the rates.
    """
    rows = _path_rows(path, "path").sort(TIME)
    first_ns = _start_ns(path.header) // SECOND_NS * SECOND_NS + SECOND_NS
    row_of_second = np.arange(len(rates_bps)) % max(rows.height, 1)
    ends_ns = first_ns + np.arange(len(rates_bps)) * SECOND_NS
    known = pl.DataFrame({TIME: ends_ns, "node": ["path"] * len(ends_ns), column: rates_bps})
    others = rows.drop(*{TIME, "node", column} & set(rows.columns))
    if rows.height:
        known = known.hstack(others[row_of_second])
    return _with_grid_phase(complete_frame(known))


def _path_rows(path: MeasuredPath, node: str) -> pl.DataFrame:
    """Convert a path to rows of the frame: mean RTT, rate and loss of each second."""
    frames = path.frames.sort("t_ns")
    duration_ns = int(path.header.get("duration_ns") or frames["t_ns"][-1] + SECOND_NS)
    start_ns = _start_ns(path.header)
    count = max(duration_ns // SECOND_NS, 0)
    steps = pl.DataFrame({"t_ns": pl.int_range(0, count * SECOND_NS, _STEP_NS, eager=True)})
    both = pl.col("delay_ns") + pl.col("delay_back_ns")
    at = steps.join_asof(
        frames.select(
            "t_ns", (both / 1e6).alias("latency_ms"), pl.col("loss").cast(pl.Float64),
            pl.col("rate_bps").cast(pl.Float64),
        ),
        on="t_ns",
    )  # fmt: skip
    second = ((pl.col("t_ns") // SECOND_NS + 1) * SECOND_NS + start_ns).alias(TIME)
    lost = pl.when(pl.col("latency_ms").is_null()).then(1.0).otherwise(pl.col("loss"))
    rows = at.group_by(second).agg(
        pl.col("latency_ms").mean(), lost.mean().alias("drop"),
        pl.col("rate_bps").mean().alias("capacity_bps"),
    )  # fmt: skip
    rows = rows.with_columns(node=pl.lit(node))
    if not path.header.get("constellation"):
        return rows
    return _with_satellites_of_path(rows, path, start_ns)


_STEP_NS = SECOND_NS // 10
"""Interval in ns at which paths are sampled."""


def _with_satellites_of_path(rows: pl.DataFrame, path: MeasuredPath, start_ns: int) -> pl.DataFrame:
    from skyhop.predict.sky import path_satellites

    rows = rows.sort(TIME)
    return rows.hstack(path_satellites(path, start_ns, rows[TIME].to_list()))


def _start_ns(header: Mapping[str, Any]) -> int:
    from datetime import datetime, timedelta

    from skyhop.data.positions import path_start

    if not header.get("start"):
        return 0
    since = path_start(header) - datetime.fromisoformat("1970-01-01T00:00:00Z")
    return round(since / timedelta(microseconds=1)) * 1000
