"""Rows and curves of a portrait from packet times: how the rate comes in milliseconds."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from skyhop.analysis.portrait_curves import Curve
from skyhop.analysis.portrait_rows import BINS_MS
from skyhop.data.arrays import FloatArray, IntArray

_LEAST_BINS = 8
"""Least number of bins from which a spread is given."""
_WINDOW_MS = 1000
"""Length of a window of the spectrum in ms: lines are 1 Hz apart."""
_FAR_HZ = 40
"""Distance in Hz over which the median of the spectrum is taken around each line."""
_TIMES = 10.0
"""Ratio of a line's power to the median around it, from which it is a line."""
_LEAST_HZ = 10
"""Lowest frequency of a line; below it, holes and slow changes of the rate have their power."""
_MOST_LINES = 8
_LEAST_POWER = 1e-6
"""Least power between lines, as a share of the strongest line's."""
_NEAR_HZ = 3
"""Distance in Hz within which only the strongest line counts."""


def packet_rows(per_ms: IntArray) -> dict[str, float]:
    """Return the values of a portrait's rows that the number of packets per ms tells, by key."""
    empty = np.concatenate([[0], (per_ms == 0).astype(np.int8), [0]])
    edges = np.flatnonzero(np.diff(empty))
    holes = edges[1::2] - edges[::2]
    values = {
        "ms_empty_percent": 100 * float((per_ms == 0).mean()),
        "ms_hole_longest_ms": float(holes.max(initial=0)),
    }
    for length in BINS_MS:
        spread = _spread(per_ms, length)
        if spread is not None:
            values[f"ms_spread_{length}ms"] = spread
    return values


def packet_curves(per_ms: IntArray) -> dict[str, Curve]:
    """Return the curves of a portrait that the number of packets per ms tells, by panel."""
    lengths = [1, 2, 3, 4, 6, 8, 10, 15, 20, 50, 100, 200, 500, 1000, 2000, 5000]
    spreads = {length: _spread(per_ms, length) for length in lengths}
    known = [(length, spread) for length, spread in spreads.items() if spread is not None]
    curves = {}
    if known:
        x, y = np.array(known, dtype=np.float64).T
        curves["spread"] = Curve(x, y)
    found = _spectrum(per_ms)
    if found is not None:
        curves["spectrum"] = Curve(np.arange(1.0, len(found)), found[1:])
    return curves


def spectral_lines_hz(per_ms: IntArray) -> tuple[float, ...]:
    """Return the strongest lines of the spectrum, in ascending order."""
    power = _spectrum(per_ms)
    if power is None:
        return ()
    lines: list[int] = []
    for place in np.argsort(-power).tolist():
        if power[place] < _TIMES or len(lines) == _MOST_LINES:
            break
        near = power[max(place - _NEAR_HZ, 1) : place + _NEAR_HZ + 1]
        if place >= _LEAST_HZ and power[place] == near.max():
            lines.append(place)
    return tuple(float(line) for line in sorted(lines))


def _spread(per_ms: IntArray, length: int) -> float | None:
    """Return standard deviation over mean of the packets in bins of `length` ms."""
    bins = per_ms[: len(per_ms) // length * length].reshape(-1, length).sum(axis=1)
    if len(bins) < _LEAST_BINS or bins.sum() == 0:
        return None
    return float(bins.std() / bins.mean())


def _spectrum(per_ms: IntArray) -> FloatArray | None:
    """Return the power at each Hz over the median around it; None for less than two windows.

    The spectrum is the mean over windows of 1 s that overlap by half (Welch).
    """
    if len(per_ms) < 2 * _WINDOW_MS:
        return None
    windows = sliding_window_view(per_ms - per_ms.mean(), _WINDOW_MS)[:: _WINDOW_MS // 2]
    # The mean of each window would leak into the lowest lines.
    centred = windows - windows.mean(axis=1, keepdims=True)
    power = (np.abs(np.fft.rfft(centred * np.hanning(_WINDOW_MS), axis=1)) ** 2).mean(axis=0)
    around = np.array([
        np.median(power[max(place - _FAR_HZ, 1) : place + _FAR_HZ + 1])
        for place in range(len(power))
    ])  # fmt: skip
    # An exactly periodic trace has no power between its lines.
    return np.asarray(power / np.maximum(around, max(_LEAST_POWER * power.max(), 1e-300)))
