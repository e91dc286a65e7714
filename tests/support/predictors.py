"""Made-up measurements and models of known weights, for tests of predictors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from skyhop.predict import Data, Model, load_model, read_data
from skyhop.predict.models import kinds
from skyhop.predict.models.saved import npz_bytes

BEGIN_S = 1_764_028_800
"""Begin of the data, 2025-11-25T00:00:00Z."""


def levels(seconds: int, seed: int = 3) -> np.ndarray:
    """Return latencies (ms): a level for each period of the grid, and correlated noise."""
    draw = np.random.default_rng(seed)
    slot = (np.arange(seconds) + BEGIN_S - 12) // 15
    level = draw.uniform(20, 45, slot[-1] - slot[0] + 1)[slot - slot[0]]
    noise = np.zeros(seconds)
    for at in range(1, seconds):
        noise[at] = 0.7 * noise[at - 1] + draw.normal(0, 1)
    return level + noise


def write_rtt(
    file: Path, values_ms: Sequence[float] | np.ndarray, gaps: Sequence[int] = ()
) -> Path:
    """Write round trips, one in the middle of each second except those of `gaps`."""
    lines = [
        f"{(BEGIN_S + at) * 10**9 + 500_000_000},{value:.6f}"
        for at, value in enumerate(values_ms)
        if at not in gaps
    ]
    file.write_text("\n".join(lines) + "\n", "utf-8")
    return file


def data_of(directory: Path, values_ms: np.ndarray, gaps: Sequence[int] = ()) -> Data:
    return read_data([write_rtt(directory / "site.csv", values_ms, gaps)])


# --- files of untrained models, as each kind saves them ---


def tree(**lists: Sequence[float]) -> dict[str, Any]:
    """Return a tree of XGBoost's; by default a leaf of 0.5."""
    leaf = {"left_children": [-1], "right_children": [-1], "split_indices": [0],
            "split_conditions": [0.5], "default_left": [0]}  # fmt: skip
    return {**leaf, **lists}


def xgboost_file(trees: Sequence[dict[str, Any]], features: int, base: float = 1.0) -> bytes:
    learner = {
        "learner_model_param": {"num_feature": str(features), "base_score": f"[{base}]"},
        "gradient_booster": {"model": {"trees": list(trees)}},
    }
    return json.dumps({"learner": learner, "skyhop_scale": 10.0}).encode()


def lstm_file(columns: int, beside: int, units: int = 3, length_s: int = 5) -> bytes:
    draw = np.random.default_rng(1)
    return npz_bytes({
        "of_past": draw.normal(size=(columns, 4 * units)),
        "of_state": draw.normal(size=(units, 4 * units)),
        "bias": draw.normal(size=4 * units), "out": draw.normal(size=(units + beside, 1)),
        "out_bias": [0.1], "past_mean": np.full(columns, 30.0), "past_sd": np.full(columns, 5.0),
        "beside_mean": np.zeros(beside), "beside_sd": np.ones(beside), "truth_mean": 30.0,
        "truth_sd": 5.0, "length_s": length_s,
    })  # fmt: skip


def arima_file(**others: Any) -> bytes:
    saved = {"differences": 1, "mean": 0.0, "ar": [0.5], "ma": [-0.25], **others}
    return json.dumps(saved).encode()


def files() -> dict[str, bytes]:
    """Return a file of each kind of model, for one column of the past and no covariates."""
    split = tree(left_children=[1, -1, -1], right_children=[2, -1, -1], split_indices=[4, 0, 0],
                 split_conditions=[30.0, 1.0, 2.0], default_left=[1, 0, 0])  # fmt: skip
    made = {"xgboost": xgboost_file([split, tree()], 5), "lstm": lstm_file(1, 0),
            "arima": arima_file()}  # fmt: skip
    assert made.keys() == kinds().keys(), "a kind of model has a file here"
    return made


MEASURES = {
    "seconds": 1, "nonzero_seconds": 1, "mape_pct": 1.0, "weighted_ape_pct": 1.0, "rmse": 1.0,
    "mae": 1.0, "within_5_pct": 1.0, "within_10_pct": 1.0, "ape_p50_pct": 1.0, "ape_p95_pct": 1.0,
    "ape_p99_pct": None,
}  # fmt: skip


def card_of(kind: str, content: bytes, horizons: Sequence[int], **others: Any) -> dict[str, Any]:
    compared = {"model": MEASURES, "baselines": {"last value": MEASURES}}
    return {
        "schema": 1, "skyhop": "0", "model": kind, "target": "latency", "column": "latency_ms",
        "unit": "ms", "direction": "down", "per_second": "median", "features": ["history"],
        "past": ["latency_ms"], "beside": [], "seed": 1, "train_share": 0.8, "gap_s": 60,
        "sources": [{"name": "a.csv", "kind": "rtt", "sha256": "0" * 64, "seconds": 1}],
        "parts": [{"node": "a", "first_ns": 0, "check_ns": 1, "test_ns": 2, "last_ns": 3}],
        "libraries": {"xgboost": "3"}, "notes": ["a note"],
        "horizons": [
            {
                "horizon_s": horizon_s, "file": f"{kind}-{horizon_s}{kinds()[kind].suffix}",
                "sha256": hashlib.sha256(content).hexdigest(), "train_seconds": 1,
                "check_seconds": 1, "details": {"trees": 2}, "all_seconds": compared,
                "grid_seconds": compared,
                "worse": [
                    {"measure": "mae", "baseline": "last value", "its": 1.0, "the_models": 2.0}
                ],
            }
            for horizon_s in horizons
        ],
        **others,
    }  # fmt: skip


def write_model(
    place: Path, kind: str = "xgboost", horizons: Sequence[int] = (1,), **others: Any
) -> Model:
    """Write an untrained model, and read it."""
    content = others.pop("content", None) or files()[kind]
    card: Mapping[str, Any] = card_of(kind, content, horizons, **others)
    place.mkdir(parents=True, exist_ok=True)
    (place / "card.json").write_text(json.dumps(card), "utf-8")
    for horizon_s in horizons:
        (place / f"{kind}-{horizon_s}{kinds()[kind].suffix}").write_bytes(content)
    return load_model(place)
