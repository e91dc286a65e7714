"""Fit of access profiles to packet times: the frames in which a direction is served."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from skyhop.analysis.access_process import RANKS, of_steps, process
from skyhop.analysis.portrait_packets import spectral_lines_hz
from skyhop.data.arrays import FloatArray, IntArray

PERIODS_MS = (2, 3, 4, 5, 8, 10, 16, 20)
"""Durations of frames among which the fit chooses."""
BUSY = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0)
"""Shares of a frame in which the link serves, among which the fit chooses."""
LONG_MS, LEAST_SUMS = 100, 100
"""Time in ms whose sums show the lasting part of the variance, and least number of them."""
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
    best: tuple[float, dict[str, Any]] | None = None
    for period_ms in _periods_ms(per_ms):
        frames = per_ms[: len(per_ms) // period_ms * period_ms].reshape(-1, period_ms).sum(axis=1)
        levels = level[: len(frames) * period_ms : period_ms] * period_ms
        ratios = frames[levels > 0] / levels[levels > 0]
        memory = _slow_part(per_ms, ratios, period_ms)
        for busy, spread in product(BUSY, SPREADS):
            drawn = _drawn(ratios * level.mean() * period_ms, period_ms, busy, spread)
            miss = (np.mean(drawn < 1) - np.mean(per_ms == 0)) ** 2 + sum(
                (np.log(_variation(per_ms, each)) - np.log(_variation(drawn, each))) ** 2
                for each in BINS_MS
            )
            if best is None or miss < best[0]:
                found = {
                    "frames": {"period_ms": period_ms, "busy": busy, "spread": spread},
                    "fluctuation": process(np.quantile(ratios, RANKS), period_ms / 1e3, **memory),
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


def _drawn(packets: FloatArray, period_ms: int, busy: float, spread: float) -> FloatArray:
    """Return the whole packets in each ms of frames that hold `packets` each."""
    packets = packets[: MOST_MS // period_ms]
    unit = np.random.default_rng(1).random(len(packets))
    begins = np.arange(len(packets)) * period_ms + (1 - busy) * period_ms * spread * unit
    edges = np.arange(len(packets) * period_ms + 1, dtype=np.float64)
    volume = np.concatenate([[0.0], np.cumsum(packets)])
    times = np.stack([begins, begins + busy * period_ms], axis=1).ravel()
    served = np.repeat(volume, 2)[1:-1]
    return np.diff(np.floor(np.interp(edges, times, served)))


def _slow_part(per_ms: IntArray, ratios: FloatArray, period_ms: int) -> dict[str, float]:
    """Return the share of the frames' variance that lasts, by the sums of 100 ms, and its time."""
    sums = per_ms[: len(per_ms) // LONG_MS * LONG_MS].reshape(-1, LONG_MS).sum(axis=1)
    relative = sums / sums.mean()
    frames = float(np.var(ratios))
    lasting = float(np.var(relative)) - frames * period_ms / LONG_MS
    if lasting <= 0 or len(sums) < LEAST_SUMS:
        return {}
    table = of_steps(relative, np.full(len(relative), True), LONG_MS / 1e3)
    slow_s = float(table.get("slow_time", "0 ms").removesuffix(" ms")) / 1e3
    return {"slow": min(1.0, lasting / frames), "slow_s": slow_s} if slow_s > 0 else {}


def _held_means(values: IntArray, each: int) -> FloatArray:
    """Mean of each `each` values, at each of them."""
    parts = np.array_split(values, max(1, round(len(values) / each)))
    return np.concatenate([np.full(len(part), part.mean()) for part in parts])


def _variation(values: FloatArray | IntArray, each: int) -> float:
    """Return the standard deviation over the mean of the sums of `each` values."""
    sums = values[: len(values) // each * each].reshape(-1, each).sum(axis=1)
    return float(sums.std() / sums.mean())
