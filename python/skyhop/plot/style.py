"""How figures look: palette, one line style per flow, axes, PNG output.

Colours of flows are those of Okabe and Ito, colours of events are from Paul Tol's muted scheme;
both stay apart for colour-blind readers. Figures are made without pyplot, so they keep no global
state and need no display.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from skyhop.plot.records import FloatArray, IntArray, RunRecord, by_duration

WIDTH_IN = 11.0
"""Width of every figure in inches."""

DPI = 140
"""Pixels per inch of a PNG."""

FLOW_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#444444")
FLOW_DASHES = ("-", "--", "-.", ":")

GREY = "#555555"
LIGHT_GREY = "#BBBBBB"
OUTAGE_COLOUR = "#777777"

_ECDF_POINTS = 2000

MANY_FLOWS = 7
"""With more flows than this, flows of one kind share a colour and lines become thin."""

FlowKey: TypeAlias = tuple[int, int]
"""The run's place among the runs shown, and the flow's id."""


@dataclass(frozen=True)
class FlowStyle:
    """How one flow is drawn everywhere in a report."""

    colour: str
    dash: str
    width: float
    alpha: float
    label: str
    """Its name in legends."""
    group: str
    """What flows that share a colour have in common."""

    def line(self) -> dict[str, Any]:
        """Return the keywords for `Axes.plot`."""
        return {
            "color": self.colour,
            "linestyle": self.dash,
            "linewidth": self.width,
            "alpha": self.alpha,
        }


def flow_styles(runs: Sequence[RunRecord]) -> dict[FlowKey, FlowStyle]:
    """Choose a style for each TCP flow of the runs, with the shortest labels that are unique.

    Runs that share a time axis share a palette; others begin it anew.
    """
    keys = [
        ((index, int(flow["id"])), str(flow["cc"]), run)
        for index, run in enumerate(runs)
        for flow in run.flow_summaries()
    ]
    labels = _labels(keys)
    styles: dict[FlowKey, FlowStyle] = {}
    for together in by_duration(runs):
        styles |= _styles_together([key for key in keys if key[0][0] in together], labels)
    return styles


def _styles_together(
    keys: Sequence[tuple[FlowKey, str, RunRecord]], labels: Mapping[FlowKey, str]
) -> dict[FlowKey, FlowStyle]:
    if len(keys) <= MANY_FLOWS:
        return {
            key: FlowStyle(FLOW_COLOURS[place], "-", 1.4, 0.95, labels[key], labels[key])
            for place, (key, _, _) in enumerate(keys)
        }
    engines = {run.summary["engine"] for _, _, run in keys}
    groups = {
        key: cc if len(engines) == 1 else f"{cc}, {run.summary['engine']}" for key, cc, run in keys
    }
    order = list(dict.fromkeys(groups.values()))
    styles = {}
    for key, _, _ in keys:
        place = order.index(groups[key])
        styles[key] = FlowStyle(
            FLOW_COLOURS[place % len(FLOW_COLOURS)],
            FLOW_DASHES[place // len(FLOW_COLOURS) % len(FLOW_DASHES)],
            0.7,
            0.6,
            labels[key],
            groups[key],
        )
    return styles


def new_figure(height_in: float, ratios: Sequence[float]) -> tuple[Figure, list[Axes]]:
    """Make a white figure with one column of axes that share their time axis."""
    with rc_context(FIGURE_STYLE):
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(
            len(ratios), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": list(ratios)}
        )
    axes: list[Axes] = list(grid[:, 0])
    for ax in axes:
        dress(ax)
    return figure, axes


def dress(ax: Axes) -> None:
    """Give the axes a light grid and no box."""
    ax.grid(visible=True, color="#E6E6E6", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(length=3, color=LIGHT_GREY, labelsize=9)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(LIGHT_GREY)


def label_y(ax: Axes, what: str, unit: str, *, whole: bool = False) -> None:
    """Name a panel and its unit; `whole` for counts, which need no decimals."""
    ax.set_ylabel(f"{what}\n({unit})" if unit else what, fontsize=9)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=5, min_n_ticks=3, integer=whole))


def from_zero(ax: Axes, highest: float) -> None:
    """Let values go from 0 to a little above `highest`, to 1 where that is 0 or not known."""
    ax.set_ylim(0, 1.08 * highest if np.isfinite(highest) and highest > 0 else 1)


def label_time(ax: Axes, end_s: float) -> None:
    """Let time go from 0 to `end_s`, and name it."""
    ax.set_xlim(0, end_s if end_s > 0 else 1)
    ax.set_xlabel("time since the start (s)", fontsize=9)


def side_legend(ax: Axes) -> None:
    """Put a legend right of the axes, where it covers no data."""
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        ax.legend(
            handles,
            labels,
            loc="upper left",
            bbox_to_anchor=(1.005, 1.03),
            frameon=False,
            fontsize=8.5,
            handlelength=1.6,
            borderaxespad=0,
            labelspacing=0.35,
        )


def once(named: set[str], name: str) -> str:
    """Return the name the first time, then matplotlib's sign for no entry in the legend."""
    if name in named:
        return "_nolegend_"
    named.add(name)
    return name


def png_bytes(figure: Figure) -> bytes:
    """Return the figure as a PNG."""
    return figure_bytes(figure, "png")


def figure_bytes(figure: Figure, kind: Literal["png", "svg", "pdf"]) -> bytes:
    """Return the figure as a file of that kind, the same bytes for the same figure."""
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    buffer = io.BytesIO()
    with rc_context({**FIGURE_STYLE, "svg.hashsalt": "skyhop"}):
        figure.savefig(buffer, format=kind, dpi=DPI, facecolor="white", metadata=undated.get(kind))
    return buffer.getvalue()


def binned(t_s: FloatArray, values: FloatArray, width_s: float) -> tuple[FloatArray, FloatArray]:
    """Return means over bins of `width_s`: the bins' middles (s) and the means, NaN ignored.

    Samples stand at the end of the interval that they describe, so one at `width_s` is still in
    the first bin.
    """
    known = np.isfinite(values)
    places = _places(t_s[known], width_s)
    counts = np.bincount(places)
    sums = np.bincount(places, weights=values[known], minlength=len(counts))
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums / counts
    middles_s: FloatArray = (np.arange(len(means), dtype=np.float64) + 0.5) * width_s
    return middles_s, np.asarray(means, dtype=np.float64)


def binned_range(
    t_s: FloatArray, values: FloatArray, width_s: float
) -> tuple[FloatArray, FloatArray]:
    """Return the least and the greatest value of each of `binned`'s bins, NaN where empty."""
    known = np.isfinite(values)
    places = _places(t_s[known], width_s)
    count = int(places.max()) + 1 if len(places) else 0
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(low, places, values[known])
    np.maximum.at(high, places, values[known])
    low[np.isinf(low)], high[np.isinf(high)] = np.nan, np.nan
    return low, high


def binned_sum(t_s: FloatArray, values: FloatArray, edges_s: FloatArray) -> FloatArray:
    """Return sums (k,) over equal bins with `edges_s` (k + 1,); what is at an edge is before it."""
    width_s, count = float(edges_s[1] - edges_s[0]), len(edges_s) - 1
    known = np.isfinite(values)
    # A last sample that stands just after the last edge still counts: no packet goes missing.
    places = np.minimum(_places(t_s[known], width_s), count - 1)
    return np.bincount(places, weights=values[known], minlength=count).astype(np.float64)


def ecdf(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return sorted values and the share of samples at or below each, NaN left out, thinned."""
    ordered = np.sort(values[np.isfinite(values)])
    share = np.arange(1, len(ordered) + 1) / max(len(ordered), 1)
    if len(ordered) > _ECDF_POINTS:
        kept = np.unique(np.linspace(0, len(ordered) - 1, _ECDF_POINTS).astype(np.int64))
        ordered, share = ordered[kept], share[kept]
    return ordered, share


def round_step(least: float) -> float:
    """Return the smallest of 1, 2, 5 times a power of ten that is not below `least`."""
    if least <= 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(least))
    return float(next(power * m for m in (1, 2, 5, 10) if power * m >= least * (1 - 1e-9)))


def _places(t_s: FloatArray, width_s: float) -> IntArray:
    """Return the bin of each sample, shape (n,)."""
    return np.maximum(np.ceil(t_s / width_s - 1e-9).astype(np.int64) - 1, 0)


def _labels(keys: Sequence[tuple[FlowKey, str, RunRecord]]) -> dict[FlowKey, str]:
    per_cc = Counter(cc for _, cc, _ in keys)
    per_run = Counter((key[0], cc) for key, cc, _ in keys)
    labels: dict[FlowKey, str] = {}
    for key, cc, run in keys:
        label = f"{cc} #{key[1]}" if per_run[key[0], cc] > 1 else cc
        spread = per_cc[cc] > per_run[key[0], cc]
        labels[key] = f"{label} ({run.name})" if spread else label
    return labels


FIGURE_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "path.simplify": True,
    "agg.path.chunksize": 20000,
}
