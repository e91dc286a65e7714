"""Transfers: when how many bytes had arrived."""

from __future__ import annotations

import numpy as np

from skyhop.data.arrays import FloatArray

_ROUNDED = 1e-6
"""Which share of bytes rounded rates may lack."""


def seconds_to(
    t_s: FloatArray, goodput_mbps: FloatArray, size_bytes: float, start_s: float
) -> float | None:
    """Return how long after `start_s` so many bytes had arrived; None where they never had.

    Args:
        t_s: when samples end, shape (n,).
        goodput_mbps: the mean since the sample before, or since the start, shape (n,).
        size_bytes: how many.
        start_s: when the transfer began.

    Within a sample bytes arrive evenly.
    """
    since_s = np.concatenate([[0.0], t_s[t_s > start_s] - start_s])
    rates = np.nan_to_num(goodput_mbps[t_s > start_s]) * 1e6 / 8
    arrived = np.concatenate([[0.0], np.cumsum(rates * np.diff(since_s))])
    if size_bytes <= 0:
        return 0.0
    # Of a transfer's last byte: what adds up from whole bits per second is a little off.
    if arrived[-1] < size_bytes * (1 - _ROUNDED):
        return None
    size_bytes = min(size_bytes, float(arrived[-1]))
    # The first sample by which they had: those after a transfer's end add nothing.
    place = max(int(np.searchsorted(arrived, size_bytes, side="left")), 1)
    missing = (size_bytes - arrived[place - 1]) / (arrived[place] - arrived[place - 1])
    return float(since_s[place - 1] + missing * (since_s[place] - since_s[place - 1]))


def whole(duration_s: float, unit_s: float | None) -> float:
    """Return a duration cut to whole ones of a unit, itself without one."""
    return duration_s if unit_s is None else float(np.floor(duration_s / unit_s + 1e-9)) * unit_s
