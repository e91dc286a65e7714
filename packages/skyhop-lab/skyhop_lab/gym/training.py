"""Training: proximal policy optimization over worlds, on the processors of one machine.

Source: Schulman et al., "Proximal policy optimization algorithms", 2017. All agents of all slots
share one network, the policy. An agent's action is the policy's output plus Gaussian noise. The
noise shrinks towards the end of training, because the result is the policy without noise: the ONNX
file that the card names. The critic, which estimates returns, has inputs that agents do not have
(Pinto et al., "Asymmetric actor critic for image-based robot learning", RSS 2018); it is only used
in training.
"""

from __future__ import annotations

import csv
import io
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from skyhop import _core
from skyhop.errors import InputError, RunError
from skyhop.install import how_to_install
from skyhop.study.file import read_table
from skyhop_lab.gym.episodes import EpisodeSlots
from skyhop_lab.gym.rollouts import Batch, Reals, RolloutBuffer
from skyhop_lab.gym.world import Worlds
from skyhop_lab.policies.networks import Activation, DenseNetwork, Layer

_LEAST_DEVIATION = 1e-3
"""Smallest standard deviation by which inputs are divided; an input that varies less counts as
constant.
"""


@dataclass(frozen=True)
class TrainingPlan:
    """Hyperparameters of a training."""

    steps: int = 4_000_000
    """Total number of decisions, of all agents together."""
    seed: int = 1
    hidden: Sequence[int] = (64, 64)
    """Sizes of the hidden layers, in policy and critic."""
    slots: int = 120
    """Number of episodes that run in parallel."""
    rollout_steps: int = 128
    """Steps per slot between two updates of the networks."""
    learning_rate: float = 6e-4
    """Initial learning rate of Adam; it falls linearly to 0."""
    discount: float = 0.99
    """Discount factor of rewards per step."""
    gae_lambda: float = 0.95
    """Lambda of the generalized advantage estimation."""
    clip: float = 0.2
    """Clipping range of the probability ratio (PPO's epsilon)."""
    epochs: int = 4
    """Passes over a rollout at each update."""
    minibatches: int = 8
    """Minibatches per epoch, of equal size."""
    action_deviations: tuple[float, float] = (0.3, 0.03)
    """Standard deviation of the noise added to actions: at the beginning and at the end of
    training.
    """


@dataclass(frozen=True)
class Progress:
    """Row of the learning curve, for one rollout; the field names are the CSV's header."""

    turns: int
    """Number of decisions of all agents so far."""
    wall_s: float
    mean_reward: float
    deviation: float
    """Standard deviation of the noise added to actions."""
    share: float
    """Mean goodput as a fraction of the rate of the narrowest link."""
    queue_s: float
    """Mean smoothed RTT minus the RTT without queues, in s."""
    lost_packets: float
    """Mean number of lost packets per interval."""


@dataclass(frozen=True)
class TrainingResult:
    """Trained network and its learning curve."""

    network: DenseNetwork
    curve: list[Progress]

    def curve_csv(self) -> str:
        """Return the learning curve as CSV."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(Progress.__dataclass_fields__)
        for row in self.curve:
            writer.writerow(f"{value:.6g}" for value in vars(row).values())
        return text.getvalue()


def network_file(card: str | os.PathLike[str]) -> Path:
    """Return the path of the ONNX file that a card names as its network.

    Raises:
        InputError: the card cannot be read, or its network is of a kind that is not trained here.
    """
    file = Path(card)
    content = read_table(file)
    network = content.get("network", {})
    name = network.get("file", "") if isinstance(network, dict) else ""
    is_plain_name = isinstance(name, str) and name == Path(name).name
    if not is_plain_name or Path(name).suffix != ".onnx":
        raise InputError(
            f"{file}: network.file: expected the name of an ONNX file in the card's folder"
        )
    if network.get("memory"):
        raise InputError(f"{file}: network.memory: training makes networks without memory")
    return file.parent / name


class _RunningMoments:
    """Running mean and variance of each network input, with which inputs are normalised."""

    def __init__(self, size: int) -> None:
        self._count, self._mean, self._squares = 0.0, np.zeros(size), np.zeros(size)

    def update(self, rows: Reals) -> None:
        """Include more rows.

        Source: Chan et al., the variance of two joined samples.
        """
        more, mean = len(rows), rows.mean(axis=0, dtype=np.float64)
        squares = ((rows - mean) ** 2).sum(axis=0, dtype=np.float64)
        difference, count = mean - self._mean, self._count + more
        self._squares += squares + difference**2 * self._count * more / count
        self._mean += difference * more / count
        self._count = count

    @property
    def mean(self) -> Reals:
        """Mean of each input so far."""
        return self._mean.astype(np.float32)

    @property
    def deviation(self) -> Reals:
        """Standard deviation of each input so far; 1 where the input is constant."""
        found = np.sqrt(self._squares / max(self._count, 1.0))
        return np.where(found < _LEAST_DEVIATION, 1.0, found).astype(np.float32)

    def normalised(self, rows: Reals) -> Reals:
        """Return the rows minus the mean, divided by the standard deviation."""
        return (rows - self.mean) / self.deviation


def train(
    worlds: Worlds,
    card: str | os.PathLike[str],
    reward: str = "leo",
    plan: TrainingPlan | None = None,
    *,
    sets: Sequence[str] = (),
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> TrainingResult:
    """Train a network for a card; the same plan on the same machine yields the same weights.

    Args:
        worlds: as for `Environment`, with any number of agents in each.
        card: as for `Environment`.
        reward: as for `Environment`.
        plan: hyperparameters; by default those of `TrainingPlan`.
        sets: overrides of the scenarios, each "KEY=VALUE".
        on_progress: called with a row of the learning curve after each rollout.

    Raises:
        InputError: a world, the card or the reward is wrong.
        RunError: JAX or Optax is not installed.
    """
    plan = plan or TrainingPlan()
    learner = _Learner(plan, slots := EpisodeSlots(worlds, card, reward, plan.slots, sets=sets))
    generators = [np.random.default_rng([plan.seed, slot]) for slot in range(plan.slots)]
    slots.begin(dict(enumerate(generators)))
    buffer, curve, began = RolloutBuffer(slots), list[Progress](), time.monotonic()
    updates = max(1, round(plan.steps / (plan.slots * plan.rollout_steps)))
    try:
        for number in range(updates):
            figures = _roll_out(plan, slots, generators, learner, buffer)
            batch = buffer.drain(plan.discount, plan.gae_lambda)
            steps, wall_s = (number + 1) * plan.slots * plan.rollout_steps, time.monotonic() - began
            curve.append(_progress((steps, wall_s), batch.mean_reward, learner, figures))
            learner.learn(batch, number / updates)
            on_progress(curve[-1])
    except KeyboardInterrupt:
        # A user who interrupts a training gets the network trained so far.
        if not curve:
            raise
    return TrainingResult(learner.network(), curve)


def _roll_out(
    plan: TrainingPlan,
    slots: EpisodeSlots,
    generators: Sequence[np.random.Generator],
    learner: _Learner,
    buffer: RolloutBuffer,
) -> Any:
    """Add `rollout_steps` steps per slot to the buffer; return the figures of all intervals."""
    figures = []
    for _ in range(plan.rollout_steps):
        figures.append(slots.figures.copy())
        privileged = _privileged_inputs(figures[-1])
        actions, log_probabilities, values = learner.act(slots.observations, privileged)
        buffer.add(privileged, actions, log_probabilities, values)
        slots.step(actions.astype(np.float64))
        ended = np.flatnonzero(slots.status).tolist()
        if ended:
            buffer.end_episodes(ended)
            slots.begin({slot: generators[slot] for slot in ended})
    return np.concatenate(figures)


def _privileged_inputs(figures: Any) -> Reals:
    """Return the critic's additional inputs, scaled to a similar magnitude.

    Only the simulator knows these figures.
    """
    of = dict(zip(_core.INTERVAL_FIGURES, figures.T, strict=True))
    link_bps, base_rtt_s = np.maximum(of["link_bps"], 1.0), np.maximum(of["base_rtt_s"], 1e-6)
    shares = [of["goodput_bps"] / link_bps, of["others_bps"] / link_bps]
    queue = (of["rtt_s"] - base_rtt_s) / np.maximum(0.05, 0.25 * base_rtt_s)
    sizes = [np.log(link_bps), np.log(base_rtt_s), np.log(np.maximum(of["cwnd_packets"], 1.0))]
    inputs = [*(np.clip(share, 0.0, 2.0) for share in shares), np.clip(queue, 0.0, 8.0), *sizes]
    return np.stack(inputs, axis=1).astype(np.float32)


def _progress(
    done: tuple[int, float], mean_reward: float, learner: _Learner, figures: Any
) -> Progress:
    of = dict(zip(_core.INTERVAL_FIGURES, figures.T, strict=True))
    return Progress(
        *done,
        mean_reward,
        learner.deviation,
        float(np.mean(of["goodput_bps"] / np.maximum(of["link_bps"], 1.0))),
        float(np.mean(of["rtt_s"] - of["base_rtt_s"])),
        float(np.mean(of["lost_packets"])),
    )


class _Learner:
    """Policy and critic, with the normalisation of their inputs and the optimiser."""

    def __init__(self, plan: TrainingPlan, slots: EpisodeSlots) -> None:
        self._jax, optax = _import_library("jax"), _import_library("optax")
        if tuple(slots.bounds) != (-1.0, 1.0):
            raise InputError("network.output: only networks with outputs from -1 to 1 are trained")
        self._plan = plan
        self._noise = np.random.default_rng([plan.seed, plan.slots])
        privileged = _privileged_inputs(slots.figures).shape[1]
        self._observation_moments = _RunningMoments(slots.inputs)
        self._privileged_moments = _RunningMoments(privileged)
        keys = self._jax.random.split(self._jax.random.PRNGKey(plan.seed), 2)
        sizes = [*plan.hidden, 1]
        # JAX sums in the order of these keys: another order gives slightly different weights.
        self._weights = {
            "policy": _initial_weights(self._jax, keys[0], [slots.inputs, *sizes]),
            "critic": _initial_weights(self._jax, keys[1], [slots.inputs + privileged, *sizes]),
        }
        self._deviation = plan.action_deviations[0]
        self._optimiser = optax.chain(
            optax.clip_by_global_norm(0.5), optax.inject_hyperparams(optax.adam)(plan.learning_rate)
        )
        self._state = self._optimiser.init(self._weights)
        self._evaluate, self._update = _compiled_functions(self._jax, optax, self._optimiser, plan)

    def act(self, observations: Reals, privileged: Reals) -> tuple[Reals, Reals, Reals]:
        """Return actions, the logarithm of their densities, and the critic's value estimates."""
        self._observation_moments.update(observations)
        self._privileged_moments.update(privileged)
        inputs = self._normalised(observations, privileged)
        means, values = map(np.asarray, self._evaluate(self._weights, *inputs))
        deviation = self._deviation
        noise = self._noise.standard_normal(len(observations)).astype(np.float32)
        log_probabilities = -0.5 * noise**2 - np.log(deviation)
        return means + deviation * noise, log_probabilities.astype(np.float32), values

    def _normalised(self, observations: Reals, privileged: Reals) -> tuple[Reals, Reals]:
        return (
            self._observation_moments.normalised(observations),
            self._privileged_moments.normalised(privileged),
        )

    def learn(self, batch: Batch, done: float) -> None:
        """Update the networks with a rollout.

        `done` is the fraction of the plan that is finished.
        """
        plan = self._plan
        first, last = plan.action_deviations
        self._state[1].hyperparams["learning_rate"] = self._jax.numpy.asarray(
            plan.learning_rate * (1 - done)
        )
        advantages = (batch.advantages - batch.advantages.mean()) / (batch.advantages.std() + 1e-8)
        inputs = self._normalised(batch.observations, batch.privileged)
        columns = (*inputs, batch.actions, batch.log_probabilities, advantages, batch.returns)
        size = len(advantages) // plan.minibatches
        for _ in range(plan.epochs):
            # All minibatches have equal size, so that JAX compiles the update only once.
            order = self._noise.permutation(len(advantages))[: size * plan.minibatches]
            for rows in order.reshape(plan.minibatches, size):
                minibatch = tuple(column[rows] for column in columns)
                self._weights, self._state = self._update(
                    self._weights, self._state, self._deviation, minibatch
                )
        self._deviation = first * (last / first) ** done

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise that is added to the policy's output."""
        return self._deviation

    def network(self) -> DenseNetwork:
        """Return the policy, with the normalisation of its inputs merged into the first layer."""
        layers = [tuple(map(np.asarray, layer)) for layer in self._weights["policy"]]
        (weight, bias), *others = layers
        moments = self._observation_moments
        first = weight / moments.deviation.astype(np.float64)[:, None]
        folded = [(first, bias - moments.mean @ first), *others]
        return DenseNetwork([Layer(weight, bias, Activation("tanh")) for weight, bias in folded])


def _compiled_functions(
    jax: Any, optax: Any, optimiser: Any, plan: TrainingPlan
) -> tuple[Any, Any]:
    """Compile the evaluation of both networks, and their update by a minibatch."""
    jnp = jax.numpy

    def forward(layers: Any, values: Any) -> Any:
        for weight, bias in layers[:-1]:
            values = jnp.tanh(values @ weight + bias)
        weight, bias = layers[-1]
        return (values @ weight + bias)[:, 0]

    def evaluate(weights: Any, observations: Any, privileged: Any) -> tuple[Any, Any]:
        critic_inputs = jnp.concatenate([observations, privileged], axis=1)
        means = jnp.tanh(forward(weights["policy"], observations))
        return means, forward(weights["critic"], critic_inputs)

    def loss(weights: Any, deviation: Any, minibatch: Any) -> Any:
        observations, privileged, actions, old_log_probabilities, advantages, returns = minibatch
        means, values = evaluate(weights, observations, privileged)
        log_probabilities = -0.5 * ((actions - means) / deviation) ** 2 - jnp.log(deviation)
        ratio = jnp.exp(log_probabilities - old_log_probabilities)
        clipped = jnp.clip(ratio, 1 - plan.clip, 1 + plan.clip)
        return (
            -jnp.minimum(ratio * advantages, clipped * advantages).mean()
            + 0.5 * ((values - returns) ** 2).mean()
        )

    def update(weights: Any, state: Any, deviation: Any, minibatch: Any) -> tuple[Any, Any]:
        gradient = jax.grad(loss)(weights, deviation, minibatch)
        updates, state = optimiser.update(gradient, state, weights)
        return optax.apply_updates(weights, updates), state

    return jax.jit(evaluate), jax.jit(update)


def _initial_weights(jax: Any, key: Any, sizes: Sequence[int]) -> list[tuple[Any, Any]]:
    """Draw the weights of dense layers.

    The last layer's are small, so that outputs begin near 0.
    """
    layers = []
    for number, (rows, across) in enumerate(pairwise(sizes)):
        key, own = jax.random.split(key)
        gain = 0.01 if number == len(sizes) - 2 else 1.0
        bound = gain * float(np.sqrt(6 / (rows + across)))
        weight = jax.random.uniform(own, (rows, across), minval=-bound, maxval=bound)
        layers.append((weight, jax.numpy.zeros(across)))
    return layers


def _import_library(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise RunError(
            f"training needs {name}, which is not installed: "
            f"run {how_to_install('skyhop-lab[train]')}"
        ) from None
