"""What runs and path computations left behind, read back for figures and reports.

The layouts are those of a run directory (run.json, summary.json and four Parquet files) and of a
path file. Everything is converted on reading: times to seconds, delays to milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
import polars as pl

from skyhop._core import DIRECTIONS, LOSS_REASONS, PATH_EVENT_KINDS, PATH_LINK, PHASE_KINDS
from skyhop.errors import InputError

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]

SHOWN_EVENT_KINDS = (*PATH_EVENT_KINDS, "change")
"""What happens to a path, by itself or as the scenario says, in the order of figures."""

_FLOW_COLUMNS = (
    "t_ns", "flow", "goodput_bps", "cwnd_packets", "ssthresh_packets", "srtt_us",
    "inflight_packets", "retransmits",
)  # fmt: skip
_LINK_COLUMNS = ("t_ns", "link", "direction", "backlog_bytes")
_EVENT_COLUMNS = ("t_ns", "kind", "outage_ns")
_PROBE_COLUMNS = ("probe", "seq", "t_ns", "rtt_ns", "scheduled_rtt_ns")
_PATH_COLUMNS = ("t_ns", "nodes", "delay_ns", "delay_back_ns", "rate_bps", "loss", "events")

_SUMMARY_KEYS = ("engine", "seed", "virtual_s", "wall_s", "flows", "link", "handovers")
FLOW_SUMMARY_KEYS = (
    "id", "cc", "start_s", "stop_s", "goodput_bps", "srtt_mean_us", "rtt_p95_us",
    "base_rtt_mean_us", "cwnd_mean_packets", "retransmits", "sent_packets", "completion_s",
)  # fmt: skip


class ReportError(InputError, ValueError):
    """A report cannot be made from what it was given; the message is one line that says why."""


@runtime_checkable
class ArrowTable(Protocol):
    """A table that hands itself over through the Arrow C stream, such as `pyarrow.Table`."""

    @property
    def schema(self) -> Any:
        """The schema; its `metadata` holds the path file's header."""
        ...

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the table's Arrow C stream."""
        ...


@dataclass(frozen=True)
class Events:
    """What happened to a path: n events ordered by time."""

    t_s: FloatArray
    """When, shape (n,)."""
    kinds: tuple[str, ...]
    """What, n of `SHOWN_EVENT_KINDS`."""
    outage_s: FloatArray
    """How long the path is down from then on, shape (n,)."""

    def times(self, kind: str) -> FloatArray:
        """Return when events of one kind happened, in seconds."""
        return self.t_s[[name == kind for name in self.kinds]]

    def until(self, end_s: float) -> Events:
        """Keep the events before `end_s`."""
        kept = self.t_s < end_s
        kinds = tuple(kind for kind, keep in zip(self.kinds, kept, strict=True) if keep)
        return Events(self.t_s[kept], kinds, self.outage_s[kept])

    def down_spans(self, end_s: float) -> list[tuple[float, float]]:
        """Return disjoint, ordered (begin, end) in s when the path was down, up to `end_s`."""
        spans = [
            (begin, begin + outage)
            for begin, outage in zip(self.t_s.tolist(), self.outage_s.tolist(), strict=True)
            if outage > 0
        ]
        lost_at: float | None = None
        for at, kind in zip(self.t_s.tolist(), self.kinds, strict=True):
            if kind == "lost" and lost_at is None:
                lost_at = at
            elif kind == "restored" and lost_at is not None:
                spans.append((lost_at, at))
                lost_at = None
        if lost_at is not None:
            spans.append((lost_at, end_s))
        return _merged(spans, end_s)


@dataclass(frozen=True)
class Phases:
    """What congestion controls did about announced handovers: n phases ordered by their begin."""

    begin_s: FloatArray
    """When each began, shape (n,)."""
    length_s: FloatArray
    """How long it lasted, shape (n,)."""
    kinds: tuple[str, ...]
    """What, n of `PHASE_KINDS`."""
    flows: tuple[int, ...]
    """Whose, n flow ids."""

    def spans(self, kind: str, end_s: float) -> list[tuple[float, float]]:
        """Return disjoint, ordered (begin, end) in s when any flow was in a phase of this kind."""
        phases = zip(self.begin_s.tolist(), self.length_s.tolist(), self.kinds, strict=True)
        return _merged(
            [(begin, begin + length) for begin, length, of in phases if of == kind], end_s
        )


@dataclass(frozen=True)
class PathRecord:
    """A path file: n frames."""

    header: Mapping[str, Any]
    """The JSON header: endpoints, constellation, policies, seed."""
    t_s: FloatArray
    """When each frame begins, shape (n,)."""
    delay_ms: FloatArray
    """One-way delay from -> to, shape (n,), NaN without a path."""
    delay_back_ms: FloatArray
    """One-way delay to -> from, shape (n,), NaN without a path."""
    hops: FloatArray
    """Number of hops, shape (n,), NaN where they are not known."""
    rate_mbps: FloatArray
    """The path's measured rate in Mbit/s, shape (n,), NaN where not known."""
    same_nodes: npt.NDArray[np.bool_]
    """Whether a frame has the nodes of the one before, shape (n,)."""
    events: Events

    @property
    def duration_s(self) -> float:
        """The time that the path covers."""
        last_s = float(self.t_s[-1]) if len(self.t_s) else 0.0
        return max(float(self.header.get("duration_ns", 0)) / 1e9, last_s)

    def endpoint(self, end: str) -> str:
        """Return the name of the end `from` or `to`."""
        value = self.header.get(end)
        return str(value.get("name", end)) if isinstance(value, Mapping) else end

    def curve(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return times (s) and values to draw, (m,) each.

        Within the same nodes a value goes linearly to the next frame where the header says so;
        where the nodes change it stays and then jumps. The last value holds until the end.
        """
        linear = self.header.get("between_frames", "linear") == "linear"
        jumps = np.zeros(len(values), dtype=bool)
        jumps[1:] = ~self.same_nodes[1:] if linear else True
        at = np.flatnonzero(jumps)
        t_s = np.insert(self.t_s, at, self.t_s[at])
        drawn = np.insert(values, at, values[at - 1])
        if len(values) and self.duration_s > self.t_s[-1]:
            t_s, drawn = np.append(t_s, self.duration_s), np.append(drawn, values[-1])
        return t_s, drawn


@dataclass(frozen=True)
class FlowSeries:
    """One TCP flow's samples, shape (n,) each; NaN where a value is not known."""

    t_s: FloatArray
    goodput_mbps: FloatArray
    cwnd_packets: FloatArray
    ssthresh_packets: FloatArray
    srtt_ms: FloatArray
    retransmits: FloatArray


@dataclass(frozen=True)
class LinkSeries:
    """One direction of the link, shape (n,) each."""

    t_s: FloatArray
    backlog_bytes: FloatArray
    drops: Mapping[str, FloatArray]
    """Packets lost during each sample, by reason."""


@dataclass(frozen=True)
class ProbeSeries:
    """One probe's packets, shape (n,) each; NaN for the RTT of a lost one."""

    t_s: FloatArray
    rtt_ms: FloatArray
    scheduled_rtt_ms: FloatArray


@dataclass(frozen=True)
class RunRecord:
    """A run directory."""

    directory: Path
    name: str
    """What to call the run; `read_runs` makes it unique."""
    manifest: Mapping[str, Any]
    """run.json."""
    summary: Mapping[str, Any]
    """summary.json."""
    flows: Mapping[int, FlowSeries]
    """By flow id; a flow of the summary that has no samples has an empty series."""
    link: Mapping[str, LinkSeries]
    """By direction, forward and back; with several links by name: path, path back, NAME …"""
    events: Events
    """Path events and changes; losses are counted in `link`."""
    announced_s: FloatArray
    """When handovers were announced."""
    phases: Phases
    probes: Mapping[int, ProbeSeries]
    path: PathRecord | None
    """The path that the run went over, where the directory holds a copy of it."""

    @property
    def duration_s(self) -> float:
        """How much of the scenario's time passed."""
        return float(self.summary["virtual_s"])

    @property
    def scenario(self) -> Mapping[str, Any]:
        """The scenario as resolved."""
        scenario = self.manifest["scenario"]
        return scenario if isinstance(scenario, Mapping) else {}

    @property
    def has_one_link(self) -> bool:
        """Whether all flows share the link of `[path]` and `[link]` and nothing else."""
        flows = self.scenario.get("flow", [])
        return not self.scenario.get("links") and not any("extra_rtt" in flow for flow in flows)

    def flow_summaries(self) -> Iterator[Mapping[str, Any]]:
        """Yield summary.json's entries for TCP flows."""
        yield from self.summary["flows"]


def read_runs(directories: Sequence[Path | str]) -> list[RunRecord]:
    """Read run directories; one that holds runs (`seed-1/`, `seed-2/`, …) stands for them all.

    Raises:
        ReportError: if there is none, or one is not a run directory.

    """
    found = [run for directory in directories for run in _run_directories(Path(directory))]
    if not found:
        raise ReportError("no run directory given: name at least one")
    names = _unique_names(found)
    return [_read_run(directory, name) for directory, name in zip(found, names, strict=True)]


LIKE_DURATIONS = 1.5
"""How many times longer than another a run may be and still share its time axis."""


def by_duration(runs: Sequence[RunRecord]) -> list[list[int]]:
    """Return the places of runs that lasted about as long as each other, the shortest first."""
    groups: list[list[int]] = []
    for place in sorted(range(len(runs)), key=lambda place: runs[place].duration_s):
        if groups and runs[place].duration_s <= LIKE_DURATIONS * runs[groups[-1][0]].duration_s:
            groups[-1].append(place)
        else:
            groups.append([place])
    return [sorted(group) for group in groups]


def read_path(source: Path | str | ArrowTable) -> PathRecord:
    """Read a path file, or a table with the same columns and metadata.

    Raises:
        ReportError: if it is not one.

    """
    if isinstance(source, (str, Path)):
        file = Path(source)
        frame = _read_parquet(file, _PATH_COLUMNS)
        return _path_record(frame, pl.read_parquet_metadata(file).get("skyhop"), str(file))
    frame = pl.DataFrame(pl.from_arrow(source))
    _check_columns(frame, _PATH_COLUMNS, "the path table")
    header = (source.schema.metadata or {}).get(b"skyhop")
    return _path_record(frame, header, "the path table")


def _run_directories(directory: Path) -> list[Path]:
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise ReportError(f"{directory}: {what}; a report is made from run directories")
    if (directory / "run.json").exists():
        return [directory]
    inside = [found.parent for found in directory.glob("*/run.json")]
    if not inside:
        raise ReportError(f"{directory}: not a run directory: run.json is missing")
    return sorted(inside, key=lambda run: (len(run.name), run.name))


def _unique_names(directories: Sequence[Path]) -> list[str]:
    """Take as many of the last parts of each path as it takes to tell them apart."""
    parts = [directory.resolve().parts for directory in directories]
    for depth in range(1, max(len(part) for part in parts) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{part[-1]} ({index + 1})" for index, part in enumerate(parts)]


def _read_run(directory: Path, name: str) -> RunRecord:
    manifest = _read_json(directory / "run.json", ("scenario",))
    summary = _read_json(directory / "summary.json", _SUMMARY_KEYS)
    _check_summary(directory / "summary.json", summary)
    flows = _read_parquet(directory / "flows.parquet", _FLOW_COLUMNS)
    link = _read_parquet(directory / "link.parquet", _LINK_COLUMNS)
    events = _read_parquet(directory / "events.parquet", _EVENT_COLUMNS)
    probe_file, path_file = directory / "probes.parquet", directory / "path.parquet"
    probes = _read_parquet(probe_file, _PROBE_COLUMNS) if probe_file.exists() else None
    return RunRecord(
        directory=directory,
        name=name,
        manifest=manifest,
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
        probes=_probe_series(probes) if probes is not None else {},
        path=read_path(path_file) if path_file.exists() else None,
    )


def _read_json(file: Path, keys: Sequence[str]) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        unfinished = file.name == "summary.json"
        hint = "; the run was not finished" if unfinished else ""
        raise ReportError(f"{file}: missing{hint}") from None
    except (OSError, ValueError) as error:
        raise ReportError(f"{file}: not readable as JSON: {_one_line(error)}") from error
    if not isinstance(content, dict):
        raise ReportError(f"{file}: expected a JSON object")
    for key in keys:
        if key not in content:
            raise ReportError(f"{file}: the key `{key}` is missing")
    return content


def _check_summary(file: Path, summary: Mapping[str, Any]) -> None:
    link = summary["link"]
    parts: list[tuple[str, Any, Sequence[str]]] = [
        ("link", link, ("utilisation", "backlog_mean_bytes", "drops")),
        ("handovers", summary["handovers"], ("end", "intermediate", "reroute")),
    ]
    for index, flow in enumerate(summary["flows"]):
        parts.append((f"flows[{index}]", flow, FLOW_SUMMARY_KEYS))
    if isinstance(link, Mapping):
        parts.append(("link.drops", link.get("drops"), ()))
    for place, part, keys in parts:
        if not isinstance(part, Mapping):
            raise ReportError(f"{file}: `{place}` should be an object")
        for key in keys:
            if key not in part:
                raise ReportError(f"{file}: the key `{place}.{key}` is missing")


def _read_parquet(file: Path, columns: Sequence[str]) -> pl.DataFrame:
    if not file.exists():
        raise ReportError(f"{file}: missing")
    try:
        frame = pl.read_parquet(file)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ReportError(f"{file}: not readable as Parquet: {_one_line(error)}") from error
    _check_columns(frame, columns, str(file))
    return frame


def _check_columns(frame: pl.DataFrame, columns: Sequence[str], place: str) -> None:
    for column in columns:
        if column not in frame.columns:
            raise ReportError(f"{place}: the column `{column}` is missing")


def _one_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


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
        retransmits=_floats(frame, "retransmits"),
    )


def _link_series_by_name(frame: pl.DataFrame) -> dict[str, LinkSeries]:
    names = frame.get_column("link").unique(maintain_order=True).to_list() or [PATH_LINK]
    directions = DIRECTIONS
    if names == [PATH_LINK]:
        labels = {(PATH_LINK, direction): direction for direction in directions}
    else:
        labels = {
            (name, direction): name if direction == DIRECTIONS[0] else f"{name} back"
            for name in names
            for direction in directions
        }
    return {
        label: _link_series(
            frame.filter((pl.col("link") == name) & (pl.col("direction") == direction))
        )
        for (name, direction), label in labels.items()
    }


def _link_series(frame: pl.DataFrame) -> LinkSeries:
    frame = frame.sort("t_ns")
    return LinkSeries(
        t_s=_floats(frame, "t_ns", 1e9),
        backlog_bytes=_floats(frame, "backlog_bytes"),
        # Runs of before a reason was known lack its column, and have none of it.
        drops={
            reason: _floats(frame, column) if column in frame.columns else np.zeros(len(frame))
            for reason, column in ((reason, f"drops_{reason}") for reason in LOSS_REASONS)
        },
    )


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


def _events(frame: pl.DataFrame) -> Events:
    frame = frame.filter(pl.col("kind").is_in(SHOWN_EVENT_KINDS)).sort("t_ns", maintain_order=True)
    return Events(
        t_s=_floats(frame, "t_ns", 1e9),
        kinds=tuple(frame.get_column("kind").to_list()),
        outage_s=_floats(frame.with_columns(pl.col("outage_ns").fill_null(0)), "outage_ns", 1e9),
    )


def _phases(frame: pl.DataFrame) -> Phases:
    frame = frame.filter(pl.col("kind").is_in(PHASE_KINDS)).sort("t_ns", maintain_order=True)
    # Runs of before announcements were recorded lack the column, and have no phases.
    length_s = _floats(frame, "length_ns", 1e9) if len(frame) else np.empty(0)
    return Phases(
        begin_s=_floats(frame, "t_ns", 1e9),
        length_s=length_s,
        kinds=tuple(frame.get_column("kind").to_list()),
        flows=tuple(frame.get_column("flow").to_list()) if len(frame) else (),
    )


def _path_record(frame: pl.DataFrame, header: str | bytes | None, place: str) -> PathRecord:
    if header is None:
        raise ReportError(f"{place}: not a path file: the metadata key `skyhop` is missing")
    try:
        decoded = json.loads(header)
    except ValueError as error:
        raise ReportError(f"{place}: its header is not JSON: {_one_line(error)}") from error
    if not isinstance(decoded, dict):
        raise ReportError(f"{place}: its header should be a JSON object")
    if frame.is_empty():
        raise ReportError(f"{place}: the path has no frames")
    frame = frame.sort("t_ns")
    nodes = frame.get_column("nodes")
    lengths = _floats(pl.DataFrame({"n": nodes.list.len()}), "n")
    return PathRecord(
        header=decoded,
        t_s=_floats(frame, "t_ns", 1e9),
        delay_ms=_floats(frame, "delay_ns", 1e6),
        delay_back_ms=_floats(frame, "delay_back_ns", 1e6),
        hops=np.where(lengths > 0, lengths - 1, np.nan),
        rate_mbps=_floats(frame, "rate_bps", 1e6),
        same_nodes=np.asarray((nodes == nodes.shift(1)).fill_null(False).to_numpy(), dtype=bool),
        events=_events(_exploded_events(frame)),
    )


def _exploded_events(frame: pl.DataFrame) -> pl.DataFrame:
    rows = frame.select(pl.col("events").explode()).drop_nulls()
    return rows.unnest("events")


def _merged(spans: Sequence[tuple[float, float]], end_s: float) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for begin, end in sorted((begin, min(end, end_s)) for begin, end in spans if begin < end_s):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged
