"""Paths rebuilt from pings in several ways.

A curve is a delay over time: times in ns, which never decrease, and delays in ns. Between two times
the delay is linear; with two values at one time, the second holds from 1 ns later on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

import skyhop
from skyhop.data.arrays import FloatArray, IntArray

Curve = tuple[FloatArray, FloatArray]
LOST_IN_A_ROW = 3
"""Minimum number of missing pings that count as an outage, as in the importer."""
STEP_NS = 12_000_000
"""Time for which a delay holds that is drawn from the pings nearby."""
NEARBY = 5
"""Number of pings on each side from which it is drawn."""
ROUNDING_NS = 1_000
"""Time by which packets that turn together may differ, because delays have whole ns."""
_END = {"latitude_deg": None, "longitude_deg": None}
_HEADER = {
    "schema": 1,
    "source": "rebuilt",
    "from": {"name": "from", **_END},
    "to": {"name": "to", **_END},
    "satellites": 0,
    "step_ns": STEP_NS,
    "between_frames": "linear",
    "seed": 0,
    **dict.fromkeys(("constellation", "relay", "handover", "outage", "compat", "start")),
}
_COLUMNS = "t_ns,nodes,hop_delay_ns,delay_ns,delay_back_ns,rate_bps,loss,events"


@dataclass(frozen=True)
class Pings:
    """Answered pings in the order of sending.

    Attributes:
        sent_ns: sending times, from 0 on.
        rtt_ns: round trips.
    """

    sent_ns: FloatArray
    rtt_ns: FloatArray

    def each(self, n: int) -> Pings:
        """Return every n-th ping."""
        return Pings(self.sent_ns[::n], self.rtt_ns[::n])

    def between(self, from_ns: float, until_ns: float) -> Pings:
        """Return the pings of a time, on a clock that begins with the first of them."""
        first, end = np.searchsorted(self.sent_ns, (from_ns, until_ns))
        sent_ns = self.sent_ns[first:end]
        return Pings(sent_ns - sent_ns[0], self.rtt_ns[first:end])

    def split(self, share: float) -> tuple[FloatArray, FloatArray]:
        """Return the delays there and back; `share` of the variation belongs to the way there."""
        floor_ns = self.rtt_ns.min()
        there_ns = floor_ns / 2 + share * (self.rtt_ns - floor_ns)
        return there_ns, self.rtt_ns - there_ns

    def outages_ns(self) -> list[tuple[int, int]]:
        """Return begin and end of each outage, by the importer's rule."""
        gaps_ns = np.diff(self.sent_ns)
        lost = np.rint(gaps_ns / np.median(gaps_ns)) - 1
        down_ns = self.sent_ns[:-1] + gaps_ns / (lost + 1) + self.rtt_ns[:-1] / 2
        found = (lost >= LOST_IN_A_ROW) & (down_ns < self.sent_ns[1:])
        edges = zip(down_ns[found].tolist(), self.sent_ns[1:][found].tolist(), strict=True)
        return [(round(begin_ns), round(end_ns)) for begin_ns, end_ns in edges]

    def write_log(self, file: Path) -> None:
        """Write sending times and round trips as a log that skyhop imports."""
        rows = zip(self.sent_ns / 1e9, self.rtt_ns / 1e6, strict=True)
        lines = ["sent_s,rtt_ms", *(f"{sent_s:.9f},{rtt_ms:.6f}" for sent_s, rtt_ms in rows)]
        file.write_text("\n".join(lines) + "\n", "utf-8")


Way = Callable[[Pings], tuple[Curve, Curve]]
"""Way to turn pings into the delays there, by sending time, and back, by the time of turning."""


def at_sending(pings: Pings, share: float = 0.5) -> tuple[Curve, Curve]:
    """Let each ping's delays hold from its sending on, and back from its turning on."""
    there_ns, back_ns = pings.split(share)
    turns_ns = np.maximum.accumulate(pings.sent_ns + there_ns)
    return _stairs(pings.sent_ns[1:], there_ns), _stairs(turns_ns[1:], back_ns)


def linear(pings: Pings, share: float = 0.5) -> tuple[Curve, Curve]:
    """Interpolate the delays between two pings, which interpolates their arrivals, too."""
    there_ns, back_ns = pings.split(share)
    turns_ns = np.maximum.accumulate(pings.sent_ns + there_ns)
    return (pings.sent_ns, there_ns), (turns_ns, back_ns)


def hold(pings: Pings) -> tuple[Curve, Curve]:
    """Let packets between two pings arrive with the later one, at the far end and back."""
    turns_ns = np.maximum.accumulate(pings.sent_ns + pings.split(0.5)[0])
    answered_ns = np.maximum.accumulate(pings.sent_ns + pings.rtt_ns)
    # Packets that turn with a ping do so at its time only up to rounding.
    back = _leaving_together(turns_ns + ROUNDING_NS, answered_ns)
    return _leaving_together(pings.sent_ns, turns_ns), back


def nearby(pings: Pings) -> tuple[Curve, Curve]:
    """Draw the delay of each 12 ms from the pings nearby; when a ping is sent, it has its own."""
    duration_ns = pings.sent_ns[-1]
    sent_ns = np.arange(0, duration_ns, STEP_NS, dtype=np.float64)
    nearest = np.searchsorted(pings.sent_ns, sent_ns)
    drawn = nearest + np.random.default_rng(1).integers(-NEARBY, NEARBY + 1, len(sent_ns))
    rtt_ns = pings.rtt_ns[np.clip(drawn, 0, len(pings.rtt_ns) - 1)]
    to_next_ns = pings.sent_ns[nearest] - sent_ns
    since_last_ns = sent_ns - pings.sent_ns[np.maximum(nearest - 1, 0)]
    free = np.minimum(to_next_ns, np.abs(since_last_ns)) >= STEP_NS / 2
    sent_ns = np.concatenate([sent_ns[free], pings.sent_ns])
    order = np.argsort(sent_ns, kind="stable")
    return linear(Pings(sent_ns[order], np.concatenate([rtt_ns[free], pings.rtt_ns])[order]))


def _stairs(times_ns: FloatArray, values_ns: FloatArray) -> Curve:
    """Return a curve with the first value from 0 on, and the next one from each time on."""
    return np.concatenate([[0.0], np.repeat(times_ns - 1, 2)]), np.repeat(values_ns, 2)[:-1]


def _leaving_together(enter_ns: FloatArray, leave_ns: FloatArray) -> Curve:
    """Return the curve of packets that leave with the next ping."""
    times_ns = np.repeat(enter_ns, 2)[:-1]
    return times_ns, np.repeat(leave_ns, 2)[1:] - times_ns


IMPORTER = "halfway (the importer)"
WAYS: dict[str, Way] = {
    "at sending": at_sending,
    "linear": linear,
    "linear, all there": partial(linear, share=1.0),
    "hold": hold,
    "nearby": nearby,
}
"""Ways to rebuild a path other than the importer's."""


def import_pings(pings: Pings, file: Path) -> None:
    """Write the path that the importer makes of pings."""
    log = file.with_suffix(".csv")
    pings.write_log(log)
    skyhop.import_path(log).write(file)
    log.unlink()


def write_path(
    curves: tuple[Curve, Curve],
    duration_ns: int,
    file: Path,
    outages_ns: Sequence[tuple[int, int]] = (),
) -> None:
    """Write the path file of delays there and back."""
    jumping = [_with_jumps(curve) for curve in curves]
    edges_ns = np.array([0, *(edge for outage in outages_ns for edge in outage)], dtype=np.int64)
    times_ns = np.unique(np.concatenate([edges_ns, *(times_ns for times_ns, _ in jumping)]))
    times_ns = times_ns[(times_ns >= 0) & (times_ns < duration_ns)]
    ways = [np.rint(np.interp(times_ns, *curve)).astype(np.int64).tolist() for curve in jumping]
    down = np.zeros(len(times_ns), dtype=bool)
    for begin_ns, end_ns in outages_ns:
        down |= (times_ns >= begin_ns) & (times_ns < end_ns)
    lines = [f"# skyhop path {json.dumps({**_HEADER, 'duration_ns': duration_ns})}", _COLUMNS]
    for at_ns, there_ns, back_ns, is_down in zip(times_ns.tolist(), *ways, down, strict=True):
        delays = "," if is_down else f"{there_ns},{back_ns}"
        lines.append(f"{at_ns},,,{delays},,,")
    log = file.with_suffix(".csv")
    log.write_text("\n".join(lines) + "\n", "utf-8")
    skyhop.import_path(log, "csv").write(file)
    log.unlink()


def _with_jumps(curve: Curve) -> tuple[IntArray, FloatArray]:
    """Return a curve in whole ns whose times increase: the second value of a jump is 1 ns later."""
    index = np.arange(len(curve[0]))
    return np.maximum.accumulate(np.rint(curve[0]).astype(np.int64) - index) + index, curve[1]


def mean_rtt_ns(path: skyhop.Path, until_ns: int) -> float:
    """Return the mean round trip of a path up to a time, without its outages."""
    frames = path.frames.filter(pl.col("t_ns") < until_ns)
    rtt_ns = (frames["delay_ns"] + frames["delay_back_ns"]).cast(pl.Float64).to_numpy()
    lasts_ns = np.diff(frames["t_ns"].to_numpy(), append=until_ns)
    if path.header["between_frames"] == "linear":
        following = np.append(rtt_ns[1:], rtt_ns[-1])
        rtt_ns = np.where(np.isnan(following), rtt_ns, (rtt_ns + following) / 2)
    up = ~np.isnan(rtt_ns)
    return float(np.average(rtt_ns[up], weights=lasts_ns[up]))
