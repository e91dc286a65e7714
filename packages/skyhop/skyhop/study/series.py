"""Sampled series of a flow, by the names that study files use."""

from __future__ import annotations

import numpy as np

from skyhop._core import DIRECTIONS, PATH_LINK
from skyhop.analysis.base_rtt import base_rtt_by_second, entry_of
from skyhop.analysis.binning import binned
from skyhop.analysis.network_routes import laser_load_pct
from skyhop.data.arrays import FloatArray
from skyhop.data.records import LinkSeries, RunRecord

_WIRE_BYTES = 1514
"""Size of a full packet on a link, Ethernet header included, in bytes."""


def samples_of(
    record: RunRecord, flow_id: int, name: str, bin_s: float | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return times in s and values of a flow's series; with `bin_s`, ends and means of the bins."""
    flow = record.flows[flow_id]
    if name == "retransmit_share":
        return _retransmit_share(record, flow_id, bin_s)
    if name == "throughput":
        delivered_bytes, lengths_s = _delivered(record, flow_id)
        values = delivered_bytes * 8e-6 / lengths_s
    elif name == "base_rtt":
        values = _base_rtt_ms(record, flow_id)
    elif name == "srtt_over_base":
        values = flow.srtt_ms / _base_rtt_ms(record, flow_id)
    elif name == "laser_load":
        values = laser_load_pct(record, flow_id)
    else:
        values = {
            "goodput": flow.goodput_mbps, "cwnd": flow.cwnd_packets, "srtt": flow.srtt_ms,
            "ack_rtt": flow.ack_rtt_ms,
        }[name]  # fmt: skip
    return _means(flow.t_s, values, bin_s)


def _means(
    t_s: FloatArray, values: FloatArray, bin_s: float | None
) -> tuple[FloatArray, FloatArray]:
    if bin_s is None or not len(values):
        return t_s, values
    middles_s, means = binned(t_s, values, bin_s)
    known = np.isfinite(means)
    return (middles_s + bin_s / 2)[known], means[known]


def _retransmit_share(
    record: RunRecord, flow_id: int, bin_s: float | None
) -> tuple[FloatArray, FloatArray]:
    """Return times in s, and retransmitted packets in % of the packets that the link delivered.

    Times without deliveries are left out.
    """
    flow = record.flows[flow_id]
    # The share of a bin is the ratio of the sums, not the mean of the ratios of its samples.
    t_s, again = _means(flow.t_s, flow.retransmits, bin_s)
    packets = _means(flow.t_s, _delivered(record, flow_id)[0] / _WIRE_BYTES, bin_s)[1]
    known = packets > 0
    return t_s[known], 100.0 * again[known] / packets[known]


def _delivered(record: RunRecord, flow_id: int) -> tuple[FloatArray, FloatArray]:
    """Return, per sample of a flow, the bytes that the path's link delivered, and the time in s.

    The link's samples give the length: a flow that starts late has no sample before its first.
    """
    t_s, link = record.flows[flow_id].t_s, link_of(record, flow_id)
    if link is None or not len(link.t_s):
        return np.zeros(len(t_s)), np.ones(len(t_s))
    # Links and flows are sampled at the same times.
    at = np.clip(np.searchsorted(link.t_s, t_s - 1e-9), 0, len(link.t_s) - 1)
    delivered_bytes = np.asarray(link.delivered_bytes[at], dtype=np.float64)
    return delivered_bytes, np.diff(link.t_s, prepend=0.0)[at]


def link_of(record: RunRecord, flow_id: int) -> LinkSeries | None:
    """Return the series of the path's link in a flow's direction; None if the run has none."""
    entry = entry_of(record.scenario, flow_id)
    goes_back = entry is not None and entry[1].get("from") == "to"
    names = (DIRECTIONS[1], f"{PATH_LINK} back") if goes_back else (DIRECTIONS[0], PATH_LINK)
    return next((record.link[name] for name in names if name in record.link), None)


def _base_rtt_ms(record: RunRecord, flow_id: int) -> FloatArray:
    """Return the mean base RTT of each sample's second; NaN if unknown, or without a path."""
    flow, base_ms = record.flows[flow_id], base_rtt_by_second(record, flow_id)
    if base_ms is None:
        return np.full(len(flow.t_s), np.nan)
    # A sample at the end of a second belongs to that second.
    at = np.clip(np.ceil(flow.t_s - 1e-9).astype(np.int64) - 1, 0, len(base_ms) - 1)
    return np.where(base_ms[at] > 0, base_ms[at], np.nan)
