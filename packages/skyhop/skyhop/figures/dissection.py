"""Latency of a route's segments as bars of one-way medians, as in the T3P paper's figure 3c."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skyhop.analysis.dissection import Dissection
from skyhop.analysis.styles import COLOURS
from skyhop.analysis.timeline import GREY
from skyhop.data.figure_files import FigureWidth
from skyhop.figures.style import (
    Sheet,
    add_legend,
    label_y,
    new_figure,
    note_figure,
    pt,
    title_figure,
)

_WIDE = 0.38


def dissection_figure(found: Dissection, width: FigureWidth = "page") -> Sheet:
    """Draw the latency of each segment of a route, by both methods (by trace, of medians).

    Args:
        found: the segments.
        width: target of the figure: a page, or one or two columns of a paper.
    """
    figure, (ax,) = new_figure(4.0, [1], width)
    places = np.arange(len(found.pieces))
    for side, label, colour, bars in _bars(found):
        at, spread = places + side * _WIDE / 2, np.array([bar.spread for bar in bars]).T
        if np.isnan([bar.ms for bar in bars]).all():
            continue
        ax.bar(at, [bar.ms for bar in bars], _WIDE, color=colour, label=label)
        if spread.any():
            ax.errorbar(at, [bar.ms for bar in bars], spread, fmt="none", ecolor="black",
                        elinewidth=pt(ax, 1), capsize=pt(ax, 3))  # fmt: skip
        for x, bar in zip(at, bars, strict=True):
            if np.isnan(bar.share):
                continue
            top = max(bar.ms + bar.spread[1], 0)
            ax.annotate(f"{100 * bar.share:.0f} %", (x, top), (0, pt(ax, 3)), ha="center",
                        textcoords="offset points", fontsize=pt(ax, 8.5), color=GREY)  # fmt: skip
    ax.set_xticks(places, [f"{p.name}\n{_broken(p.what)}" for p in found.pieces],
                  fontsize=pt(ax, 8.5))  # fmt: skip
    ax.grid(visible=False, axis="x")
    label_y(ax, "one way", "ms")
    ax.margins(y=0.12)
    add_legend(ax)
    title_figure(figure, found.title)
    note_figure(figure, "; ".join(found.notes))
    return figure


class _Bar(NamedTuple):
    """Bar: height, its interval's extent below and above (all ms), and the share to write above."""

    ms: float
    spread: tuple[float, float]
    share: float


def _bars(found: Dissection) -> list[tuple[int, str, str, list[_Bar]]]:
    """Return the bars of both methods, each group with its side, label and colour."""
    by_trace = [
        _Bar(p.by_trace_ms, (max(p.by_trace_ms - p.low_ms, 0), max(p.high_ms - p.by_trace_ms, 0)),
             p.share)
        for p in found.pieces
    ]  # fmt: skip
    of_medians = [_Bar(p.of_medians_ms, (0, 0), p.of_medians_share) for p in found.pieces]
    return [
        (-1, "by trace, with 95 %", COLOURS[0], by_trace),
        (1, "of medians", COLOURS[4], of_medians),
    ]


def _broken(what: str) -> str:
    return what.replace(", ", ",\n").replace("host to ", "host to\n")
