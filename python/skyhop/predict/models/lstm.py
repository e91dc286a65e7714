"""Recurrent network of one LSTM layer: trained by JAX and Optax, evaluated here by numpy.

64 units read the last 5 (as published) or 30 seconds; the covariates are appended to their last
state, and one linear unit makes the prediction. Dropout 0.1, Adam with 1e-3, batches of 256, at
most 50 epochs, stopped early after 5 without gain on the check part, Huber's loss on standardised
values. Both lengths are tried, and the one with the lower absolute error on the check part is kept.
Unknown values are replaced by the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.errors import RunError
from skyhop.predict.models.kind import ModelKind, Predictor, Trained, library
from skyhop.predict.models.saved import damaged, npz_arrays, npz_bytes
from skyhop.predict.windows import LOOK_BACK_S, Windows

LENGTHS_S = (5, 30)
_UNITS, _DROPOUT, _RATE, _BATCH, _EPOCHS, _EARLY = 64, 0.1, 1e-3, 256, 50, 5
_WHAT = "lstm file"
_AT_ONCE = 4096
_LEAST_SD = 1e-9


@dataclass(frozen=True)
class _Scale:
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
    def of(fit: Windows) -> _Scale:
        past = fit.past.reshape(-1, fit.past.shape[2])
        return _Scale(
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


def _train(fit: Windows, check: Windows, seed: int) -> Trained:
    scale = _Scale.of(fit)
    tried = {length: _train_length(fit, check, scale, length, seed) for length in LENGTHS_S}
    length = min(tried, key=lambda each: tried[each][0])
    error, epochs, weights = tried[length]
    if not np.isfinite(error):
        raise RunError("lstm: training diverged: its errors are not finite")
    arrays = {**weights, **vars(scale), "length_s": length}
    details = {
        "length_s": length,
        "epochs": epochs,
        "check_mae": {str(each): found[0] * scale.truth_sd for each, found in tried.items()},
    }
    return Trained(npz_bytes(arrays), details)


def _train_length(
    fit: Windows, check: Windows, scale: _Scale, length_s: int, seed: int
) -> tuple[float, int, dict[str, Any]]:
    """Return absolute error in the check part (standardised), number of epochs, and weights."""
    jax, optax = library("jax"), library("optax")
    past, covariates = scale.inputs(fit, length_s)
    truth = ((fit.truth - scale.truth_mean) / scale.truth_sd).astype(np.float32)
    check_truth = (check.truth - scale.truth_mean) / scale.truth_sd
    check_inputs = scale.inputs(check, length_s)
    key = jax.random.PRNGKey(seed)
    weights = _first_weights(jax, key, past.shape[2], covariates.shape[1])
    optimiser = optax.adam(_RATE)
    state = optimiser.init(weights)
    epoch = _epoch_of(jax, optax, optimiser, past=past, covariates=covariates, truth=truth)
    draw = np.random.default_rng(seed)
    batch = min(_BATCH, len(truth))
    best = (np.inf, 0, weights)
    for number in range(1, _EPOCHS + 1):
        order = draw.permutation(len(truth))[: len(truth) // batch * batch].reshape(-1, batch)
        weights, state = epoch(weights, state, order, jax.random.fold_in(key, number))
        current = {name: np.asarray(value) for name, value in weights.items()}
        error = float(np.abs(_forward(current, *check_inputs) - check_truth).mean())
        if error < best[0]:
            best = (error, number, current)
        elif number - best[1] >= _EARLY:
            break
    return best


def _first_weights(jax: Any, key: Any, columns: int, covariates: int) -> dict[str, Any]:
    keys = jax.random.split(key, 3)

    def drawn(key: Any, rows: int, across: int) -> Any:
        bound = float(np.sqrt(6 / (rows + across)))
        return jax.random.uniform(key, (rows, across), minval=-bound, maxval=bound)

    # The forget gate is open initially, as is usual.
    bias = np.zeros(4 * _UNITS, dtype=np.float32)
    bias[_UNITS : 2 * _UNITS] = 1.0
    return {
        "of_past": drawn(keys[0], columns, 4 * _UNITS),
        "of_state": drawn(keys[1], _UNITS, 4 * _UNITS),
        "bias": jax.numpy.asarray(bias),
        "out": drawn(keys[2], _UNITS + covariates, 1),
        "out_bias": jax.numpy.zeros(1),
    }


def _epoch_of(
    jax: Any, optax: Any, optimiser: Any, *, past: Any, covariates: Any, truth: Any
) -> Callable[..., tuple[Any, Any]]:
    """Return a function that trains for one epoch, on batches in a given order."""
    jnp = jax.numpy

    def last_state(weights: Mapping[str, Any], inputs: Any) -> Any:
        def step(carried: Any, now: Any) -> Any:
            hidden, cell = carried
            gates = now @ weights["of_past"] + hidden @ weights["of_state"] + weights["bias"]
            enter, forget, leave, new = jnp.split(gates, 4, axis=1)
            cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
            return (jax.nn.sigmoid(leave) * jnp.tanh(cell), cell), None

        zeros = jnp.zeros((inputs.shape[0], _UNITS))
        (hidden, _), _ = jax.lax.scan(step, (zeros, zeros), jnp.swapaxes(inputs, 0, 1))
        return hidden

    def loss(weights: Mapping[str, Any], rows: Any, key: Any) -> Any:
        hidden = last_state(weights, past[rows])
        kept = jax.random.bernoulli(key, 1 - _DROPOUT, hidden.shape)
        joined = jnp.hstack([jnp.where(kept, hidden / (1 - _DROPOUT), 0.0), covariates[rows]])
        found = (joined @ weights["out"])[:, 0] + weights["out_bias"]
        return optax.huber_loss(found, truth[rows]).mean()

    def batch(carried: Any, rows: Any) -> Any:
        weights, state, key = carried
        key, own = jax.random.split(key)
        gradients = jax.grad(loss)(weights, rows, own)
        updates, state = optimiser.update(gradients, state)
        return (optax.apply_updates(weights, updates), state, key), None

    past, covariates, truth = jnp.asarray(past), jnp.asarray(covariates), jnp.asarray(truth)

    @jax.jit  # type: ignore[untyped-decorator]
    def epoch(weights: Any, state: Any, order: Any, key: Any) -> Any:
        (weights, state, _), _ = jax.lax.scan(batch, (weights, state, key), order)
        return weights, state

    return epoch  # type: ignore[no-any-return]


def _forward(weights: Mapping[str, Any], past: Any, covariates: Any) -> FloatArray:
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
    scale = _Scale(
        past_mean=arrays["past_mean"],
        past_sd=arrays["past_sd"],
        beside_mean=arrays["beside_mean"],
        beside_sd=arrays["beside_sd"],
        truth_mean=float(arrays["truth_mean"]),
        truth_sd=float(arrays["truth_sd"]),
    )

    def predict(windows: Windows) -> FloatArray:
        found = [
            _forward(weights, *(part[first : first + _AT_ONCE] for part in inputs))
            for inputs in [scale.inputs(windows, length_s)]
            for first in range(0, len(windows), _AT_ONCE)
        ]
        whole = np.concatenate(found) if found else np.zeros(0)
        return whole * scale.truth_sd + scale.truth_mean

    return predict


MODEL = ModelKind(
    "lstm", "a recurrent network over the last 5 or 30 s", ".npz", ("jax", "optax"), _train, _read
)
