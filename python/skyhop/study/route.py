"""Probes that turn round one behind the other as traces of a route, cut as `skyhop dissect` does.

A traceroute is probes to each hop of a route. In a scenario these are probes whose `via` is longer
and longer; the packets that they send at the same moment are one trace. Which address answers is
what tells segments apart, so each probe is given one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import numpy as np

from skyhop.data.records import RunRecord
from skyhop.errors import InputError
from skyhop.study.file import Metric
from skyhop.telemetry.traces import Hop, Trace


def dissected(metric: Metric, record: RunRecord) -> float | None:
    """Return a segment's delay of one direction in ms, or its share in %.

    None where it cannot be told from its neighbours or by medians, or nothing reached the end of
    the route.
    """
    from skyhop.analysis.dissection import dissect

    hops = metric.hops or []
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
    """Return the traces of a run's probes.

    Args:
        record: of the run.
        ids: of the probes, that which turns round nearest first.
        addresses: where they turn round; the last is the destination.
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
