"""View model of a predictor's figure: predicted and true values over time, error distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from skyhop.data.arrays import BoolArray, FloatArray

if TYPE_CHECKING:
    from skyhop.predict.cards import Card
    from skyhop.predict.model import Evaluation

_SHOWN_S = 300
"""Length in s of the shown part of the series, which is its beginning."""
_MOST_APE_PCT = 100.0


@dataclass(frozen=True)
class ErrorCurve:
    """Share of seconds (0 to 1) whose absolute error is at most each percentage of the truth."""

    name: str
    ape_pct: FloatArray
    shares: FloatArray
    is_model: bool


@dataclass(frozen=True)
class PredictionView:
    """Predictions of a model for one horizon.

    Attributes:
        title: target, horizon and model.
        what: name of the target; its values are in `unit`.
        at_s: times in s of the shown part of the series, from its beginning; NaN in gaps.
        shown_truth: true values at these times.
        shown_predicted: predicted values at these times.
        grid_s: times in s of the handover grid within the shown part.
        truth: true values of all seconds.
        predicted: predicted values of all seconds.
        curves: error distributions of the model and of baselines, the model's first.
        most_ape_pct: absolute percentage error at which the curves end.
        note: note below the figure.
    """

    title: str
    what: str
    unit: str
    at_s: FloatArray
    shown_truth: FloatArray
    shown_predicted: FloatArray
    grid_s: FloatArray
    truth: FloatArray
    predicted: FloatArray
    curves: Sequence[ErrorCurve]
    most_ape_pct: float
    note: str


def prediction_view(card: Card, tested: Evaluation) -> PredictionView:
    """Return the view of a tested horizon; the test must cover at least one second."""
    unit, factor = ("ms", 1.0) if card.target == "latency" else ("Mbit/s", 1e-6)
    at_s = (tested.end_ns - tested.end_ns[0]) / 1e9
    shown = (at_s >= 0) & (at_s <= _SHOWN_S)
    errors = tested.comparison().model
    named = [(card.model, tested.predicted), *tested.baselines.items()]
    mape = "" if errors.mape_pct is None else f"MAPE {errors.mape_pct:.1f} %, "
    return PredictionView(
        title=f"{card.target}, {tested.horizon_s} s ahead, by {card.model}",
        what=card.target,
        unit=unit,
        at_s=_broken(at_s[shown]),
        shown_truth=tested.truth[shown] * factor,
        shown_predicted=tested.predicted[shown] * factor,
        grid_s=_grid_times(at_s, tested.has_grid, shown),
        truth=tested.truth * factor,
        predicted=tested.predicted * factor,
        curves=[_curve(name, tested.truth, found, card.model) for name, found in named],
        most_ape_pct=_MOST_APE_PCT,
        note=f"{len(tested.truth):,} seconds that the model has not seen; {mape}"
        f"RMSE {(errors.rmse or 0.0) * factor:.3g} {unit}; dashed diagonal: predicted as it came",
    )


def _grid_times(at_s: FloatArray, has_grid: BoolArray, shown: BoolArray) -> FloatArray:
    # The time of a second is its end; the moment of the grid is at its beginning.
    return at_s[shown & has_grid] - 1.0


def _broken(at_s: FloatArray) -> FloatArray:
    """Return times, with NaN after each gap, so that no line crosses a gap."""
    broken = at_s.copy()
    broken[1:][np.diff(at_s) > 1.5] = np.nan  # noqa: PLR2004
    return broken


def _curve(name: str, truth: FloatArray, predicted: FloatArray, model: str) -> ErrorCurve:
    nonzero = truth != 0
    ape = np.sort(100 * np.abs(predicted - truth)[nonzero] / np.abs(truth[nonzero]))
    shares = np.arange(1, len(ape) + 1) / max(len(ape), 1)
    return ErrorCurve(name, ape, shares, name == model)
