"""What a metric comes to in one run, from its samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skyhop.analysis.base_rtt import rises_of_base_rtt
from skyhop.analysis.over_flows import OVER, bins_of_flows, cut_off, means_of_flows
from skyhop.analysis.statistics import in_windows, moments, statistic
from skyhop.analysis.transfer import seconds_to, whole
from skyhop.data.arrays import BoolArray, FloatArray
from skyhop.data.quantities import moment_s, seconds, size_bytes
from skyhop.data.records import RunRecord
from skyhop.study.file import Metric
from skyhop.study.gaps import gaps_by_the_grid
from skyhop.study.route import dissected
from skyhop.study.series import samples_of

_NEARLY = 1e-12
"""Of a window's edges: what rounding puts just after an edge stands at it."""


@dataclass(frozen=True)
class Measured:
    """A metric of one run, or of one of its flows."""

    value: float | None
    moments: tuple[float, float, float]
    """Of the bins behind it: their number, mean, and squared deviations."""


_NONE = np.array([], dtype=np.float64)
_NO_MOMENTS = (0.0, 0.0, 0.0)


def measured(metric: Metric, record: RunRecord, flow_id: int | None) -> Measured:
    """Return what a metric that needs samples comes to, for one flow of a run."""
    if metric.kind in ("time_to_bytes", "rate_over_bytes"):
        is_there = flow_id is not None and flow_id in record.flows
        return Measured(_of_bytes(metric, record, flow_id or 0) if is_there else None, _NO_MOMENTS)
    if metric.kind == "dissection":
        return Measured(dissected(metric, record), _NO_MOMENTS)
    values = values_of(metric, record, flow_id)
    count, middle, squares = moments(values).tolist()
    return Measured(statistic(values, metric.stat, metric.ddof), (count, middle, squares))


def values_of(metric: Metric, record: RunRecord, flow_id: int | None) -> FloatArray:
    """Return what a metric of samples, flows or probes is a statistic of, in one run."""
    if metric.kind == "probe":
        values = _of_probe(metric, record)
    elif flow_id is None or flow_id not in record.flows:
        values = _NONE
    elif metric.kind == "gap":
        values = gaps_by_the_grid(metric, record, flow_id)
    elif metric.over:
        values = _over_flows(metric, record)
    else:
        values = _of_flow(metric, record, flow_id)
    if metric.above is None and metric.upto is None:
        return values
    # So that their mean is the share, in one run or in all of them.
    least = -np.inf if metric.above is None else metric.above
    most = np.inf if metric.upto is None else metric.upto
    known = values[np.isfinite(values)]
    return np.asarray(100.0 * ((known > least) & (known <= most)), dtype=np.float64)


def _of_probe(metric: Metric, record: RunRecord) -> FloatArray:
    """Return the round trips (ms) of the first probe's packets in the metric's window."""
    if not record.probes:
        return _NONE
    probe = record.probes[min(record.probes)]
    kept = _in_window(metric, probe.t_s, (0.0, record.duration_s))
    # Unlike a sample, a packet stands at its beginning: the first belongs to the run.
    return probe.rtt_ms[kept | (probe.t_s == 0.0) if metric.from_ is None else kept]


def _of_flow(metric: Metric, record: RunRecord, flow_id: int) -> FloatArray:
    """Return a flow's bins, or its samples, in the metric's window."""
    t_s, values = samples_of(record, flow_id, metric.series, _seconds_or_none(metric.bin))
    of_what_s = _whole_window(metric, record, flow_id)
    if of_what_s is None:
        return _NONE
    kept = _in_window(metric, t_s, of_what_s)
    # A sample stands at the end of its interval: one at the flow's start is of the time before.
    kept &= t_s > _lifetime(record, flow_id)[0]
    if metric.kind == "transient":
        events_s = _events(metric, record, flow_id)
        kept &= in_windows(t_s, events_s, seconds(metric.window))
        kept &= ~in_windows(t_s, events_s, seconds(metric.skip))
    return values[kept]


def _events(metric: Metric, record: RunRecord, flow_id: int) -> FloatArray:
    """Return when a metric's transients began, in s."""
    if metric.rise is None:
        return record.events.times(metric.after)
    return rises_of_base_rtt(record, flow_id, metric.rise)


def _whole_window(metric: Metric, record: RunRecord, flow_id: int) -> tuple[float, float] | None:
    """Return what a metric's `from` and `until` are moments of; None where that never was."""
    if metric.within == "run":
        return 0.0, record.duration_s
    if metric.within == "flow":
        return _lifetime(record, flow_id)
    begin_s = _lifetime(record, flow_id)[0]
    first_s, last_s = _moments_of_bytes(metric, record, flow_id)
    return None if first_s is None or last_s is None else (begin_s + first_s, begin_s + last_s)


def _over_flows(metric: Metric, record: RunRecord) -> FloatArray:
    """Return what the flows amount to in each bin of the window, or in all of it."""
    ids = metric.flows if metric.flows is not None else list(record.flows)
    ids = [*ids, *(metric.against or ())]
    chosen = ids[0] if metric.flow is None else metric.flow
    if chosen not in ids or not set(ids) <= set(record.flows):
        return _NONE
    place = ids.index(chosen) if metric.against is None else len(ids) - len(metric.against)
    samples = [_after_start(metric, record, flow_id) for flow_id in ids]
    whole_run = (0.0, record.duration_s)
    if metric.bin is None:
        kept = [values[_in_window(metric, t_s, whole_run)] for t_s, values in samples]
        shares = means_of_flows(kept)
    else:
        ends_s, shares = bins_of_flows(samples, seconds(metric.bin))
        shares = shares[:, _in_window(metric, ends_s, whole_run)]
    shares = cut_off(shares, metric.least, truncate=metric.truncate)
    return OVER[metric.over or "sum"](shares, place)


def _after_start(metric: Metric, record: RunRecord, flow_id: int) -> tuple[FloatArray, FloatArray]:
    t_s, values = samples_of(record, flow_id, metric.series)
    kept = t_s > _lifetime(record, flow_id)[0]
    return t_s[kept], values[kept]


def _in_window(metric: Metric, t_s: FloatArray, of_what_s: tuple[float, float]) -> BoolArray:
    """Return which samples lie in the metric's window, of what begins and ends then."""
    first_s = moment_s(metric.from_, *of_what_s) if metric.from_ else of_what_s[0]
    # A flow's samples go on when it is done.
    end_s = np.inf if metric.within == "run" else of_what_s[1]
    last_s = moment_s(metric.until, *of_what_s) if metric.until else end_s
    within = (t_s > first_s * (1 + _NEARLY)) & (t_s <= last_s * (1 + _NEARLY))
    return np.asarray(within, dtype=bool)


def _lifetime(record: RunRecord, flow_id: int) -> tuple[float, float]:
    """Return when a flow began, and when it was done or stopped, in s."""
    flow = next(f for f in record.flow_summaries() if int(f["id"]) == flow_id)
    begin_s, lasted_s = float(flow["start_s"]), flow["completion_s"]
    return begin_s, float(flow["stop_s"]) if lasted_s is None else begin_s + float(lasted_s)


def _of_bytes(metric: Metric, record: RunRecord, flow_id: int) -> float | None:
    """Return how long bytes took, in s, or their rate in Mbit/s."""
    first_s, last_s = _moments_of_bytes(metric, record, flow_id)
    if first_s is None or last_s is None:
        return None
    took_s = whole(last_s - first_s, _seconds_or_none(metric.cut))
    if metric.kind == "time_to_bytes":
        return took_s
    sent_bytes = size_bytes(metric.bytes or "0 B") - size_bytes(metric.after_bytes or "0 B")
    return sent_bytes * 8 / 1e6 / took_s if took_s > 0 else None


def seconds_to_bytes(
    record: RunRecord, flow_id: int, size: float, cut_s: float | None = None
) -> float | None:
    """Return how long after its start so many bytes of a flow had arrived; None: they never had."""
    flow = record.flows[flow_id]
    took_s = seconds_to(flow.t_s, flow.goodput_mbps, size, _lifetime(record, flow_id)[0])
    return None if took_s is None else whole(took_s, cut_s)


def _moments_of_bytes(
    metric: Metric, record: RunRecord, flow_id: int
) -> tuple[float | None, float | None]:
    """Return when `after_bytes` and `bytes` had arrived, in s of the flow's time."""
    sizes = (size_bytes(text or "0 B") for text in (metric.after_bytes, metric.bytes))
    first_s, last_s = (seconds_to_bytes(record, flow_id, size) for size in sizes)
    return first_s, last_s


def _seconds_or_none(text: str | None) -> float | None:
    return None if text is None else seconds(text)
