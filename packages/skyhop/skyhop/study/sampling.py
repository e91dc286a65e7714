"""Values of metrics in one run, computed from the run's samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skyhop.analysis.base_rtt import rises_of_base_rtt
from skyhop.analysis.flow_aggregates import AGGREGATES, bins_of_flows, cut_off, means_of_flows
from skyhop.analysis.statistics import in_windows, moments, statistic
from skyhop.analysis.transfer import rounded_down, seconds_to
from skyhop.data.arrays import BoolArray, FloatArray
from skyhop.data.quantities import moment_s, seconds, size_bytes
from skyhop.data.records import RunRecord
from skyhop.study.gaps import gaps_near_grid
from skyhop.study.metric_kinds import (
    BinsMetric,
    BytesMetric,
    DissectionMetric,
    FlowMetric,
    FlowsMetric,
    GapMetric,
    ProbeMetric,
    RateOverBytesMetric,
    SampledMetric,
    StatisticMetric,
    TimeToBytesMetric,
    TransientMetric,
)
from skyhop.study.series import samples_of
from skyhop.study.traceroute import segment_value

_ROUNDING = 1e-12
"""Relative tolerance at a window's edges, for times that rounding puts just after an edge."""


@dataclass(frozen=True)
class Measurement:
    """Value of a metric in one run, or for one of its flows."""

    value: float | None
    moments: tuple[float, float, float]
    """Count, mean, and sum of squared deviations of the bins that the value is computed from."""


_NONE = np.array([], dtype=np.float64)
_NO_MOMENTS = (0.0, 0.0, 0.0)


def measure(metric: SampledMetric, record: RunRecord, flow_id: int | None) -> Measurement:
    """Return the value of a metric for one flow of a run."""
    match metric:
        case TimeToBytesMetric() | RateOverBytesMetric():
            return Measurement(_bytes_value(metric, record, flow_id), _NO_MOMENTS)
        case DissectionMetric():
            return Measurement(segment_value(metric, record), _NO_MOMENTS)
    values = metric_values(metric, record, flow_id)
    count, middle, squares = moments(values).tolist()
    return Measurement(statistic(values, metric.stat, metric.ddof), (count, middle, squares))


def metric_values(
    metric: ProbeMetric | BinsMetric, record: RunRecord, flow_id: int | None
) -> FloatArray:
    """Return the values of one run whose statistic is the metric, shape (n,)."""
    if isinstance(metric, ProbeMetric):
        values = _probe_values(metric, record)
    elif flow_id is None or flow_id not in record.flows:
        values = _NONE
    elif isinstance(metric, GapMetric):
        values = gaps_near_grid(metric, record, flow_id)
    elif isinstance(metric, FlowsMetric):
        values = _joined_flow_values(metric, record)
    else:
        values = _flow_values(metric, record, flow_id)
    if metric.above is None and metric.upto is None:
        return values
    # Each value becomes 0 or 100, so that the mean is the share in %, in one run or over all runs.
    least = -np.inf if metric.above is None else metric.above
    most = np.inf if metric.upto is None else metric.upto
    known = values[np.isfinite(values)]
    return np.asarray(100.0 * ((known > least) & (known <= most)), dtype=np.float64)


def _probe_values(metric: ProbeMetric, record: RunRecord) -> FloatArray:
    """Return the round trips (ms) of the first probe's packets in the metric's window."""
    if not record.probes:
        return _NONE
    probe = record.probes[min(record.probes)]
    kept = _is_in_window(metric, probe.t_s, (0.0, record.duration_s))
    # The time of a packet is its sending time, not the end of an interval: a packet at 0 counts.
    return probe.rtt_ms[kept | (probe.t_s == 0.0) if metric.from_ is None else kept]


def _flow_values(metric: FlowMetric, record: RunRecord, flow_id: int) -> FloatArray:
    """Return the bins of a flow, or its samples, in the metric's window."""
    t_s, values = samples_of(record, flow_id, metric.series, _seconds_or_none(metric.bin))
    span_s = _reference_span(metric, record, flow_id)
    if span_s is None:
        return _NONE
    # Sampling continues after the end of a flow, so the end of its span limits the window.
    kept = _is_in_window(metric, t_s, span_s, may_end_later=metric.within == "run")
    # A sample's time is the end of its interval: a sample at the flow's start precedes the flow.
    kept &= t_s > _flow_span(record, flow_id)[0]
    if isinstance(metric, TransientMetric):
        events_s = _events(metric, record, flow_id)
        kept &= in_windows(t_s, events_s, seconds(metric.window))
        kept &= ~in_windows(t_s, events_s, seconds(metric.skip))
    return values[kept]


def _events(metric: TransientMetric, record: RunRecord, flow_id: int) -> FloatArray:
    """Return the times in s of the events after which a metric measures."""
    if metric.rise is None:
        events = record.events
        return events.outages() if metric.after == "outage" else events.times(metric.after)
    return rises_of_base_rtt(record, flow_id, metric.rise)


def _reference_span(
    metric: FlowMetric, record: RunRecord, flow_id: int
) -> tuple[float, float] | None:
    """Return begin and end in s of the period that `from` and `until` refer to (`within`).

    None if fewer than the metric's `bytes` arrived.
    """
    if metric.within == "run":
        return 0.0, record.duration_s
    if metric.within == "flow":
        return _flow_span(record, flow_id)
    begin_s = _flow_span(record, flow_id)[0]
    first_s, last_s = _times_of_bytes((metric.after_bytes, metric.bytes), record, flow_id)
    return None if first_s is None or last_s is None else (begin_s + first_s, begin_s + last_s)


def _joined_flow_values(metric: FlowsMetric, record: RunRecord) -> FloatArray:
    """Return the combined value of several flows, per bin or for the whole window."""
    ids = metric.flows if metric.flows is not None else list(record.flows)
    ids = [*ids, *(metric.against or ())]
    chosen = ids[0] if metric.flow is None else metric.flow
    if chosen not in ids or not set(ids) <= set(record.flows):
        return _NONE
    place = ids.index(chosen) if metric.against is None else len(ids) - len(metric.against)
    samples = [_after_start(metric, record, flow_id) for flow_id in ids]
    whole_run = (0.0, record.duration_s)
    if metric.bin is None:
        kept = [values[_is_in_window(metric, t_s, whole_run)] for t_s, values in samples]
        shares = means_of_flows(kept)
    else:
        ends_s, shares = bins_of_flows(samples, seconds(metric.bin))
        shares = shares[:, _is_in_window(metric, ends_s, whole_run)]
    shares = cut_off(shares, metric.least, truncate=metric.truncate)
    return AGGREGATES[metric.over](shares, place)


def _after_start(
    metric: FlowsMetric, record: RunRecord, flow_id: int
) -> tuple[FloatArray, FloatArray]:
    t_s, values = samples_of(record, flow_id, metric.series)
    kept = t_s > _flow_span(record, flow_id)[0]
    return t_s[kept], values[kept]


def _is_in_window(
    metric: StatisticMetric,
    t_s: FloatArray,
    span_s: tuple[float, float],
    *,
    may_end_later: bool = True,
) -> BoolArray:
    """Return for each time whether it is in the metric's window; `span_s` is what it refers to."""
    first_s = moment_s(metric.from_, *span_s) if metric.from_ else span_s[0]
    end_s = np.inf if may_end_later else span_s[1]
    last_s = moment_s(metric.until, *span_s) if metric.until else end_s
    within = (t_s > first_s * (1 + _ROUNDING)) & (t_s <= last_s * (1 + _ROUNDING))
    return np.asarray(within, dtype=bool)


def _flow_span(record: RunRecord, flow_id: int) -> tuple[float, float]:
    """Return the start of a flow, and its completion or stop, in s since the run's start."""
    flow = next(f for f in record.flow_summaries() if int(f["id"]) == flow_id)
    begin_s, lasted_s = float(flow["start_s"]), flow["completion_s"]
    return begin_s, float(flow["stop_s"]) if lasted_s is None else begin_s + float(lasted_s)


def _bytes_value(metric: BytesMetric, record: RunRecord, flow_id: int | None) -> float | None:
    """Return the time in s in which the metric's bytes arrived, or their rate in Mbit/s."""
    if flow_id is None or flow_id not in record.flows:
        return None
    after = metric.after_bytes if isinstance(metric, RateOverBytesMetric) else None
    first_s, last_s = _times_of_bytes((after, metric.bytes), record, flow_id)
    if first_s is None or last_s is None:
        return None
    begin_s = first_s if metric.from_ is None else seconds(metric.from_)
    took_s = rounded_down(last_s - begin_s, _seconds_or_none(metric.cut))
    if isinstance(metric, TimeToBytesMetric):
        return took_s
    sent_bytes = size_bytes(metric.bytes) - size_bytes(after or "0 B")
    return sent_bytes * 8 / 1e6 / took_s if took_s > 0 else None


def seconds_to_bytes(
    record: RunRecord, flow_id: int, size: float, from_s: float = 0.0, cut_s: float | None = None
) -> float | None:
    """Return the time in s from `from_s` after a flow's start until its first `size` bytes arrived.

    None if fewer bytes arrived. With `cut_s`, the time is rounded down to a multiple of it.
    """
    flow = record.flows[flow_id]
    took_s = seconds_to(flow.t_s, flow.goodput_mbps, size, _flow_span(record, flow_id)[0])
    return None if took_s is None else rounded_down(took_s - from_s, cut_s)


def _times_of_bytes(
    numbers: tuple[str | None, str | None], record: RunRecord, flow_id: int
) -> tuple[float | None, float | None]:
    """Return the times in s from the flow's start until two numbers of bytes had arrived."""
    sizes = (size_bytes(text or "0 B") for text in numbers)
    first_s, last_s = (seconds_to_bytes(record, flow_id, size) for size in sizes)
    return first_s, last_s


def _seconds_or_none(text: str | None) -> float | None:
    return None if text is None else seconds(text)
