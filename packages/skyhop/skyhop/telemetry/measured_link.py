"""Measurements of an access link as arrays: round trips, series of a direction, packet times.

DIRECTORY of a run        round trips of its probe, rates and losses of the link "path"
FILE.parquet              a path file, whose delays are sampled as a ping would
log of round trips        ping, irtt, RIPE Atlas, csv; irtt also has one-way delays
series of 100 ms          rates, one-way delays and losses of both directions (lagos)
packet times              the formats of mahimahi and LeoCC
log of rates              csv and iperf3, as `skyhop path import` reads them
other files               capacities per second, as `skyhop telemetry import` reads them
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from skyhop import _core
from skyhop.data.arrays import FloatArray, IntArray
from skyhop.data.paths import COMPUTED, import_path, read_path
from skyhop.data.paths import Path as MeasuredPath
from skyhop.data.reading import path_record, run_record
from skyhop.data.records import LinkSeries, PathRecord, RunRecord
from skyhop.data.runs import Run, read_run
from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME, Sample
from skyhop.telemetry.importers import detect_format, lagos, leocc, mahimahi
from skyhop.telemetry.importers.input_file import (
    SECOND_NS,
    Importer,
    InputFile,
    Options,
    iso_ns,
    read_input,
)

if TYPE_CHECKING:
    import polars as pl

Source: TypeAlias = Path | Run | MeasuredPath
"""Origin of a measurement: a file or directory, a run, or a path."""
Direction = Literal["up", "down"]
DIRECTIONS: tuple[Direction, Direction] = ("up", "down")

STEP_S = 0.1
"""Step in seconds of series that are made from finer data."""

_PROBES = ("ping", "irtt", "atlas", "csv")
"""Formats of logs of round trips, by their names in the core."""
_OF_CORE = (*_PROBES, "rtt", "iperf3", "table")
"""Formats of telemetry whose files the core reads more finely than by second."""
_MOST_STEPS = 20_000_000
"""Largest number of steps of a series with its gaps, which must fit into memory."""
_PING_S = 0.012
"""Interval in seconds at which the delay of a path file is sampled."""
_MOST_PINGS = 2_000_000
FINE_S = 0.01
"""Time between two changes of a rate up to which a path tells the packets of each ms."""
_PARTS = 10
"""Number of points in a step at which a path's values are averaged."""
_PACKET_BYTES = 1500
"""Assumed size of the packets that a run's link lost."""
_DATA_SHARE = 0.05
"""Share of the busier direction's bytes below which a direction of a run carries only ACKs."""
_HALVES = 0.9
"""Share of one-way delays that are halves of round trips, from which none was measured."""
_UTC_FROM_NS = 10**18
"""Time in ns from which a log counts from 1970: the year 2001."""


@dataclass(frozen=True)
class RoundTrips:
    """Answered probes: n of them, in the order of their answers."""

    answered_s: FloatArray
    """Arrival times of the answers in seconds since the link's `start_ns`, shape (n,)."""
    rtt_ms: FloatArray
    """Round-trip times in ms, shape (n,)."""

    @property
    def interval_s(self) -> float:
        """Median time between two probes in seconds, by their sending times."""
        sent_s = np.sort(self.answered_s - self.rtt_ms / 1e3)
        return float(np.median(np.diff(sent_s))) if len(sent_s) > 1 else np.inf


@dataclass(frozen=True)
class Series:
    """Steps of one direction, of equal lengths; NaN where a value is missing."""

    begin_s: float
    """Start of the first step in seconds since the link's `start_ns`."""
    step_s: float
    rate_mbps: FloatArray | None = None
    """Rates in Mbit/s, shape (n,); None if the measurement has none."""
    delay_ms: FloatArray | None = None
    """One-way delays in ms, shape (n,); None if the measurement has none."""
    loss: FloatArray | None = None
    """Shares of packets that were lost, 0 to 1, shape (n,); None if the measurement has none."""


@dataclass(frozen=True)
class MeasuredLink:
    """Measurement of an access link: a log, a path file, or a run probed in the same way."""

    name: str
    what: str
    """Kind of the measurement, for headings: "round trips", "run", …"""
    start_ns: int
    """Time from which the arrays count, in ns since 1970 or of the measurement's own clock."""
    is_utc: bool
    """Whether `start_ns` counts from 1970."""
    duration_s: float
    round_trips: RoundTrips | None = None
    series: Mapping[Direction, Series] = field(default_factory=dict)
    packets_per_ms: IntArray | None = None
    """Number of packets in each ms since `start_ns`, shape (n,)."""
    notes: tuple[str, ...] = ()
    """Remarks on what was taken from the input."""


def read_measured_link(
    source: Source,
    name: str | None = None,
    direction: str | None = None,
    *,
    force_size: bool = False,
) -> MeasuredLink:
    """Read a run directory, a path file or a log; or take a run or a path that was read.

    Args:
        source: the directory or file, the run or the path; the first lines of a log tell its
            format.
        name: name of the measurement; by default that of the file without its suffixes.
        direction: "up" or "down": direction of packet times and of logs with a single rate, and
            that from the end `from` to the end `to` of paths and runs. By default that of packet
            times follows from their name, that of logs and imported paths is down, and that of
            computed paths is up.
        force_size: read the tables of a run or path file even if they take much memory.

    Raises:
        InputError: the input cannot be read, or says nothing about an access link.
    """
    if direction not in (None, *DIRECTIONS):
        raise InputError(f'--direction: expected down or up, not "{direction}"')
    name = name or plain_name(source)
    if isinstance(source, Path) and source.is_dir():
        source = read_run(source, force_size=force_size)
    elif isinstance(source, Path) and _is_parquet(source):
        source = read_path(source, force_size=force_size)
    if isinstance(source, MeasuredPath):
        return link_of_path(name, source, direction)
    if isinstance(source, Run):
        return _of_run(name, run_record(source), direction)
    return _of_text(name, source, direction)


def _of_text(name: str, file: Path, direction: str | None) -> MeasuredLink:
    """Read a log, whose format its first lines tell."""
    text = read_input(file, Options(direction=direction))
    if lagos.matches(text):
        return _of_steps(name, text)
    if mahimahi.matches(text):
        return _of_packets(name, text)
    return _of_log(name, text, direction)


def _of_samples(name: str, text: InputFile, importer: Importer) -> MeasuredLink:
    """Read capacities per second, which the importers of telemetry find."""
    # Files of several drives need not be in the order of time.
    samples = sorted(importer.samples(text), key=_time_ns)
    columns: dict[Direction, str] = {
        "up": "uplink_capacity_bps",
        "down": "downlink_capacity_bps",
    }
    known = {way: name for way, name in columns.items() if any(s.get(name) for s in samples)}
    if not known:
        raise InputError(
            f"{text.file}: the format {importer.name} has neither single round trips nor capacities"
        )
    begins_s = np.array([_time_ns(sample) // SECOND_NS - 1 for sample in samples])
    series = {
        way: Series(
            0.0, 1.0, _spread_out(text, begins_s - begins_s[0], (s.get(key) for s in samples), 1e6)
        )
        for way, key in known.items()
    }
    start_ns = int(begins_s[0]) * SECOND_NS
    return MeasuredLink(
        name,
        f"capacities, {importer.name}",
        start_ns,
        start_ns > _UTC_FROM_NS,
        float(begins_s[-1] - begins_s[0] + 1),
        series=series,
    )


def _time_ns(sample: Sample) -> int:
    time_ns = sample[TIME]
    assert isinstance(time_ns, int), "samples have a time"
    return time_ns


def _spread_out(
    text: InputFile, places: IntArray, values: Iterable[object], scale: float = 1.0
) -> FloatArray:
    """Return values at their places in a series, divided by `scale`; NaN elsewhere."""
    if not (np.diff(places) >= 0).all():
        raise InputError(f"{text.file}: its times do not ascend: sort its rows by time")
    if places[-1] >= _MOST_STEPS:
        raise InputError(f"{text.file}: has gaps that are too long: keep one part of it")
    whole = np.full(int(places[-1]) + 1, np.nan)
    whole[places] = [value / scale if isinstance(value, float) else np.nan for value in values]
    return whole


def plain_name(source: Source) -> str:
    """Return the name of a file without its suffixes, of a directory, or of a path's ends."""
    if isinstance(source, MeasuredPath):
        return " - ".join(str(source.header[end]["name"]) for end in ("from", "to"))
    if isinstance(source, Run):
        source = source.directory
    name = source.resolve().name
    if source.is_dir():
        return name
    return name.removesuffix(".gz").rpartition(".")[0] or name


def _is_parquet(source: Path) -> bool:
    try:
        with source.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError:
        return False


def _of_log(name: str, text: InputFile, direction: str | None) -> MeasuredLink:
    """Read a log of round trips; a log that has none is one of rates."""
    importer = _importer(text)
    if importer is not None and importer.name not in _OF_CORE:
        return _of_samples(name, text, importer)
    if text.log_format in _PROBES:
        try:
            read = _core.read_round_trips(text.content, text.log_format, str(text.file))
        except InputError:
            if text.log_format != "csv":
                raise
        else:
            return _of_probes(name, text, read, direction)
    path = _imported(text, direction)
    notes = (path.account,) if path.account else ()
    return link_of_path(name, path, direction, str(path.header["source"]), notes)


def _imported(text: InputFile, direction: str | None) -> MeasuredPath:
    """Return a log as a path."""
    options = {}
    if direction is not None and text.log_format in ("csv", "iperf3"):
        options["direction"] = direction
    return import_path(text.file, text.log_format or None, **options)


def _importer(text: InputFile) -> Importer | None:
    """Return the importer of telemetry that knows a file; None if none does."""
    try:
        return detect_format(text)
    except InputError:
        return None


def _of_probes(
    name: str, text: InputFile, read: _core.RoundTrips, direction: str | None
) -> MeasuredLink:
    answers = [(at_ns, rtt_ms) for at_ns, rtt_ms, _ in read.outcomes if rtt_ms is not None]
    if len(answers) < 2:  # noqa: PLR2004
        raise InputError(f"{text.file}: holds fewer than two answered probes")
    rtt_ms = np.array([rtt_ms for _, rtt_ms in answers])
    at_ns = np.array([at_ns for at_ns, _ in answers], dtype=np.int64)
    sent_ns = at_ns - np.rint(rtt_ms * 1e6).astype(np.int64)
    start_ns = int(sent_ns.min())
    trips = _in_order((at_ns - start_ns) / 1e9, rtt_ms)
    return MeasuredLink(
        name,
        "round trips",
        start_ns,
        read.unix,
        float(trips.answered_s[-1]),
        trips,
        _other_columns(text, direction, rtt_ms),
        notes=(read.account,),
    )


def _in_order(answered_s: FloatArray, rtt_ms: FloatArray) -> RoundTrips:
    order = np.argsort(answered_s, kind="stable")
    return RoundTrips(answered_s[order], rtt_ms[order])


def _other_columns(
    text: InputFile, direction: str | None, rtt_ms: FloatArray
) -> dict[Direction, Series]:
    """Return one-way delays and rates that a log of round trips has, by the importer of paths."""
    if text.log_format not in ("irtt", "csv"):
        return {}
    if text.log_format == "csv" and len(text.columns) <= 2:  # noqa: PLR2004
        return {}
    path = _imported(text, direction)
    record = path_record(path)
    series: dict[Direction, Series] = {}
    if not _are_halves(record.delay_ms, rtt_ms):
        ways: dict[Direction, FloatArray] = {"up": record.delay_ms, "down": record.delay_back_ms}
        for way, delays in ways.items():
            series[way] = Series(0.0, _step_s(record), delay_ms=_sampled(record, delays))
    there, _ = _forward(record.header, direction)
    rates = _held_or_none(record, record.rate_mbps)
    if rates is not None:
        series[there] = replace(series.get(there, Series(0.0, _step_s(record))), rate_mbps=rates)
    return series


def _are_halves(delay_ms: FloatArray, rtt_ms: FloatArray) -> bool:
    """Return whether one-way delays are halves of round trips, as the importer makes them."""
    rtt_ns = np.rint(rtt_ms * 1e6)
    halves_ns = np.concatenate([np.floor(rtt_ns / 2), np.ceil(rtt_ns / 2)])
    known_ns = np.rint(delay_ms[np.isfinite(delay_ms)] * 1e6)
    return not len(known_ns) or float(np.isin(known_ns, halves_ns).mean()) >= _HALVES


def _of_steps(name: str, text: InputFile) -> MeasuredLink:
    """Read rates, one-way delays and losses of both directions; missing steps are NaN."""
    steps = list(lagos.steps(text))
    if len(steps) < 2:  # noqa: PLR2004
        raise InputError(f"{text.file}: holds fewer than two steps")
    at_ns = np.array([step.time_ns for step in steps], dtype=np.int64)
    step_ns = float(np.median(np.diff(at_ns)))
    if not step_ns > 0:
        raise InputError(f"{text.file}: its times do not ascend: sort its rows by t_ms")
    places, step_s = np.rint((at_ns - at_ns[0]) / step_ns).astype(np.int64), step_ns / 1e9

    def column(values: Iterable[float]) -> FloatArray:
        return _spread_out(text, places, values)

    def series(get: Callable[[lagos.Step], lagos.Direction]) -> Series:
        return Series(
            0.0,
            step_s,
            column(get(step).rate_mbps for step in steps),
            column(get(step).delay_ms for step in steps),
            column(get(step).loss for step in steps),
        )

    return MeasuredLink(
        name,
        "series",
        steps[0].time_ns,
        is_utc=steps[0].time_ns > _UTC_FROM_NS,
        duration_s=(int(places[-1]) + 1) * step_s,
        series={"up": series(lambda step: step.up), "down": series(lambda step: step.down)},
    )


def _of_packets(name: str, text: InputFile) -> MeasuredLink:
    """Read packet times, and LeoCC's one-way delays next to them."""
    way: Direction = "up" if mahimahi.capacity(text).startswith("up") else "down"
    # By the times as they are written, of which each is the end of a millisecond.
    per_ms = np.array([0, *mahimahi.packets_per_ms(text)], dtype=np.int64)
    per_step = round(STEP_S * 1e3)
    steps = per_ms[: len(per_ms) // per_step * per_step].reshape(-1, per_step).sum(axis=1)
    if len(steps) < 2:  # noqa: PLR2004
        raise InputError(f"{text.file}: lasts less than two steps of {STEP_S:g} s")
    delay_ms = None
    if leocc.matches(text) and leocc.delay_file(text.file) is not None:
        per_delay = round(STEP_S / leocc.DELAY_STEP_S)
        known = np.full(len(steps) * per_delay, np.nan)
        delays = np.array(leocc.delays_ms(text), dtype=np.float64)[: len(known)]
        known[: len(delays)] = delays
        delay_ms = _means(known, per_delay)
    return MeasuredLink(
        name,
        f"packet times, {way}",
        text.start_ns,
        is_utc=False,
        duration_s=len(per_ms) / 1e3,
        series={way: Series(0.0, STEP_S, steps * mahimahi.PACKET_BITS / STEP_S / 1e6, delay_ms)},
        packets_per_ms=per_ms,
    )


def link_of_path(
    name: str,
    path: MeasuredPath,
    direction: str | None,
    what: str = "path",
    notes: tuple[str, ...] = (),
) -> MeasuredLink:
    """Sample a path: its round trips as a ping would, its delays, rates and losses by step.

    Args:
        name: name of the measurement.
        path: the path.
        direction: "up" or "down", the direction from its end `from` to its end `to`; by default
            that which its header tells.
        what: kind of the measurement, for headings.
        notes: remarks on what was taken from the input.
    """
    record, frames = path_record(path), path.frames.sort("t_ns")
    there, back = _forward(record.header, direction)
    start_ns = iso_ns(str(record.header.get("start") or ""))
    series = {
        way: Series(0.0, _step_s(record), delay_ms=_sampled(record, delays))
        for way, delays in ((there, record.delay_ms), (back, record.delay_back_ms))
        if np.nanmax(delays, initial=0) > 0
    }
    for way, suffix in ((there, ""), (back, "_back")):
        rate_mbps = _column(frames, f"rate{suffix}_bps") / 1e6
        loss = _column(frames, f"loss{suffix}")
        if np.isfinite(rate_mbps).any() or np.isfinite(loss).any():
            series[way] = Series(
                0.0,
                _step_s(record),
                _held_or_none(record, rate_mbps),
                series[way].delay_ms if way in series else None,
                _held_or_none(record, loss),
            )
    trips = _pinged(record)
    if trips is None and not series:
        raise InputError(f"{name}: has neither delays nor rates")
    return MeasuredLink(
        name,
        what,
        start_ns or 0,
        start_ns is not None,
        record.duration_s,
        trips,
        series,
        _packets_per_ms(record, frames, (there, back)),
        (*notes, f"forward is {there}"),
    )


def _column(frames: pl.DataFrame, name: str) -> FloatArray:
    """Return a column of frames as numbers, NaN where a value is missing."""
    if name not in frames.columns:
        return np.full(frames.height, np.nan)
    return np.asarray(frames[name].cast(float).fill_null(np.nan).to_numpy(), dtype=np.float64)


def _packets_per_ms(
    record: PathRecord, frames: pl.DataFrame, ways: tuple[Direction, Direction]
) -> IntArray | None:
    """Return the packets that a path whose rate changes within 10 ms carries in each ms.

    They are those of the direction down if its rate changes that fast.
    """
    columns = dict(zip(ways, ("rate_bps", "rate_back_bps"), strict=True))
    rate_bps = _column(frames, columns["down"])
    changes_s = record.t_s[1:][np.diff(rate_bps) != 0]
    if len(changes_s) < 2 or np.median(np.diff(changes_s)) > FINE_S:  # noqa: PLR2004
        return None
    lasts_s = np.diff(np.append(record.t_s, record.duration_s))
    packets = np.concatenate([[0.0], np.cumsum(np.nan_to_num(rate_bps) * lasts_s)])
    edges_s = np.arange(int(record.duration_s * 1e3) + 1) / 1e3
    ends_s = np.append(record.t_s, record.duration_s)
    sent = np.interp(edges_s, ends_s, packets) / mahimahi.PACKET_BITS
    return np.asarray(np.diff(np.floor(sent)), dtype=np.int64)


def _forward(header: Mapping[str, object], direction: str | None) -> tuple[Direction, Direction]:
    """Return the direction from the end `from` to the end `to` of a path, and the other one."""
    if header.get("dish") is not None and direction is None:
        return ("up", "down") if header["dish"] == "from" else ("down", "up")
    is_import = str(header.get("source", "")).startswith("import ")
    is_up = direction == "up" if direction is not None else not is_import
    return ("up", "down") if is_up else ("down", "up")


def _pinged(record: PathRecord) -> RoundTrips | None:
    """Return the round trips that a ping over a path would see; None for a path without delays."""
    if not np.nanmax(record.delay_ms + record.delay_back_ms, initial=0) > 0:
        return None
    # A log of sparse probes does not tell more by being sampled more often.
    least_s = _grain_s(record)
    interval_s = max(_PING_S, least_s, record.duration_s / _MOST_PINGS)
    sent_s = np.arange(0, record.duration_s, interval_s)
    there_s = _carried(record, record.delay_ms, sent_s)
    back_s = _carried(record, record.delay_back_ms, np.nan_to_num(there_s))
    rtt_ms = np.where(np.isfinite(there_s), (back_s - sent_s) * 1e3, np.nan)
    known = np.isfinite(rtt_ms)
    return _in_order((sent_s + rtt_ms / 1e3)[known], rtt_ms[known]) if known.sum() > 1 else None


def _carried(record: PathRecord, values: FloatArray, sent_s: FloatArray) -> FloatArray:
    """Return the arrival times of packets in one direction; NaN for those sent while it is down."""
    enters_s = _entering(record, sent_s)
    arrives_s = enters_s + _at(record, values, enters_s) / 1e3
    if record.header.get("in_order"):
        arrives_s = np.fmax.accumulate(arrives_s)
    return np.asarray(arrives_s, dtype=np.float64)


def _entering(record: PathRecord, sent_s: FloatArray) -> FloatArray:
    """Return the times at which packets enter the path: holes of access profiles hold them."""
    enters_s = sent_s.copy()
    if record.header.get("access") is not None:
        for begin_s, end_s in record.events.down_spans(record.duration_s):
            held = slice(np.searchsorted(sent_s, begin_s), np.searchsorted(sent_s, end_s))
            enters_s[held] = end_s
    return enters_s


def _at(record: PathRecord, values: FloatArray, t_s: FloatArray) -> FloatArray:
    """Return values of a path's curve at times; NaN while the path is down."""
    known_s, drawn = record.curve(values)
    found = np.interp(t_s, known_s, drawn)
    if record.header.get("access") is not None:
        return np.asarray(found, dtype=np.float64)
    for begin_s, end_s in record.events.down_spans(record.duration_s):
        found[np.searchsorted(t_s, begin_s) : np.searchsorted(t_s, end_s)] = np.nan
    return np.asarray(found, dtype=np.float64)


def _sampled(record: PathRecord, values: FloatArray) -> FloatArray:
    """Return the means of a path's curve over steps."""
    points_s = _points_s(record)
    enters_s = _entering(record, points_s)
    return _means(_at(record, values, enters_s) + (enters_s - points_s) * 1e3, _PARTS)


def _held_or_none(record: PathRecord, values: FloatArray) -> FloatArray | None:
    """Return the means over steps of values that hold until the next frame; None without any."""
    known = np.isfinite(values)
    if not known.any():
        return None
    lasts_s = np.diff(np.append(record.t_s, record.duration_s))
    sums = _by_step(record, np.where(known, values, 0.0) * lasts_s)
    times_s = _by_step(record, known * lasts_s)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(times_s > 0, sums / times_s, np.nan))


def _by_step(record: PathRecord, amounts: FloatArray) -> FloatArray:
    """Return the sums over steps of amounts that are spread evenly over their frames."""
    whole = np.concatenate([[0.0], np.cumsum(amounts)])
    step_s = _step_s(record)
    edges_s = np.arange(int(record.duration_s / step_s + 1e-9) + 1) * step_s
    return np.asarray(np.diff(np.interp(edges_s, np.append(record.t_s, record.duration_s), whole)))


def _points_s(record: PathRecord) -> FloatArray:
    step_s = _step_s(record)
    count = int(record.duration_s / step_s + 1e-9)
    return np.asarray((np.arange(count * _PARTS) + 0.5) * (step_s / _PARTS))


def _step_s(record: PathRecord) -> float:
    """Return the step of a path's series: not finer than what was measured."""
    return max(STEP_S, _grain_s(record))


def _grain_s(record: PathRecord) -> float:
    """Return the time between two measurements of an imported path in s; 0 for other paths."""
    is_import = str(record.header.get("source", "")).startswith("import ")
    return float(record.header.get("step_ns", 0)) / 1e9 if is_import else 0.0


def _means(values: FloatArray, each: int) -> FloatArray:
    """Return the means of `each` values in a row that are known; NaN if none is."""
    rows = values[: len(values) // each * each].reshape(-1, each)
    known = np.isfinite(rows)
    sums, counts = np.where(known, rows, 0).sum(axis=1), known.sum(axis=1)
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))


def _of_run(name: str, record: RunRecord, direction: str | None) -> MeasuredLink:
    header = {} if record.path is None else record.path.header
    there, back = _forward({"source": COMPUTED, **header}, direction)
    start_ns = iso_ns(str(header.get("start") or ""))
    probe = next(iter(record.probes.values()), None)
    trips = None
    if probe is not None:
        known = np.isfinite(probe.rtt_ms)
        trips = _in_order((probe.t_s + probe.rtt_ms / 1e3)[known], probe.rtt_ms[known])
    series = _of_links(record, (there, back))
    if (trips is None or len(trips.rtt_ms) < 2) and not series:  # noqa: PLR2004
        raise InputError(
            f"{record.directory}: has neither a probe nor traffic on the link: add a flow with "
            'kind = "probe", and interval = "12 ms"'
        )
    return MeasuredLink(
        name,
        "run",
        start_ns or 0,
        start_ns is not None,
        record.duration_s,
        trips,
        series,
        notes=(f"forward is {there}",) if series else (),
    )


def _of_links(record: RunRecord, ways: tuple[Direction, Direction]) -> dict[Direction, Series]:
    """Return rates and losses of the link "path", without a direction that carries only ACKs.

    A link that carries nothing but probes has none.
    """
    if all(flow.get("kind") == "probe" for flow in record.scenario.get("flow", [])):
        return {}
    names = (_core.DIRECTIONS, (_core.PATH_LINK, f"{_core.PATH_LINK} back"))
    links = next(([record.link[n] for n in pair] for pair in names if pair[0] in record.link), [])
    totals = [float(link.delivered_bytes.sum()) for link in links]
    return {
        way: _of_link(link)
        for way, link, total in zip(ways, links, totals, strict=False)
        if total > 0 and total >= _DATA_SHARE * max(totals) and len(link.t_s) > 1
    }


def _of_link(link: LinkSeries) -> Series:
    """Return delivered rates and lost shares by step; finer samples are joined to steps."""
    sample_s = float(np.median(np.diff(link.t_s)))
    each = max(round(STEP_S / sample_s), 1)
    lost = _sums(sum(link.drops.values(), np.zeros(len(link.t_s))), each) * _PACKET_BYTES
    arrived = _sums(link.delivered_bytes, each)
    with np.errstate(invalid="ignore", divide="ignore"):
        loss = np.where(lost > 0, lost / (lost + arrived), 0.0)
    return Series(
        float(link.t_s[0]) - sample_s,
        sample_s * each,
        arrived * 8 / (sample_s * each) / 1e6,
        loss=loss,
    )


def _sums(values: FloatArray, each: int) -> FloatArray:
    rows = values[: len(values) // each * each].reshape(-1, each)
    return np.asarray(rows.sum(axis=1))
