"""ARIMA: fitted by statsmodels, saved as its coefficients, evaluated here by numpy.

Whether the series is differenced, a KPSS test decides; of all p and q up to 5 those with the lowest
AIC are taken, as Hannan and Rissanen estimate them, and fitted by maximum likelihood. That is done
once, to the newest 2,000 s of the training part's longest stretch. It sees only the target's own
past, and begins anew in each window of 30 s.
"""

from __future__ import annotations

import itertools
import json
import warnings
from functools import lru_cache
from typing import Any

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.errors import InputError, RunError
from skyhop.predict.models.kind import Kind, Predictor, Trained, library
from skyhop.predict.models.saved import damaged, floats, json_object
from skyhop.predict.windows import LONGEST_HORIZON_S, LOOK_BACK_S, SECOND_NS, Windows

_MOST_ORDER = 5
_MOST_SECONDS, _LEAST_SECONDS = 2000, 50
_SIGNIFICANCE = 0.05
_WHAT = "arima file"


def _train(fit: Windows, check: Windows, seed: int) -> Trained:
    # Nothing is drawn, and nothing stops early.
    del check, seed
    series = _longest_stretch(fit)
    if len(series) < _LEAST_SECONDS:
        raise InputError(f"arima: the training part has no {_LEAST_SECONDS} s without a gap")
    return _fitted(series.tobytes())


def _longest_stretch(fit: Windows) -> FloatArray:
    """Return the newest seconds of the longest stretch without a gap."""
    follows = (np.diff(fit.end_ns) == SECOND_NS) & (np.diff(fit.nodes) == 0)
    edges = np.concatenate(([0], np.flatnonzero(~follows) + 1, [len(fit)]))
    longest = int(np.argmax(np.diff(edges)))
    stretch = fit.truth[edges[longest] : edges[longest + 1]]
    # Windows of a longer horizon begin later: so that all have one series, and one model.
    return stretch[LONGEST_HORIZON_S - fit.horizon_s :][-_MOST_SECONDS:]


@lru_cache(4)
def _fitted(series: bytes) -> Trained:
    """Fit a series; horizons that have it in common have one model."""
    values = np.frombuffer(series, dtype=np.float64)
    scale = float(values.std()) or 1.0
    values = values / scale
    # Loading them resets what warnings are shown.
    for name in ("statsmodels.tsa.stattools", "statsmodels.tsa.arima.model"):
        library(name)
    with warnings.catch_warnings():
        # What does not converge has a high AIC, and is not chosen.
        warnings.simplefilter("ignore")
        differences = _differences(values)
        best = _searched(values - (0.0 if differences else values.mean()), differences)
        order = (0, 0) if best is None else best[1]
        fitted = _fit(values, order, differences, method_kwargs={"maxiter": 50})
    if fitted is None:
        raise RunError("arima: no model could be fitted to the training part")
    (aic, parameters), (p, q) = fitted, order
    saved = {
        "differences": differences,
        "mean": float(parameters.get("const", 0.0)) * scale,
        "ar": [float(parameters[f"ar.L{lag}"]) for lag in range(1, p + 1)],
        "ma": [float(parameters[f"ma.L{lag}"]) for lag in range(1, q + 1)],
    }
    details = {"order": [p, differences, q], "aic": float(aic), "seconds": len(values)}
    return Trained(json.dumps(saved).encode(), details)


def _differences(values: FloatArray) -> int:
    if np.ptp(values) == 0:
        return 0
    _, p_value, *_ = library("statsmodels.tsa.stattools").kpss(values, nlags="auto")
    return int(p_value < _SIGNIFICANCE)


def _searched(values: FloatArray, differences: int) -> tuple[float, tuple[int, int]] | None:
    """Return the lowest AIC of all orders, as Hannan and Rissanen estimate them, and the orders."""
    found = []
    orders = range(_MOST_ORDER + 1)
    for order in itertools.product(orders, orders):
        fitted = _fit(values, order, differences, method="hannan_rissanen")
        if fitted is not None:
            found.append((fitted[0], order))
    return min(found, default=None)


def _fit(
    values: FloatArray, order: tuple[int, int], differences: int, **how: Any
) -> tuple[float, dict[str, float]] | None:
    """Return AIC and parameters; None where there is no stationary model of these orders."""
    arima = library("statsmodels.tsa.arima.model").ARIMA
    # An offset is estimated with the series as it is, and as none of its differences.
    trend = "n" if differences else "c"
    try:
        model = arima(values, order=(order[0], differences, order[1]), trend=trend)
        found = model.fit(**how)
    except (ValueError, IndexError, np.linalg.LinAlgError):
        return None
    names = dict(zip(found.param_names, map(float, found.params), strict=True))
    is_known = np.isfinite(found.aic) and np.isfinite(list(names.values())).all()
    return (float(found.aic), names) if is_known else None


def _read(content: bytes, columns: int, beside: int) -> Predictor:
    del columns, beside
    saved = json_object(content, _WHAT)
    ar, ma, mean, differences = (
        floats(value if isinstance(value, list) else [value], _WHAT)
        for value in (saved.get(name) for name in ("ar", "ma", "mean", "differences"))
    )
    if max(len(ar), len(ma)) > _MOST_ORDER or differences[0] not in (0, 1):
        raise damaged(_WHAT, "its orders are none that are fitted")

    def predict(windows: Windows) -> FloatArray:
        values = windows.past[:, -LOOK_BACK_S:, 0]
        if differences[0]:
            steps = _forecast(np.diff(values, axis=1), ar, ma, windows.horizon_s)
            return np.asarray(values[:, -1] + steps.sum(axis=1))
        return np.asarray(_forecast(values - mean[0], ar, ma, windows.horizon_s)[:, -1] + mean[0])

    return predict


def _forecast(values: FloatArray, ar: FloatArray, ma: FloatArray, ahead: int) -> FloatArray:
    """Return the next values (n, ahead) of series (n, length), whose errors before them are 0."""
    rows, length = values.shape
    most = max(len(ar), len(ma), 1)
    known = np.zeros((rows, most + length + ahead))
    known[:, most : most + length] = values
    errors = np.zeros_like(known)
    for at in range(most, most + length + ahead):
        before = known[:, at - len(ar) : at][:, ::-1] @ ar
        before = before + errors[:, at - len(ma) : at][:, ::-1] @ ma
        if at < most + length:
            # What lies before the window is not known: its first values are taken as they are.
            errors[:, at] = known[:, at] - before if at >= most + len(ar) else 0.0
        else:
            known[:, at] = before
    return known[:, most + length :]


MODEL = Kind("arima", "ARIMA of the target's own past", ".json", ("statsmodels",), _train, _read)
