"""Figure of a predictor: predicted and true values over time, against each other, and errors."""

from __future__ import annotations

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes

from skyhop.analysis.prediction import PredictionView
from skyhop.analysis.styles import COLOURS
from skyhop.analysis.timeline import GREY
from skyhop.data.figure_files import FigureWidth
from skyhop.figures.style import (
    FIGURE_STYLE,
    SHARES,
    Sheet,
    add_legend,
    dress,
    label_x,
    label_y,
    note_figure,
    pt,
    title_figure,
)

_HEIGHT_IN = 6.4


def prediction_figure(view: PredictionView, width: FigureWidth = "page") -> Sheet:
    """Draw a model's predictions for one horizon.

    Args:
        view: view model of the predictions for the horizon.
        width: target of the figure: a page, or one or two columns of a paper.
    """
    with rc_context(FIGURE_STYLE):
        figure = Sheet(_HEIGHT_IN, width)
        is_narrow = figure.laid_out.is_narrow
        grid = figure.add_gridspec(3, 1) if is_narrow else figure.add_gridspec(2, 2)
        over_time = figure.add_subplot(grid[0] if is_narrow else grid[0, :])
        against = figure.add_subplot(grid[1] if is_narrow else grid[1, 0])
        errors = figure.add_subplot(grid[2] if is_narrow else grid[1, 1])
    for ax in (over_time, against, errors):
        dress(ax)
    _draw_series(over_time, view)
    _draw_against(against, view)
    _draw_errors(errors, view)
    title_figure(figure, view.title)
    note_figure(figure, view.note)
    return figure


def _draw_series(ax: Axes, view: PredictionView) -> None:
    for place, at_s in enumerate(view.grid_s):
        ax.axvline(at_s, color="#DDDDDD", linewidth=pt(ax, 0.8),
                   label="_" if place else "moment of the grid")  # fmt: skip
    ax.plot(view.at_s, view.shown_truth, color=GREY, linewidth=pt(ax, 1.2), label="true")
    ax.plot(view.at_s, view.shown_predicted, color=COLOURS[0], linewidth=pt(ax, 1.0),
            label="predicted")  # fmt: skip
    label_y(ax, view.what, view.unit)
    label_x(ax, "time since the first of these seconds (s)")
    add_legend(ax)


def _draw_against(ax: Axes, view: PredictionView) -> None:
    ax.plot(view.truth, view.predicted, ".", markersize=pt(ax, 2.5), color=COLOURS[0], alpha=0.35,
            rasterized=True)  # fmt: skip
    ends = np.percentile(np.concatenate((view.truth, view.predicted)), [0, 99.5])
    most = float(ends[1]) * 1.05 or 1.0
    ax.plot([0, most], [0, most], color=GREY, linewidth=pt(ax, 0.8), linestyle="--")
    ax.set_xlim(0, most)
    ax.set_ylim(0, most)
    label_x(ax, f"true {view.what} ({view.unit})")
    label_y(ax, "predicted", view.unit)


def _draw_errors(ax: Axes, view: PredictionView) -> None:
    for place, curve in enumerate(view.curves):
        ax.step(curve.ape_pct, curve.shares, where="post", color=COLOURS[place % len(COLOURS)],
                linewidth=pt(ax, 1.8 if curve.is_model else 0.9), label=curve.name,
                linestyle="-" if curve.is_model else "--")  # fmt: skip
    ax.set_xlim(0, view.most_ape_pct)
    ax.set_ylim(0, 1)
    ax.set_yticks(*SHARES)
    ax.set_ylabel("share of seconds", fontsize=pt(ax, 9))
    label_x(ax, "absolute error (% of the truth)")
    add_legend(ax)
