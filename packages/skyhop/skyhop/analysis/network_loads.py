"""Loads of a network's links over time: utilisation, queue, losses and marks of each direction."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from skyhop._core import DIRECTIONS
from skyhop.data.arrays import FloatArray, IntArray
from skyhop.data.quantities import seconds_or_none
from skyhop.data.records import LinkSeries, RunRecord

ChannelKind: TypeAlias = Literal["laser", "downlink", "uplink"]

_LASER = re.compile(r"satellite (\d+) - (\d+)")
_DOWNLINK = re.compile(r"satellite (\d+) - (sites|gateways)")
_OWN_DOWNLINK = re.compile(r"satellites - (.*)", re.DOTALL)
_UPLINK = re.compile(r"(.*) - satellites", re.DOTALL)

_NS = 1e-9
"""A nanosecond in s: a sample at an edge describes the interval that ends there."""


@dataclass(frozen=True)
class Channel:
    """One direction of a link: a transmitter with its queue."""

    link: str
    """Name of the link in link.parquet."""
    direction: str
    """Direction of packets: forward or back."""
    kind: ChannelKind
    satellites: tuple[int, ...]
    """Satellites at its ends, the sending one first: two of a laser, one of a shared downlink."""
    site: str = ""
    """Site that sends, of an uplink, or that has downlinks of its own; empty for other kinds."""
    receiver: str = ""
    """Receiving nodes, of an uplink or a downlink."""

    @property
    def sender(self) -> str:
        """Name of the node that sends: a satellite, a site, or all satellites."""
        if self.kind == "uplink":
            return self.site
        return f"satellite {self.satellites[0]}" if self.satellites else "satellites"

    @property
    def node(self) -> str:
        """Name of the node to which the direction belongs: the sender, or the site with its own."""
        return self.site or self.sender

    @property
    def text(self) -> str:
        """Name of the direction for readers, with its sender first."""
        if self.kind == "laser":
            return "satellite {} \N{RIGHTWARDS ARROW} {}".format(*self.satellites)
        return f"{self.sender} \N{RIGHTWARDS ARROW} {self.receiver}"


@dataclass(frozen=True)
class Loads:
    """Loads of n directions of links in k intervals, arrays of shape (n, k) unless noted."""

    channels: Sequence[Channel]
    edges_s: FloatArray
    """Ends of the intervals in s since the run's start, shape (k + 1,)."""
    utilisation: FloatArray
    """Bytes on the wire, with the background's, divided by those that the rate allowed, 0 to 1."""
    carried_mbps: FloatArray
    """Packets that arrived at the far end, with Ethernet headers, Mbit/s."""
    backlog_bytes: FloatArray
    """Mean bytes in the queue, over the samples of the interval."""
    drops: FloatArray
    """Packets lost, for all reasons."""
    marks: FloatArray
    """Packets marked with congestion experienced (ECN)."""
    busiest_s: FloatArray
    """Time by which each direction had carried half of its bytes, shape (n,)."""


def busiest_of_satellites(loads: Loads) -> dict[int, int]:
    """Return the row of the most used shared downlink of each satellite."""
    rows = [row for row, channel in enumerate(loads.channels) if channel.kind == "downlink"]
    shared = [row for row in rows if loads.channels[row].satellites]
    shared.sort(key=lambda row: float(loads.utilisation[row].sum()))
    return {loads.channels[row].satellites[0]: row for row in shared}


def busiest_of_sites(loads: Loads) -> dict[str, int]:
    """Return the row of each site's most used link: its uplink, or downlinks of its own."""
    rows = [row for row, channel in enumerate(loads.channels) if channel.site]
    rows.sort(key=lambda row: float(loads.utilisation[row].sum()))
    return {loads.channels[row].site: row for row in rows}


def channel_of(link: str, direction: str) -> Channel | None:
    """Return the direction of a link by its name in link.parquet; None for an unknown name."""
    if found := _LASER.fullmatch(link):
        ends = tuple(map(int, found.groups()))
        there = direction == DIRECTIONS[0]
        return Channel(link, direction, "laser", ends if there else ends[::-1])
    if found := _DOWNLINK.fullmatch(link):
        return Channel(link, direction, "downlink", (int(found[1]),), receiver=found[2])
    if found := _OWN_DOWNLINK.fullmatch(link):
        return Channel(link, direction, "downlink", (), found[1], found[1])
    if found := _UPLINK.fullmatch(link):
        return Channel(link, direction, "uplink", (), found[1], "satellites")
    return None


def loads_of(run: RunRecord, edges_s: Sequence[float] | FloatArray | None = None) -> Loads:
    """Return the loads of all directions of links that carried or lost something.

    Args:
        run: a run over a network.
        edges_s: ends of the intervals in s, ascending; by default one interval, the whole run.

    The utilisation of an interval is that of the whole run, shared out by the bytes that arrived
    in the interval and those of the background, as link.parquet has no bytes on the wire.
    """
    edges = np.array([0.0, run.duration_s] if edges_s is None else edges_s, np.float64)
    found = [(channel, series) for channel, series in _channels(run) if _is_used(series)]
    shape = (len(found), len(edges) - 1)
    utilisation, carried, backlog, drops, marks = (np.zeros(shape) for _ in range(5))
    busiest_s = np.zeros(len(found))
    lengths_s = np.maximum(np.diff(edges), 1e-9)
    samples = np.maximum(np.round(lengths_s / sample_s(run)), 1.0)
    for row, (channel, series) in enumerate(found):
        bins = np.searchsorted(edges, series.t_s - _NS, side="right") - 1

        def sums(values: FloatArray, bins: IntArray = bins) -> FloatArray:
            within = (bins >= 0) & (bins < shape[1])
            return np.bincount(bins[within], values[within], shape[1]).astype(np.float64)

        arrived = sums(series.delivered_bytes)
        carried[row] = arrived * 8e-6 / lengths_s
        utilisation[row] = sums(load_by_sample(run, channel, series)) * sample_s(run) / lengths_s
        backlog[row] = sums(series.backlog_bytes) / samples
        drops[row] = np.sum([sums(lost) for lost in series.drops.values()], axis=0)
        marks[row] = sums(series.marks)
        busiest_s[row] = _half_s(series)
    channels = [channel for channel, _ in found]
    return Loads(channels, edges, utilisation, carried, backlog, drops, marks, busiest_s)


def load_by_sample(run: RunRecord, channel: Channel, series: LinkSeries) -> FloatArray:
    """Return the utilisation of a direction, 0 to 1, in each sample of its series, shape (n,)."""
    loaded = _all_bytes(series)
    whole = float(loaded.sum()) * sample_s(run) / max(run.duration_s, 1e-9)
    return _used(run, channel) * loaded / whole if whole > 0 else np.zeros(len(loaded))


def _channels(run: RunRecord) -> Sequence[tuple[Channel, LinkSeries]]:
    found = []
    for label, series in run.link.items():
        name, back, rest = label.rpartition(f" {DIRECTIONS[1]}")
        is_back = bool(back) and not rest and name in run.link
        of_link = name if is_back else label
        channel = channel_of(of_link, DIRECTIONS[int(is_back)])
        if channel is not None:
            found.append((channel, series))
    return found


def _is_used(series: LinkSeries) -> bool:
    return bool(_all_bytes(series).any() or any(lost.any() for lost in series.drops.values()))


def _all_bytes(series: LinkSeries) -> FloatArray:
    """Return the bytes of packets and of the background, by sample."""
    return series.delivered_bytes + series.background_bytes


def _used(run: RunRecord, channel: Channel) -> float:
    """Return the utilisation of a direction over the whole run."""
    links: Mapping[str, Mapping[str, float]] = run.summary.get("links") or {}
    key = "utilisation" if channel.direction == DIRECTIONS[0] else "utilisation_back"
    return float(links.get(channel.link, {}).get(key) or 0.0)


def _half_s(series: LinkSeries) -> float:
    """Return the time by which half of the bytes had arrived; without bytes, of the first row."""
    arrived = np.cumsum(_all_bytes(series))
    place = int(np.searchsorted(arrived, arrived[-1] / 2)) if arrived[-1] > 0 else 0
    return float(series.t_s[place])


def sample_s(run: RunRecord) -> float:
    """Return the time between two samples in s."""
    of_run = run.scenario.get("run")
    text = of_run.get("sample") if isinstance(of_run, Mapping) else None
    return seconds_or_none(text) or max(run.duration_s, 1e-9)
