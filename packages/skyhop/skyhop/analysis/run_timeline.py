"""Timeline of a run: its flows, their applications, its probes and its queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle

import numpy as np

from skyhop._core import APP_TABLES, LOSS_REASONS
from skyhop.analysis.binning import binned, binned_range, binned_sum, round_step
from skyhop.analysis.film_timeline import Session, film_panels
from skyhop.analysis.flows import MANY_FLOWS, FlowStyle, flow_styles
from skyhop.analysis.link_rate import burst_note, is_above_rate, rates_of_flows
from skyhop.analysis.network_links import is_network
from skyhop.analysis.styles import COLOURS
from skyhop.analysis.tables import short_number
from skyhop.analysis.timeline import (
    FAR_DASH,
    GREY,
    LIGHT_GREY,
    MISSING_LANE,
    NEAR_DASH,
    Band,
    Bars,
    Dots,
    Line,
    Mark,
    Missing,
    Panel,
    Stroke,
    Timeline,
    event_strip,
    from_zero,
    highest_of,
    signal_strip,
)
from skyhop.data.arrays import FloatArray
from skyhop.data.reading import FILM
from skyhop.data.records import AppSeries, FlowSeries, RunRecord

_POINTS_AT_MOST = 1500
"""Largest number of samples of a line; with more, it shows means over bins, in a band of ranges."""

_BINS = 360

_FEW_FLOWS = 3
"""Largest number of flows for which panels also show ssthresh and bands."""

_LOGARITHMIC_FROM = 10
"""Least ratio of the longest to the shortest latency at which the axis is logarithmic."""

_RATE_IN_SIGHT = 4

_SHOW_MB_FROM = 2e6
_BARS_AT_MOST = 240

_COLOURS = ("#0072B2", "#E69F00", "#777777", "#CC79A7", "#000000", "#56B4E9", "#D55E00", "#009E73")
_DROP_COLOURS = dict(zip(LOSS_REASONS, cycle(_COLOURS), strict=False))
_MARK_COLOUR = "#CC79A7"
_QUEUE_COLOURS = ("#444444", "#E69F00", *COLOURS)


def run_timeline(run: RunRecord, styles: Mapping[int, FlowStyle] | None = None) -> Timeline:
    """Return the timeline of each flow, its application, the probes and the link.

    Args:
        run: the run.
        styles: style of each flow by its id; by default, styles are chosen for this run alone.
    """
    if styles is None:
        styles = {flow: style for (_, flow), style in flow_styles([run]).items()}
    events = run.events.within(0.0, max(run.duration_s, 1e-9))
    return Timeline(
        about="run",
        title=_title(run),
        end_s=run.duration_s,
        strip=None if is_network(run) else event_strip(events, run.duration_s),
        panels=_panels(run, styles),
        signal=signal_strip(run, run.duration_s),
    )


def _panels(run: RunRecord, styles: Mapping[int, FlowStyle]) -> list[Panel]:
    panels: list[Panel] = []
    if run.flows:
        panels += [_goodput(run, styles), _rtt(run, styles)]
        panels += [_cwnd(run, styles), _retransmits(run, styles)]
    # Probes and latencies complement the flows' RTT: show them next to it.
    panels[2:2] = [*([_probes(run)] if run.probes else []), *_latencies(run, styles)]
    panels[:0] = film_panels(
        [
            Session(_name(run, styles[flow]), styles[flow].colour, film)
            for flow, film in run.films.items()
            if flow in styles
        ]
    )
    panels.append(_backlog(run))
    if any(drops.any() for series in run.link.values() for drops in series.drops.values()):
        panels.append(_drops(run))
    if any(series.marks.any() for series in run.link.values()):
        panels.append(_marks(run))
    return panels


def _goodput(run: RunRecord, styles: Mapping[int, FlowStyle]) -> Panel:
    marks, highest = _flow_marks(run, styles, lambda flow: flow.goodput_mbps)
    if len(run.flows) > 1:
        t_s, total_mbps = _thinned(*_total_goodput(run), run.duration_s)
        marks.append(Line(t_s, total_mbps, Stroke(GREY, 0.8), "all flows"))
        highest = max(highest, highest_of(total_mbps))
    rates = rates_of_flows(run)
    # A link rate far above the flows' goodput would flatten the goodput curves: leave it out.
    if rates is not None and (highest == 0 or rates[1].max() <= _RATE_IN_SIGHT * highest):
        marks.append(Line(*rates, Stroke(GREY, 0.9, FAR_DASH), "link rate", step="post"))
        highest = max(highest, float(rates[1].max()))
    note = burst_note(is_above_rate(run, series) for series in run.flows.values())
    return Panel("goodput", "Mbit/s", marks, from_zero(highest), shows_phases=True, note=note)


def _total_goodput(run: RunRecord) -> tuple[FloatArray, FloatArray]:
    """Return the sample times (s) of all flows and the sum of their goodputs (Mbit/s), (n,)."""
    t_s = np.concatenate([series.t_s for series in run.flows.values()])
    goodput_mbps = np.concatenate([series.goodput_mbps for series in run.flows.values()])
    times_s, inverse = np.unique(t_s, return_inverse=True)
    total = np.bincount(inverse, weights=goodput_mbps, minlength=len(times_s))
    return times_s, np.asarray(total, dtype=np.float64)


def _rtt(run: RunRecord, styles: Mapping[int, FlowStyle]) -> Panel:
    marks, highest = _flow_marks(run, styles, lambda flow: flow.srtt_ms)
    if run.path is not None and run.has_one_link:
        t_s, base_ms = run.path.curve(run.path.delay_ms + run.path.delay_back_ms)
        highest = max(highest, highest_of(base_ms[t_s <= run.duration_s]))
        marks.insert(0, Band(t_s, None, base_ms, LIGHT_GREY, 0.45, "base RTT"))
    return Panel("srtt", "ms", marks, from_zero(highest))


def _cwnd(run: RunRecord, styles: Mapping[int, FlowStyle]) -> Panel:
    # The windows determine the scale: an ssthresh far above them would flatten their curves.
    marks, highest = _flow_marks(run, styles, lambda flow: flow.cwnd_packets)
    if len(run.flows) <= _FEW_FLOWS:
        for flow, series in run.flows.items():
            if np.isfinite(series.ssthresh_packets).any():
                thinned = _thinned(series.t_s, series.ssthresh_packets, run.duration_s)
                stroke = Stroke(styles[flow].colour, 0.9, NEAR_DASH, 0.55)
                marks.append(Line(*thinned, stroke, "ssthresh"))
    return Panel("cwnd", "packets", marks, from_zero(highest), shows_phases=True)


def _retransmits(run: RunRecord, styles: Mapping[int, FlowStyle]) -> Panel:
    edges_s = _bar_edges(run)
    sums: dict[str, FloatArray] = {}
    colours: dict[str, str] = {}
    for flow, series in run.flows.items():
        name = _name(run, styles[flow])
        colours[name] = styles[flow].colour
        counted = binned_sum(series.t_s, series.retransmits, edges_s)
        sums[name] = sums.get(name, np.zeros_like(counted)) + counted
    return _counts("retransmits", edges_s, sums, colours)


def _drops(run: RunRecord) -> Panel:
    edges_s = _bar_edges(run)
    links = run.link.values()
    sums = {
        reason: np.sum([binned_sum(s.t_s, s.drops[reason], edges_s) for s in links], axis=0)
        for reason in LOSS_REASONS
    }
    shown = {reason: counts for reason, counts in sums.items() if counts.any()}
    return _counts("drops", edges_s, shown, _DROP_COLOURS)


def _marks(run: RunRecord) -> Panel:
    edges_s = _bar_edges(run)
    counted = [binned_sum(link.t_s, link.marks, edges_s) for link in run.link.values()]
    sums: dict[str, FloatArray] = {"marked": np.sum(counted, axis=0)}
    return _counts("marks", edges_s, sums, {"marked": _MARK_COLOUR})


def _counts(
    what: str, edges_s: FloatArray, sums: Mapping[str, FloatArray], colours: Mapping[str, str]
) -> Panel:
    """Return a panel of stacked bars, with one bar per name in each bin."""
    base = np.zeros(len(edges_s) - 1)
    marks: list[Mark] = []
    for name, counts in sums.items():
        marks.append(Bars(edges_s, counts, base, colours[name], name))
        base = base + counts
    # Samples are not at exactly even intervals, so the width is rounded.
    unit = f"per {short_number(round(edges_s[1] - edges_s[0], 6))} s"
    return Panel(what, unit, marks, from_zero(highest_of(base)), is_count=True)


_MOST_QUEUES = 6
"""Number of a network's queues that a figure shows."""


def _backlog(run: RunRecord) -> Panel:
    highest = max((s.backlog_bytes.max() for s in run.link.values() if len(s.t_s)), default=0.0)
    scale, unit = (1e6, "MB") if highest >= _SHOW_MB_FROM else (1e3, "kB")
    marks: list[Mark] = []
    for index, name in _shown_queues(run, highest):
        series = run.link[name]
        colour = _QUEUE_COLOURS[index % len(_QUEUE_COLOURS)]
        t_s, backlog = _thinned(series.t_s, series.backlog_bytes / scale, run.duration_s)
        marks.append(Line(t_s, backlog, Stroke(colour, 0.9), name))
        marks.append(Band(t_s, None, backlog, colour, 0.15))
    return Panel("queue", unit, marks, from_zero(highest / scale))


def _shown_queues(run: RunRecord, highest_bytes: float) -> Iterator[tuple[int, str]]:
    """Yield the queues that a figure shows, each with the number of its colour.

    Of a network these are the fullest ones. The first link of other runs is the path's; further
    links are shown if their queues are visible next to the highest.
    """
    if is_network(run):
        in_all = {name: float(series.backlog_bytes.sum()) for name, series in run.link.items()}
        yield from enumerate(sorted(in_all, key=lambda name: -in_all[name])[:_MOST_QUEUES])
        return
    for index, (name, series) in enumerate(run.link.items()):
        if index == 0 or (series.backlog_bytes >= 0.02 * max(highest_bytes, 1.0)).any():
            yield index, name


def _probes(run: RunRecord) -> Panel:
    marks: list[Mark] = []
    for index, (probe, series) in enumerate(run.probes.items()):
        name = f"probe #{probe}" if len(run.probes) > 1 else "probe"
        colour = COLOURS[-1 - index % len(COLOURS)]
        marks.append(Dots(series.t_s, series.rtt_ms, colour, name, "probe"))
        if np.isfinite(series.scheduled_rtt_ms).any():
            thinned = _thinned(series.t_s, series.scheduled_rtt_ms, run.duration_s)
            marks.append(Line(*thinned, Stroke("#E69F00", 0.8), "scheduled", behind=True))
        lost_s = series.t_s[np.isnan(series.rtt_ms)]
        if len(lost_s):
            marks.append(Missing(lost_s, f"lost ({len(lost_s):,})", "probe-lost"))
    # Lost packets are marked above the highest value.
    highest = 1.1 * max(highest_of(series.rtt_ms) for series in run.probes.values())
    return Panel("probe RTT", "ms", marks, from_zero(highest))


def _latencies(run: RunRecord, styles: Mapping[int, FlowStyle]) -> Iterator[Panel]:
    """Yield a panel per kind of transaction, because latencies of kinds differ in magnitude."""
    for table in APP_TABLES:
        # Films have panels of their own (`film_panels`).
        if table == FILM:
            continue
        by_style: dict[tuple[str, str], list[AppSeries]] = {}
        for flow, series in run.apps.items():
            if series.table == table:
                by_style.setdefault(_look(run, styles, flow), []).append(series)
        if by_style:
            yield _latency(table, by_style)
    if any(series.mos for series in run.apps.values()):
        yield _opinions(run)


def _look(run: RunRecord, styles: Mapping[int, FlowStyle], flow: int) -> tuple[str, str]:
    """Return the name and colour of a flow; calls are not TCP flows, and have no style."""
    if flow in styles:
        return _name(run, styles[flow]), styles[flow].colour
    return f"call {flow}", _COLOURS[flow % len(_COLOURS)]


def _opinions(run: RunRecord) -> Panel:
    """Return the panel of the calls' mean opinion scores, one line per direction."""
    marks: list[Mark] = []
    for flow, series in run.apps.items():
        for direction, (mos, t_s) in series.mos.items():
            colour = _COLOURS[len(marks) % len(_COLOURS)]
            marks.append(Line(t_s, mos, Stroke(colour, 1.2), f"call {flow} {direction}"))
    return Panel("MOS", "", marks, (1.0, 4.6))


def _latency(table: str, by_style: Mapping[tuple[str, str], Sequence[AppSeries]]) -> Panel:
    """Return the panel of one kind of transaction: a dot per transaction, and marks of failures."""
    marks: list[Mark] = []
    latencies_ms: list[FloatArray] = []
    lanes = 0
    for (name, colour), apps in by_style.items():
        t_s = np.concatenate([series.t_s for series in apps])
        latency_ms = np.concatenate([series.latency_ms for series in apps])
        failed_s = t_s[np.isnan(latency_ms)]
        marks.append(Dots(t_s, latency_ms, colour, name, "latency"))
        if len(failed_s):
            failed = f"failed ({len(failed_s):,})"
            marks.append(Missing(failed_s, failed, "failed", colour, lanes))
            lanes += 1
        latencies_ms.append(latency_ms)
    span, is_log = _latency_scale(np.concatenate(latencies_ms), lanes)
    return Panel(f"latency of {table}", "ms", marks, span, is_log=is_log)


def _latency_scale(latency_ms: FloatArray, lanes: int) -> tuple[tuple[float, float], bool]:
    """Return the range of the axis, with room for lanes of failures, and whether it is log."""
    known = latency_ms[np.isfinite(latency_ms)]
    highest = highest_of(known)
    lowest = float(known.min()) if len(known) else 0.0
    below = 1 - MISSING_LANE * (lanes + 1)
    if 0 < lowest * _LOGARITHMIC_FROM <= highest:
        lowest /= 1.3
        return (lowest, lowest * (highest / lowest) ** (1 / below)), True
    return (0.0, highest / below if highest > 0 else 1.0), False


def _flow_marks(
    run: RunRecord,
    styles: Mapping[int, FlowStyle],
    values: Callable[[FlowSeries], FloatArray],
) -> tuple[list[Mark], float]:
    """Return a line per flow (with bands if there are few flows), and the highest value."""
    named: set[str] = set()
    marks: list[Mark] = []
    highest = 0.0
    for flow, series in run.flows.items():
        style, sampled = styles[flow], values(series)
        name = _name(run, style)
        t_s, means = _thinned(series.t_s, sampled, run.duration_s)
        label = "" if name in named else name
        named.add(name)
        marks.append(Line(t_s, means, style.stroke, label, gid=f"flow-{flow}"))
        highest = max(highest, highest_of(means))
        if _is_thinned(series.t_s) and len(run.flows) <= _FEW_FLOWS:
            low, high = binned_range(series.t_s, sampled, _bin_s(run.duration_s))
            marks.append(Band(t_s, low, high, style.colour, 0.16))
            highest = max(highest, highest_of(high))
    return marks, highest


def _title(run: RunRecord) -> str:
    ccs = ", ".join(dict.fromkeys(str(flow["cc"]) for flow in run.flow_summaries()))
    title = f"{run.name}: {ccs or 'no TCP flow'}, {run.summary['engine']}"
    if any(_is_thinned(series.t_s) for series in run.flows.values()):
        title += (
            f"   (lines: means over {short_number(_bin_s(run.duration_s))} s; bands: all samples)"
        )
    return title


def _name(run: RunRecord, style: FlowStyle) -> str:
    """Return a flow's legend entry in the figure of a single run, without the run's name."""
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
    """Return the time between samples in s, which is the least width of a bar."""
    times = next(iter(run.link.values())).t_s
    return float(np.median(np.diff(times))) if len(times) > 1 else 0.0
