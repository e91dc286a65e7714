"""Training of ARIMA with statsmodels.

A KPSS test decides whether the series is differenced. The orders are those p and q up to 5 with the
lowest AIC as estimated by Hannan and Rissanen's method, and are then fitted by maximum likelihood.
The model is fitted once, to the newest 2,000 s of the longest period without a gap in the training
part.
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
from skyhop.predict.models.arima import MOST_ORDER
from skyhop.predict.windows import LONGEST_HORIZON_S, SECOND_NS, Windows
from skyhop_lab.predict.kinds.trainer import Trained, Trainer, library

_MOST_SECONDS, _LEAST_SECONDS = 2000, 50
_SIGNIFICANCE = 0.05


def _train(fit: Windows, check: Windows, seed: int) -> Trained:
    # Fitting uses neither random numbers nor early stopping.
    del check, seed
    series = _longest_stretch(fit)
    if len(series) < _LEAST_SECONDS:
        raise InputError(f"arima: the training part has no {_LEAST_SECONDS} s without a gap")
    return _fit_series(series.tobytes())


def _longest_stretch(fit: Windows) -> FloatArray:
    """Return the newest seconds of the longest period without a gap."""
    follows = (np.diff(fit.end_ns) == SECOND_NS) & (np.diff(fit.nodes) == 0)
    edges = np.concatenate(([0], np.flatnonzero(~follows) + 1, [len(fit)]))
    longest = int(np.argmax(np.diff(edges)))
    stretch = fit.truth[edges[longest] : edges[longest + 1]]
    # With longer horizons, the first predicted second is later: cut all to the same series.
    return stretch[LONGEST_HORIZON_S - fit.horizon_s :][-_MOST_SECONDS:]


@lru_cache(4)
def _fit_series(series: bytes) -> Trained:
    """Fit a series; cached, because all horizons share the series and so the model."""
    values = np.frombuffer(series, dtype=np.float64)
    scale = float(values.std()) or 1.0
    values = values / scale
    # Import before filtering warnings, because these modules reset the filters.
    for name in ("statsmodels.tsa.stattools", "statsmodels.tsa.arima.model"):
        library(name)
    with warnings.catch_warnings():
        # Models that do not converge have a high AIC and are not chosen.
        warnings.simplefilter("ignore")
        differences = _differences(values)
        best = _best_order(values - (0.0 if differences else values.mean()), differences)
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


def _best_order(values: FloatArray, differences: int) -> tuple[float, tuple[int, int]] | None:
    """Return the lowest AIC and its order, both by Hannan and Rissanen's method."""
    found = []
    orders = range(MOST_ORDER + 1)
    for order in itertools.product(orders, orders):
        fitted = _fit(values, order, differences, method="hannan_rissanen")
        if fitted is not None:
            found.append((fitted[0], order))
    return min(found, default=None)


def _fit(
    values: FloatArray, order: tuple[int, int], differences: int, **how: Any
) -> tuple[float, dict[str, float]] | None:
    """Return AIC and parameters; None if there is no stationary model of this order."""
    arima = library("statsmodels.tsa.arima.model").ARIMA
    # A mean is estimated only if the series is not differenced.
    trend = "n" if differences else "c"
    try:
        model = arima(values, order=(order[0], differences, order[1]), trend=trend)
        found = model.fit(**how)
    except (ValueError, IndexError, np.linalg.LinAlgError):
        return None
    names = dict(zip(found.param_names, map(float, found.params), strict=True))
    is_known = np.isfinite(found.aic) and np.isfinite(list(names.values())).all()
    return (float(found.aic), names) if is_known else None


TRAINER = Trainer("arima", ("statsmodels",), _train, differences=True)
