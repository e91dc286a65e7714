"""Baselines: predictors without training, with which every model is compared."""

from __future__ import annotations

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.predict.models.kind import Predictor
from skyhop.predict.windows import GRID_PERIOD_S, Windows

_FEW = 5
"""Number of seconds over which means and medians are taken."""


def _last(windows: Windows) -> FloatArray:
    return windows.past[:, -1, 0]


def _mean(windows: Windows) -> FloatArray:
    return np.asarray(windows.past[:, -_FEW:, 0].mean(axis=1))


def _median(windows: Windows) -> FloatArray:
    return np.asarray(np.median(windows.past[:, -_FEW:, 0], axis=1))


def _harmonic(windows: Windows) -> FloatArray:
    """Return the harmonic mean; 0 if any second is 0."""
    values = windows.past[:, -_FEW:, 0]
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(_FEW / (1 / np.maximum(values, 0)).sum(axis=1))


def _period_ago(windows: Windows) -> FloatArray:
    """Return the newest known value at the same phase of the 15 s grid as the predicted second."""
    ago_s = -(-windows.horizon_s // GRID_PERIOD_S) * GRID_PERIOD_S
    return windows.past[:, -1 - (ago_s - windows.horizon_s), 0]


BASELINES: dict[str, Predictor] = {
    "last value": _last,
    "mean of 5": _mean,
    "median of 5": _median,
    "harmonic mean of 5": _harmonic,
    "15 s ago": _period_ago,
}
