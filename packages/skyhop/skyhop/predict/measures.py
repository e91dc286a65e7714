"""Measures of prediction errors: those of T3P's Table 1, and others.

Relative errors are over seconds whose true value is not 0; the number of these seconds is given.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from skyhop.data.arrays import BoolArray, FloatArray


@dataclass(frozen=True)
class Errors:
    """Errors of predictions, in the target's unit or in %; None if there is no second to use.

    `mape`, the two `within` and the `ape` are over seconds whose true value is not 0.
    """

    seconds: int
    nonzero_seconds: int
    mape_pct: float | None
    """Mean absolute percentage error."""
    weighted_ape_pct: float | None
    """Sum of absolute errors over sum of true values, in %: small values have little weight."""
    rmse: float | None
    mae: float | None
    within_5_pct: float | None
    """Share of seconds in % whose prediction is within 5 % of the true value."""
    within_10_pct: float | None
    ape_p50_pct: float | None
    ape_p95_pct: float | None
    ape_p99_pct: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return the errors by name, as in cards."""
        return asdict(self)


LOWER_IS_BETTER = {
    "mape_pct": True, "weighted_ape_pct": True, "rmse": True, "mae": True,
    "within_5_pct": False, "within_10_pct": False,
    "ape_p50_pct": True, "ape_p95_pct": True, "ape_p99_pct": True,
}  # fmt: skip


def errors_of(truth: FloatArray, predicted: FloatArray) -> Errors:
    """Return the errors of predictions; `truth` and `predicted` have shape (n,).

    >>> errors_of(np.array([10.0, 20.0, 0.0]), np.array([11.0, 20.0, 1.0])).mape_pct
    5.0
    """
    off = np.abs(predicted - truth)
    nonzero = truth != 0
    ape = 100 * off[nonzero] / np.abs(truth[nonzero])
    total = float(np.abs(truth).sum())
    return Errors(
        seconds=len(truth),
        nonzero_seconds=int(nonzero.sum()),
        mape_pct=_mean(ape),
        weighted_ape_pct=100 * float(off.sum()) / total if total else None,
        rmse=float(np.sqrt(np.mean(off**2))) if len(off) else None,
        mae=_mean(off),
        within_5_pct=_share(ape <= 5),  # noqa: PLR2004
        within_10_pct=_share(ape <= 10),  # noqa: PLR2004
        ape_p50_pct=_percentile(ape, 50),
        ape_p95_pct=_percentile(ape, 95),
        ape_p99_pct=_percentile(ape, 99),
    )


def is_better(measure: str, one: float | None, other: float | None) -> bool:
    """Return whether the value `one` of a measure is better than the value `other`."""
    if one is None or other is None:
        return False
    return one < other if LOWER_IS_BETTER[measure] else one > other


def _mean(values: FloatArray) -> float | None:
    return float(values.mean()) if len(values) else None


def _share(flags: BoolArray) -> float | None:
    return 100 * float(flags.mean()) if len(flags) else None


def _percentile(values: FloatArray, percent: float) -> float | None:
    return float(np.percentile(values, percent)) if len(values) else None
