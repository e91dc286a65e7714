"""ARIMA: saved as its coefficients, evaluated with numpy.

The model uses only the target's own past, and nothing from before the window of 30 s.
"""

from __future__ import annotations

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.predict.models.kind import ModelKind, Predictor
from skyhop.predict.models.saved import damaged, floats, json_object
from skyhop.predict.windows import LOOK_BACK_S, Windows

MOST_ORDER = 5
"""Largest order of the autoregressive and of the moving-average part."""
_WHAT = "arima file"


def _read(content: bytes, columns: int, covariates: int) -> Predictor:
    del columns, covariates
    saved = json_object(content, _WHAT)
    ar, ma, mean, differences = (
        floats(value if isinstance(value, list) else [value], _WHAT)
        for value in (saved.get(name) for name in ("ar", "ma", "mean", "differences"))
    )
    is_one = len(mean) == len(differences) == 1
    if not is_one or max(len(ar), len(ma)) > MOST_ORDER or differences[0] not in (0, 1):
        raise damaged(_WHAT, "its orders are out of range")

    def predict(windows: Windows) -> FloatArray:
        values = windows.past[:, -LOOK_BACK_S:, 0]
        if differences[0]:
            steps = _forecast(np.diff(values, axis=1), ar, ma, windows.horizon_s)
            return np.asarray(values[:, -1] + steps.sum(axis=1))
        return np.asarray(_forecast(values - mean[0], ar, ma, windows.horizon_s)[:, -1] + mean[0])

    return predict


def _forecast(values: FloatArray, ar: FloatArray, ma: FloatArray, ahead: int) -> FloatArray:
    """Return the next values (n, ahead) of series (n, length); errors before the series are 0."""
    rows, length = values.shape
    most = max(len(ar), len(ma), 1)
    known = np.zeros((rows, most + length + ahead))
    known[:, most : most + length] = values
    errors = np.zeros_like(known)
    for at in range(most, most + length + ahead):
        before = known[:, at - len(ar) : at][:, ::-1] @ ar
        before = before + errors[:, at - len(ma) : at][:, ::-1] @ ma
        if at < most + length:
            # The first values lack the past that the model needs: assume an error of 0 there.
            errors[:, at] = known[:, at] - before if at >= most + len(ar) else 0.0
        else:
            known[:, at] = before
    return known[:, most + length :]


MODEL = ModelKind("arima", "ARIMA of the target's own past", ".json", _read)
