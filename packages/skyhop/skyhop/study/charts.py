"""Charts of a study's report: the view model of each panel, computed from the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch

import numpy as np
import polars as pl

from skyhop.analysis.base_rtt import base_rtt_by_second
from skyhop.analysis.binning import ecdf, round_step
from skyhop.analysis.charts import (
    BarChart,
    BoxChart,
    Boxes,
    Chart,
    EcdfChart,
    HeatChart,
    Hue,
    Levels,
    LineChart,
    MapCells,
    MapChart,
    Mean,
    Points,
    ScatterChart,
    SeriesChart,
    named,
)
from skyhop.analysis.link_rate import any_above_rate, burst_note, is_above_every_rate
from skyhop.analysis.network_links import is_network
from skyhop.analysis.statistics import bootstrap_interval, deviation, ellipse
from skyhop.analysis.styles import Style, style_of_index, styles_of
from skyhop.analysis.timeline import Band, EventStrip, Line, Panel, Stroke, event_strip, from_zero
from skyhop.data.arrays import FloatArray
from skyhop.data.quantities import leading_number, seconds, size_bytes
from skyhop.data.records import Events, RunRecord
from skyhop.study.captions import runs_caption, samples_caption
from skyhop.study.expression import Selected
from skyhop.study.keys import Spread
from skyhop.study.maps import map_cells, map_chart
from skyhop.study.metric_kinds import BinsMetric, FlowMetric, FlowsMetric, GapMetric
from skyhop.study.panel_kinds import (
    BarsPanel,
    BoxPanel,
    CdfPanel,
    HeatmapPanel,
    LinesPanel,
    MapPanel,
    ScatterPanel,
    SeriesPanel,
    TransferPanel,
)
from skyhop.study.panel_kinds import Panel as StudyPanel
from skyhop.study.plan import Study
from skyhop.study.published import published_value
from skyhop.study.results import Results
from skyhop.study.sampling import metric_values, seconds_to_bytes
from skyhop.study.series import samples_of

_ECDF_SHARE = 0.98
"""Share of each hue's values that the x axis of a distribution must cover."""

_LOG_RATIO = 20
"""Ratio of the largest to the smallest x above which the x axis has a log scale."""

_SERIES_TITLES = {
    "goodput": ("goodput", "Mbit/s"),
    "cwnd": ("cwnd", "packets"),
    "srtt": ("srtt", "ms"),
    "ack_rtt": ("RTT of acknowledgements", "ms"),
    "throughput": ("throughput of the link", "Mbit/s"),
    "retransmit_share": ("sent again", "%"),
    "laser_load": ("busiest laser on the route", "%"),
    "base_rtt": ("base RTT", "ms"),
}


@dataclass(frozen=True)
class ChartSource:
    """Input of charts: a study, its results, and its run directories."""

    study: Study
    results: Results
    record: Callable[[str], RunRecord]
    """Function that reads the run directory of a run, given the run's id."""


@singledispatch
def chart_of(_panel: StudyPanel, _source: ChartSource) -> Chart | None:
    """Return the chart of a panel; None if it is a table, or no finished run has data for it."""
    return None


def _hues(results: Results, hue: str | None, where: Selected) -> list[tuple[Hue, Selected]]:
    """Return the hues of a panel, each with the selection of the runs that it stands for."""
    if hue is None:
        return [(Hue("", style_of_index(0), 0), where)]
    styles = _styles(results, hue)
    return [
        (Hue(str(level), styles[level], index), {**where, hue: level})
        for index, level in enumerate(results.levels(hue, where))
    ]


def _styles(results: Results, hue: str) -> dict[object, Style]:
    """Return the style of each value of a column, the same in every panel.

    If each value stands for one congestion control, it has the style of that congestion control.
    """
    styles = _cc_styles(results, hue)
    if styles is None:
        levels = results.levels(hue, {})
        return {level: style_of_index(place) for place, level in enumerate(levels)}
    return styles


def _cc_styles(results: Results, column: str) -> dict[object, Style] | None:
    """Return, for each value of a column, the style of the congestion control it stands for.

    None if a value stands for several congestion controls, or all stand for the same one.
    """
    levels = results.levels(column, {})
    ccs = [results.levels("flow_cc", {column: level}) for level in levels]
    if any(len(own) != 1 for own in ccs) or len({str(own[0]) for own in ccs}) <= 1:
        return None
    return dict(zip(levels, styles_of(str(own[0]) for own in ccs), strict=True))


def _cc_hues(panel: BarsPanel | BoxPanel | LinesPanel, source: ChartSource) -> dict[object, Hue]:
    """Return a hue per value of x, if the panel has no `hue` and x stands for the senders."""
    is_line = isinstance(panel, LinesPanel)
    styles = None if panel.hue or is_line else _cc_styles(source.results, panel.x)
    return {level: Hue("", style, 0) for level, style in (styles or {}).items()}


def _means(
    panel: BarsPanel | LinesPanel, source: ChartSource
) -> tuple[list[Mean], pl.DataFrame] | None:
    """Return a panel's means hue by hue, with the places of levels as x, and their numbers."""
    results, info = source.results, source.study.metrics.infos[panel.metric]
    levels, own_hues = results.levels(panel.x, panel.where), _cc_hues(panel, source)
    means, rows = [], []
    for hue, selected in _hues(results, panel.hue, panel.where):
        for place, level in enumerate(levels):
            chosen = {**selected, panel.x: level}
            found = results.estimate(info, chosen, panel.spread)
            if found.mean is not None:
                published = published_value(source.study.file, panel.metric, chosen)
                ends = (found.interval.low, found.interval.high)
                means.append(Mean(place, own_hues.get(level, hue), found.mean, *ends,
                                  len(found.values), published))  # fmt: skip
                rows.append({panel.x: str(level), "hue": means[-1].hue.label, **means[-1].row()})
    return (means, pl.DataFrame(rows)) if means else None


def _numbers(levels: Sequence[object]) -> list[float]:
    """Return the positions of levels along an axis.

    They are the numbers that the levels begin with, or 0, 1, … if a level has no number.
    """
    numbers = [number for level in levels if (number := leading_number(level)) is not None]
    return numbers if len(numbers) == len(levels) else [float(p) for p in range(len(levels))]


def _levels(axis: str, where: Selected, source: ChartSource) -> Levels:
    names = [str(level) for level in source.results.levels(axis, where)]
    # Labels of points need no further title; numbers need the axis's name.
    has_points = any(a.name == axis and a.points is not None for a in source.study.file.axis)
    return Levels(names, "" if has_points else axis.replace("_", " "))


@chart_of.register
def _bars(panel: BarsPanel, source: ChartSource) -> BarChart | None:
    info, found = source.study.metrics.infos[panel.metric], _means(panel, source)
    if found is None:
        return None
    means, data = found
    width = 0.8 / (1 + max(mean.hue.index for mean in means))
    bars = []
    for mean in means:
        # The bars of one position are centred on it, without gaps for missing bars.
        there = [other.hue.index for other in means if other.x == mean.x]
        aside = width * (there.index(mean.hue.index) - (len(there) - 1) / 2)
        bars.append(replace(mean, x=mean.x + aside))
    pooled, levels = (
        _runs_caption("bar", panel, means, source),
        _levels(panel.x, panel.where, source),
    )
    return BarChart(data, pooled, info.title, info.unit, levels, width, bars, info.origin)


def _runs_caption(
    what: str, panel: BarsPanel | LinesPanel, means: Sequence[Mean], source: ChartSource
) -> str:
    selected = source.results.selected(panel.where)
    return runs_caption(
        what, [mean.runs for mean in means], selected, source.study, _SPREAD_TEXT[panel.spread]
    )


_SPREAD_TEXT: Mapping[Spread, str] = {
    "interval": ", with the mean's 95 % interval",
    "sd": ", less and plus their standard deviation",
    "pooled": ", mean over all of their bins, less and plus the bins' standard deviation",
    "none": "",
}


@chart_of.register
def _boxes(panel: BoxPanel, source: ChartSource) -> BoxChart | None:
    results = source.results
    levels, hues = results.levels(panel.x, panel.where), _hues(results, panel.hue, panel.where)
    width = 0.8 / max(len(hues), 1)
    own_hues = _cc_hues(panel, source)
    boxes, rows, chosen, above = [], [], [], []
    for hue, selected in hues:
        shown: dict[Hue, list[tuple[float, FloatArray]]] = {}
        for position, level in enumerate(levels):
            at = {**selected, panel.x: level}
            values, is_above = _values(panel, source, at)
            above.append(is_above)
            if len(values):
                chosen.append(at)
                x = position - 0.4 + width * (hue.index + 0.5)
                shown.setdefault(own_hues.get(level, hue), []).append((x, values))
                rows.append({panel.x: str(level), "hue": hue.label, **_box_numbers(values)})
        boxes += [Boxes(own, *map(list, zip(*found, strict=True))) for own, found in shown.items()]
    if not rows:
        return None
    data, pooled = pl.DataFrame(rows), _values_caption("box", panel, source, chosen)
    pooled += _burst_caption(above)
    axis = _levels(panel.x, panel.where, source)
    title, origin = _title_of(panel, source), _origin_of(panel, source)
    return BoxChart(data, pooled, *title, axis, width, boxes, origin)


def _box_numbers(values: FloatArray) -> dict[str, float]:
    """Return the numbers of a box: count, whiskers (p5, p95), quartiles and median."""
    shares = {"p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}
    return {"count": float(len(values))} | {
        name: float(np.quantile(values, share)) for name, share in shares.items()
    }


@chart_of.register
def _ecdf(panel: CdfPanel, source: ChartSource) -> EcdfChart | None:
    curves, frames, chosen, above, nearly_all = [], [], [], [], 0.0
    for hue, selected in _hues(source.results, panel.hue, panel.where):
        found, is_above = _values(panel, source, selected)
        above.append(is_above)
        values, shares = ecdf(found)
        if len(values):
            nearly_all = max(nearly_all, float(np.quantile(values, _ECDF_SHARE)))
            chosen.append(selected)
            curves.append(Points(hue, values, shares))
            frames.append(pl.DataFrame({"hue": hue.label, "value": values, "share": shares}))
    if not frames:
        return None
    data, pooled = pl.concat(frames), _values_caption("curve", panel, source, chosen)
    pooled += _burst_caption(above)
    title, origin = _title_of(panel, source), _origin_of(panel, source)
    return EcdfChart(data, pooled, *title, curves, nearly_all, origin)


def _values(
    panel: BoxPanel | CdfPanel, source: ChartSource, chosen: Selected
) -> tuple[FloatArray, bool]:
    """Return the metric of the chosen runs, or the bins of all their flows.

    The second value is whether bins are of goodput above the link's rate.
    """
    if panel.metric is not None:
        return source.results.values(source.study.metrics.infos[panel.metric], chosen), False
    rows = _flows_of(source, chosen).select("run", "flow").unique(maintain_order=True)
    if isinstance(_bins_metric(panel, source), FlowsMetric):
        # A metric over several flows of a run has the same value in each flow's row.
        rows = rows.unique("run", keep="first", maintain_order=True)
    found = [_samples(panel, source, run, flow) for run, flow in rows.iter_rows()]
    values = np.concatenate([samples for samples, _ in found] or [np.array([], dtype=np.float64)])
    return values[np.isfinite(values)], any(is_above for _, is_above in found)


def _samples(
    panel: BoxPanel | CdfPanel, source: ChartSource, run: str, flow: int
) -> tuple[FloatArray, bool]:
    """Return the bins of the panel's metric, or those of its series over the whole run.

    The second value is whether bins are of goodput above the link's rate.
    """
    record, own = source.record(run), _bins_metric(panel, source)
    if own is not None:
        values = metric_values(own, record, flow)
        of_goodput = isinstance(own, FlowMetric) and own.series == "goodput"
        return values, of_goodput and is_above_every_rate(record, values)
    series = panel.series or "goodput"
    ends_s, values = samples_of(record, flow, series, seconds(panel.bin))
    return values, series == "goodput" and any_above_rate(record, values, ends_s)


def _burst_caption(above: Sequence[bool]) -> str:
    """Return the part of a caption on goodput above the link's rate; empty without such samples."""
    note = burst_note(above)
    return f"; goodput {note}" if note else ""


def _bins_metric(panel: BoxPanel | CdfPanel, source: ChartSource) -> BinsMetric | None:
    own = source.study.metrics.infos[panel.bins_of].definition if panel.bins_of else None
    return own if isinstance(own, BinsMetric) else None


def _flows_of(source: ChartSource, chosen: Selected) -> pl.DataFrame:
    return source.results.selected(chosen).drop_nulls(["run", "flow"])


def _values_caption(
    what: str, panel: BoxPanel | CdfPanel, source: ChartSource, chosen: Sequence[Selected]
) -> str:
    """Return the caption with the number of runs and samples in each box or curve."""
    if panel.metric is not None:
        info = source.study.metrics.infos[panel.metric]
        counts = [len(source.results.values(info, at)) for at in chosen]
        selected = source.results.selected(panel.where)
        return runs_caption(what, counts, selected, source.study, interval="")
    rows = [_flows_of(source, at) for at in chosen]
    runs = pl.concat(rows).get_column("run").unique().to_list()
    own = _bins_metric(panel, source)
    if own is not None:
        return samples_caption(what, None if isinstance(own, GapMetric) else own.bin, rows, [])
    return samples_caption(what, panel.bin, rows, [source.record(run).duration_s for run in runs])


def _title_of(panel: BoxPanel | CdfPanel, source: ChartSource) -> tuple[str, str]:
    if panel.metric is not None:
        info = source.study.metrics.infos[panel.metric]
        return info.title, info.unit
    own = _bins_metric(panel, source)
    if isinstance(own, FlowsMetric | GapMetric):
        return source.study.metrics.infos[own.name].title, own.unit
    name, bin_width = (panel.series, panel.bin) if own is None else (own.series, own.bin)
    what, unit = _SERIES_TITLES[name or "goodput"]
    return f"{what}, means over {bin_width}" if bin_width else what, unit


def _origin_of(panel: BoxPanel | CdfPanel, source: ChartSource) -> float:
    """Return the origin of a panel's metric; 0 for samples of a series."""
    name = panel.metric or panel.bins_of
    return source.study.metrics.infos[name].origin if name else 0.0


@chart_of.register
def _lines(panel: LinesPanel, source: ChartSource) -> LineChart | None:
    info, found = source.study.metrics.infos[panel.metric], _means(panel, source)
    if found is None:
        return None
    means, data = found
    levels = source.results.levels(panel.x, panel.where)
    xs = _numbers(levels)
    points = sorted((replace(mean, x=xs[int(mean.x)]) for mean in means), key=lambda mean: mean.x)
    hues = dict.fromkeys(mean.hue for mean in means)
    lines = [[point for point in points if point.hue == hue] for hue in hues]
    is_log = min(xs) > 0 and max(xs) > _LOG_RATIO * min(xs)
    axis = Levels([str(level) for level in levels], panel.x.replace("_", " "))
    pooled = _runs_caption("point", panel, means, source)
    return LineChart(data, pooled, info.title, info.unit, axis, xs, lines, is_log, info.origin)


_TICKS = 10
"""Largest number of labelled ticks on an axis of bytes."""


@chart_of.register
def _transfers(panel: TransferPanel, source: ChartSource) -> LineChart | None:
    """Return a chart of the mean time until the first bytes arrived, a line per hue."""
    step = size_bytes(panel.step)
    sizes = [step * (place + 1) for place in range(int(size_bytes(panel.upto) / step + 1e-9))]
    xs = [size / 1e6 for size in sizes]
    lines, counts = [], []
    for hue, selected in _hues(source.results, panel.hue, panel.where):
        times_s = _times_s(panel, source, selected, sizes)
        known = [column[np.isfinite(column)] for column in times_s.T]
        if not any(map(len, known)):
            continue
        counts.append(len(times_s))
        lines.append([Mean(x, hue, *_mean_and_ends(column, panel.spread), len(column))
                      for x, column in zip(xs, known, strict=True) if len(column)])  # fmt: skip
    if not lines:
        return None
    every = round_step(xs[-1] / _TICKS)
    ticks = [every * place for place in range(int(xs[-1] / every + 1e-9) + 1)]
    points = [point for line in lines for point in line]
    rows = [{"hue": point.hue.label, "megabytes": point.x, **point.row()} for point in points]
    data = pl.DataFrame(rows).drop("published")
    pooled = runs_caption("point", counts, source.results.selected(panel.where), source.study,
                         _SPREAD_TEXT[panel.spread])  # fmt: skip
    axis = Levels([f"{tick:,.12g}" for tick in ticks], "first bytes (MB)")
    return LineChart(data, pooled, "time", "s", axis, ticks, lines)


def _times_s(
    panel: TransferPanel, source: ChartSource, selected: Selected, sizes: Sequence[float]
) -> FloatArray:
    """Return the time in s that each flow took for its first bytes, shape (flows, sizes).

    NaN if the bytes never arrived.
    """
    rows = _flows_of(source, selected).select("run", "flow").unique(maintain_order=True)
    clock_s = (seconds(panel.from_ or "0 s"), seconds(panel.cut) if panel.cut else None)
    times_s = [
        [seconds_to_bytes(source.record(run), flow, size, *clock_s) for size in sizes]
        for run, flow in rows.iter_rows()
    ]
    return np.array(times_s, dtype=np.float64).reshape(-1, len(sizes))


def _mean_and_ends(values: FloatArray, spread: Spread) -> tuple[float, float, float]:
    """Return the mean, and the lower and upper end of the spread around it."""
    middle = float(values.mean())
    if spread == "none":
        return middle, middle, middle
    if spread == "sd":
        sd = deviation(values) or 0.0
        return middle, middle - sd, middle + sd
    found = bootstrap_interval(values)
    low, high = (middle if end is None else end for end in (found.low, found.high))
    return middle, low, high


@chart_of.register
def _scatter(panel: ScatterPanel, source: ChartSource) -> ScatterChart | None:
    infos = source.study.metrics.infos
    x_info, y_info = infos[panel.x], infos[panel.y]
    points, frames = [], []
    for hue, selected in _hues(source.results, panel.hue, panel.where):
        frame = source.results.selected(selected)
        if panel.per == "run":
            columns = list(dict.fromkeys((x_info.column, y_info.column)))
            frame = frame.group_by(
                frame.columns[: frame.columns.index("run") + 1], maintain_order=True
            ).agg(pl.col(columns).mean())
        frame = frame.select(
            pl.lit(hue.label).alias("hue"),
            "run",
            (pl.col(x_info.column) * x_info.factor).alias(panel.x),
            (pl.col(y_info.column) * y_info.factor).alias(panel.y),
        )
        frame = frame.drop_nulls()
        if frame.height:
            xs, ys = frame[panel.x].to_numpy(), frame[panel.y].to_numpy()
            points.append(Points(hue, xs, ys, ellipse(xs, ys) if panel.ellipses else None))
            frames.append(frame)
    if not frames:
        return None
    data = pl.concat(frames)
    unit_text = "one flow of one run" if panel.per == "flow" else "one run"
    pooled = f"each point: {unit_text}; {data.height:,} in all"
    if any(one.ellipse for one in points):
        pooled += "; ellipses: one standard deviation around the mean"
    x_title, origin = named(x_info.title, x_info.unit), (x_info.origin, y_info.origin)
    titles = (y_info.title, y_info.unit)
    return ScatterChart(data, pooled, *titles, x_title, points, panel.zero, origin)


@chart_of.register
def _heat(panel: HeatmapPanel, source: ChartSource) -> HeatChart | None:
    results, info = source.results, source.study.metrics.infos[panel.metric]
    columns, lines = results.levels(panel.x, panel.where), results.levels(panel.y, panel.where)
    grid, counts = np.full((len(lines), len(columns)), np.nan), []
    for row, line in enumerate(lines):
        for index, column in enumerate(columns):
            found = results.estimate(info, {**panel.where, panel.x: column, panel.y: line})
            if found.mean is not None:
                grid[row, index] = found.mean
                counts.append(len(found.values))
    if not np.isfinite(grid).any():
        return None
    rows = [
        {panel.y: str(line), panel.x: str(column), "mean": float(grid[row, index])}
        for row, line in enumerate(lines)
        for index, column in enumerate(columns)
    ]
    data, names = pl.DataFrame(rows).fill_nan(None), [str(line) for line in lines]
    selected = results.selected(panel.where)
    pooled = runs_caption("cell", counts, selected, source.study, interval="")
    axis = _levels(panel.x, panel.where, source)
    return HeatChart(data, pooled, info.title, info.unit, axis, names, grid)


@chart_of.register
def _map(panel: MapPanel, source: ChartSource) -> MapChart | None:
    """Return the maps of a panel: a row of maps per value of `by`, a map per metric."""
    results, infos = source.results, source.study.metrics.infos
    rows, columns = (results.levels(axis, panel.where) for axis in (panel.y, panel.x))
    counts: list[int] = []

    def cells(metric: str, chosen: Selected, label: str) -> MapCells:
        def values(row: object, column: object) -> FloatArray:
            found = results.values(infos[metric], {**chosen, panel.y: row, panel.x: column})
            counts.extend([len(found)] if len(found) else [])
            return found

        title = named(infos[metric].title, infos[metric].unit)
        return map_cells(f"{label}: {title}" if label else title, rows, columns, panel.turn, values)

    maps = [
        [cells(metric, chosen, hue.label) for metric in panel.metrics]
        for hue, chosen in _hues(results, panel.by, panel.where)
    ]
    selected = results.selected(panel.where)
    pooled = runs_caption("cell", counts, selected, source.study, interval="")
    return map_chart(panel, columns, rows, maps, pooled)


@dataclass(frozen=True)
class _SeriesLine:
    """Line of a time series: its hue, and (run, flow id) pairs; the id is None without a flow."""

    hue: Hue
    runs: Sequence[tuple[RunRecord, int | None]]


@chart_of.register
def _series(panel: SeriesPanel, source: ChartSource) -> SeriesChart | None:
    """Return a chart over time: of each hue the first run, or the mean over its runs."""
    shown = []
    for hue, selected in _hues(source.results, panel.hue, panel.where):
        rows = source.results.selected(selected)
        chosen = rows if panel.runs == "mean" else rows.head(1)
        found = [(source.record(row["run"]), row["flow"]) for row in chosen.iter_rows(named=True)]
        if found:
            shown.append(_SeriesLine(hue, found))
    if not shown:
        return None
    runs = [run for one in shown for run, _ in one.runs]
    begin_s = seconds(panel.from_) if panel.from_ else 0.0
    end_s = max(run.duration_s for run in runs)
    end_s = min(end_s, seconds(panel.until)) if panel.until else end_s
    drawn = {name: _series_panel(name, panel, shown, (begin_s, end_s)) for name in panel.series}
    strips = _distinct_strips(shown, begin_s, end_s)
    data = pl.concat(
        pl.DataFrame({"name": m.label, "series": name, "t_s": m.t_s, "value": m.values})
        for name, lines in drawn.items()
        for m in lines.marks
        if isinstance(m, Line)
    )
    seeds = sorted({run.summary["seed"] for run in runs})
    if panel.runs == "mean":
        counts = sorted({len(one.runs) for one in shown})
        many = " or ".join(map(str, counts))
        pooled = f"each line: the mean of {many} runs, shaded: one standard deviation (n - 1)"
    else:
        pooled = f"each line: one run, with seed {' or '.join(map(str, seeds))}"
    pooled += f", as means over {panel.bin}" if panel.bin else ", all samples"
    pooled += _burst_caption([_is_above_rate(one, panel) for one in shown])
    return SeriesChart(data, pooled, begin_s, end_s, strips, list(drawn.values()))


def _is_above_rate(shown: _SeriesLine, panel: SeriesPanel) -> bool:
    """Return whether the drawn goodput of a run is above the link's rate."""
    if "goodput" not in panel.series:
        return False
    bin_s = seconds(panel.bin) if panel.bin else None
    begin_s = seconds(panel.from_) if panel.from_ else 0.0
    until_s = seconds(panel.until) if panel.until else np.inf
    for run, flow in shown.runs:
        if flow is not None and flow in run.flows:
            ends_s, values = samples_of(run, flow, "goodput", bin_s)
            drawn = np.isfinite(values) & (ends_s >= begin_s) & (ends_s <= until_s)
            if any_above_rate(run, values[drawn], ends_s[drawn]):
                return True
    return False


def _series_panel(
    series: str, panel: SeriesPanel, shown: Sequence[_SeriesLine], within_s: tuple[float, float]
) -> Panel:
    """Return the panel of one series: a line per hue, with a band of ± one standard deviation."""
    highest = 0.0
    marks: list[Band | Line] = []
    for one in shown:
        t_s, values, spread = _mean_curve(series, panel, one)
        kept = (t_s >= within_s[0]) & (t_s <= within_s[1])
        t_s, values, spread = t_s[kept], values[kept], spread[kept]
        if np.nanmax(spread, initial=0.0) > 0:
            marks.append(Band(t_s, values - spread, values + spread, one.hue.style.colour, 0.2))
        marks.append(Line(t_s, values, _stroke(one.hue.style), one.hue.label))
        highest = max(highest, float(np.nanmax(values + spread, initial=0.0)))
    return Panel(*_SERIES_TITLES[series], marks, from_zero(highest))


def _stroke(style: Style) -> Stroke:
    return Stroke(style.colour, 1.2, style.dash, 0.95, style.marker)


def _mean_curve(
    series: str, panel: SeriesPanel, shown: _SeriesLine
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return times in s, mean over a hue's runs, and standard deviation (0 for a single run)."""
    # All runs of a hue have the same path, and so the same base RTT: use the first run.
    runs = shown.runs[:1] if series == "base_rtt" else shown.runs
    curves = [_curve(series, panel, run, flow) for run, flow in runs]
    if len(curves) == 1:
        t_s, values = curves[0]
        return t_s, values, np.zeros(len(values))
    frame = pl.concat(pl.DataFrame({"t_s": t_s, "value": values}) for t_s, values in curves)
    bins = (
        frame.filter(pl.col("value").is_not_nan())
        .group_by("t_s")
        .agg(pl.col("value").mean().alias("mean"), pl.col("value").std().fill_null(0.0).alias("sd"))
    )
    t_s, mean, sd = (bins.sort("t_s").get_column(name).to_numpy() for name in bins.columns)
    return t_s, mean, sd


def _curve(
    series: str, panel: SeriesPanel, run: RunRecord, flow: int | None
) -> tuple[FloatArray, FloatArray]:
    path = run.path
    if series == "base_rtt" and is_network(run):
        by_second = None if flow is None else base_rtt_by_second(run, flow)
        if by_second is None:
            return np.array([]), np.array([])
        return np.arange(len(by_second), dtype=np.float64) + 0.5, by_second
    if series == "base_rtt" and path is not None:
        return path.curve(path.delay_ms + path.delay_back_ms)
    if series == "base_rtt" or flow is None or flow not in run.flows:
        return np.array([]), np.array([])
    bin_s = seconds(panel.bin) if panel.bin else None
    t_s, values = samples_of(run, flow, series, bin_s)
    # `samples_of` returns the ends of bins; the line goes through the middles of the bins.
    return t_s - (bin_s or 0.0) / 2, values


def _distinct_strips(
    shown: Sequence[_SeriesLine], begin_s: float, end_s: float
) -> list[tuple[str, EventStrip]]:
    """Return one strip of events per distinct path, labelled with the hues that use the path.

    Runs over a network have no path, and no strip.
    """
    found: dict[bytes, tuple[list[str], Events]] = {}
    for one in shown:
        if is_network(one.runs[0][0]):
            continue
        events = one.runs[0][0].events.within(begin_s, end_s)
        key = events.t_s.tobytes() + "".join(events.kinds).encode()
        found.setdefault(key, ([], events))[0].append(one.hue.label)
    return [(", ".join(names), event_strip(events, end_s)) for names, events in found.values()]
