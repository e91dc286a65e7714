"""Gradient-boosted trees: saved as XGBoost's own JSON, evaluated with numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from skyhop.data.arrays import FloatArray
from skyhop.predict.models.kind import ModelKind, Predictor
from skyhop.predict.models.saved import damaged, floats, json_object
from skyhop.predict.windows import Windows

HISTORY_S = 5
"""Seconds of the past that the model uses, as published."""
_WHAT = "xgboost file"
_MOST_DEPTH = 64
_MOST_AT_ONCE = 10_000
"""Product of trees and rows evaluated together, so that arrays fit the processor's cache."""


def matrix(windows: Windows) -> npt.NDArray[np.float32]:
    """Return the features, one row per window: past of each column (newest last), covariates."""
    past = windows.past[:, -HISTORY_S:]
    flat = past.transpose(0, 2, 1).reshape(len(past), -1)
    return np.hstack([flat, windows.covariates]).astype(np.float32)


@dataclass(frozen=True)
class _Tree:
    """Tree as arrays by node number; a leaf has -1 as left child, and its value as threshold."""

    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    feature: npt.NDArray[np.int64]
    threshold: npt.NDArray[np.float32]
    missing_left: npt.NDArray[np.bool_]
    depth: int


@dataclass(frozen=True)
class _Forest:
    """Nodes of all trees in common arrays, so that one step descends in all trees at once."""

    nodes: _Tree
    roots: npt.NDArray[np.int64]

    @staticmethod
    def of(trees: Sequence[_Tree]) -> _Forest:
        roots = np.cumsum([0, *(len(tree.left) for tree in trees)])[:-1].astype(np.int64)
        pairs = list(zip(trees, roots, strict=True))
        nodes = _Tree(
            np.concatenate([np.where(tree.left < 0, -1, tree.left + root) for tree, root in pairs]),
            np.concatenate([tree.right + root for tree, root in pairs]),
            np.concatenate([tree.feature for tree in trees]),
            np.concatenate([tree.threshold for tree in trees]),
            np.concatenate([tree.missing_left for tree in trees]),
            max(tree.depth for tree in trees),
        )
        return _Forest(nodes, roots)

    def sums(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the sum of leaf values per row, added tree by tree in XGBoost's order."""
        nodes = self.nodes
        at = np.repeat(self.roots[:, None], len(rows), axis=1)
        every = np.arange(len(rows))
        for _ in range(nodes.depth):
            value = rows[every, nodes.feature[at]]
            missing = nodes.missing_left[at]
            goes_left = np.where(np.isnan(value), missing, value < nodes.threshold[at])
            below = np.where(goes_left, nodes.left[at], nodes.right[at])
            at = np.where(nodes.left[at] < 0, at, below)
        return np.asarray(np.cumsum(nodes.threshold[at], axis=0)[-1])


def _read(content: bytes, columns: int, covariates: int) -> Predictor:
    saved = json_object(content, _WHAT)
    try:
        learner = saved["learner"]
        count = int(learner["learner_model_param"]["num_feature"])
        base = float(str(learner["learner_model_param"]["base_score"]).strip("[]"))
        scale = float(saved["skyhop_scale"])
        model = learner["gradient_booster"]["model"]
        trees = [_tree(each, count) for each in model["trees"]]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise damaged(_WHAT, f"{type(error).__name__}: {error}") from None
    wanted = HISTORY_S * columns + covariates
    if count != wanted:
        raise damaged(_WHAT, f"it has {count} features, its card {wanted}")
    if not (np.isfinite(base) and np.isfinite(scale)):
        raise damaged(_WHAT, "a value is not a number")

    forest = _Forest.of(trees) if trees else None
    at_once = max(_MOST_AT_ONCE // max(len(trees), 1), 1)

    def predict(windows: Windows) -> FloatArray:
        rows = matrix(windows)
        total = np.zeros(len(rows), dtype=np.float32)
        for first in range(0, len(rows) if forest else 0, at_once):
            assert forest is not None, "the loop is empty without trees"
            total[first : first + at_once] = forest.sums(rows[first : first + at_once])
        return (total + np.float32(base)).astype(np.float64) * scale

    return predict


def _tree(saved: Mapping[str, Any], features: int) -> _Tree:
    left, right, feature, threshold, missing = (
        floats(saved[name], _WHAT)
        for name in (
            "left_children", "right_children", "split_indices", "split_conditions", "default_left",
        )
    )  # fmt: skip
    count = len(left)
    if not count or any(len(each) != count for each in (right, feature, threshold, missing)):
        raise ValueError("a tree's lists are not of one length")
    is_inner = left >= 0
    children = np.concatenate((left[is_inner], right[is_inner]))
    # Require that children follow their parents, so that no node is its own ancestor.
    parents = np.tile(np.flatnonzero(is_inner), 2)
    if ((children <= parents) | (children >= count)).any():
        raise ValueError("a tree's node has no such child")
    if ((feature < 0) | (feature >= features))[is_inner].any():
        raise ValueError("a tree uses a feature that does not exist")
    return _Tree(
        left.astype(np.int64),
        right.astype(np.int64),
        np.where(is_inner, feature, 0).astype(np.int64),
        threshold.astype(np.float32),
        missing.astype(bool),
        _depth(left.astype(np.int64), right.astype(np.int64)),
    )


def _depth(left: npt.NDArray[np.int64], right: npt.NDArray[np.int64]) -> int:
    depth = np.zeros(len(left), dtype=np.int64)
    for node in np.flatnonzero(left >= 0):
        depth[[left[node], right[node]]] = depth[node] + 1
    if depth.max() > _MOST_DEPTH:
        raise ValueError("a tree is too deep")
    return int(depth.max())


MODEL = ModelKind("xgboost", "gradient-boosted trees over the last 5 s", ".json", _read)
