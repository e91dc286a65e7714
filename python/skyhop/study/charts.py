"""The charts of a study's report: what each panel of its file shows, from its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from skyhop.analysis.binning import binned, ecdf
from skyhop.analysis.charts import (
    Bar,
    BarChart,
    BoxChart,
    Boxes,
    Chart,
    HeatChart,
    Hue,
    Levels,
    LineChart,
    MeanLine,
    Points,
    ScatterChart,
    SeriesChart,
    ShareChart,
    ShareCurve,
    named,
)
from skyhop.analysis.looks import Look, look_of_place, looks_of
from skyhop.analysis.timeline import EventStrip, Line, Panel, Stroke, event_strip, from_zero
from skyhop.data.arrays import FloatArray
from skyhop.data.quantities import leading_number, seconds
from skyhop.data.records import Events, RunRecord
from skyhop.study.expression import Selected
from skyhop.study.file import (
    BarsPanel,
    BoxPanel,
    CdfPanel,
    HeatmapPanel,
    LinesPanel,
    ScatterPanel,
    SeriesPanel,
)
from skyhop.study.file import Panel as StudyPanel
from skyhop.study.metrics import binned_samples, series_of
from skyhop.study.plan import Study
from skyhop.study.pooled import pooled_runs, pooled_samples
from skyhop.study.published import published_value
from skyhop.study.results import Results

_NEARLY_ALL = 0.98

_WIDE = 20
"""Numbers on the x axis whose ratio is above this get a log scale."""

_SERIES = {
    "goodput": ("goodput", "Mbit/s"),
    "cwnd": ("cwnd", "packets"),
    "srtt": ("srtt", "ms"),
    "base_rtt": ("base RTT", "ms"),
}


@dataclass(frozen=True)
class ChartSource:
    """What charts are made from."""

    study: Study
    results: Results
    record: Callable[[str], RunRecord]
    """Reads the run directory of a run's id."""


def chart_of(panel: StudyPanel, source: ChartSource) -> Chart | None:
    """Return what a panel shows; None where it is a table, or no finished run has anything."""
    charts: Mapping[type[StudyPanel], Callable[[Any, ChartSource], Chart | None]] = {
        BarsPanel: _bars,
        BoxPanel: _boxes,
        CdfPanel: _shares,
        LinesPanel: _lines,
        ScatterPanel: _scatter,
        HeatmapPanel: _heat,
        SeriesPanel: _series,
    }
    return charts[type(panel)](panel, source) if type(panel) in charts else None


def _hues(results: Results, hue: str | None, where: Selected) -> list[tuple[Hue, Selected]]:
    """Return the hues of a panel, each with the runs that it stands for."""
    if hue is None:
        return [(Hue("", look_of_place(0), 0), where)]
    looks = _looks(results, hue)
    return [
        (Hue(str(level), looks[level], index), {**where, hue: level})
        for index, level in enumerate(results.levels(hue, where))
    ]


def _looks(results: Results, hue: str) -> dict[object, Look]:
    """Return how each value of a column looks, in whatever panel.

    Where each stands for one congestion control, and not all for the same, it looks like that one.
    """
    looks = _cc_looks(results, hue)
    if looks is None:
        levels = results.levels(hue, {})
        return {level: look_of_place(place) for place, level in enumerate(levels)}
    return looks


def _cc_looks(results: Results, column: str) -> dict[object, Look] | None:
    """Return the looks of a column's values where each stands for a congestion control."""
    levels = results.levels(column, {})
    ccs = [results.levels("flow_cc", {column: level}) for level in levels]
    if any(len(own) != 1 for own in ccs) or len({str(own[0]) for own in ccs}) <= 1:
        return None
    return dict(zip(levels, looks_of(str(own[0]) for own in ccs), strict=True))


def _alone(panel: BarsPanel | BoxPanel | LinesPanel, source: ChartSource) -> dict[object, Hue]:
    """Return the hue of each value of x where nothing but x tells congestion controls apart."""
    is_line = isinstance(panel, LinesPanel)
    looks = None if panel.hue or is_line else _cc_looks(source.results, panel.x)
    return {level: Hue("", look, 0) for level, look in (looks or {}).items()}


@dataclass(frozen=True)
class _Cell:
    """One value of the x axis in one hue."""

    x: float
    position: int
    level: object
    hue: Hue
    mean: float
    low: float | None
    high: float | None
    runs: int
    published: float | None

    def row(self, x: str) -> dict[str, object]:
        """Return the numbers shown."""
        return {
            x: str(self.level),
            "hue": self.hue.label,
            "mean": self.mean,
            "low": self.low,
            "high": self.high,
            "runs": self.runs,
            "published": self.published,
        }


def _cells(panel: BarsPanel | LinesPanel, source: ChartSource) -> list[_Cell]:
    """Return the estimates of a panel, hue by hue; x is the axis's number where all have one."""
    results, info = source.results, source.study.metrics.infos[panel.metric]
    levels, alone = results.levels(panel.x, panel.where), _alone(panel, source)
    xs = _numbers(levels)
    cells = []
    for hue, selected in _hues(results, panel.hue, panel.where):
        for position, level in enumerate(levels):
            chosen = {**selected, panel.x: level}
            found = results.estimate(info, chosen)
            if found.mean is not None:
                published = published_value(source.study.file, panel.metric, chosen)
                ends = (found.interval.low, found.interval.high)
                cells.append(_Cell(xs[position], position, level, alone.get(level, hue),
                                   found.mean, *ends, len(found.values), published))  # fmt: skip
    return cells


def _numbers(levels: Sequence[object]) -> list[float]:
    """Return where levels stand on a line: at their numbers where all have one."""
    numbers = [number for level in levels if (number := leading_number(level)) is not None]
    return numbers if len(numbers) == len(levels) else [float(p) for p in range(len(levels))]


def _levels(axis: str, where: Selected, source: ChartSource) -> Levels:
    names = [str(level) for level in source.results.levels(axis, where)]
    # Labels of points speak for themselves; numbers need to know of what.
    has_points = any(a.name == axis and a.points is not None for a in source.study.file.axis)
    return Levels(names, "" if has_points else axis.replace("_", " "))


def _bars(panel: BarsPanel, source: ChartSource) -> BarChart | None:
    info, cells = source.study.metrics.infos[panel.metric], _cells(panel, source)
    if not cells:
        return None
    width = 0.8 / (1 + max(cell.hue.index for cell in cells))
    bars = []
    for cell in cells:
        # Bars that are not there leave no gap: the others stand around the middle.
        there = [c.hue.index for c in cells if c.position == cell.position]
        x = cell.position + width * (there.index(cell.hue.index) - (len(there) - 1) / 2)
        bars.append(Bar(x, cell.mean, cell.low, cell.high, cell.published, cell.hue))
    data = pl.DataFrame([cell.row(panel.x) for cell in cells])
    levels, pooled = _levels(panel.x, panel.where, source), _pooled("bar", panel, cells, source)
    return BarChart(info.title, info.unit, levels, width, bars, data, pooled)


def _pooled(
    what: str, panel: BarsPanel | LinesPanel, cells: Sequence[_Cell], source: ChartSource
) -> str:
    selected = source.results.selected(panel.where)
    return pooled_runs(what, [cell.runs for cell in cells], selected, source.study)


def _boxes(panel: BoxPanel, source: ChartSource) -> BoxChart | None:
    results = source.results
    levels, hues = results.levels(panel.x, panel.where), _hues(results, panel.hue, panel.where)
    width = 0.8 / max(len(hues), 1)
    alone = _alone(panel, source)
    boxes, rows, chosen = [], [], []
    for hue, selected in hues:
        shown: dict[Hue, list[tuple[float, FloatArray]]] = {}
        for position, level in enumerate(levels):
            at = {**selected, panel.x: level}
            values = _values(panel, source, at)
            if len(values):
                chosen.append(at)
                x = position - 0.4 + width * (hue.index + 0.5)
                shown.setdefault(alone.get(level, hue), []).append((x, values))
                rows.append({panel.x: str(level), "hue": hue.label, **_five(values)})
        boxes += [Boxes(own, *map(list, zip(*found, strict=True))) for own, found in shown.items()]
    if not rows:
        return None
    named_levels = _levels(panel.x, panel.where, source)
    what, unit = _title_of(panel, source)
    has_hues, pooled = panel.hue is not None, _pooled_values("box", panel, source, chosen)
    return BoxChart(what, unit, named_levels, width, boxes, has_hues, pl.DataFrame(rows), pooled)


def _five(values: FloatArray) -> dict[str, float]:
    """Return what a box shows: whiskers, quartiles and median, and the number of values."""
    shares = {"p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}
    return {"count": float(len(values))} | {
        name: float(np.quantile(values, share)) for name, share in shares.items()
    }


def _shares(panel: CdfPanel, source: ChartSource) -> ShareChart | None:
    curves, frames, chosen, nearly_all = [], [], [], 0.0
    for hue, selected in _hues(source.results, panel.hue, panel.where):
        values, shares = ecdf(_values(panel, source, selected))
        if len(values):
            nearly_all = max(nearly_all, float(np.quantile(values, _NEARLY_ALL)))
            chosen.append(selected)
            curves.append(ShareCurve(hue, values, shares))
            frames.append(pl.DataFrame({"hue": hue.label, "value": values, "share": shares}))
    if not frames:
        return None
    pooled = _pooled_values("curve", panel, source, chosen)
    return ShareChart(*_title_of(panel, source), curves, nearly_all, pl.concat(frames), pooled)


def _values(panel: BoxPanel | CdfPanel, source: ChartSource, chosen: Selected) -> FloatArray:
    """Return the metric of the chosen runs, or all samples of their flows."""
    if panel.metric is not None:
        return source.results.values(source.study.metrics.infos[panel.metric], chosen)
    rows = _flows_of(source, chosen).select("run", "flow").unique(maintain_order=True)
    bin_s = seconds(panel.bin)
    found = [
        binned_samples(source.record(run).flows[flow], panel.series or "goodput", bin_s)[1]
        for run, flow in rows.iter_rows()
    ]
    values: FloatArray = np.concatenate(found) if found else np.array([], dtype=np.float64)
    return values[np.isfinite(values)]


def _flows_of(source: ChartSource, chosen: Selected) -> pl.DataFrame:
    return source.results.selected(chosen).drop_nulls(["run", "flow"])


def _pooled_values(
    what: str, panel: BoxPanel | CdfPanel, source: ChartSource, chosen: Sequence[Selected]
) -> str:
    """Say what is behind the boxes or curves of these selections."""
    if panel.metric is not None:
        info = source.study.metrics.infos[panel.metric]
        counts = [len(source.results.values(info, at)) for at in chosen]
        selected = source.results.selected(panel.where)
        return pooled_runs(what, counts, selected, source.study, interval="")
    rows = [_flows_of(source, at) for at in chosen]
    runs = pl.concat(rows).get_column("run").unique().to_list()
    return pooled_samples(what, panel.bin, rows, [source.record(run).duration_s for run in runs])


def _title_of(panel: BoxPanel | CdfPanel, source: ChartSource) -> tuple[str, str]:
    if panel.metric is not None:
        info = source.study.metrics.infos[panel.metric]
        return info.title, info.unit
    what, unit = _SERIES[panel.series or "goodput"]
    return f"{what}, means over {panel.bin}", unit


def _lines(panel: LinesPanel, source: ChartSource) -> LineChart | None:
    info, cells = source.study.metrics.infos[panel.metric], _cells(panel, source)
    if not cells:
        return None
    lines = []
    for hue in dict.fromkeys(cell.hue for cell in cells):
        line = sorted((cell for cell in cells if cell.hue == hue), key=lambda cell: cell.x)
        lines.append(
            MeanLine(
                hue,
                [cell.x for cell in line],
                [cell.mean for cell in line],
                [cell.mean if cell.low is None else cell.low for cell in line],
                [cell.mean if cell.high is None else cell.high for cell in line],
            )
        )
    levels = source.results.levels(panel.x, panel.where)
    xs = _numbers(levels)
    is_log = min(xs) > 0 and max(xs) > _WIDE * min(xs)
    data = pl.DataFrame([cell.row(panel.x) for cell in cells])
    axis = Levels([str(level) for level in levels], panel.x.replace("_", " "))
    pooled = _pooled("point", panel, cells, source)
    return LineChart(info.title, info.unit, axis, xs, is_log, lines, data, pooled)


def _scatter(panel: ScatterPanel, source: ChartSource) -> ScatterChart | None:
    infos = source.study.metrics.infos
    x_info, y_info = infos[panel.x], infos[panel.y]
    points, frames = [], []
    for hue, selected in _hues(source.results, panel.hue, panel.where):
        frame = source.results.selected(selected).select(
            pl.lit(hue.label).alias("hue"),
            "run",
            (pl.col(x_info.column) * x_info.factor).alias(panel.x),
            (pl.col(y_info.column) * y_info.factor).alias(panel.y),
        )
        frame = frame.drop_nulls()
        if frame.height:
            points.append(Points(hue, frame[panel.x].to_numpy(), frame[panel.y].to_numpy()))
            frames.append(frame)
    if not frames:
        return None
    x_title, data = named(x_info.title, x_info.unit), pl.concat(frames)
    pooled = f"each point: one flow of one run; {data.height:,} in all"
    return ScatterChart(x_title, y_info.title, y_info.unit, points, data, pooled)


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
    return HeatChart(
        title=named(info.title, info.unit),
        columns=_levels(panel.x, panel.where, source),
        rows=[str(line) for line in lines],
        grid=grid,
        data=pl.DataFrame(rows).fill_nan(None),
        pooled=pooled_runs(
            "cell", counts, results.selected(panel.where), source.study, interval=""
        ),
    )


@dataclass(frozen=True)
class _Shown:
    """A line of a time series: its hue, its run, and the flow where there is one."""

    hue: Hue
    run: RunRecord
    flow: int | None


def _series(panel: SeriesPanel, source: ChartSource) -> SeriesChart | None:
    """Return the first run of each hue: more would hide each other."""
    shown = []
    for hue, selected in _hues(source.results, panel.hue, panel.where):
        rows = source.results.selected(selected)
        if rows.height:
            first = rows.row(0, named=True)
            shown.append(_Shown(hue, source.record(first["run"]), first["flow"]))
    if not shown:
        return None
    begin_s = seconds(panel.from_) if panel.from_ else 0.0
    end_s = max(one.run.duration_s for one in shown)
    end_s = min(end_s, seconds(panel.until)) if panel.until else end_s
    drawn = {name: _series_panel(name, panel, shown, (begin_s, end_s)) for name in panel.series}
    strips = _distinct_strips(shown, begin_s, end_s)
    data = pl.concat(
        pl.DataFrame({"name": m.label, "series": name, "t_s": m.t_s, "value": m.values})
        for name, lines in drawn.items()
        for m in lines.marks
        if isinstance(m, Line)
    )
    seeds = sorted({one.run.summary["seed"] for one in shown})
    pooled = f"each line: one run, with seed {' or '.join(map(str, seeds))}"
    pooled += f", as means over {panel.bin}" if panel.bin else ", all samples"
    return SeriesChart(begin_s, end_s, strips, list(drawn.values()), data, pooled)


def _series_panel(
    series: str, panel: SeriesPanel, shown: Sequence[_Shown], within_s: tuple[float, float]
) -> Panel:
    """Return a line per run."""
    highest, lines = 0.0, []
    for one in shown:
        t_s, values = _curve(series, panel, one)
        kept = (t_s >= within_s[0]) & (t_s <= within_s[1])
        t_s, values = t_s[kept], values[kept]
        lines.append(Line(t_s, values, _stroke(one.hue.look), one.hue.label))
        highest = max(highest, float(np.nanmax(values, initial=0.0)))
    return Panel(*_SERIES[series], lines, from_zero(highest))


def _stroke(look: Look) -> Stroke:
    return Stroke(look.colour, 1.2, look.dash, 0.95, look.marker)


def _curve(series: str, panel: SeriesPanel, shown: _Shown) -> tuple[FloatArray, FloatArray]:
    path = shown.run.path
    if series == "base_rtt" and path is not None:
        return path.curve(path.delay_ms + path.delay_back_ms)
    if series == "base_rtt" or shown.flow is None or shown.flow not in shown.run.flows:
        return np.array([]), np.array([])
    samples = shown.run.flows[shown.flow]
    values = series_of(samples, series)
    return binned(samples.t_s, values, seconds(panel.bin)) if panel.bin else (samples.t_s, values)


def _distinct_strips(
    shown: Sequence[_Shown], begin_s: float, end_s: float
) -> list[tuple[str, EventStrip]]:
    """Return the events of each path once, with the names of the lines that go over it."""
    found: dict[bytes, tuple[list[str], Events]] = {}
    for one in shown:
        events = one.run.events.within(begin_s, end_s)
        key = events.t_s.tobytes() + "".join(events.kinds).encode()
        found.setdefault(key, ([], events))[0].append(one.hue.label)
    return [(", ".join(names), event_strip(events, end_s)) for names, events in found.values()]
