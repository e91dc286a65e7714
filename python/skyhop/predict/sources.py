"""Where seconds come from: run directories, path files, telemetry, and measurements of others.

DIRECTORY of a run        probes' round trips, flows' goodput and the path's geometry
DIRECTORY of telemetry    what `skyhop telemetry` and the testbed's agents keep
FILE.parquet              a frame that was written before, or a path file
any other FILE            what `skyhop telemetry import` knows
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
from skyhop.predict.frame import POSITION, SECOND_NS, is_frame, parquet, read_frame, whole
from skyhop.predict.windows import CLOCKED_NS
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
"""Of telemetry's fields, what the frame calls them."""
_LATENCIES = {"probe_rtt_ms": "probe_loss", "pop_ping_latency_ms": "pop_ping_drop_rate"}
"""What is taken for the latency, the first that is known, and its losses."""


@dataclass(frozen=True)
class Options:
    """How data are read.

    Attributes:
        direction: whose capacity is the throughput.
        per_second: what a second's latency is of its round trips, where the file has them.
        place: where the terminal is: latitude and longitude in degrees, altitude in m.
        elements: element sets, or a constellation, for the satellites above it.
        handover: the policy by which the serving satellite is guessed.
    """

    direction: Direction = "down"
    per_second: PerSecond = "median"
    place: tuple[float, float, float] | None = None
    elements: str | None = None
    handover: str = "max-elevation-grid"


@dataclass(frozen=True)
class Source:
    """One of the data: what it was, and by what its content is known again."""

    name: str
    kind: str
    sha256: str
    seconds: int


@dataclass(frozen=True)
class Data:
    """Seconds to train or test with.

    Attributes:
        frame: as `frame.whole` has it.
        sources: where they come from.
        options: how they were read.
    """

    frame: pl.DataFrame
    sources: Sequence[Source] = ()
    options: Options = field(default_factory=Options)


def read_data(names: Sequence[str | Path], options: Options | None = None) -> Data:
    """Read data of any of the kinds above into one frame.

    Args:
        names: files and directories.
        options: how.

    Raises:
        InputError: one is nothing of these, is damaged or empty, or two have seconds of the same
            node in common.
        RunError: one cannot be read.
    """
    options = options or Options()
    frames, sources = [], []
    for name in names:
        place = Path(name)
        kind, rows = _read(place, options)
        frames.append(_timed(whole(rows) if rows.height else _none(place)))
        sources.append(Source(place.name, kind, digest(place), frames[-1].height))
    if not frames:
        raise InputError("no data were given")
    frame = pl.concat(frames)
    if frame.select("node", TIME).is_duplicated().any():
        raise InputError("two of the data have seconds of the same node in common: give one")
    frame = whole(frame)
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
        reader: Callable[[Path, Options], pl.DataFrame] = _of_run if is_run else _of_telemetry
        return "run" if is_run else "telemetry", reader(place, options)
    if not place.is_file():
        raise InputError(f"{place}: there is no such file or directory")
    if place.suffix == ".parquet":
        if is_frame(parquet(place).schema_arrow.names):
            return "frame", read_frame(place)
        from skyhop.data.paths import read_path

        return "path", _of_path(read_path(place), node_name(place))
    return _of_importer(place, options)


def _none(place: Path) -> pl.DataFrame:
    raise InputError(f"{place}: has no seconds")


def node_name(place: Path) -> str:
    """Return what a node is called of which there is a file alone.

    >>> node_name(Path("rtt/victoria_1.csv.gz"))
    'victoria_1'
    """
    return place.name.partition(".")[0].lower() or "node"


def _timed(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame with the grid's phase where the time is one of UTC."""
    from skyhop.data.overhead import GRID_OFFSET_S, GRID_PERIOD_S

    # Of the second's beginning: a phase of 0 is a second that holds a moment of the grid.
    begin_s = pl.col(TIME) // SECOND_NS - 1
    phase = (begin_s - GRID_OFFSET_S) % GRID_PERIOD_S
    is_clocked = pl.col(TIME) >= CLOCKED_NS
    known = pl.when(is_clocked).then(phase.cast(pl.Float64)).otherwise(None)
    return frame.with_columns(pl.coalesce("grid_phase_s", known).alias("grid_phase_s"))


# --- telemetry, and what its importers read ---


def _of_telemetry(place: Path, options: Options) -> pl.DataFrame:
    from skyhop.telemetry.store import Store

    store = Store(place)
    if not store.nodes():
        raise InputError(f"{place}: is neither a run directory nor one of telemetry")
    return _of_samples(store.read(fields=fields_of_telemetry(options)), options)


def fields_of_telemetry(options: Options) -> list[str]:
    """Return those of telemetry's fields that the frame knows."""
    names = [*_TELEMETRY, *_LATENCIES, *_LATENCIES.values(), _capacity(options)]
    return list(dict.fromkeys(names))


def seconds_of_telemetry(rows: pl.DataFrame, options: Options) -> pl.DataFrame:
    """Return telemetry as `read_data` makes a frame of it.

    Args:
        rows: `node`, `time_ns` and `fields_of_telemetry`, as the store reads them.
        options: how.

    Raises:
        InputError: there is none.
    """
    return _timed(whole(_of_samples(rows, options)))


def _of_importer(place: Path, options: Options) -> tuple[str, pl.DataFrame]:
    from skyhop.telemetry import importers

    found = importers.detected(importers.source.opened(place, importers.Options()))
    asked = importers.Options(direction=options.direction)
    name = node_name(place)
    if found.probes is not None:
        probes = importers.probes(place, found.name, asked)
        rows = pl.DataFrame(
            {"time_ns": [p.time_ns for p in probes], "rtt_ms": [p.rtt_ms for p in probes],
             "times": [p.times for p in probes]},
            schema={TIME: pl.Int64, "rtt_ms": pl.Float64, "times": pl.Int64},
        )  # fmt: skip
        return found.name, _of_probes(rows, options).with_columns(node=pl.lit(name))
    samples = [dict(sample) for sample in importers.imported(place, found.name, asked)]
    rows = pl.DataFrame(samples, infer_schema_length=None).with_columns(node=pl.lit(name))
    return found.name, _of_samples(rows, options)


def _of_samples(rows: pl.DataFrame, options: Options) -> pl.DataFrame:
    """Return samples of telemetry's fields as rows, a second's means."""
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


def _of_probes(rows: pl.DataFrame, options: Options) -> pl.DataFrame:
    """Return round trips by second: what `options.per_second` says of those that were answered."""
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
    # A file in which nothing is lost is mostly one that does not tell.
    return found if rows["rtt_ms"].null_count() else found.drop("drop")


# --- what skyhop computes: runs and paths ---


def _of_run(place: Path, options: Options) -> pl.DataFrame:
    from skyhop.runs import Run

    run = Run(place)
    path = run.path
    start_ns = 0 if path is None else _start_ns(path.header)
    frames = []
    probes = pl.DataFrame(pl.from_arrow(run.probes))
    if probes.height:
        first = probes.filter(pl.col("probe") == probes["probe"].min())
        rows = first.select(
            (pl.col("t_ns") + start_ns).alias(TIME),
            (pl.col("rtt_ns") / 1e6).alias("rtt_ms"),
            pl.lit(1).alias("times"),
        )
        frames.append(_of_probes(rows, options))
    flows = pl.DataFrame(pl.from_arrow(run.flows))
    if flows.height:
        frames.append(_of_flows(flows, start_ns))
    if not frames:
        raise InputError(f"{place}: has neither probes nor TCP flows to learn from")
    rows = frames[0]
    for other in frames[1:]:
        rows = rows.join(other, on=TIME, how="full", coalesce=True)
    rows = rows.with_columns(node=pl.lit(node_name(place)))
    if path is None or not path.header.get("constellation"):
        return rows
    return _with_paths_sky(rows, path, start_ns)


def _of_flows(flows: pl.DataFrame, start_ns: int) -> pl.DataFrame:
    """Return what all flows of a run received, by second: each sample counts for its length."""
    each = flows.sort("flow", "t_ns").with_columns(
        lasts=pl.col("t_ns") - pl.col("t_ns").shift(1, fill_value=0).over("flow")
    )
    # A sample is of the second that it ends in; one a second or more often, as runs have them.
    second = ((pl.col("t_ns") - 1) // SECOND_NS + 1) * SECOND_NS + start_ns
    bits = (pl.col("goodput_bps") * pl.col("lasts")).sum() / SECOND_NS
    return each.group_by(second.alias(TIME)).agg(bits.alias("rx_bps"))


def of_path_and_rates(path: MeasuredPath, rates_bps: FloatArray, column: str) -> pl.DataFrame:
    """Return the seconds of a path as a frame, with the rates of a link along it as one column.

    Where there are more rates than the path has seconds it begins again.

    Args:
        path: whose round trips, losses and satellites are known.
        rates_bps: of its seconds, shape (n,).
        column: the frame's column that they are.
    """
    rows = _of_path(path, "path").sort(TIME)
    first_ns = _start_ns(path.header) // SECOND_NS * SECOND_NS + SECOND_NS
    again = np.arange(len(rates_bps)) % max(rows.height, 1)
    ends_ns = first_ns + np.arange(len(rates_bps)) * SECOND_NS
    known = pl.DataFrame({TIME: ends_ns, "node": ["path"] * len(ends_ns), column: rates_bps})
    others = rows.drop(*{TIME, "node", column} & set(rows.columns))
    if rows.height:
        known = known.hstack(others[again])
    return _timed(whole(known))


def _of_path(path: MeasuredPath, node: str) -> pl.DataFrame:
    """Return a path by second: the mean of its round trip, rate and loss."""
    frames = pl.DataFrame(pl.from_arrow(path.frames)).sort("t_ns")
    lasts_ns = int(path.header.get("duration_ns") or frames["t_ns"][-1] + SECOND_NS)
    start_ns = _start_ns(path.header)
    count = max(lasts_ns // SECOND_NS, 0)
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
    return _with_paths_sky(rows, path, start_ns) if path.header.get("constellation") else rows


_STEP_NS = SECOND_NS // 10
"""How finely paths are looked at."""


def _with_paths_sky(rows: pl.DataFrame, path: MeasuredPath, start_ns: int) -> pl.DataFrame:
    from skyhop.predict.sky import path_satellites

    rows = rows.sort(TIME)
    return rows.hstack(path_satellites(path, start_ns, rows[TIME].to_list()))


def _start_ns(header: Mapping[str, Any]) -> int:
    from datetime import datetime, timedelta

    from skyhop.data.positions import start_of

    if not header.get("start"):
        return 0
    since = start_of(header) - datetime.fromisoformat("1970-01-01T00:00:00Z")
    return round(since / timedelta(microseconds=1)) * 1000
