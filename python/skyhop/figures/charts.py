"""The charts of a study's report as figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from skyhop.analysis.charts import (
    BarChart,
    BoxChart,
    Boxes,
    Chart,
    HeatChart,
    Levels,
    LineChart,
    ScatterChart,
    SeriesChart,
    ShareChart,
    named,
)
from skyhop.analysis.timeline import GREY, from_zero
from skyhop.figures.style import SHARES, dress, label_time, label_y, new_figure, side_legend
from skyhop.figures.timeline import draw_panel, draw_strip, mark_panels, strip_height_in

_ROOM = 110
"""Characters of labels that stand beside each other; where there are more they are turned."""

_TOO_FAR = 10
"""Where the greatest value is this many times that of nearly all, an axis leaves it out."""

_SHAPES = "os^DvPX"


def draw_chart(chart: Chart) -> Figure:
    """Draw a chart."""
    draw: Mapping[type[Chart], Callable[[Any], Figure]] = {
        BarChart: _bars,
        BoxChart: _boxes,
        ShareChart: _shares,
        LineChart: _lines,
        ScatterChart: _scatter,
        HeatChart: _heat,
        SeriesChart: _series,
    }
    return draw[type(chart)](chart)


def _bars(chart: BarChart) -> Figure:
    figure, (ax,) = new_figure(4.2, [1])
    labelled: set[str] = set()
    for bar in chart.bars:
        label = bar.hue.label if bar.hue.label not in labelled else ""
        labelled.add(label)
        ax.bar(bar.x, bar.mean, chart.width * 0.94, color=bar.hue.colour, alpha=0.9,
               label=label or "_nolegend_")  # fmt: skip
        if bar.low is not None and bar.high is not None and bar.high > bar.low:
            ax.plot([bar.x, bar.x], [bar.low, bar.high], color="black", linewidth=1.1)
    published = [(bar.x, bar.published) for bar in chart.bars if bar.published is not None]
    if published:
        ax.scatter([x for x, _ in published], [y for _, y in published], marker="D", s=26,
                   color="white", edgecolors="black", linewidths=1, zorder=4,
                   label="published")  # fmt: skip
    _label_levels(ax, chart.levels)
    ax.grid(visible=False, axis="x")
    label_y(ax, chart.what, chart.unit)
    side_legend(ax)
    return figure


def _boxes(chart: BoxChart) -> Figure:
    figure, (ax,) = new_figure(4.2, [1])
    for boxes in chart.boxes:
        _draw_boxes(ax, boxes, chart.width)
    _label_levels(ax, chart.levels)
    ax.grid(visible=False, axis="x")
    label_y(ax, chart.what, chart.unit)
    ax.set_ylim(bottom=0)
    if chart.has_hues:
        side_legend(ax)
    return figure


def _draw_boxes(ax: Axes, boxes: Boxes, width: float) -> None:
    drawn = ax.boxplot(
        boxes.values,
        positions=boxes.xs,
        widths=0.8 * width,
        patch_artist=True,
        whis=(5, 95),
        showfliers=False,
        manage_ticks=False,
    )
    for box in drawn["boxes"]:
        box.set(facecolor=boxes.hue.colour, alpha=0.75, edgecolor="black", linewidth=0.8)
    for part in ("medians", "whiskers", "caps"):
        for line in drawn[part]:
            line.set(color="black", linewidth=1.4 if part == "medians" else 0.8)
    ax.bar(0, 0, color=boxes.hue.colour, alpha=0.75, label=boxes.hue.label or "_nolegend_")


def _shares(chart: ShareChart) -> Figure:
    figure, (ax,) = new_figure(4.0, [1])
    for curve in chart.curves:
        ax.step(curve.values, curve.shares, where="post", color=curve.hue.colour,
                linestyle=curve.hue.dash, label=curve.hue.label)  # fmt: skip
    ax.set_xlabel(named(chart.what, chart.unit), fontsize=9)
    ax.set_ylim(0, 1.02)
    ax.set_xlim(left=0)
    if chart.nearly_all > 0 and ax.get_xlim()[1] > _TOO_FAR * chart.nearly_all:
        ax.set_xlim(right=2 * chart.nearly_all)
        ax.set_title("a few values lie further right", fontsize=8.5, loc="right", color=GREY)
    ax.set_yticks(*SHARES)
    ax.set_ylabel("share at or below", fontsize=9)
    side_legend(ax)
    return figure


def _lines(chart: LineChart) -> Figure:
    figure, (ax,) = new_figure(4.0, [1])
    for line in chart.lines:
        ax.plot(line.xs, line.means, marker="o", markersize=4, color=line.hue.colour,
                linestyle=line.hue.dash, label=line.hue.label or "_nolegend_")  # fmt: skip
        ax.fill_between(line.xs, line.lows, line.highs, color=line.hue.colour, alpha=0.18,
                        linewidth=0)  # fmt: skip
    if chart.is_log:
        ax.set_xscale("log")
        ax.minorticks_off()
    ax.set_xticks(chart.xs, chart.levels.names, fontsize=8.5)
    ax.set_xlabel(chart.levels.title, fontsize=9)
    label_y(ax, chart.what, chart.unit)
    ax.set_ylim(bottom=0)
    side_legend(ax)
    return figure


def _scatter(chart: ScatterChart) -> Figure:
    figure, (ax,) = new_figure(4.4, [1])
    for points in chart.points:
        ax.scatter(points.xs, points.ys, s=34, color=points.hue.colour, alpha=0.75, linewidths=0.4,
                   edgecolors="white", label=points.hue.label or "_nolegend_",
                   marker=_SHAPES[points.hue.index % len(_SHAPES)])  # fmt: skip
    ax.set_xlabel(chart.x_title, fontsize=9)
    label_y(ax, chart.what, chart.unit)
    ax.set_xlim(left=0)
    ax.set_ylim(*from_zero(max(float(points.ys.max()) for points in chart.points)))
    side_legend(ax)
    return figure


def _heat(chart: HeatChart) -> Figure:
    grid = chart.grid
    figure, (ax,) = new_figure(1.3 + 0.42 * len(chart.rows), [1])
    dress(ax)
    image = ax.imshow(grid, aspect="auto", cmap="cividis")
    ax.grid(visible=False)
    ax.set_yticks(range(len(chart.rows)), chart.rows, fontsize=8.5)
    _label_levels(ax, chart.columns)
    ax.set_xlim(-0.5, len(chart.columns.names) - 0.5)
    figure.colorbar(image, ax=ax, pad=0.01)
    ax.set_title(chart.title, fontsize=9, loc="left")
    middle = (np.nanmin(grid) + np.nanmax(grid)) / 2
    for (row, column), value in np.ndenumerate(grid):
        text = "\N{EN DASH}" if np.isnan(value) else f"{value:.3g}"
        dark = np.isfinite(value) and value < middle
        colour = "white" if dark else ("black" if np.isfinite(value) else GREY)
        ax.text(column, row, text, ha="center", va="center", fontsize=8.5, color=colour)
    return figure


def _series(chart: SeriesChart) -> Figure:
    """Draw one panel per series, below the handovers of each path."""
    several = len(chart.strips) > 1
    heights = [strip_height_in(strip) + 0.22 * several for _, strip in chart.strips]
    ratios = [*heights, *([1.9] * len(chart.panels))]
    figure, axes = new_figure(sum(ratios) + 0.6, ratios)
    for ax, (names, strip) in zip(axes, chart.strips, strict=False):
        draw_strip(ax, strip)
        if several:
            ax.set_title(names, fontsize=8.5, loc="left", pad=2)
    drawn = axes[len(chart.strips) :]
    for ax, panel in zip(drawn, chart.panels, strict=True):
        draw_panel(ax, panel)
        ax.tick_params(labelbottom=False)
    if not several:
        mark_panels(drawn, chart.strips[0][1])
    side_legend(drawn[0])
    label_time(drawn[-1], chart.end_s)
    drawn[-1].tick_params(labelbottom=True)
    drawn[-1].set_xlim(chart.begin_s, chart.end_s)
    figure.align_ylabels(drawn)
    return figure


def _label_levels(ax: Axes, levels: Levels) -> None:
    turned = max(map(len, levels.names)) * len(levels.names) > _ROOM
    ax.set_xticks(range(len(levels.names)), levels.names, fontsize=8.5,
                  rotation=25 if turned else 0, ha="right" if turned else "center",
                  rotation_mode="anchor")  # fmt: skip
    ax.set_xlim(-0.6, len(levels.names) - 0.4)
    if levels.title:
        ax.set_xlabel(levels.title, fontsize=9)
