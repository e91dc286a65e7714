"""What the figure of a run shows: its flows, their applications, its probes and its queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np

from skyhop._core import APP_TABLES, LOSS_REASONS
from skyhop.analysis.binning import binned, binned_range, binned_sum, round_step
from skyhop.analysis.film_timeline import Shown, film_panels
from skyhop.analysis.flows import MANY_FLOWS, FlowStyle, flow_styles
from skyhop.analysis.looks import COLOURS
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
from skyhop.data.quantities import mbps_or_none, seconds_or_none
from skyhop.data.reading import FILM
from skyhop.data.records import AppSeries, FlowSeries, RunRecord

_POINTS_AT_MOST = 1500
"""Lines with more samples than this show means over bins, with a band for their range."""

_BINS = 360

_FEW_FLOWS = 3
"""Up to this many flows show ssthresh and bands as well."""

_LOGARITHMIC_FROM = 10
"""Latencies that differ by this factor are shown on a logarithmic scale."""

_RATE_IN_SIGHT = 4

_ABOVE_RATE = 1.02
"""How far a sample lies above the link's rate where more was read than came."""

_BURST_NOTE = "above the link's rate: what waited behind a lost packet is read at once"

_SHOW_MB_FROM = 2e6
_BARS_AT_MOST = 240

_COLOURS = ("#0072B2", "#E69F00", "#777777", "#CC79A7", "#000000", "#56B4E9", "#D55E00", "#009E73")
_DROP_COLOURS = dict(zip(LOSS_REASONS, cycle(_COLOURS), strict=False))
_MARK_COLOUR = "#CC79A7"
_QUEUE_COLOURS = ("#444444", "#E69F00", *COLOURS)


def run_timeline(run: RunRecord, styles: Mapping[int, FlowStyle] | None = None) -> Timeline:
    """Return what each flow, its application, the probes and the link did over time.

    Args:
        run: the run.
        styles: how to draw each flow, by its id; by default chosen for this run alone.
    """
    if styles is None:
        styles = {flow: style for (_, flow), style in flow_styles([run]).items()}
    events = run.events.within(0.0, max(run.duration_s, 1e-9))
    return Timeline(
        about="run",
        title=_title(run),
        end_s=run.duration_s,
        strip=event_strip(events, run.duration_s),
        panels=_panels(run, styles),
        signal=signal_strip(run, run.duration_s),
    )


def _panels(run: RunRecord, styles: Mapping[int, FlowStyle]) -> list[Panel]:
    panels: list[Panel] = []
    if run.flows:
        panels += [_goodput(run, styles), _rtt(run, styles)]
        panels += [_cwnd(run, styles), _retransmits(run, styles)]
    # Next to the flows' RTT, of which they are other views.
    panels[2:2] = [*([_probes(run)] if run.probes else []), *_latencies(run, styles)]
    panels[:0] = film_panels(
        [
            Shown(_name(run, styles[flow]), styles[flow].colour, film)
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
    rates = link_rate_steps(run.scenario, run.duration_s) if run.has_one_link else None
    # A rate far above what the flows reached would flatten them.
    if rates is not None and (highest == 0 or rates[1].max() <= _RATE_IN_SIGHT * highest):
        marks.append(Line(*rates, Stroke(GREY, 0.9, FAR_DASH), "link rate", step="post"))
        highest = max(highest, float(rates[1].max()))
    note = _BURST_NOTE if _has_bursts(run, rates) else ""
    return Panel("goodput", "Mbit/s", marks, from_zero(highest), shows_phases=True, note=note)


def _has_bursts(run: RunRecord, rates: tuple[FloatArray, FloatArray] | None) -> bool:
    """Tell whether any flow read more in a sample than the link carried in that time."""
    if rates is None:
        return False
    back_mbps = mbps_or_none(((run.scenario.get("link") or {}).get("back") or {}).get("rate")) or 0
    for series in run.flows.values():
        known = np.isfinite(series.goodput_mbps)
        t_s, goodput_mbps = series.t_s[known], series.goodput_mbps[known]
        # Samples stand at the end of the time that they describe; it may hold a change of rate.
        begins_s = np.concatenate(([0.0], t_s[:-1])) if len(t_s) else t_s
        carried = np.maximum(_held(rates, begins_s), _held(rates, t_s)).clip(back_mbps)
        if (goodput_mbps > _ABOVE_RATE * carried).any():
            return True
    return False


def _held(steps: tuple[FloatArray, FloatArray], at_s: FloatArray) -> FloatArray:
    """Return the value that steps have at moments, shape (n,)."""
    times_s, values = steps
    return values[np.clip(np.searchsorted(times_s, at_s, side="right") - 1, 0, None)]


def _total_goodput(run: RunRecord) -> tuple[FloatArray, FloatArray]:
    """Return the sample times (s) of all flows and their goodput together (Mbit/s), (n,) each."""
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
    # An ssthresh far above every window would flatten the windows: they set the scale.
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
    """Return bars by name, each on top of those before."""
    base = np.zeros(len(edges_s) - 1)
    marks: list[Mark] = []
    for name, counts in sums.items():
        marks.append(Bars(edges_s, counts, base, colours[name], name))
        base = base + counts
    # Three digits: samples are taken at the moments they say, not exactly at even intervals.
    unit = f"per {edges_s[1] - edges_s[0]:.3g} s"
    return Panel(what, unit, marks, from_zero(highest_of(base)), whole=True)


def _backlog(run: RunRecord) -> Panel:
    highest = max((s.backlog_bytes.max() for s in run.link.values() if len(s.t_s)), default=0.0)
    scale, unit = (1e6, "MB") if highest >= _SHOW_MB_FROM else (1e3, "kB")
    marks: list[Mark] = []
    for index, (name, series) in enumerate(run.link.items()):
        colour = _QUEUE_COLOURS[index % len(_QUEUE_COLOURS)]
        # The first is the one that the scenario is about; of the others, those that say something.
        if index > 0 and not (series.backlog_bytes >= 0.02 * max(highest, 1.0)).any():
            continue
        t_s, backlog = _thinned(series.t_s, series.backlog_bytes / scale, run.duration_s)
        marks.append(Line(t_s, backlog, Stroke(colour, 0.9), name))
        marks.append(Band(t_s, None, backlog, colour, 0.15))
    return Panel("queue", unit, marks, from_zero(highest / scale))


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
    # Room above the highest for the marks of lost packets.
    highest = 1.1 * max(highest_of(series.rtt_ms) for series in run.probes.values())
    return Panel("probe RTT", "ms", marks, from_zero(highest))


def _latencies(run: RunRecord, styles: Mapping[int, FlowStyle]) -> Iterator[Panel]:
    """Yield a panel per table: a burst takes other times than a message."""
    for table in APP_TABLES:
        # Of films other things are seen.
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
    """Return what a flow is called and its colour; a call is no TCP flow, and has no style."""
    if flow in styles:
        return _name(run, styles[flow]), styles[flow].colour
    return f"call {flow}", _COLOURS[flow % len(_COLOURS)]


def _opinions(run: RunRecord) -> Panel:
    """Return the mean opinion scores of calls, a line per direction."""
    marks: list[Mark] = []
    for flow, series in run.apps.items():
        for direction, (mos, t_s) in series.mos.items():
            colour = _COLOURS[len(marks) % len(_COLOURS)]
            marks.append(Line(t_s, mos, Stroke(colour, 1.2), f"call {flow} {direction}"))
    return Panel("MOS", "", marks, (1.0, 4.6))


def _latency(table: str, by_style: Mapping[tuple[str, str], Sequence[AppSeries]]) -> Panel:
    """Return a dot per transaction of the applications with a name and a colour."""
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
    """Return what to show below lanes of failures, and whether on a logarithmic scale."""
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
    """Return a line per flow, with bands where flows are few, and the highest value shown."""
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
        title += f"   (lines: means over {_bin_s(run.duration_s):g} s; bands: all samples)"
    return title


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
