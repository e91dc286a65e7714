"""The figure of a run: what its flows, its probes and its queue did, over one time axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from skyhop._core import LOSS_REASONS
from skyhop.plot.events import draw_strip, mark_panels, strip_height_in
from skyhop.plot.phases import draw_signal_strip, has_signal, mark_phases, signal_strip_height_in
from skyhop.plot.records import (
    FloatArray,
    FlowSeries,
    RunRecord,
    read_runs,
)
from skyhop.plot.style import (
    FLOW_COLOURS,
    GREY,
    LIGHT_GREY,
    MANY_FLOWS,
    FlowStyle,
    binned,
    binned_range,
    binned_sum,
    flow_styles,
    from_zero,
    label_time,
    label_y,
    new_figure,
    once,
    round_step,
    side_legend,
)
from skyhop.quantities import mbps_or_none, seconds_or_none

_POINTS_AT_MOST = 1500
"""Lines with more samples than this show means over bins, with a band for their range."""

_BINS = 360

_FEW_FLOWS = 3
"""Up to this many flows show ssthresh and bands as well."""

_RATE_IN_SIGHT = 4
_SHOW_MB_FROM = 2e6
_LARGE_DOTS_AT_MOST = 3000

_BARS_AT_MOST = 240

_COLOURS = ("#0072B2", "#E69F00", "#777777", "#CC79A7", "#000000", "#56B4E9", "#D55E00", "#009E73")
_DROP_COLOURS = dict(zip(LOSS_REASONS, cycle(_COLOURS), strict=False))


def run_figure(
    source: RunRecord | Path | str, *, styles: Mapping[int, FlowStyle] | None = None
) -> Figure:
    """Draw goodput, RTT, cwnd and retransmits of each flow, the queue, the probes and the drops.

    Args:
        source: a run directory, or what `read_runs` returned for it.
        styles: how to draw each flow, by its id; by default chosen for this run alone.

    Raises:
        ReportError: if `source` is not a run directory.

    """
    run = source if isinstance(source, RunRecord) else read_runs([source])[0]
    if styles is None:
        styles = {flow: style for (_, flow), style in flow_styles([run]).items()}
    end_s = run.duration_s
    events = run.events.until(max(end_s, 1e-9))
    panels = _panels(run, styles)
    strips = [strip_height_in(events, end_s)]
    if has_signal(run):
        strips.append(signal_strip_height_in(run))
    heights = [*strips, *(panel.height_in for panel in panels)]
    figure, drawn = new_figure(sum(heights) + 0.6 + 0.12 * len(heights), heights)
    axes = drawn[len(strips) :]
    figure.suptitle(_title(run), x=0.01, ha="left", fontsize=11)
    draw_strip(drawn[0], events, end_s)
    if has_signal(run):
        draw_signal_strip(drawn[1], run, end_s)
        shown = [ax for ax, panel in zip(axes, panels, strict=True) if panel.shows_phases]
        mark_phases(shown, run, end_s)
    for ax, panel in zip(axes, panels, strict=True):
        panel.draw(ax)
        side_legend(ax)
    mark_panels(axes, events, end_s)
    for ax in axes[:-1]:
        ax.tick_params(labelbottom=False)
    label_time(axes[-1], end_s)
    figure.align_ylabels(axes)
    return figure


@dataclass(frozen=True)
class _Panel:
    draw: Callable[[Axes], None]
    height_in: float
    shows_phases: bool = False


def _panels(run: RunRecord, styles: Mapping[int, FlowStyle]) -> list[_Panel]:
    flow_panels = [
        _Panel(lambda ax: _draw_goodput(ax, run, styles), 1.7, shows_phases=True),
        _Panel(lambda ax: _draw_rtt(ax, run, styles), 1.7),
        _Panel(lambda ax: _draw_cwnd(ax, run, styles), 1.5, shows_phases=True),
        _Panel(lambda ax: _draw_retransmits(ax, run, styles), 1.0),
    ]
    panels = flow_panels if run.flows else []
    if run.probes:
        # Next to the flows' RTT, of which it is the other view.
        panels.insert(2, _Panel(lambda ax: _draw_probes(ax, run), 1.5))
    panels.append(_Panel(lambda ax: _draw_backlog(ax, run), 1.2))
    if any(drops.any() for series in run.link.values() for drops in series.drops.values()):
        panels.append(_Panel(lambda ax: _draw_drops(ax, run), 1.0))
    return panels


def _draw_goodput(ax: Axes, run: RunRecord, styles: Mapping[int, FlowStyle]) -> None:
    highest = _draw_flows(ax, run, styles, lambda flow: flow.goodput_mbps)
    if len(run.flows) > 1:
        t_s, total_mbps = _thinned(*_total_goodput(run), run.duration_s)
        ax.plot(t_s, total_mbps, color=GREY, linewidth=0.8, label="all flows")
        highest = max(highest, _highest(total_mbps))
    rates = link_rate_steps(run.scenario, run.duration_s) if run.has_one_link else None
    # A rate far above what the flows reached would flatten them.
    if rates is not None and (highest == 0 or rates[1].max() <= _RATE_IN_SIGHT * highest):
        ax.step(*rates, where="post", color=GREY, linewidth=0.9, linestyle=(0, (5, 4)),
                label="link rate")  # fmt: skip
        highest = max(highest, float(rates[1].max()))
    from_zero(ax, highest)
    label_y(ax, "goodput", "Mbit/s")


def _total_goodput(run: RunRecord) -> tuple[FloatArray, FloatArray]:
    """Return the sample times (s) of all flows and their goodput together (Mbit/s), (n,) each."""
    t_s = np.concatenate([series.t_s for series in run.flows.values()])
    goodput_mbps = np.concatenate([series.goodput_mbps for series in run.flows.values()])
    times_s, places = np.unique(t_s, return_inverse=True)
    total = np.bincount(places, weights=goodput_mbps, minlength=len(times_s))
    return times_s, np.asarray(total, dtype=np.float64)


def _draw_rtt(ax: Axes, run: RunRecord, styles: Mapping[int, FlowStyle]) -> None:
    highest = 0.0
    if run.path is not None and run.has_one_link:
        t_s, base_ms = run.path.curve(run.path.delay_ms + run.path.delay_back_ms)
        highest = _highest(base_ms[t_s <= run.duration_s])
        ax.fill_between(t_s, base_ms, color=LIGHT_GREY, alpha=0.45, linewidth=0, label="base RTT")
    from_zero(ax, max(highest, _draw_flows(ax, run, styles, lambda flow: flow.srtt_ms)))
    label_y(ax, "srtt", "ms")


def _draw_cwnd(ax: Axes, run: RunRecord, styles: Mapping[int, FlowStyle]) -> None:
    # An ssthresh far above every window would flatten the windows: they set the scale.
    from_zero(ax, _draw_flows(ax, run, styles, lambda flow: flow.cwnd_packets))
    if len(run.flows) <= _FEW_FLOWS:
        for flow, series in run.flows.items():
            if np.isfinite(series.ssthresh_packets).any():
                ax.plot(*_thinned(series.t_s, series.ssthresh_packets, run.duration_s),
                        color=styles[flow].colour, linewidth=0.9, linestyle=(0, (2, 1.5)),
                        alpha=0.55, label="ssthresh")  # fmt: skip
    label_y(ax, "cwnd", "packets")


def _draw_retransmits(ax: Axes, run: RunRecord, styles: Mapping[int, FlowStyle]) -> None:
    edges_s = _bar_edges(run)
    sums: dict[str, FloatArray] = {}
    colours: dict[str, str] = {}
    for flow, series in run.flows.items():
        name = _name(run, styles[flow])
        colours[name] = styles[flow].colour
        counted = binned_sum(series.t_s, series.retransmits, edges_s)
        sums[name] = sums.get(name, np.zeros_like(counted)) + counted
    base = np.zeros(len(edges_s) - 1)
    for name, counted in sums.items():
        _bars(ax, edges_s, counted, base, colour=colours[name], label=name)
        base = base + counted
    _label_counts(ax, "retransmits", edges_s, base)


def _draw_drops(ax: Axes, run: RunRecord) -> None:
    edges_s = _bar_edges(run)
    base = np.zeros(len(edges_s) - 1)
    for reason in LOSS_REASONS:
        sums = sum(
            (binned_sum(series.t_s, series.drops[reason], edges_s) for series in run.link.values()),
            np.zeros_like(base),
        )
        if sums.any():
            _bars(ax, edges_s, sums, base, colour=_DROP_COLOURS[reason], label=reason)
            base = base + sums
    _label_counts(ax, "drops", edges_s, base)


def _draw_backlog(ax: Axes, run: RunRecord) -> None:
    highest = max((s.backlog_bytes.max() for s in run.link.values() if len(s.t_s)), default=0.0)
    scale, unit = (1e6, "MB") if highest >= _SHOW_MB_FROM else (1e3, "kB")
    for place, (name, series) in enumerate(run.link.items()):
        colour = ("#444444", "#E69F00", *FLOW_COLOURS)[place % (2 + len(FLOW_COLOURS))]
        # The first is the one that the scenario is about; of the others, those that say something.
        if place > 0 and not (series.backlog_bytes >= 0.02 * max(highest, 1.0)).any():
            continue
        t_s, backlog = _thinned(series.t_s, series.backlog_bytes / scale, run.duration_s)
        ax.plot(t_s, backlog, color=colour, linewidth=0.9, label=name)
        ax.fill_between(t_s, backlog, color=colour, alpha=0.15, linewidth=0)
    from_zero(ax, highest / scale)
    label_y(ax, "queue", unit)


def _draw_probes(ax: Axes, run: RunRecord) -> None:
    for place, (probe, series) in enumerate(run.probes.items()):
        name = f"probe #{probe}" if len(run.probes) > 1 else "probe"
        colour = FLOW_COLOURS[-1 - place % len(FLOW_COLOURS)]
        size = 5.0 if len(series.t_s) <= _LARGE_DOTS_AT_MOST else 1.5
        ax.scatter(series.t_s, series.rtt_ms, s=size, color=colour, linewidths=0, alpha=0.6,
                   rasterized=True, label=name, gid="probe")  # fmt: skip
        if np.isfinite(series.scheduled_rtt_ms).any():
            ax.plot(*_thinned(series.t_s, series.scheduled_rtt_ms, run.duration_s),
                    color="#E69F00", linewidth=0.8, label="scheduled", zorder=1)  # fmt: skip
        lost_s = series.t_s[np.isnan(series.rtt_ms)]
        if len(lost_s):
            ax.scatter(lost_s, np.full(len(lost_s), 0.97), s=14, marker="x", linewidths=0.8,
                       color="black", transform=ax.get_xaxis_transform(),
                       label=f"lost ({len(lost_s):,})", gid="probe-lost")  # fmt: skip
    # Room above the highest for the marks of lost packets.
    from_zero(ax, 1.1 * max(_highest(series.rtt_ms) for series in run.probes.values()))
    label_y(ax, "probe RTT", "ms")


def _draw_flows(
    ax: Axes,
    run: RunRecord,
    styles: Mapping[int, FlowStyle],
    values: Callable[[FlowSeries], FloatArray],
) -> float:
    """Draw a line per flow and return the highest value drawn."""
    named: set[str] = set()
    highest = 0.0
    for flow, series in run.flows.items():
        style, sampled = styles[flow], values(series)
        label = once(named, _name(run, style))
        t_s, means = _thinned(series.t_s, sampled, run.duration_s)
        ax.plot(t_s, means, label=label, gid=f"flow-{flow}", **style.line())
        highest = max(highest, _highest(means))
        if _is_thinned(series.t_s) and len(run.flows) <= _FEW_FLOWS:
            low, high = binned_range(series.t_s, sampled, _bin_s(run.duration_s))
            ax.fill_between(t_s, low, high, color=style.colour, alpha=0.16, linewidth=0)
            highest = max(highest, _highest(high))
    return highest


def _title(run: RunRecord) -> str:
    ccs = ", ".join(dict.fromkeys(str(flow["cc"]) for flow in run.flow_summaries()))
    title = f"{run.name}: {ccs or 'no TCP flow'}, {run.summary['engine']}"
    if any(_is_thinned(series.t_s) for series in run.flows.values()):
        title += f"   (lines: means over {_bin_s(run.duration_s):g} s; bands: all samples)"
    return title


def _highest(values: FloatArray) -> float:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else 0.0


def _name(run: RunRecord, style: FlowStyle) -> str:
    """Return the legend's entry within one run's figure, which need not repeat the run's name."""
    name = style.group if len(run.flows) > MANY_FLOWS else style.label
    return name.removesuffix(f" ({run.name})")


def _thinned(t_s: FloatArray, values: FloatArray, end_s: float) -> tuple[FloatArray, FloatArray]:
    return binned(t_s, values, _bin_s(end_s)) if _is_thinned(t_s) else (t_s, values)


def _is_thinned(t_s: FloatArray) -> bool:
    return len(t_s) > _POINTS_AT_MOST


def _bin_s(end_s: float) -> float:
    return round_step(end_s / _BINS)


def _bar_edges(run: RunRecord) -> FloatArray:
    end_s = run.duration_s if run.duration_s > 0 else 1.0
    width_s = max(round_step(end_s / _BARS_AT_MOST), _sample_s(run))
    return np.arange(int(np.ceil(end_s / width_s - 1e-9)) + 1, dtype=np.float64) * width_s


def _sample_s(run: RunRecord) -> float:
    """Return the time between samples; bars narrower than that would lie."""
    times = next(iter(run.link.values())).t_s
    return float(np.median(np.diff(times))) if len(times) > 1 else 0.0


def _bars(
    ax: Axes,
    edges_s: FloatArray,
    sums: FloatArray,
    base: FloatArray,
    *,
    colour: str,
    label: str,
) -> None:
    shown = sums > 0
    width_s = float(edges_s[1] - edges_s[0])
    # The outline keeps a single narrow bar visible.
    ax.bar(edges_s[:-1][shown], sums[shown], width_s, base[shown], align="edge", color=colour,
           edgecolor=colour, linewidth=0.6, label=label)  # fmt: skip


def _label_counts(ax: Axes, what: str, edges_s: FloatArray, totals: FloatArray) -> None:
    from_zero(ax, _highest(totals))
    # Three digits: samples are taken at the moments they say, not exactly at even intervals.
    label_y(ax, what, f"per {edges_s[1] - edges_s[0]:.3g} s", whole=True)


def link_rate_steps(
    scenario: Mapping[str, Any], end_s: float
) -> tuple[FloatArray, FloatArray] | None:
    """Return when (s) the link's rate takes which value (Mbit/s), None without a rate."""
    link = scenario.get("link")
    first = mbps_or_none(link.get("rate")) if isinstance(link, Mapping) else None
    if first is None:
        return None
    changes = [
        (at_s, rate)
        for change in scenario.get("change") or []
        if (at_s := seconds_or_none(change.get("at"))) is not None
        and (rate := mbps_or_none(change.get("rate"))) is not None
    ]
    steps = [(0.0, first), *sorted(changes)]
    steps.append((max(end_s, steps[-1][0]), steps[-1][1]))
    times_s, rates_mbps = zip(*steps, strict=True)
    return np.array(times_s), np.array(rates_mbps)
