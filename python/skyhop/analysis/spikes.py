"""Spikes of latency that last: the T3P paper's figure 3a, as a detector.

A spike is where the running median over 1 s stays above twice the median of its window for 3 s or
longer. Lost probes do not end it, a gap does. The operator plans anew at seconds 12, 27, 42, 57;
whether a spike begins and ends there is reported, with what chance would give.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from skyhop.data.arrays import BoolArray, FloatArray, IntArray
from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME

TIMES_MEDIAN = 2.0
LEAST_S = 3.0
WINDOW_S = 900.0
PERIOD_S, OFFSET_S = 15.0, 12.0
NEAR_GRID_S = 1.0
NEAR_EDGE_S = 2.0
BY_CHANCE = 2 * NEAR_GRID_S / PERIOD_S
"""The share of moments that lie near the grid."""
_RUNNING_S = 1.0
_SPARSE_S = 0.9
"""With as much or more from one value to the next, a value is its own running median."""
_FEWEST = 10


@dataclass(frozen=True)
class Series:
    """Latency over time.

    Attributes:
        time_ns: when each value was known, shape (n,), rising.
        latency_ms: NaN where it is not known or lost.
        loss: 0 to 1, NaN where it is not known.
        each_s: how long before its time a value holds: 1 for seconds, 0 for single probes.
        name: whose.
    """

    time_ns: IntArray
    latency_ms: FloatArray
    loss: FloatArray
    each_s: float
    name: str


@dataclass(frozen=True)
class Spike:
    """One spike."""

    start_ns: int
    length_s: float
    peak_ms: float
    """The highest running median."""
    times_median: float
    """The peak, in medians of its window."""
    starts_on_grid: bool
    ends_on_grid: bool
    loss_at_edges: float | None
    """Within 2 s of its start or end, 0 to 1; None where losses are not known."""


@dataclass(frozen=True)
class Spikes:
    """What was found, and what a figure shows of it.

    Attributes:
        spikes: in their order.
        series: in which.
        running_ms: the running median at the series' times.
        limit_ms: twice the median of the window, likewise.
        median_ms: of all.
        share_above: of the time, in which the running median was above the limit.
        hours: how long was looked at, without gaps.
    """

    spikes: Sequence[Spike]
    series: Series
    running_ms: FloatArray
    limit_ms: FloatArray
    median_ms: float
    share_above: float
    hours: float

    @property
    def title(self) -> str:
        """What a figure of it is called."""
        count = len(self.spikes)
        long = f"{self.hours:.2f} h" if self.hours >= 1 else f"{60 * self.hours:.1f} min"
        return (
            f"{self.series.name}: {count or 'no'} {'spike' if count == 1 else 'spikes'} above "
            f"{TIMES_MEDIAN:g} x the median of {self.median_ms:.1f} ms, in {long}"
        )

    def on_grid(self) -> tuple[float, float] | None:
        """Return which shares of spikes start and end near the grid; None without any."""
        if not self.spikes:
            return None
        starts = [spike.starts_on_grid for spike in self.spikes]
        ends = [spike.ends_on_grid for spike in self.spikes]
        return sum(starts) / len(starts), sum(ends) / len(ends)


def series_of(frame: pl.DataFrame, field: str, loss: str, name: str) -> Series:
    """Return a field of one node's telemetry as a series.

    Args:
        frame: of `Store.read`, with `field` and `loss`.
        field: the latency, in ms.
        loss: its losses.
        name: whose.

    Raises:
        InputError: the frame is of several nodes.
    """
    if frame["node"].n_unique() > 1:
        raise InputError("spikes are of one terminal: name one with --node")
    known = frame.filter(pl.col(field).is_not_null() | pl.col(loss).is_not_null()).sort(TIME)
    return Series(
        known[TIME].to_numpy(),
        known[field].cast(pl.Float64).fill_null(np.nan).to_numpy(),
        known[loss].cast(pl.Float64).fill_null(np.nan).to_numpy(),
        1.0,
        name,
    )


def find_spikes(series: Series, window_s: float = WINDOW_S) -> Spikes:
    """Find the spikes of a series.

    Args:
        series: of at least ten values.
        window_s: of which a spike is twice the median; windows follow each other.

    Raises:
        InputError: there are too few values, or the window is shorter than a spike.
    """
    if not window_s >= LEAST_S:
        raise InputError(f"--window: has to be {LEAST_S:g} s or longer")
    if np.isfinite(series.latency_ms).sum() < _FEWEST:
        raise InputError(f"{series.name}: spikes need {_FEWEST} values or more")
    order = np.argsort(series.time_ns, kind="stable")
    series = Series(
        series.time_ns[order], series.latency_ms[order], series.loss[order], series.each_s,
        series.name,
    )  # fmt: skip
    at_s = (series.time_ns - series.time_ns[0]) / 1e9
    running_ms = _running(at_s, series.latency_ms, series.each_s)
    limit_ms = TIMES_MEDIAN * _window_medians(at_s, series.latency_ms, window_s)
    with np.errstate(invalid="ignore"):
        above = running_ms > limit_ms
    held_s = _held(at_s, series.each_s)
    known = np.isfinite(running_ms)
    spikes = [
        _spike(series, running_ms, limit_ms, first, last)
        for first, last in _stretches(at_s, above, known)
        if at_s[last] - at_s[first] + series.each_s >= LEAST_S
    ]
    return Spikes(
        spikes, series, running_ms, limit_ms,
        float(np.nanmedian(series.latency_ms)),
        float(held_s[above].sum() / max(held_s[known].sum(), 1e-9)),
        float(held_s.sum() / 3600),
    )  # fmt: skip


def _running(at_s: FloatArray, latency_ms: FloatArray, each_s: float) -> FloatArray:
    """Return the median of the second around each value."""
    if each_s >= _SPARSE_S:
        return latency_ms
    frame = pl.DataFrame({"at": np.round(at_s * 1e9).astype(np.int64), "value": latency_ms})
    # What is lost has no latency, and does not count in a median.
    values = frame.with_columns(pl.col("value").fill_nan(None)).drop_nulls()
    half = round(_RUNNING_S / 2 * 1e9)
    medians = values.with_columns(
        pl.col("value").rolling_median_by("at", window_size=f"{2 * half}i", closed="both"),
        # The window reaches back; its middle is half of it earlier.
        middle=pl.col("at") - half,
    ).unique("middle", keep="last", maintain_order=True)
    found = frame.join_asof(medians.select("value", at="middle"), on="at", strategy="nearest",
                            tolerance=half)  # fmt: skip
    return found["value_right"].fill_null(np.nan).to_numpy()


def _window_medians(at_s: FloatArray, latency_ms: FloatArray, window_s: float) -> FloatArray:
    """Return the median of each value's window."""
    frame = pl.DataFrame({"window": (at_s // window_s).astype(np.int64), "value": latency_ms})
    of_window = frame.select(
        pl.col("value").fill_nan(None).median().over("window").fill_null(np.nan)
    )
    return of_window.to_series().to_numpy()


def _held(at_s: FloatArray, each_s: float) -> FloatArray:
    """Return how long each value holds: until the next one, at most a second."""
    return np.minimum(np.diff(at_s, append=at_s[-1] + each_s), _RUNNING_S)


def _stretches(at_s: FloatArray, above: BoolArray, known: BoolArray) -> Iterator[tuple[int, int]]:
    """Yield the first and last places of stretches above; what is lost is passed over."""
    first = last = -1
    for place in map(int, np.flatnonzero(known)):
        is_gap = last >= 0 and at_s[place] - at_s[last] > LEAST_S
        if first >= 0 and (is_gap or not above[place]):
            yield first, last
            first = -1
        if above[place]:
            first, last = (place if first < 0 else first), place
    if first >= 0:
        yield first, last


def _spike(
    series: Series, running_ms: FloatArray, limit_ms: FloatArray, first: int, last: int
) -> Spike:
    each_ns = round(series.each_s * 1e9)
    start_ns, end_ns = int(series.time_ns[first]) - each_ns, int(series.time_ns[last])
    peak_ms = float(np.nanmax(running_ms[first : last + 1]))
    # A second overlaps the two seconds around an edge by its middle.
    middles = series.time_ns - each_ns // 2
    near = np.zeros(len(middles), bool)
    for edge_ns in (start_ns, end_ns):
        near |= np.abs(middles - edge_ns) <= NEAR_EDGE_S * 1e9
    lost = series.loss[near]
    lost = lost[np.isfinite(lost)]
    return Spike(
        start_ns,
        (end_ns - start_ns) / 1e9,
        peak_ms,
        peak_ms / float(limit_ms[first]) * TIMES_MEDIAN,
        _is_near_grid(start_ns),
        _is_near_grid(end_ns),
        float(lost.mean()) if len(lost) else None,
    )


def _is_near_grid(at_ns: int) -> bool:
    """Tell whether a moment in UTC lies within 1 s of the grid."""
    period_ns = round(PERIOD_S * 1e9)
    since = (at_ns - round(OFFSET_S * 1e9)) % period_ns
    return bool(min(since, period_ns - since) <= NEAR_GRID_S * 1e9)
