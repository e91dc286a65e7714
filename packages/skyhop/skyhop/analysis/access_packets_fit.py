"""Fit of access profiles to packet times: the frames in which a direction is served."""

from __future__ import annotations

from typing import Any

import numpy as np

from skyhop.analysis.access_process import of_steps
from skyhop.analysis.portrait_packets import spectral_lines_hz
from skyhop.data.arrays import FloatArray, IntArray

PERIODS_MS = (2, 3, 4, 5, 8, 10, 16, 20)
"""Durations of frames among which the fit chooses."""
SPREADS = (0.0, 0.25, 0.5, 0.75, 1.0)
LINE_WIDTH = 0.01
"""Relative difference of a spectral line from the frequency of frames."""
BINS_MS = (1, 2, 4, 10)
"""Bins in ms in which measured and drawn rates have to vary alike."""
MOST_MS = 120_000
"""Length in ms of the part of a log whose frames are drawn for comparison."""


def rate_parts(per_ms: IntArray, slot_ms: int = 15_000) -> dict[str, Any]:
    """Return the tables `frames` and `fluctuation` of a direction's rate.

    Args:
        per_ms: number of packets in each ms, of a sender that always has something to send.
        slot_ms: duration of a slot, whose mean is the level that the fluctuation refers to.
    """
    level = _held_means(per_ms, slot_ms)
    busy = float(np.mean(per_ms > 0))
    best: tuple[float, dict[str, Any]] | None = None
    for period_ms in _periods_ms(per_ms):
        frames = per_ms[: len(per_ms) // period_ms * period_ms].reshape(-1, period_ms).sum(axis=1)
        levels = level[: len(frames) * period_ms : period_ms] * period_ms
        ratios = frames[levels > 0] / levels[levels > 0]
        for spread in SPREADS:
            drawn = _drawn(ratios, period_ms, busy, spread)
            miss = sum(
                (np.log(_variation(per_ms, each)) - np.log(_variation(drawn, each))) ** 2
                for each in BINS_MS
            )
            if best is None or miss < best[0]:
                found = {
                    "frames": {"period_ms": period_ms, "busy": round(busy, 3), "spread": spread},
                    "fluctuation": of_steps(
                        ratios, np.full(len(ratios), True), period_ms / 1e3
                    ),
                }
                best = (float(miss), found)
    assert best is not None
    return best[1]


def _periods_ms(per_ms: IntArray) -> tuple[int, ...]:
    """Return the duration of frames that the lowest line of the spectrum shows; all without any."""
    lines_hz = spectral_lines_hz(per_ms)
    shown = [
        period_ms
        for period_ms in PERIODS_MS
        if any(abs(line_hz * period_ms / 1e3 - 1) < LINE_WIDTH for line_hz in lines_hz)
    ]
    return (max(shown),) if shown else PERIODS_MS


def _drawn(ratios: FloatArray, period_ms: int, busy: float, spread: float) -> FloatArray:
    """Relative volume in each ms of frames with the volumes `ratios`."""
    ratios = ratios[: MOST_MS // period_ms]
    unit = np.random.default_rng(1).random(len(ratios))
    begins = np.arange(len(ratios)) * period_ms + (1 - busy) * period_ms * spread * unit
    edges = np.arange(len(ratios) * period_ms + 1, dtype=np.float64)
    volume = np.concatenate([[0.0], np.cumsum(ratios)])
    times = np.stack([begins, begins + busy * period_ms], axis=1).ravel()
    served = np.repeat(volume, 2)[1:-1]
    return np.diff(np.interp(edges, times, served))


def _held_means(values: IntArray, each: int) -> FloatArray:
    """Mean of each `each` values, at each of them."""
    parts = np.array_split(values, max(1, round(len(values) / each)))
    return np.concatenate([np.full(len(part), part.mean()) for part in parts])


def _variation(values: FloatArray | IntArray, each: int) -> float:
    """Standard deviation over mean of the sums of `each` values."""
    sums = values[: len(values) // each * each].reshape(-1, each).sum(axis=1)
    return float(sums.std() / sums.mean())
