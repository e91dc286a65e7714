"""Measurements of an access link as arrays: round trips, series of a direction, packet times.

DIRECTORY of a run        round trips of its probe, rates and losses of the link "path"
FILE.parquet              a path file, whose delays are sampled as a ping would
log of round trips        ping, irtt, RIPE Atlas, csv; irtt also has one-way delays
series of 100 ms          rates, one-way delays and losses of both directions (lagos)
packet times              the formats of mahimahi and LeoCC
log of rates              csv and iperf3, as `skyhop path import` reads them
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from skyhop import _core
from skyhop.data.arrays import FloatArray, IntArray
from skyhop.data.paths import COMPUTED, import_path, read_path
from skyhop.data.paths import Path as MeasuredPath
from skyhop.data.reading import path_record, run_record
from skyhop.data.records import LinkSeries, PathRecord, RunRecord
from skyhop.data.runs import read_run
from skyhop.errors import InputError
from skyhop.telemetry.importers import lagos, leocc, mahimahi
from skyhop.telemetry.importers.input_file import InputFile, Options, iso_ns, read_input

Direction = Literal["up", "down"]
DIRECTIONS: tuple[Direction, Direction] = ("up", "down")

STEP_S = 0.1
"""Step in seconds of series that are made from finer data."""

_PROBES = ("ping", "irtt", "atlas", "csv")
"""Formats of logs of round trips, by their names in the core."""
_PING_S = 0.012
"""Interval in seconds at which the delay of a path file is sampled."""
_MOST_PINGS = 2_000_000
_PARTS = 10
"""Number of points in a step at which a path's values are averaged."""
_PACKET_BYTES = 1500
"""Assumed size of the packets that a run's link lost."""
_DATA_SHARE = 0.05
"""Share of the busier direction's bytes below which a direction of a run carries only ACKs."""
_EQUAL_MS = 1e-3
"""Largest difference of one-way delays in ms that halves of round trips have."""
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
    source: Path,
    name: str | None = None,
    direction: str | None = None,
    *,
    force_size: bool = False,
) -> MeasuredLink:
    """Read a run directory, a path file or a log.

    Args:
        source: the directory or file; the first lines of a log tell its format.
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
    if source.is_dir():
        record = run_record(read_run(source, force_size=force_size))
        return _of_run(name, record, direction)
    if _is_parquet(source):
        return _of_path(name, read_path(source, force_size=force_size), direction)
    text = read_input(source, Options(direction=direction))
    if lagos.matches(text):
        return _of_steps(name, text)
    if mahimahi.matches(text):
        return _of_packets(name, text)
    return _of_log(name, text, direction)


def plain_name(source: Path) -> str:
    """Return the name of a file without its suffixes, or of a directory."""
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
    if text.log_format in _PROBES:
        try:
            read = _core.read_round_trips(text.content, text.log_format, str(text.file))
        except InputError:
            if text.log_format != "csv":
                raise
        else:
            return _of_probes(name, text, read)
    options = {}
    if direction is not None and text.log_format in ("csv", "iperf3"):
        options["direction"] = direction
    path = import_path(text.file, **options)
    notes = (path.account,) if path.account else ()
    return _of_path(name, path, direction, str(path.header["source"]), notes)


def _of_probes(name: str, text: InputFile, read: _core.RoundTrips) -> MeasuredLink:
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
        _one_way_delays(text),
        notes=(read.account,),
    )


def _in_order(answered_s: FloatArray, rtt_ms: FloatArray) -> RoundTrips:
    order = np.argsort(answered_s, kind="stable")
    return RoundTrips(answered_s[order], rtt_ms[order])


def _one_way_delays(text: InputFile) -> dict[Direction, Series]:
    """Return the one-way delays of a log that measured both, by the importer of paths."""
    if text.log_format not in ("irtt", "csv"):
        return {}
    if text.log_format == "csv" and len(text.columns) <= 2:  # noqa: PLR2004
        return {}
    record = path_record(import_path(text.file, text.log_format))
    if not np.nanmax(np.abs(record.delay_ms - record.delay_back_ms), initial=0) > _EQUAL_MS:
        return {}
    ways: dict[Direction, FloatArray] = {"up": record.delay_ms, "down": record.delay_back_ms}
    return {
        way: Series(0.0, STEP_S, delay_ms=_sampled(record, values)) for way, values in ways.items()
    }


def _of_steps(name: str, text: InputFile) -> MeasuredLink:
    """Read rates, one-way delays and losses of both directions; missing steps are NaN."""
    steps = list(lagos.steps(text))
    if len(steps) < 2:  # noqa: PLR2004
        raise InputError(f"{text.file}: holds fewer than two steps")
    at_s = np.array([step.time_ns for step in steps]) / 1e9
    if not (np.diff(at_s) > 0).all():
        raise InputError(f"{text.file}: its times do not ascend: sort its rows by t_ms")
    step_s = float(np.median(np.diff(at_s)))
    places = np.rint((at_s - at_s[0]) / step_s).astype(np.int64)

    def column(values: Iterator[float]) -> FloatArray:
        whole = np.full(int(places[-1]) + 1, np.nan)
        whole[places] = np.fromiter(values, dtype=np.float64)
        return whole

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
    if leocc.matches(text):
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


def _of_path(
    name: str,
    path: MeasuredPath,
    direction: str | None,
    what: str = "path",
    notes: tuple[str, ...] = (),
) -> MeasuredLink:
    """Sample a path: its round trips as a ping would, its delays, rates and losses by step."""
    record, loss = path_record(path), path.frames.sort("t_ns")["loss"]
    there, back = _forward(record.header, direction)
    start_ns = iso_ns(str(record.header.get("start") or ""))
    series = {
        way: Series(0.0, STEP_S, delay_ms=_sampled(record, delays))
        for way, delays in ((there, record.delay_ms), (back, record.delay_back_ms))
        if np.nanmax(delays, initial=0) > 0
    }
    if np.isfinite(record.rate_mbps).any() or loss.is_not_null().any():
        lost = np.asarray(loss.cast(float).fill_null(np.nan).to_numpy(), dtype=np.float64)
        series[there] = Series(
            0.0,
            STEP_S,
            _held_or_none(record, record.rate_mbps),
            series[there].delay_ms if there in series else None,
            _held_or_none(record, lost),
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
        notes=notes,
    )


def _forward(header: Mapping[str, object], direction: str | None) -> tuple[Direction, Direction]:
    """Return the direction from the end `from` to the end `to` of a path, and the other one."""
    is_import = str(header.get("source", "")).startswith("import ")
    is_up = direction == "up" if direction is not None else not is_import
    return ("up", "down") if is_up else ("down", "up")


def _pinged(record: PathRecord) -> RoundTrips | None:
    """Return the round trips that a ping over a path would see; None for a path without delays."""
    if not np.nanmax(record.delay_ms + record.delay_back_ms, initial=0) > 0:
        return None
    interval_s = max(_PING_S, record.duration_s / _MOST_PINGS)
    sent_s = np.arange(0, record.duration_s, interval_s)
    there_ms = _at(record, record.delay_ms, sent_s)
    back_ms = _at(record, record.delay_back_ms, sent_s + np.nan_to_num(there_ms) / 1e3)
    rtt_ms = there_ms + back_ms
    known = np.isfinite(rtt_ms)
    return _in_order((sent_s + rtt_ms / 1e3)[known], rtt_ms[known]) if known.sum() > 1 else None


def _at(record: PathRecord, values: FloatArray, t_s: FloatArray) -> FloatArray:
    """Return values of a path's curve at times; NaN while the path is down."""
    known_s, drawn = record.curve(values)
    found = np.interp(t_s, known_s, drawn)
    for begin_s, end_s in record.events.down_spans(record.duration_s):
        found[np.searchsorted(t_s, begin_s) : np.searchsorted(t_s, end_s)] = np.nan
    return np.asarray(found, dtype=np.float64)


def _sampled(record: PathRecord, values: FloatArray) -> FloatArray:
    """Return the means of a path's curve over steps."""
    return _means(_at(record, values, _points_s(record)), _PARTS)


def _held_or_none(record: PathRecord, values: FloatArray) -> FloatArray | None:
    """Return the means over steps of values that hold until the next frame; None without any."""
    if not np.isfinite(values).any():
        return None
    place = np.searchsorted(record.t_s, _points_s(record), side="right") - 1
    return _means(values[np.maximum(place, 0)], _PARTS)


def _points_s(record: PathRecord) -> FloatArray:
    count = int(record.duration_s / STEP_S + 1e-9)
    return np.asarray((np.arange(count * _PARTS) + 0.5) * (STEP_S / _PARTS))


def _means(values: FloatArray, each: int) -> FloatArray:
    """Return the means of `each` values in a row that are known; NaN if none is."""
    rows = values[: len(values) // each * each].reshape(-1, each)
    known = np.isfinite(rows)
    sums, counts = np.where(known, rows, 0).sum(axis=1), known.sum(axis=1)
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))


def _of_run(name: str, record: RunRecord, direction: str | None) -> MeasuredLink:
    header = {} if record.path is None else record.path.header
    there, back = _forward({"source": COMPUTED, **header}, direction)
    start = header.get("start") or record.scenario.get("path", {}).get("start")
    start_ns = iso_ns(str(start or ""))
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
        name, "run", start_ns or 0, start_ns is not None, record.duration_s, trips, series
    )


def _of_links(record: RunRecord, ways: tuple[Direction, Direction]) -> dict[Direction, Series]:
    """Return rates and losses of the link "path", without a direction that carries only ACKs."""
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
