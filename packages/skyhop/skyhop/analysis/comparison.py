"""Comparison figure of all flows of several runs, as a view model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from skyhop.analysis.binning import binned, ecdf, round_step
from skyhop.analysis.flow_groups import FlowKey
from skyhop.analysis.flows import FlowStyle, flow_styles
from skyhop.analysis.link_rate import burst_note, is_above_rate
from skyhop.analysis.network_links import is_network
from skyhop.analysis.tables import short_number
from skyhop.analysis.timeline import (
    EventStrip,
    Line,
    Mark,
    Panel,
    Stroke,
    event_strip,
    from_zero,
)
from skyhop.data.arrays import FloatArray
from skyhop.data.records import Events, FlowSeries, RunRecord


@dataclass(frozen=True)
class Group:
    """Comparable flows (`FlowGroup`), with the mean goodput (Mbit/s) of each flow."""

    name: str
    colour: str
    goodputs_mbps: Sequence[float]


@dataclass(frozen=True)
class Ecdf:
    """Empirical distribution of a flow's samples: sorted values and shares (0 to 1), shape (n,)."""

    values: FloatArray
    shares: FloatArray
    stroke: Stroke
    label: str = ""
    """Name of the flow's style in a legend; empty if an earlier distribution has it."""


@dataclass(frozen=True)
class Comparison:
    """Goodput over time, mean goodput, and the distributions of goodput and srtt of every flow."""

    end_s: float
    strip: EventStrip | None
    """Events of the path; None if the runs had different events, or are over networks."""
    goodput: Panel
    title: str
    """Title of the goodput panel, with the width of its bins."""
    groups: Sequence[Group]
    goodput_shares: Sequence[Ecdf]
    srtt_shares: Sequence[Ecdf]
    base_rtt_ms: float | None
    """Mean base RTT over all flows in ms; None without flows."""
    pooled: str
    """Note on the samples from which the distributions are computed."""
    bursts: str
    """Note on goodput above the link's rate; empty if there is none."""


def compare(
    runs: Sequence[RunRecord], styles: Mapping[FlowKey, FlowStyle] | None = None
) -> Comparison:
    """Compare all flows of the runs; by default, their styles are chosen for these runs."""
    styles = styles if styles is not None else flow_styles(runs)
    events, end_s = shared_events(runs), max((run.duration_s for run in runs), default=0.0)
    flows = [
        (styles[index, int(flow["id"])], run.flows[int(flow["id"])], flow)
        for index, run in enumerate(runs)
        for flow in run.flow_summaries()
    ]
    width_s = round_step(end_s / 120) if end_s > 0 else 1.0
    samples_s = [float(np.median(np.diff(s.t_s))) for _, s, _ in flows if len(s.t_s) > 1]
    note = burst_note(is_above_rate(run, flow) for run in runs for flow in run.flows.values())
    bases_ms = [float(flow["base_rtt_mean_us"]) / 1e3 for _, _, flow in flows]
    return Comparison(
        end_s=end_s,
        strip=None if events is None else event_strip(events, end_s),
        goodput=_goodput([(style, series) for style, series, _ in flows], width_s),
        title=f"goodput over time (means over {short_number(width_s)} s)",
        groups=_groups(
            [(style, float(str(flow["goodput_bps"])) / 1e6) for style, _, flow in flows]
        ),
        goodput_shares=_shares([(style, series.goodput_mbps) for style, series, _ in flows]),
        srtt_shares=_shares([(style, series.srtt_ms) for style, series, _ in flows]),
        base_rtt_ms=float(np.mean(bases_ms)) if bases_ms else None,
        pooled=_pooled(runs, samples_s),
        bursts=f"goodput {note}" if note else "",
    )


def shared_events(runs: Sequence[RunRecord]) -> Events | None:
    """Return the path events if all runs have the same; None if they differ or have no path."""
    if not runs or any(is_network(run) for run in runs):
        return None
    longest = max(runs, key=lambda run: run.duration_s)
    for run in runs:
        expected = longest.events.within(0.0, run.duration_s)
        events = run.events.within(0.0, run.duration_s)
        if events.kinds != expected.kinds or not np.allclose(events.t_s, expected.t_s):
            return None
    return longest.events.within(0.0, longest.duration_s)


def _pooled(runs: Sequence[RunRecord], samples_s: Sequence[float]) -> str:
    """Return a note on the samples of a distribution: of one flow, and the length of a sample."""
    durations_s = [run.duration_s for run in runs]
    least, most = (short_number(bound(durations_s, default=0.0)) for bound in (min, max))
    over = f"{least} s" if least == most else f"{least} to {most} s"
    every = f", one every {short_number(min(samples_s))} s" if samples_s else ""
    return f"shares: each curve is of all samples of one flow over {over}{every}"


def _goodput(flows: Sequence[tuple[FlowStyle, FlowSeries]], width_s: float) -> Panel:
    named: set[str] = set()
    marks: list[Mark] = []
    highest = 0.0
    for style, series in flows:
        label = "" if style.group in named else style.group
        named.add(style.group)
        t_s, means = binned(series.t_s, series.goodput_mbps, width_s)
        marks.append(Line(t_s, means, style.stroke, label))
        highest = max(highest, float(np.nanmax(means, initial=0.0)))
    return Panel("goodput", "Mbit/s", marks, from_zero(highest))


def _shares(flows: Sequence[tuple[FlowStyle, FloatArray]]) -> list[Ecdf]:
    labels: dict[str, int] = {}
    for index, (style, _) in enumerate(flows):
        labels.setdefault(style.group, index)
    return [
        Ecdf(*ecdf(values), style.stroke, style.group if labels[style.group] == index else "")
        for index, (style, values) in enumerate(flows)
    ]


def _groups(flows: Sequence[tuple[FlowStyle, float]]) -> list[Group]:
    goodputs_mbps: dict[str, list[float]] = {}
    colours: dict[str, str] = {}
    for style, goodput_mbps in flows:
        goodputs_mbps.setdefault(style.group, []).append(goodput_mbps)
        colours[style.group] = style.colour
    return [Group(name, colours[name], values) for name, values in goodputs_mbps.items()]
