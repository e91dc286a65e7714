"""Routes of a network's flows over time: the load of their lasers, and their base RTT."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from skyhop._core import DIRECTIONS
from skyhop.analysis.network_loads import channel_of, load_by_sample, sample_s
from skyhop.data.arrays import FloatArray, IntArray
from skyhop.data.geometry import LIGHT_M_PER_S
from skyhop.data.networks import Network, network_of
from skyhop.data.records import RouteSeries, RunRecord

_NS = 1e-9
"""A nanosecond in s: times are multiples of it, up to rounding."""


def laser_load_pct(run: RunRecord, flow: int) -> FloatArray:
    """Return the utilisation (%) of the busiest laser on the route of a flow's data.

    The array has shape (n,), a value for each sample of the flow: of the lasers on the route that
    held when the sample's interval began, in the direction of the data. NaN without a route, on
    routes without lasers, and where the run does not determine the route of the flow.
    """
    t_s = run.flows[flow].t_s
    found = np.full(len(t_s), np.nan)
    route = run.routes.get(network_of(run.scenario).ends[flow])
    if route is None:
        return found
    held = _place_at(route, t_s - sample_s(run))
    for place, satellites in enumerate(route.satellites):
        within = held == place
        if within.any() and len(satellites) > 1:
            loads = [_load(run, a, b, t_s[within]) for a, b in pairwise(satellites)]
            found[within] = 100 * np.minimum(np.max(loads, axis=0), 1.0)
    return found


def _load(run: RunRecord, sender: int, receiver: int, t_s: FloatArray) -> FloatArray:
    """Return the utilisation, 0 to 1, of a laser's direction in the samples that end at `t_s`."""
    link = f"satellite {min(sender, receiver)} - {max(sender, receiver)}"
    there = sender < receiver
    series = run.link.get(link if there else f"{link} {DIRECTIONS[1]}")
    channel = channel_of(link, DIRECTIONS[0 if there else 1])
    loads = np.zeros(len(t_s))
    if series is None or channel is None or not len(series.t_s):
        return loads
    # A link has no samples in intervals in which it carried nothing.
    at = np.clip(np.searchsorted(series.t_s, t_s - _NS), 0, len(series.t_s) - 1)
    known = np.abs(series.t_s[at] - t_s) < _NS
    loads[known] = load_by_sample(run, channel, series)[at[known]]
    return loads


def base_rtt_of_network_by_second(run: RunRecord, flow: int) -> FloatArray | None:
    """Return the mean base RTT (ms) of a flow in each second of a run, NaN without a route.

    None if the run does not determine it: if flows are spread over several ways, or an end of the
    flow is a gateway or a point of presence.
    """
    network = network_of(run.scenario)
    ends = network.ends.get(flow)
    if ends is None or not network.relays.isdisjoint(ends):
        return None
    there, back = run.routes.get(ends), run.routes.get((ends[1], ends[0]))
    if there is None or back is None:
        return None
    seconds = np.arange(max(int(np.ceil(run.duration_s - _NS)), 1), dtype=np.float64)
    # Within a piece routes do not change, and their delays are nearly linear.
    edges_s = np.unique(np.concatenate([seconds, there.t_s, back.t_s, [run.duration_s]]))
    edges_s = edges_s[edges_s <= run.duration_s]
    lengths_s, middles_s = np.diff(edges_s), (edges_s[1:] + edges_s[:-1]) / 2
    rtts_ms = np.array([
        _rtt_ms(network, ends, (there, back), at_s) for at_s in middles_s.tolist()
    ])  # fmt: skip
    known = np.isfinite(rtts_ms)
    rows = middles_s[known].astype(np.int64)
    sums = np.bincount(rows, (rtts_ms * lengths_s)[known], len(seconds))
    held_s = np.bincount(rows, lengths_s[known], len(seconds))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(held_s > 0, sums / held_s, np.nan), dtype=np.float64)


def _rtt_ms(
    network: Network, ends: tuple[str, str], routes: tuple[RouteSeries, RouteSeries], at_s: float
) -> float:
    """Return the RTT over the routes there and back at a time; NaN without one of them."""
    satellites_m = network.satellites_m(at_s)
    sites = [network.site(name) for name in ends]
    total_m = 0.0
    for route, (sender, receiver) in zip(routes, (sites, sites[::-1]), strict=True):
        satellites = route.satellites[_place_at(route, np.array([at_s]))[0]]
        if not satellites or sender is None or receiver is None:
            return np.nan
        nodes_m = [sender.position_m, *satellites_m[list(satellites)], receiver.position_m]
        total_m += float(np.linalg.norm(np.diff(nodes_m, axis=0), axis=1).sum())
    return 1e3 * total_m / LIGHT_M_PER_S


def _place_at(route: RouteSeries, t_s: FloatArray) -> IntArray:
    """Return the index of the route that holds at each time."""
    return np.maximum(np.searchsorted(route.t_s, t_s + _NS, side="right") - 1, 0).astype(np.int64)
