"""Times at which the bytes of a transfer have arrived."""

from __future__ import annotations

import numpy as np

from skyhop.data.arrays import FloatArray

_ROUNDED = 1e-6
"""Share of the bytes that may be missing in sums, because rates are rounded."""


def seconds_to(
    t_s: FloatArray, goodput_mbps: FloatArray, size_bytes: float, start_s: float
) -> float | None:
    """Return the time (s) from `start_s` until `size_bytes` have arrived; None if they never do.

    Args:
        t_s: ends of the samples, shape (n,).
        goodput_mbps: mean since the previous sample, or since the start, shape (n,).
        size_bytes: number of bytes.
        start_s: start of the transfer in s.

    Bytes are assumed to arrive evenly within a sample.
    """
    since_s = np.concatenate([[0.0], t_s[t_s > start_s] - start_s])
    rates = np.nan_to_num(goodput_mbps[t_s > start_s]) * 1e6 / 8
    arrived = np.concatenate([[0.0], np.cumsum(rates * np.diff(since_s))])
    if size_bytes <= 0:
        return 0.0
    # Goodput is in whole bit/s, so its sum may be slightly less than the whole transfer.
    if arrived[-1] < size_bytes * (1 - _ROUNDED):
        return None
    size_bytes = min(size_bytes, float(arrived[-1]))
    # First sample by whose end the bytes have arrived; samples after a transfer's end add nothing.
    place = max(int(np.searchsorted(arrived, size_bytes, side="left")), 1)
    missing = (size_bytes - arrived[place - 1]) / (arrived[place] - arrived[place - 1])
    return float(since_s[place - 1] + missing * (since_s[place] - since_s[place - 1]))


def rounded_down(duration_s: float, unit_s: float | None) -> float:
    """Return a duration, rounded down to a multiple of `unit_s` if that is given."""
    return duration_s if unit_s is None else float(np.floor(duration_s / unit_s + 1e-9)) * unit_s
