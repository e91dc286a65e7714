"""Recurrent network of one LSTM layer, evaluated with numpy.

The layer reads the last 5 or 30 seconds; the covariates are appended to its last state, and one
linear unit makes the prediction. Unknown values are replaced by the mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.predict.models.kind import ModelKind, Predictor
from skyhop.predict.models.saved import damaged, npz_arrays
from skyhop.predict.windows import LOOK_BACK_S, Windows

_WHAT = "lstm file"
_AT_ONCE = 4096
_LEAST_SD = 1e-9


@dataclass(frozen=True)
class Scale:
    """Means and standard deviations in the training part, to standardise inputs and output.

    The names of the fields are the names of arrays in model files.
    """

    past_mean: FloatArray
    past_sd: FloatArray
    beside_mean: FloatArray
    beside_sd: FloatArray
    truth_mean: float
    truth_sd: float

    @staticmethod
    def of(fit: Windows) -> Scale:
        """Return the scale of the training part."""
        past = fit.past.reshape(-1, fit.past.shape[2])
        return Scale(
            *_moments(past), *_moments(fit.covariates),
            float(fit.truth.mean()), max(float(fit.truth.std()), _LEAST_SD),
        )  # fmt: skip

    def inputs(self, windows: Windows, length_s: int) -> tuple[Any, Any]:
        """Return the standardised past (n, length, columns) and covariates (n, features)."""
        past = (windows.past[:, -length_s:] - self.past_mean) / self.past_sd
        covariates = (windows.covariates - self.beside_mean) / self.beside_sd
        single = [np.nan_to_num(part, nan=0.0).astype(np.float32) for part in (past, covariates)]
        return single[0], single[1]


def _moments(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return means and standard deviations of known values; 0 and 1 for a column without values."""
    known = np.isfinite(values)
    counts = np.maximum(known.sum(axis=0), 1)
    means = np.where(known, values, 0.0).sum(axis=0) / counts
    squares = (np.where(known, values - means, 0.0) ** 2).sum(axis=0) / counts
    sds = np.sqrt(squares)
    return means, np.where(sds > _LEAST_SD, sds, 1.0)


def forward(weights: Mapping[str, Any], past: Any, covariates: Any) -> FloatArray:
    """Return the standardised predictions of the network, without dropout."""
    hidden = cell = np.zeros((len(past), weights["of_state"].shape[0]), dtype=np.float32)
    for step in range(past.shape[1]):
        gates = past[:, step] @ weights["of_past"] + hidden @ weights["of_state"] + weights["bias"]
        enter, forget, leave, new = np.split(gates, 4, axis=1)
        cell = _sigmoid(forget) * cell + _sigmoid(enter) * np.tanh(new)
        hidden = _sigmoid(leave) * np.tanh(cell)
    joined = np.hstack([hidden, covariates])
    return np.asarray((joined @ weights["out"])[:, 0] + weights["out_bias"], dtype=np.float64)


def _sigmoid(values: Any) -> Any:
    return 0.5 * (1 + np.tanh(0.5 * values))


def _read(content: bytes, columns: int, covariates: int) -> Predictor:
    arrays = npz_arrays(content, {
        "of_past": (columns, None), "of_state": (None, None), "bias": (None,), "out": (None, 1),
        "out_bias": (1,), "past_mean": (columns,), "past_sd": (columns,),
        "beside_mean": (covariates,), "beside_sd": (covariates,),
        "truth_mean": (), "truth_sd": (), "length_s": (),
    }, _WHAT)  # fmt: skip
    units, gates = arrays["of_state"].shape
    widths = {gates, arrays["of_past"].shape[1], len(arrays["bias"])}
    length_s = int(arrays["length_s"])
    if widths != {4 * units} or arrays["out"].shape[0] != units + covariates:
        raise damaged(_WHAT, "its arrays do not fit each other")
    if not 1 <= length_s <= LOOK_BACK_S or (arrays["past_sd"] <= 0).any():
        raise damaged(_WHAT, "its length or its deviations are out of range")
    names = ("of_past", "of_state", "bias", "out", "out_bias")
    weights = {name: arrays[name].astype(np.float32) for name in names}
    scale = Scale(
        past_mean=arrays["past_mean"],
        past_sd=arrays["past_sd"],
        beside_mean=arrays["beside_mean"],
        beside_sd=arrays["beside_sd"],
        truth_mean=float(arrays["truth_mean"]),
        truth_sd=float(arrays["truth_sd"]),
    )

    def predict(windows: Windows) -> FloatArray:
        found = [
            forward(weights, *(part[first : first + _AT_ONCE] for part in inputs))
            for inputs in [scale.inputs(windows, length_s)]
            for first in range(0, len(windows), _AT_ONCE)
        ]
        whole = np.concatenate(found) if found else np.zeros(0)
        return whole * scale.truth_sd + scale.truth_mean

    return predict


MODEL = ModelKind("lstm", "a recurrent network over the last 5 or 30 s", ".npz", _read)
