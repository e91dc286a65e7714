"""Marks of the grid at which an access link is reconfigured: given, of UTC, or estimated.

Starlink's marks are at the seconds 12, 27, 42 and 57 of UTC. Whether a measurement shows a grid,
and where its marks are by the clock of the measurement, is estimated from the measurement itself:
by blind estimation from round trips, and from losses, delays or rates folded at the period.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from skyhop import _core
from skyhop.data.arrays import FloatArray, IntArray
from skyhop.telemetry.measured_link import MeasuredLink, RoundTrips, Series

PERIOD_S = 15.0
UTC_MARK_S = 12.0
"""Phase of Starlink's marks in UTC, in seconds."""

Origin = Literal["given", "utc", "assumed", "estimated", "none", "short"]

_NEAR_S = 0.25
"""Largest distance in seconds of an estimate from UTC's marks that the estimate's error explains.

Series of 100 ms see a mark a step or two early or late.
"""
_LEAST_SLOTS = 12
"""Least number of slots from which the marks are estimated."""
_DIP_S = 2.0
"""Time in seconds by which a dip of the rate may lie before its mark."""
_DENSE_S = 0.05
"""Longest interval of probes that show the marks better than series."""
_EPOCH_S = 1_500_000_000
"""Time in seconds since 1970 at which a clock of its own is put for the core's estimate."""
_CLEAR = 6.0
"""Standard errors by which the mean rank of a phase exceeds that of all phases, if it is a mark."""
_HIGH = 0.8
"""Share of the peak from which a step before it belongs to the mark."""
_REACH_S = 0.5
"""Time in seconds before a peak in which its mark is looked for."""


@dataclass(frozen=True)
class Grid:
    """Marks by the clock of a measurement: at `mark_s`, and every `period_s` from there."""

    period_s: float
    mark_s: float | None
    """Phase of the marks in seconds, 0 to `period_s`; None without a grid."""
    origin: Origin
    """Source of the marks.

    "given" by the user, "utc" if they are UTC's and the log shows them, "assumed" if they are UTC's
    and the log is too short to show them, "estimated" from the log; "none" if the log shows no
    grid, "short" if it is too short to tell and has a clock of its own.
    """

    @property
    def text(self) -> str:
        """Description of the marks, for a line of text."""
        every = f"every {self.period_s:g} s"
        if self.mark_s is None:
            is_short = self.origin == "short"
            why = "too short to tell the marks" if is_short else f"no grid of {self.period_s:g} s"
            return f"{why}: no rows by phase"
        of = {
            "given": "as given",
            "utc": "UTC's, found in the log",
            "assumed": "UTC's, not looked for: the log is too short",
            "estimated": "estimated from the log",
        }[self.origin]
        return f"marks {every} at {float(f'{self.mark_s:.3f}'):g} s ({of})"

    def phases(self, start_ns: int, t_s: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return the slots and the phases (s, from the mark) of times since `start_ns`.

        Without a grid, slots count from the clock's zero.
        """
        period_ns = round(self.period_s * 1e9)
        offset_ns = (start_ns - round((self.mark_s or 0) * 1e9)) % period_ns
        since_s = offset_ns / 1e9 + t_s
        # A time a rounding error before a mark belongs to the mark.
        slots = np.floor(since_s / self.period_s + 1e-9).astype(np.int64)
        return slots, np.maximum(since_s - slots * self.period_s, 0.0)


def find_grid(link: MeasuredLink, given_s: float | None, period_s: float = PERIOD_S) -> Grid:
    """Return the marks of a link.

    Args:
        link: the measurement.
        given_s: phase of the marks by the measurement's clock, in seconds; None to look for it.
        period_s: time between two marks in seconds.
    """
    if given_s is not None:
        return Grid(period_s, given_s % period_s, "given")
    # The grid of another period has marks of its own.
    utc_s = UTC_MARK_S if link.is_utc and period_s == PERIOD_S else None
    if link.duration_s < _LEAST_SLOTS * period_s:
        return Grid(period_s, utc_s, "short" if utc_s is None else "assumed")
    found_s = _estimate(link, period_s)
    if found_s is None:
        return Grid(period_s, None, "none")
    if utc_s is not None and abs(_apart_s(found_s, utc_s, period_s)) <= max(
        _NEAR_S, _grain_s(link)
    ):
        return Grid(period_s, utc_s, "utc")
    return Grid(period_s, found_s, "estimated")


def _grain_s(link: MeasuredLink) -> float:
    """Return the time in seconds by which coarse data leave an estimate open."""
    if link.round_trips is not None:
        return link.round_trips.interval_s
    if all(one.loss is None and one.delay_ms is None for one in link.series.values()):
        return _DIP_S
    return max((one.step_s for one in link.series.values()), default=0.0)


def _apart_s(one_s: float, other_s: float, period_s: float) -> float:
    return (one_s - other_s + period_s / 2) % period_s - period_s / 2


def _estimate(link: MeasuredLink, period_s: float) -> float | None:
    """Return the phase of the marks by the link's clock; None if the link shows no grid."""
    trips = link.round_trips
    from_series_s = _from_series(link, period_s)
    if trips is None or (from_series_s is not None and trips.interval_s > _DENSE_S):
        return from_series_s
    found_s = _blind(trips, link.start_ns, period_s)
    return from_series_s if found_s is None else found_s


def _from_series(link: MeasuredLink, period_s: float) -> float | None:
    """Return the phase of the marks that the series of a link show; None if they show none."""
    start_s = (link.start_ns % round(period_s * 1e9)) / 1e9
    found = [mark for one in link.series.values() for mark in _marks_of(one, period_s)]
    if not found:
        return None
    # The effect of one mark reaches the two directions at different times: the first counts.
    clearest = max(found, key=lambda mark: mark.clarity)
    near = [_apart_s(mark.at_s, clearest.at_s, period_s) for mark in found]
    first_s = min(apart_s for apart_s in near if abs(apart_s) <= _REACH_S)
    return (start_s + clearest.at_s + first_s) % period_s


def _blind(trips: RoundTrips, start_ns: int, period_s: float) -> float | None:
    """Return the core's blind estimate from round trips: the phase by the log's clock."""
    period_ns = round(period_s * 1e9)
    begin_ns = -(-_EPOCH_S * 10**9 // period_ns) * period_ns + start_ns % period_ns
    at_ns = begin_ns + np.rint(trips.answered_s * 1e9).astype(np.int64)
    rows = (f"{at},{rtt}" for at, rtt in zip(at_ns.tolist(), trips.rtt_ms.tolist(), strict=True))
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log.csv"
        log.write_text("unix_ns,rtt_ms\n" + "\n".join(rows) + "\n", "utf-8")
        return _core.estimate_blindly(str(log), "csv", f"{period_s:g} s").offset_s


@dataclass(frozen=True)
class _Mark:
    at_s: float
    """Phase in seconds from the link's start."""
    clarity: float
    """Standard errors by which the mark exceeds other phases."""


def _marks_of(series: Series, period_s: float) -> Iterator[_Mark]:
    """Yield the marks that losses and delays show; what rates show, only without these."""
    known = [values for values in (series.loss, series.delay_ms) if values is not None]
    if not known and series.rate_mbps is not None:
        known = [-series.rate_mbps]
    per_slot = round(period_s / series.step_s)
    if per_slot < 2 or abs(per_slot * series.step_s - period_s) > 1e-6:  # noqa: PLR2004
        return
    for values in known:
        mark = _fold(values, per_slot)
        if mark is not None:
            place, clarity = mark
            yield _Mark(series.begin_s + place * series.step_s, clarity)


def _fold(values: FloatArray, per_slot: int) -> tuple[int, float] | None:
    """Return the step of a slot at which values rise at a mark, and how clear it is."""
    rows = values[: len(values) // per_slot * per_slot].reshape(-1, per_slot)
    rows = rows[np.isfinite(rows).all(axis=1)]
    if len(rows) < _LEAST_SLOTS:
        return None
    ranks = np.array([_ranks(row) for row in rows])
    spread = ranks.std()
    if spread == 0:
        return None
    clear = (ranks.mean(axis=0) - ranks.mean()) / (spread / np.sqrt(len(rows)))
    peak = int(clear.argmax())
    if clear[peak] < _CLEAR:
        return None
    means = rows.mean(axis=0)
    floor = float(np.median(means))
    level = floor + _HIGH * (means[peak] - floor)
    first = peak
    for back in range(1, per_slot // 4):
        if means[(peak - back) % per_slot] < level:
            break
        first = peak - back
    return first % per_slot, float(clear[peak])


def _ranks(values: FloatArray) -> FloatArray:
    """Return the ranks of values, 0 to 1; equal values share their mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - counts / 2)[places] / len(values))
