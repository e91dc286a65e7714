"""Training of the recurrent network with JAX and Optax.

One LSTM layer of 64 units reads the last 5 (as published) or 30 seconds; the covariates are
appended to its last state, and one linear unit makes the prediction. Dropout 0.1, Adam with 1e-3,
batches of at most 256 and at least 32 of them per epoch, at most 50 epochs, stopped early after 5
without gain on the check part, Huber's loss on standardised values. Both lengths are tried, and
the one with the lower absolute error on the check part is kept. Unknown values are replaced by the
mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from skyhop.errors import RunError
from skyhop.predict.models.lstm import Scale, forward
from skyhop.predict.models.saved import npz_bytes
from skyhop.predict.windows import Windows
from skyhop_lab.predict.kinds.trainer import Trained, Trainer, library

LENGTHS_S = (5, 30)
_UNITS, _DROPOUT, _RATE, _EPOCHS, _EARLY = 64, 0.1, 1e-3, 50, 5
_LARGEST_BATCH, _LEAST_BATCHES = 256, 32


def _train(fit: Windows, check: Windows, seed: int) -> Trained:
    scale = Scale.of(fit)
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
    fit: Windows, check: Windows, scale: Scale, length_s: int, seed: int
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
    batch = _batch(len(truth))
    best = (np.inf, 0, weights)
    for number in range(1, _EPOCHS + 1):
        order = draw.permutation(len(truth))[: len(truth) // batch * batch].reshape(-1, batch)
        weights, state = epoch(weights, state, order, jax.random.fold_in(key, number))
        current = {name: np.asarray(value) for name, value in weights.items()}
        error = float(np.abs(forward(current, *check_inputs) - check_truth).mean())
        if error < best[0]:
            best = (error, number, current)
        elif number - best[1] >= _EARLY:
            break
    return best


def _batch(windows: int) -> int:
    """Return the windows per batch; little data get small batches, so that steps are many."""
    return min(_LARGEST_BATCH, max(windows // _LEAST_BATCHES, 1))


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


TRAINER = Trainer("lstm", ("jax", "optax"), _train)
