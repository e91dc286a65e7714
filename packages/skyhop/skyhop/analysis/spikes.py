"""Detector of sustained latency spikes, after the T3P paper's figure 3a.

A spike is a period of at least 3 s in which the running median over 1 s stays above twice the
median of its window. A gap in the data ends a spike; lost probes do not. The operator reschedules
at seconds 12, 27, 42 and 57 of each minute; the result has the share of spikes that begin and end
near these seconds, and the share expected by chance.
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
"""Share of spike edges expected near the grid by chance."""
_RUNNING_S = 1.0
_SPARSE_S = 0.9
"""Least time in s between values at which each value is its own running median."""
_FEWEST = 10


@dataclass(frozen=True)
class Series:
    """Latency over time.

    Attributes:
        time_ns: time of each value in ns since 1970, ascending, shape (n,).
        latency_ms: latency; NaN if not known, or if the probe was lost.
        loss: share of lost probes, 0 to 1; NaN if not known.
        each_s: length in s of the period before `time_ns` that a value is about: 1 for values per
            second, 0 for single probes.
        name: name of the node and the field.
    """

    time_ns: IntArray
    latency_ms: FloatArray
    loss: FloatArray
    each_s: float
    name: str


@dataclass(frozen=True)
class Spike:
    """One spike of latency."""

    start_ns: int
    length_s: float
    peak_ms: float
    """Highest running median within the spike."""
    times_median: float
    """Ratio of the peak to the median of the spike's window."""
    starts_on_grid: bool
    ends_on_grid: bool
    loss_at_edges: float | None
    """Share (0 to 1) of probes lost within 2 s of the spike's start or end; None if not known."""


@dataclass(frozen=True)
class Spikes:
    """Spikes of a series, and the curves that the figure shows.

    Attributes:
        spikes: spikes in order of time.
        series: the series that was searched.
        running_ms: running median at the series' times.
        limit_ms: twice the median of the window, at the series' times.
        median_ms: median latency of the whole series.
        share_above: share of time (0 to 1) in which the running median is above the limit.
        hours: length of the series without gaps, in hours.
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
        """Title of the figure."""
        count = len(self.spikes)
        long = f"{self.hours:.2f} h" if self.hours >= 1 else f"{60 * self.hours:.1f} min"
        return (
            f"{self.series.name}: {count or 'no'} {'spike' if count == 1 else 'spikes'} above "
            f"{TIMES_MEDIAN:g} x the median of {self.median_ms:.1f} ms, in {long}"
        )

    def on_grid(self) -> tuple[float, float] | None:
        """Return the shares of spikes that start and end near the grid; None without spikes."""
        if not self.spikes:
            return None
        starts = [spike.starts_on_grid for spike in self.spikes]
        ends = [spike.ends_on_grid for spike in self.spikes]
        return sum(starts) / len(starts), sum(ends) / len(ends)


def series_of(frame: pl.DataFrame, field: str, loss: str, name: str) -> Series:
    """Return a field of one node's telemetry as a series.

    Args:
        frame: telemetry with `field` and `loss`, as `Store.read` returns it.
        field: name of the latency field, in ms.
        loss: name of the field with the losses of the same probes.
        name: name of the series.

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
        series: series of at least ten values.
        window_s: length in s of the consecutive windows whose medians determine the limit.

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
    """Return the running median: for each value, the median of the 1 s around it."""
    if each_s >= _SPARSE_S:
        return latency_ms
    frame = pl.DataFrame({"at": np.round(at_s * 1e9).astype(np.int64), "value": latency_ms})
    # Lost probes have no latency and do not count in a median.
    values = frame.with_columns(pl.col("value").fill_nan(None)).drop_nulls()
    half = round(_RUNNING_S / 2 * 1e9)
    medians = values.with_columns(
        pl.col("value").rolling_median_by("at", window_size=f"{2 * half}i", closed="both"),
        # The window of polars ends at the value; its middle is half of its length earlier.
        middle=pl.col("at") - half,
    ).unique("middle", keep="last", maintain_order=True)
    found = frame.join_asof(medians.select("value", at="middle"), on="at", strategy="nearest",
                            tolerance=half)  # fmt: skip
    return found["value_right"].fill_null(np.nan).to_numpy()


def _window_medians(at_s: FloatArray, latency_ms: FloatArray, window_s: float) -> FloatArray:
    """Return, for each value, the median of its window."""
    frame = pl.DataFrame({"window": (at_s // window_s).astype(np.int64), "value": latency_ms})
    of_window = frame.select(
        pl.col("value").fill_nan(None).median().over("window").fill_null(np.nan)
    )
    return of_window.to_series().to_numpy()


def _held(at_s: FloatArray, each_s: float) -> FloatArray:
    """Return the time (s) for which each value holds: until the next value, at most 1 s."""
    return np.minimum(np.diff(at_s, append=at_s[-1] + each_s), _RUNNING_S)


def _stretches(at_s: FloatArray, above: BoolArray, known: BoolArray) -> Iterator[tuple[int, int]]:
    """Yield first and last index of each period above the limit; lost probes do not end it."""
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
    # A value per second belongs to the 2 s around an edge if the middle of its second does.
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
    """Return whether a time (UTC) lies within 1 s of a moment of the grid."""
    period_ns = round(PERIOD_S * 1e9)
    since = (at_ns - round(OFFSET_S * 1e9)) % period_ns
    return bool(min(since, period_ns - since) <= NEAR_GRID_S * 1e9)
