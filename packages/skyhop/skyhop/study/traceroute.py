"""Traces of a route from a run's probes, split into segments as `skyhop dissect` does.

A traceroute sends probes to each hop of a route. In a scenario, these are probe flows with an
increasingly long `via`; the packets that the probes send at the same time form one trace. Segments
are recognised by the addresses of the hops, so the metric assigns an address to each probe.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import numpy as np

from skyhop.data.records import RunRecord
from skyhop.errors import InputError
from skyhop.study.metric_kinds import DissectionMetric
from skyhop.telemetry.traces import Hop, Trace


def segment_value(metric: DissectionMetric, record: RunRecord) -> float | None:
    """Return the one-way delay of a metric's segment in ms, or its share in %.

    None if the segment is not separable from its neighbours, medians give no value, or no packet
    reached the destination.
    """
    from skyhop.analysis.dissection import dissect

    hops = metric.hops
    ids = metric.flows if metric.flows is not None else sorted(record.probes)[: len(hops)]
    if len(ids) < len(hops) or not set(ids) <= set(record.probes):
        return None
    try:
        pieces = dissect(traces_of(record, ids, hops)).pieces
    except InputError:
        return None
    for piece in pieces:
        if piece.name == metric.segment:
            if metric.method == "trace":
                return 100 * piece.share if metric.share else piece.by_trace_ms
            found = 100 * piece.of_medians_share if metric.share else piece.of_medians_ms
            return None if np.isnan(found) else found
    return None


def traces_of(record: RunRecord, ids: Sequence[int], addresses: Sequence[str]) -> list[Trace]:
    """Return the traces of a run's probes: the n-th packets of all probes form the n-th trace.

    Args:
        record: the run.
        ids: flow ids of the probes, ordered by distance of the hop, the nearest first.
        addresses: addresses of the hops that answer; the last is the destination.
    """
    where = [ipaddress.ip_address(address) for address in addresses]
    count = min(len(record.probes[flow_id].rtt_ms) for flow_id in ids)
    rtt_ms = np.array([record.probes[flow_id].rtt_ms[:count] for flow_id in ids])
    return [
        Trace(
            where[-1],
            tuple(
                Hop(place, None, None) if np.isnan(taken) else Hop(place, address, float(taken))
                for place, (address, taken) in enumerate(zip(where, column, strict=True), start=1)
            ),
        )
        for column in rtt_ms.T
    ]
