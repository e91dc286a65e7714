"""Training of gradient-boosted trees with XGBoost.

Histograms, at most 600 trees of depth 6 with rate 0.05, stopped early after 50 without gain on the
check part; rows and columns sampled to 0.8, at least 5 in a leaf. Squared and absolute errors are
both tried, and the model with the lower absolute error on the check part is kept. Training uses one
thread, so that it is deterministic for a seed.
"""

from __future__ import annotations

import json

import numpy as np

from skyhop.predict.models.xgboost import matrix
from skyhop.predict.windows import Windows
from skyhop_lab.predict.kinds.trainer import Trained, Trainer, library

_TREES, _EARLY = 600, 50
_LOSSES = ("reg:squarederror", "reg:absoluteerror")
_PARAMETERS = {
    "tree_method": "hist", "max_depth": 6, "eta": 0.05, "subsample": 0.8, "colsample_bytree": 0.8,
    "min_child_weight": 5, "nthread": 1, "verbosity": 0, "eval_metric": "mae",
}  # fmt: skip


def _train(fit: Windows, check: Windows, seed: int) -> Trained:
    xgboost = library("xgboost")
    # Scale targets to about 1: squared errors of large numbers lose precision in float32.
    scale = float(np.abs(fit.truth).mean()) or 1.0
    parts = [xgboost.DMatrix(matrix(w), label=w.truth / scale) for w in (fit, check)]
    tried = {}
    for loss in _LOSSES:
        booster = xgboost.train(
            {**_PARAMETERS, "objective": loss, "seed": seed}, parts[0], _TREES,
            evals=[(parts[1], "check")], early_stopping_rounds=_EARLY, verbose_eval=False,
        )  # fmt: skip
        tried[loss] = (float(booster.best_score), int(booster.best_iteration) + 1, booster)
    best = min(tried, key=lambda loss: tried[loss][0])
    _, trees, booster = tried[best]
    content = json.loads(bytes(booster[:trees].save_raw("json")))
    content["skyhop_scale"] = scale
    details = {
        "loss": best,
        "trees": trees,
        "check_mae": {loss: found[0] * scale for loss, found in tried.items()},
    }
    return Trained(json.dumps(content, separators=(",", ":")).encode(), details)


TRAINER = Trainer("xgboost", ("xgboost",), _train)
