"""The figure that sets all flows of all runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from skyhop.plot.events import draw_strip, mark_panels, strip_height_in
from skyhop.plot.records import Events, FlowSeries, RunRecord
from skyhop.plot.style import (
    GREY,
    FlowKey,
    FlowStyle,
    binned,
    dress,
    ecdf,
    flow_styles,
    from_zero,
    label_time,
    label_y,
    new_figure,
    round_step,
    side_legend,
)


def comparison_figure(
    runs: Sequence[RunRecord], *, styles: Mapping[FlowKey, FlowStyle] | None = None
) -> Figure:
    """Draw goodput over time, mean goodput, and the spread of goodput and srtt of every flow."""
    styles = styles if styles is not None else flow_styles(runs)
    events, end_s = shared_events(runs), max((run.duration_s for run in runs), default=0.0)
    strip_in = strip_height_in(events, end_s) if events is not None else 0.01
    figure, (strip, goodput, below) = new_figure(5.4 + strip_in, [strip_in, 2.3, 2.2])
    if events is not None:
        draw_strip(strip, events, end_s)
        mark_panels([goodput], events, end_s)
    else:
        strip.set_axis_off()
    # The lower row has axes of its own in place of the shared one.
    grid = below.get_subplotspec()
    below.remove()
    assert grid is not None
    means, spread, rtt = figure.add_subfigure(grid).subplots(1, 3)
    for ax in (means, spread, rtt):
        dress(ax)
    goodput.tick_params(labelbottom=True)
    _draw_goodput(goodput, runs, styles, end_s)
    _draw_means(means, runs, styles)
    _draw_goodput_spread(spread, runs, styles)
    _draw_rtt_spread(rtt, runs, styles)
    return figure


def shared_events(runs: Sequence[RunRecord]) -> Events | None:
    """Return the path events that all runs saw alike, None where they did not."""
    if not runs:
        return None
    longest = max(runs, key=lambda run: run.duration_s)
    for run in runs:
        expected = longest.events.until(run.duration_s)
        events = run.events.until(run.duration_s)
        if events.kinds != expected.kinds or not np.allclose(events.t_s, expected.t_s):
            return None
    return longest.events.until(longest.duration_s)


def _series(
    runs: Sequence[RunRecord], styles: Mapping[FlowKey, FlowStyle]
) -> list[tuple[FlowStyle, FlowSeries, Mapping[str, object]]]:
    return [
        (styles[index, int(flow["id"])], run.flows[int(flow["id"])], flow)
        for index, run in enumerate(runs)
        for flow in run.flow_summaries()
    ]


def _draw_goodput(
    ax: Axes, runs: Sequence[RunRecord], styles: Mapping[FlowKey, FlowStyle], end_s: float
) -> None:
    width_s = round_step(end_s / 120) if end_s > 0 else 1.0
    named: set[str] = set()
    highest = 0.0
    for style, series, _ in _series(runs, styles):
        label = style.group if style.group not in named else "_nolegend_"
        named.add(style.group)
        t_s, means = binned(series.t_s, series.goodput_mbps, width_s)
        ax.plot(t_s, means, label=label, **style.line())
        highest = max(highest, float(np.nanmax(means, initial=0.0)))
    from_zero(ax, highest)
    label_y(ax, "goodput", "Mbit/s")
    ax.set_title(f"goodput over time (means over {width_s:g} s)", fontsize=9.5, loc="left")
    label_time(ax, end_s)
    side_legend(ax)


def _draw_means(ax: Axes, runs: Sequence[RunRecord], styles: Mapping[FlowKey, FlowStyle]) -> None:
    """Draw a bar per flow, or per group of flows with a dot for each."""
    groups: dict[str, list[float]] = {}
    colours: dict[str, str] = {}
    for style, _, flow in _series(runs, styles):
        groups.setdefault(style.group, []).append(float(str(flow["goodput_bps"])) / 1e6)
        colours[style.group] = style.colour
    for place, (group, values) in enumerate(reversed(groups.items())):
        mean = float(np.mean(values))
        ax.barh(place, mean, height=0.6, color=colours[group], alpha=0.85)
        ax.text(mean, place, f"  {mean:.3g}", va="center", fontsize=9)
        if len(values) > 1:
            ax.scatter(values, np.full(len(values), place), s=9, color="white",
                       edgecolors="black", linewidths=0.5, zorder=3)  # fmt: skip
    ax.set_yticks(range(len(groups)), list(reversed(groups)), fontsize=8.5)
    ax.set_xlim(0, 1.22 * max((max(values) for values in groups.values()), default=1.0) or 1)
    ax.grid(visible=False, axis="y")
    ax.set_title("mean goodput", fontsize=9.5, loc="left")
    ax.set_xlabel("Mbit/s", fontsize=9)


def _draw_goodput_spread(
    ax: Axes, runs: Sequence[RunRecord], styles: Mapping[FlowKey, FlowStyle]
) -> None:
    for style, series, _ in _series(runs, styles):
        ax.step(*ecdf(series.goodput_mbps), where="post", **style.line())
    _dress_ecdf(ax, "goodput: share at or below", "Mbit/s")


def _draw_rtt_spread(
    ax: Axes, runs: Sequence[RunRecord], styles: Mapping[FlowKey, FlowStyle]
) -> None:
    for style, series, _ in _series(runs, styles):
        ax.step(*ecdf(series.srtt_ms), where="post", **style.line())
    bases = [float(str(flow["base_rtt_mean_us"])) / 1e3 for _, _, flow in _series(runs, styles)]
    if bases:
        base_ms = float(np.mean(bases))
        ax.axvline(base_ms, color=GREY, linewidth=0.9, linestyle=(0, (5, 4)))
        ax.text(base_ms, 0.99, "base RTT \nmean ", fontsize=8, color=GREY, ha="right", va="top")
    _dress_ecdf(ax, "srtt: share at or below", "ms")


def _dress_ecdf(ax: Axes, what: str, unit: str) -> None:
    ax.set_title(what, fontsize=9.5, loc="left")
    ax.set_xlabel(unit, fontsize=9)
    ax.set_ylim(0, 1.02)
    ax.set_xlim(left=0)
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
