"""Charts of a study's report, drawn as figures."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Ellipse as EllipsePatch

from skyhop.analysis.charts import (
    BarChart,
    BoxChart,
    Boxes,
    Chart,
    EcdfChart,
    HeatChart,
    Levels,
    LineChart,
    MapChart,
    ScatterChart,
    SeriesChart,
    named,
)
from skyhop.analysis.statistics import Ellipse
from skyhop.analysis.styles import Style
from skyhop.analysis.tables import MISSING, three_digits
from skyhop.analysis.timeline import GREY, Stroke, from_zero
from skyhop.data.figure_files import FigureWidth
from skyhop.figures.maps import draw_maps
from skyhop.figures.style import (
    MARKERS,
    SHARES,
    Sheet,
    add_legend,
    dress,
    label_time,
    label_x,
    label_y,
    new_figure,
    note_figure,
    pt,
    sheet_of,
    title_axes,
)
from skyhop.figures.timeline import (
    draw_panel,
    draw_strip,
    mark_panels,
    place_markers,
    strip_height_in,
)

_ROOM = 0.8
"""Largest share of the figure's width for labels side by side; otherwise labels are rotated."""

_TOO_FAR = 10
"""Ratio of the greatest value to nearly all others above which the axis does not reach it."""

_WIDEST, _THINNEST = 2.4, 1.2
"""Largest and least width of lines in points: a lower line is wider, so that it stays visible."""


def draw_chart(chart: Chart, width: FigureWidth = "page") -> Sheet:
    """Draw a chart of any kind."""
    figure = _draw(chart, width)
    note_figure(figure, chart.pooled)
    return figure


@singledispatch
def _draw(chart: Chart, _width: FigureWidth) -> Sheet:
    raise NotImplementedError(type(chart).__name__)


@_draw.register
def _bars(chart: BarChart, width: FigureWidth) -> Sheet:
    figure, (ax,) = new_figure(4.2, [1], width)
    labelled: set[str] = set()
    for bar in chart.bars:
        label = bar.hue.label if bar.hue.label not in labelled else ""
        labelled.add(label)
        ax.bar(bar.x, bar.mean - chart.origin, chart.width * 0.94, chart.origin,
               color=bar.hue.style.colour, alpha=0.9, label=label or "_nolegend_")  # fmt: skip
        low, high = bar.ends
        if high > low:
            ax.plot([bar.x, bar.x], [low, high], color="black", linewidth=1.1)
    published = [(bar.x, bar.published) for bar in chart.bars if bar.published is not None]
    if published:
        ax.scatter([x for x, _ in published], [y for _, y in published], marker="D", s=pt(ax, 26),
                   color="white", edgecolors="black", linewidths=1, zorder=4,
                   label="published")  # fmt: skip
    _label_levels(ax, chart.levels)
    ax.grid(visible=False, axis="x")
    label_y(ax, chart.what, _unit(chart.unit, chart.origin))
    add_legend(ax)
    return figure


@_draw.register
def _boxes(chart: BoxChart, width: FigureWidth) -> Sheet:
    figure, (ax,) = new_figure(4.2, [1], width)
    for boxes in chart.boxes:
        _draw_boxes(ax, boxes, chart.width)
    _label_levels(ax, chart.levels)
    ax.grid(visible=False, axis="x")
    label_y(ax, chart.what, _unit(chart.unit, chart.origin))
    whiskers = [np.quantile(values, _WHISKERS) for boxes in chart.boxes for values in boxes.values]
    ax.set_ylim(bottom=_begin(chart.origin, [float(low) for low, _ in whiskers]))
    add_legend(ax)
    return figure


_WHISKERS = (0.05, 0.95)
"""Quantiles at the ends of a box's whiskers."""


def _draw_boxes(ax: Axes, boxes: Boxes, width: float) -> None:
    drawn = ax.boxplot(
        boxes.values,
        positions=boxes.xs,
        widths=0.8 * width,
        patch_artist=True,
        whis=(100 * _WHISKERS[0], 100 * _WHISKERS[1]),
        showfliers=False,
        manage_ticks=False,
    )
    for box in drawn["boxes"]:
        box.set(facecolor=boxes.hue.style.colour, alpha=0.75, edgecolor="black", linewidth=0.8)
    for part in ("medians", "whiskers", "caps"):
        for line in drawn[part]:
            line.set(color="black", linewidth=1.4 if part == "medians" else 0.8)
    ax.bar(0, 0, color=boxes.hue.style.colour, alpha=0.75, label=boxes.hue.label or "_nolegend_")


@_draw.register
def _shares(chart: EcdfChart, width: FigureWidth) -> Sheet:
    figure, (ax,) = new_figure(4.0, [1], width)
    for place, curve in enumerate(chart.curves):
        style = curve.hue.style
        ax.step(curve.xs, curve.ys, where="post", color=style.colour, linestyle=style.dash,
                linewidth=pt(ax, 1.5), label=curve.hue.label)  # fmt: skip
        stroke = Stroke(style.colour, 1.5, style.dash, marker=style.marker)
        place_markers(ax, curve.ys, curve.xs, stroke, (place, len(chart.curves)))
    label_x(ax, named(chart.what, _unit(chart.unit, chart.origin)))
    ax.set_ylim(0, 1.02)
    ax.set_xlim(left=_begin(chart.origin, [float(curve.xs[0]) for curve in chart.curves]))
    if chart.nearly_all > 0 and ax.get_xlim()[1] > _TOO_FAR * chart.nearly_all:
        ax.set_xlim(right=2 * chart.nearly_all)
        ax.text(0.99, 0.03, "a few values lie further right", transform=ax.transAxes, ha="right",
                fontsize=pt(ax, 8.5), color=GREY)  # fmt: skip
    ax.set_yticks(*SHARES)
    ax.set_ylabel("CDF", fontsize=pt(ax, 9))
    add_legend(ax)
    return figure


@_draw.register
def _lines(chart: LineChart, width: FigureWidth) -> Sheet:
    figure, (ax,) = new_figure(4.0, [1], width)
    for line, stroke_pt in zip(chart.lines, _widths(len(chart.lines)), strict=True):
        hue, xs = line[0].hue, [point.x for point in line]
        lows, highs = zip(*(point.ends for point in line), strict=True)
        ax.plot(xs, [point.mean for point in line], color=hue.style.colour,
                linewidth=pt(ax, stroke_pt), **_marked(ax, hue.style, stroke_pt),
                label=hue.label or "_nolegend_")  # fmt: skip
        ax.fill_between(xs, lows, highs, color=hue.style.colour, alpha=0.18, linewidth=0)
    if chart.is_log:
        ax.set_xscale("log")
        ax.minorticks_off()
    ax.set_xticks(chart.xs, chart.levels.names, fontsize=pt(ax, 8.5))
    label_x(ax, chart.levels.title)
    label_y(ax, chart.what, _unit(chart.unit, chart.origin))
    ax.set_ylim(
        bottom=_begin(chart.origin, [point.ends[0] for line in chart.lines for point in line])
    )
    add_legend(ax)
    return figure


@_draw.register
def _scatter(chart: ScatterChart, width: FigureWidth) -> Sheet:
    figure, (ax,) = new_figure(4.4, [1], width)
    for points in chart.points:
        ax.scatter(points.xs, points.ys, s=pt(ax, 34), color=points.hue.style.colour, alpha=0.75,
                   linewidths=0.4, edgecolors="white", label=points.hue.label or "_nolegend_",
                   marker=MARKERS[points.hue.style.marker], clip_on=False)  # fmt: skip
        if points.ellipse is not None:
            _draw_ellipse(ax, points.ellipse, points.hue.style)
    label_x(ax, chart.x_title)
    label_y(ax, chart.what, _unit(chart.unit, chart.origin[1] if chart.from_zero else 0))
    if chart.from_zero:
        xs, ys = (np.concatenate([getattr(p, axis) for p in chart.points]) for axis in ("xs", "ys"))
        ax.set_xlim(left=_begin(chart.origin[0], xs))
        tops = [points.ellipse.top for points in chart.points if points.ellipse is not None]
        bottom = _begin(chart.origin[1], ys)
        ax.set_ylim(bottom, bottom + from_zero(max([float(ys.max()), *tops]) - bottom)[1])
    add_legend(ax)
    return figure


def _unit(unit: str, origin: float) -> str:
    """Return the unit for the axis label; if the axis does not begin at 0, add where it begins."""
    begins = f"axis from {origin:g}" if origin else ""
    return ", ".join(text for text in (unit, begins) if text)


def _begin(origin: float, values: Iterable[float]) -> float:
    """Return the start of an axis: the metric's origin, or the least value if that is lower."""
    return min([origin, *(value for value in values if np.isfinite(value))])


def _draw_ellipse(ax: Axes, ellipse: Ellipse, style: Style) -> None:
    ax.add_patch(
        EllipsePatch(
            (ellipse.x, ellipse.y), 2 * ellipse.major, 2 * ellipse.minor, angle=ellipse.angle_deg,
            facecolor=(*to_rgb(style.colour), 0.15), edgecolor=style.colour,
            linestyle=style.dash, linewidth=pt(ax, 1.1),
        )
    )  # fmt: skip


@_draw.register
def _heat(chart: HeatChart, width: FigureWidth) -> Sheet:
    grid = chart.grid
    figure, (ax,) = new_figure(1.3 + 0.42 * len(chart.rows), [1], width)
    dress(ax)
    image = ax.imshow(grid, aspect="auto", cmap="cividis", vmax=chart.top)
    ax.grid(visible=False)
    ax.set_yticks(range(len(chart.rows)), chart.rows, fontsize=pt(ax, 8.5))
    _label_levels(ax, chart.columns)
    ax.set_xlim(-0.5, len(chart.columns.names) - 0.5)
    figure.colorbar(image, ax=ax, pad=0.01).ax.tick_params(labelsize=pt(ax, 8.5))
    title_axes(ax, named(chart.what, chart.unit), 9)
    for row in chart.row_breaks:
        ax.axhline(row - 0.5, color="white", linewidth=pt(ax, 4))
    for column in chart.column_breaks:
        ax.axvline(column - 0.5, color="white", linewidth=pt(ax, 4))
    middle = sum(image.get_clim()) / 2
    for (row, column), value in np.ndenumerate(grid):
        text = MISSING if np.isnan(value) else three_digits(float(value))
        dark = np.isfinite(value) and value < middle
        colour = "white" if dark else ("black" if np.isfinite(value) else GREY)
        ax.text(column, row, text, ha="center", va="center", fontsize=pt(ax, 8.5), color=colour)
    return figure


@_draw.register
def _maps(chart: MapChart, width: FigureWidth) -> Sheet:
    return draw_maps(chart, width)


@_draw.register
def _series(chart: SeriesChart, width: FigureWidth) -> Sheet:
    """Draw one panel per series, below a strip with the handovers of each path, if any."""
    several = len(chart.strips) > 1
    heights = [strip_height_in(strip) + 0.22 * several for _, strip in chart.strips]
    ratios = [*heights, *([1.9] * len(chart.panels))]
    figure, axes = new_figure(sum(ratios) + 0.6, ratios, width)
    for ax, (names, strip) in zip(axes, chart.strips, strict=False):
        draw_strip(ax, strip)
        if several:
            title_axes(ax, names, 8.5, pad=2)
    drawn = axes[len(chart.strips) :]
    for ax, panel in zip(drawn, chart.panels, strict=True):
        draw_panel(ax, panel)
        ax.tick_params(labelbottom=False)
    if len(chart.strips) == 1:
        mark_panels(drawn, chart.strips[0][1])
    add_legend(drawn[0])
    label_time(drawn[-1], chart.end_s)
    drawn[-1].tick_params(labelbottom=True)
    drawn[-1].set_xlim(chart.begin_s, chart.end_s)
    figure.align_ylabels(drawn)
    return figure


def _widths(count: int) -> list[float]:
    """Return the widths of lines in points, in the order of drawing; later lines are thinner."""
    return [_THINNEST + (_WIDEST - _THINNEST) * (count - 1 - place) / max(count - 1, 1)
            for place in range(count)]  # fmt: skip


def _marked(ax: Axes, style: Style, stroke_pt: float) -> dict[str, Any]:
    """Return keywords for the dash and markers of a line; wider lines have larger markers."""
    return {
        "linestyle": style.dash,
        "marker": MARKERS[style.marker],
        "markersize": pt(ax, 3 + 1.8 * stroke_pt),
        "markeredgecolor": "white",
        "markeredgewidth": pt(ax, 0.5),
    }


def _label_levels(ax: Axes, levels: Levels) -> None:
    room = _ROOM * sheet_of(ax).laid_out.letters(8.5)
    turned = max(map(len, levels.names)) * len(levels.names) > room
    ax.set_xticks(range(len(levels.names)), levels.names, fontsize=pt(ax, 8.5),
                  rotation=25 if turned else 0, ha="right" if turned else "center",
                  rotation_mode="anchor")  # fmt: skip
    ax.set_xlim(-0.6, len(levels.names) - 0.4)
    if levels.title:
        label_x(ax, levels.title)
