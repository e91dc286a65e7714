"""Prediction of the change from the last value: windows relative to it, and predictors of them.

A model of the change needs no training data of the level at which it is used: trees cannot
extrapolate, and a level that shifts is no error. An outlier that is far above all training data is
no level, so that the last value counts up to a limit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.predict.models.kind import Predictor
from skyhop.predict.windows import Windows

_TIMES, _PERCENT = 2.0, 99


def limit_of(fit: Windows) -> float:
    """Return the largest last value that counts as a level: twice the 99th percentile."""
    return _TIMES * float(np.percentile(fit.truth, _PERCENT))


def relative(windows: Windows, limit: float) -> Windows:
    """Return windows whose truth and past of the target are relative to the last value.

    The last value, at most `limit`, becomes the last covariate.
    """
    last = _last(windows, limit)
    past = windows.past.copy()
    past[:, :, 0] -= last[:, None]
    covariates = np.column_stack([windows.covariates, last])
    return replace(windows, past=past, covariates=covariates, truth=windows.truth - last)


def absolute(predict: Predictor, limit: float) -> Predictor:
    """Return the predictor of values, given the predictor of changes."""

    def predict_value(windows: Windows) -> FloatArray:
        return predict(relative(windows, limit)) + _last(windows, limit)

    return predict_value


def _last(windows: Windows, limit: float) -> FloatArray:
    return np.minimum(windows.past[:, -1, 0], limit)
