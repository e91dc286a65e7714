"""Figure of a policy's observations and decisions over a run."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from skyhop.analysis.styles import COLOURS
from skyhop.analysis.timeline import GREY
from skyhop.data.figure_files import FigureWidth
from skyhop.figures.style import (
    Sheet,
    add_legend,
    dress,
    label_time,
    label_y,
    new_figure,
    note_figure,
    pt,
    title_figure,
)
from skyhop_lab.gym.decision_log import DecisionLog

_ROW_IN = 0.19
"""Height of a feature in inches."""


def decisions_figure(log: DecisionLog, width: FigureWidth = "page") -> Sheet:
    """Draw goodput, delay, window, and the policy's output and input features over a run.

    Args:
        log: decisions and features of the run.
        width: target of the figure: a page, or one or two columns of a paper.
    """
    rows = len(log.features)
    figure, axes = new_figure(6.0 + _ROW_IN * rows, [1.2, 1.2, 1.2, 1, 0.14 * rows], width)
    rate, delay, window, said, seen = axes
    at_s, of = log.figures["at_s"], log.figures
    line: dict[str, Any] = {"linewidth": pt(rate, 1.0)}
    rate.plot(at_s, of["goodput_bps"] / 1e6, color=COLOURS[0], label="goodput", **line)
    rate.plot(at_s, of["link_bps"] / 1e6, color=GREY, linestyle="--", label="link", **line)
    label_y(rate, "rate", "Mbit/s")
    delay.plot(at_s, of["rtt_s"] * 1e3, color=COLOURS[0], label="smoothed", **line)
    delay.plot(
        at_s, of["base_rtt_s"] * 1e3, color=GREY, linestyle="--", label="without queues", **line
    )
    label_y(delay, "round trip", "ms")
    window.plot(at_s, of["cwnd_packets"], color=COLOURS[0], label="window", **line)
    lost = of["lost_packets"] > 0
    window.plot(at_s[lost], of["cwnd_packets"][lost], "x", color=COLOURS[1],
                markersize=pt(window, 4), label="something was lost")  # fmt: skip
    label_y(window, "window", "packets")
    said.plot(at_s, log.outputs, color=COLOURS[0], label="output", **line)
    said.set_ylim(-1.05, 1.05)
    label_y(said, "output", "")
    for ax in (rate, delay, window):
        ax.set_ylim(bottom=0)
    for ax in (rate, delay, window, said):
        add_legend(ax)
    _draw_seen(seen, log)
    announced = log.announced_s()
    for ax in axes[:4]:
        for moment in announced:
            ax.axvline(moment, color=GREY, linewidth=pt(ax, 0.6), alpha=0.5, zorder=0)
    end_s = float(at_s[-1])
    label_time(seen, end_s)
    title_figure(figure, f"{log.title}: what it saw and decided")
    told = f"{len(announced)} announced handovers (grey lines); " if announced else ""
    note_figure(figure, f"{told}features of the newest step: light is their least, dark their most")
    return figure


def _draw_seen(ax: Axes, log: DecisionLog) -> None:
    """Draw each feature as a row, whose colours scale from its least to its greatest value."""
    at_s = log.figures["at_s"]
    edges = np.concatenate([at_s, [2 * at_s[-1] - at_s[-2] if len(at_s) > 1 else at_s[-1] + 1]])
    least, most = log.observations.min(axis=0), log.observations.max(axis=0)
    placed = (log.observations - least) / np.where(most > least, most - least, 1.0)
    ax.pcolormesh(edges, np.arange(len(log.features) + 1), placed.T, cmap="Blues", vmin=0, vmax=1,
                  rasterized=True)  # fmt: skip
    labels = [
        f"{name} ({low:.3g} to {high:.3g})"
        for name, low, high in zip(log.features, least, most, strict=True)
    ]
    ax.set_yticks(np.arange(len(labels)) + 0.5, labels, fontsize=pt(ax, 7))
    ax.invert_yaxis()
    dress(ax)
