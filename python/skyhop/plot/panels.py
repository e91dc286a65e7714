"""The figures of a study's report: one per panel of its file, each with the numbers it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from skyhop.plot.records import FloatArray, RunRecord
from skyhop.plot.series import draw_series
from skyhop.plot.style import (
    FLOW_COLOURS,
    FLOW_DASHES,
    GREY,
    dress,
    ecdf,
    from_zero,
    label_y,
    new_figure,
    once,
    side_legend,
)
from skyhop.quantities import leading_number, seconds
from skyhop.study.expression import Selected
from skyhop.study.file import (
    BarsPanel,
    BoxPanel,
    CdfPanel,
    HeatmapPanel,
    LinesPanel,
    Panel,
    ScatterPanel,
    SeriesPanel,
)
from skyhop.study.metrics import MetricInfo, binned_samples
from skyhop.study.plan import Study
from skyhop.study.published import published_value
from skyhop.study.results import Results

_ROOM = 110
"""Characters of labels that stand beside each other; where there are more they are turned."""

SERIES_UNITS = {"goodput": "Mbit/s", "cwnd": "packets", "srtt": "ms", "base_rtt": "ms"}


_NEARLY_ALL = 0.98
_TOO_FAR = 10
"""Where the greatest value is this many times that of nearly all, an axis leaves it out."""

_WIDE = 20
"""Numbers on the x axis whose ratio is above this stand on a log scale."""


@dataclass(frozen=True)
class PanelSource:
    """What panels are drawn from."""

    study: Study
    results: Results
    record: Callable[[str], RunRecord]
    """Reads the run directory of a run's id."""


@dataclass(frozen=True)
class DrawnPanel:
    """A figure, and the numbers that it shows."""

    figure: Figure
    data: pl.DataFrame


def draw_panel(panel: Panel, source: PanelSource) -> DrawnPanel | None:
    """Draw a panel; None where it is a table, or no finished run has anything to show."""
    draw: Mapping[type[Panel], Callable[[Any, PanelSource], DrawnPanel | None]] = {
        BarsPanel: _bars,
        BoxPanel: _boxes,
        CdfPanel: _cdf,
        LinesPanel: _lines,
        ScatterPanel: _scatter,
        HeatmapPanel: _heatmap,
        SeriesPanel: _series,
    }
    return draw[type(panel)](panel, source) if type(panel) in draw else None


@dataclass(frozen=True)
class _Hue:
    """One colour of a figure, and what it stands for."""

    label: str
    colour: str
    dash: str
    chosen: Selected


def _hues(results: Results, hue: str | None, where: Selected) -> list[_Hue]:
    if hue is None:
        return [_Hue("", FLOW_COLOURS[0], "-", where)]
    return [
        _Hue(
            str(level),
            FLOW_COLOURS[place % len(FLOW_COLOURS)],
            FLOW_DASHES[place // len(FLOW_COLOURS) % len(FLOW_DASHES)],
            {**where, hue: level},
        )
        for place, level in enumerate(results.levels(hue, where))
    ]


@dataclass(frozen=True)
class _Cell:
    """One value of the x axis in one colour."""

    x: float
    position: int
    level: object
    hue: _Hue
    place: int
    """Which of the hues."""
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


def _cells(panel: BarsPanel | LinesPanel, source: PanelSource) -> list[_Cell]:
    """Return the estimates of a panel, hue by hue; x is the axis's number where all have one."""
    results, info = source.results, source.study.metrics.infos[panel.metric]
    levels = results.levels(panel.x, panel.where)
    xs = _places(levels)
    cells = []
    for place, hue in enumerate(_hues(results, panel.hue, panel.where)):
        for position, level in enumerate(levels):
            chosen = {**hue.chosen, panel.x: level}
            found = results.estimate(info, chosen)
            if found.mean is not None:
                published = published_value(source.study.file, panel.metric, chosen)
                ends = (found.interval.low, found.interval.high)
                cells.append(_Cell(xs[position], position, level, hue, place, found.mean, *ends,
                                   len(found.values), published))  # fmt: skip
    return cells


def _places(levels: Sequence[object]) -> list[float]:
    """Return where levels stand on a line: at their numbers where all have one."""
    numbers = [number for level in levels if (number := leading_number(level)) is not None]
    return numbers if len(numbers) == len(levels) else [float(p) for p in range(len(levels))]


def _bars(panel: BarsPanel, source: PanelSource) -> DrawnPanel | None:
    info, cells = source.study.metrics.infos[panel.metric], _cells(panel, source)
    if not cells:
        return None
    figure, (ax,) = new_figure(4.2, [1])
    width = 0.8 / (1 + max(cell.place for cell in cells))
    named: set[str] = set()
    published: list[tuple[float, float]] = []
    beside = {
        cell.position: [c.place for c in cells if c.position == cell.position] for cell in cells
    }
    for cell in cells:
        # Bars that are not there leave no gap: the others stand around the middle.
        there = beside[cell.position]
        x = cell.position + width * (there.index(cell.place) - (len(there) - 1) / 2)
        ax.bar(x, cell.mean, width * 0.94, color=cell.hue.colour, alpha=0.9,
               label=once(named, cell.hue.label) if cell.hue.label else None)  # fmt: skip
        if cell.low is not None and cell.high is not None and cell.high > cell.low:
            ax.plot([x, x], [cell.low, cell.high], color="black", linewidth=1.1)
        if cell.published is not None:
            published.append((x, cell.published))
    if published:
        ax.scatter([x for x, _ in published], [y for _, y in published], marker="D", s=26,
                   color="white", edgecolors="black", linewidths=1, zorder=4,
                   label="published")  # fmt: skip
    _label_levels(ax, source.results.levels(panel.x, panel.where), source, panel.x)
    ax.grid(visible=False, axis="x")
    label_y(ax, info.title, info.unit)
    side_legend(ax)
    return DrawnPanel(figure, pl.DataFrame([cell.row(panel.x) for cell in cells]))


def _boxes(panel: BoxPanel, source: PanelSource) -> DrawnPanel | None:
    results = source.results
    levels, hues = results.levels(panel.x, panel.where), _hues(results, panel.hue, panel.where)
    figure, (ax,) = new_figure(4.2, [1])
    width, rows = 0.8 / max(len(hues), 1), []
    for place, hue in enumerate(hues):
        shown = []
        for position, level in enumerate(levels):
            values = _values(panel, source, {**hue.chosen, panel.x: level})
            if len(values):
                shown.append((position - 0.4 + width * (place + 0.5), values))
                rows.append({panel.x: str(level), "hue": hue.label, **_five(values)})
        if shown:
            _draw_boxes(ax, shown, hue, width)
    if not rows:
        return None
    _label_levels(ax, levels, source, panel.x)
    ax.grid(visible=False, axis="x")
    label_y(ax, *_title_of(panel, source))
    ax.set_ylim(bottom=0)
    if panel.hue:
        side_legend(ax)
    return DrawnPanel(figure, pl.DataFrame(rows))


def _draw_boxes(
    ax: Axes, shown: Sequence[tuple[float, FloatArray]], hue: _Hue, width: float
) -> None:
    drawn = ax.boxplot(
        [values for _, values in shown],
        positions=[x for x, _ in shown],
        widths=0.8 * width,
        patch_artist=True,
        whis=(5, 95),
        showfliers=False,
        manage_ticks=False,
    )
    for box in drawn["boxes"]:
        box.set(facecolor=hue.colour, alpha=0.75, edgecolor="black", linewidth=0.8)
    for part in ("medians", "whiskers", "caps"):
        for line in drawn[part]:
            line.set(color="black", linewidth=1.4 if part == "medians" else 0.8)
    ax.bar(0, 0, color=hue.colour, alpha=0.75, label=hue.label or "_nolegend_")


def _five(values: FloatArray) -> dict[str, float]:
    """Return what a box shows: whiskers, quartiles and median, and the number of values."""
    shares = {"p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}
    return {"count": float(len(values))} | {
        name: float(np.quantile(values, share)) for name, share in shares.items()
    }


def _cdf(panel: CdfPanel, source: PanelSource) -> DrawnPanel | None:
    figure, (ax,) = new_figure(4.0, [1])
    frames, far = [], 0.0
    for hue in _hues(source.results, panel.hue, panel.where):
        x, share = ecdf(_values(panel, source, hue.chosen))
        if len(x):
            far = max(far, float(np.quantile(x, _NEARLY_ALL)))
            ax.step(x, share, where="post", color=hue.colour, linestyle=hue.dash, label=hue.label)
            frames.append(pl.DataFrame({"hue": hue.label, "value": x, "share": share}))
    if not frames:
        return None
    what, unit = _title_of(panel, source)
    ax.set_xlabel(f"{what} ({unit})" if unit else what, fontsize=9)
    ax.set_ylim(0, 1.02)
    ax.set_xlim(left=0)
    if far > 0 and ax.get_xlim()[1] > _TOO_FAR * far:
        ax.set_xlim(right=2 * far)
        ax.set_title("a few values lie further right", fontsize=8.5, loc="right", color=GREY)
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    ax.set_ylabel("share at or below", fontsize=9)
    side_legend(ax)
    return DrawnPanel(figure, pl.concat(frames))


def _values(panel: BoxPanel | CdfPanel, source: PanelSource, chosen: Selected) -> FloatArray:
    """Return the metric of the chosen runs, or all samples of their flows."""
    if panel.metric is not None:
        return source.results.values(source.study.metrics.infos[panel.metric], chosen)
    rows = (
        source.results.selected(chosen)
        .select("run", "flow")
        .drop_nulls()
        .unique(maintain_order=True)
    )
    bin_s = seconds(panel.bin)
    found = [
        binned_samples(source.record(run).flows[flow], panel.series or "goodput", bin_s)[1]
        for run, flow in rows.iter_rows()
    ]
    values: FloatArray = np.concatenate(found) if found else np.array([], dtype=np.float64)
    return values[np.isfinite(values)]


def _title_of(panel: BoxPanel | CdfPanel, source: PanelSource) -> tuple[str, str]:
    if panel.metric is not None:
        info = source.study.metrics.infos[panel.metric]
        return info.title, info.unit
    series = panel.series or "goodput"
    return f"{series}, means over {panel.bin}", SERIES_UNITS[series]


def _lines(panel: LinesPanel, source: PanelSource) -> DrawnPanel | None:
    info, cells = source.study.metrics.infos[panel.metric], _cells(panel, source)
    if not cells:
        return None
    figure, (ax,) = new_figure(4.0, [1])
    for hue in dict.fromkeys(cell.hue.label for cell in cells):
        line = sorted((cell for cell in cells if cell.hue.label == hue), key=lambda cell: cell.x)
        style, xs = line[0].hue, [cell.x for cell in line]
        ax.plot(xs, [cell.mean for cell in line], marker="o", markersize=4, color=style.colour,
                linestyle=style.dash, label=hue or "_nolegend_")  # fmt: skip
        lows = [cell.mean if cell.low is None else cell.low for cell in line]
        highs = [cell.mean if cell.high is None else cell.high for cell in line]
        ax.fill_between(xs, lows, highs, color=style.colour, alpha=0.18, linewidth=0)
    levels = source.results.levels(panel.x, panel.where)
    places = _places(levels)
    if min(places) > 0 and max(places) > _WIDE * min(places):
        ax.set_xscale("log")
        ax.minorticks_off()
    ax.set_xticks(places, [str(level) for level in levels], fontsize=8.5)
    ax.set_xlabel(panel.x.replace("_", " "), fontsize=9)
    label_y(ax, info.title, info.unit)
    ax.set_ylim(bottom=0)
    side_legend(ax)
    return DrawnPanel(figure, pl.DataFrame([cell.row(panel.x) for cell in cells]))


def _scatter(panel: ScatterPanel, source: PanelSource) -> DrawnPanel | None:
    infos = source.study.metrics.infos
    x_info, y_info = infos[panel.x], infos[panel.y]
    figure, (ax,) = new_figure(4.4, [1])
    frames = []
    for place, hue in enumerate(_hues(source.results, panel.hue, panel.where)):
        frame = source.results.selected(hue.chosen)
        points = frame.select(
            pl.lit(hue.label).alias("hue"),
            "run",
            (pl.col(x_info.column) * x_info.factor).alias(panel.x),
            (pl.col(y_info.column) * y_info.factor).alias(panel.y),
        ).drop_nulls()
        if points.height:
            frames.append(points)
            ax.scatter(points[panel.x], points[panel.y], s=34, color=hue.colour, alpha=0.75,
                       linewidths=0.4, edgecolors="white", label=hue.label or "_nolegend_",
                       marker="os^DvPX"[place % 7])  # fmt: skip
    if not frames:
        return None
    ax.set_xlabel(_named(x_info), fontsize=9)
    label_y(ax, y_info.title, y_info.unit)
    ax.set_xlim(left=0)
    from_zero(ax, max(float(str(frame[panel.y].max())) for frame in frames))
    side_legend(ax)
    return DrawnPanel(figure, pl.concat(frames))


def _heatmap(panel: HeatmapPanel, source: PanelSource) -> DrawnPanel | None:
    results, info = source.results, source.study.metrics.infos[panel.metric]
    columns, lines = results.levels(panel.x, panel.where), results.levels(panel.y, panel.where)
    grid = np.full((len(lines), len(columns)), np.nan)
    for row, line in enumerate(lines):
        for place, column in enumerate(columns):
            found = results.estimate(info, {**panel.where, panel.x: column, panel.y: line}).mean
            grid[row, place] = np.nan if found is None else found
    if not np.isfinite(grid).any():
        return None
    figure, (ax,) = new_figure(1.3 + 0.42 * len(lines), [1])
    dress(ax)
    image = ax.imshow(grid, aspect="auto", cmap="cividis")
    ax.grid(visible=False)
    ax.set_yticks(range(len(lines)), [str(line) for line in lines], fontsize=8.5)
    _label_levels(ax, columns, source, panel.x)
    ax.set_xlim(-0.5, len(columns) - 0.5)
    figure.colorbar(image, ax=ax, pad=0.01)
    ax.set_title(_named(info), fontsize=9, loc="left")
    middle = (np.nanmin(grid) + np.nanmax(grid)) / 2
    for (row, place), value in np.ndenumerate(grid):
        text = "\N{EN DASH}" if np.isnan(value) else f"{value:.3g}"
        dark = np.isfinite(value) and value < middle
        colour = "white" if dark else ("black" if np.isfinite(value) else GREY)
        ax.text(place, row, text, ha="center", va="center", fontsize=8.5, color=colour)
    rows = [
        {panel.y: str(line), panel.x: str(column), "mean": float(grid[row, place])}
        for row, line in enumerate(lines)
        for place, column in enumerate(columns)
    ]
    return DrawnPanel(figure, pl.DataFrame(rows).fill_nan(None))


def _series(panel: SeriesPanel, source: PanelSource) -> DrawnPanel | None:
    """Draw the first run of each hue: more would hide each other."""
    shown = []
    for hue in _hues(source.results, panel.hue, panel.where):
        rows = source.results.selected(hue.chosen)
        if rows.height:
            first = rows.row(0, named=True)
            shown.append((hue.label, hue.colour, source.record(first["run"]), first["flow"]))
    if not shown:
        return None
    figure, data = draw_series(panel, shown)
    return DrawnPanel(figure, data)


def _label_levels(ax: Axes, levels: Sequence[object], source: PanelSource, axis: str) -> None:
    names = [str(level) for level in levels]
    turned = max(map(len, names)) * len(names) > _ROOM
    ax.set_xticks(range(len(names)), names, fontsize=8.5, rotation=25 if turned else 0,
                  ha="right" if turned else "center", rotation_mode="anchor")  # fmt: skip
    ax.set_xlim(-0.6, len(names) - 0.4)
    # Labels of points speak for themselves; numbers need to know of what.
    if all(a.name != axis or a.points is None for a in source.study.file.axis):
        ax.set_xlabel(axis.replace("_", " "), fontsize=9)


def _named(info: MetricInfo) -> str:
    return f"{info.title} ({info.unit})" if info.unit else info.title
