"""Training: proximal policy optimization over worlds, on the processors of one machine.

Schulman et al., "Proximal policy optimization algorithms", 2017. All agents of all places share one
network; an agent says a number near the network's, and nearer towards the end, for what comes out
is the network without that: a file in ONNX that the card names. What is to be expected says a
second network, which knows more than agents do (Pinto et al., "Asymmetric actor critic for
image-based robot learning", RSS 2018): it is not needed any more where decisions are made.
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
from skyhop.gym.episodes import Places
from skyhop.gym.turns import Batch, Reals, Record
from skyhop.gym.world import Worlds
from skyhop.policies.networks import Activation, Layer, Layers
from skyhop.study.file import read_scenario_table

_LEAST_DEVIATION = 1e-3
"""What varies less is taken to be the same always."""


@dataclass(frozen=True)
class Plan:
    """How to train."""

    steps: int = 4_000_000
    """Turns of all agents."""
    seed: int = 1
    hidden: Sequence[int] = (64, 64)
    """Sizes of the layers between what is seen and what is said."""
    places: int = 120
    turns: int = 128
    """In each place, between two improvements."""
    rate: float = 6e-4
    """Of learning, at the beginning; it falls to nothing."""
    discount: float = 0.99
    """What the next turn's reward is worth."""
    trace: float = 0.95
    clip: float = 0.2
    epochs: int = 4
    batches: int = 8
    deviations: tuple[float, float] = (0.3, 0.03)
    """Of what is said from the network's output: in the beginning, and towards what it falls."""


@dataclass(frozen=True)
class Progress:
    """A row of the learning curve: the turns so far, the mean reward of the newest, and so on."""

    turns: int
    wall_s: float
    mean_reward: float
    deviation: float
    share: float
    """Goodput over the narrowest link's rate."""
    queue_s: float
    """Smoothed round trip over that without queues."""
    lost_packets: float


@dataclass(frozen=True)
class Trained:
    """What training came to."""

    network: Layers
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
    """Return where a card has its network.

    Raises:
        InputError: it cannot be read, or training makes no networks as it has them.
    """
    file = Path(card)
    content = read_scenario_table(file)
    network = content.get("network", {})
    name = network.get("file", "") if isinstance(network, dict) else ""
    is_beside = isinstance(name, str) and name == Path(name).name
    if not is_beside or Path(name).suffix != ".onnx":
        raise InputError(f"{file}: network.file: expected the name of an ONNX file beside the card")
    if network.get("memory"):
        raise InputError(f"{file}: network.memory: training makes networks without memory")
    return file.parent / name


class _Scale:
    """Mean and deviation of all that was seen."""

    def __init__(self, size: int) -> None:
        self._count, self._mean, self._squares = 0.0, np.zeros(size), np.zeros(size)

    def note(self, seen: Reals) -> None:
        """Count more of it in (Chan et al.'s way of joining two variances)."""
        more, mean = len(seen), seen.mean(axis=0, dtype=np.float64)
        squares = ((seen - mean) ** 2).sum(axis=0, dtype=np.float64)
        apart, count = mean - self._mean, self._count + more
        self._squares += squares + apart**2 * self._count * more / count
        self._mean += apart * more / count
        self._count = count

    @property
    def mean(self) -> Reals:
        """The mean of each number."""
        return self._mean.astype(np.float32)

    @property
    def deviation(self) -> Reals:
        """The standard deviation of each number; 1 where it has been the same always."""
        found = np.sqrt(self._squares / max(self._count, 1.0))
        return np.where(found < _LEAST_DEVIATION, 1.0, found).astype(np.float32)

    def of(self, seen: Reals) -> Reals:
        """Return what was seen in deviations from the mean."""
        return (seen - self.mean) / self.deviation


def train(
    worlds: Worlds,
    card: str | os.PathLike[str],
    reward: str = "leo",
    plan: Plan | None = None,
    *,
    sets: Sequence[str] = (),
    tell: Callable[[Progress], None] = lambda _: None,
) -> Trained:
    """Train a network for a card; the same plan on the same machine comes to the same weights.

    Args:
        worlds: as for `Environment`; any number of agents in each.
        card: likewise.
        reward: likewise.
        plan: how; as above where not given.
        sets: overrides of the scenarios, each "KEY=VALUE".
        tell: is told how far it is, and how well it does.

    Raises:
        InputError: a world, the card or the reward is wrong.
        RunError: JAX or Optax is not installed.
    """
    plan = plan or Plan()
    learner = _Learner(plan, places := Places(worlds, card, reward, plan.places, sets=sets))
    sources = [np.random.default_rng([plan.seed, place]) for place in range(plan.places)]
    places.begin(dict(enumerate(sources)))
    record, curve, began = Record(places), list[Progress](), time.monotonic()
    improvements = max(1, round(plan.steps / (plan.places * plan.turns)))
    try:
        for number in range(improvements):
            figures = _play(plan, places, sources, learner, record)
            batch = record.take(plan.discount, plan.trace)
            turns, wall_s = (number + 1) * plan.places * plan.turns, time.monotonic() - began
            curve.append(_progress((turns, wall_s), batch.mean_reward, learner, figures))
            learner.learn(batch, number / improvements)
            tell(curve[-1])
    except KeyboardInterrupt:
        # What has been learned is worth more than the rest of the plan to whoever stops it.
        if not curve:
            raise
    return Trained(learner.network(), curve)


def _play(
    plan: Plan,
    places: Places,
    sources: Sequence[np.random.Generator],
    learner: _Learner,
    record: Record,
) -> Any:
    """Take so many turns in each place; return the figures of all intervals."""
    figures = []
    for _ in range(plan.turns):
        figures.append(places.figures.copy())
        known = _known(figures[-1])
        said, odds, expected = learner.say(places.seen, known)
        record.note(known, said, odds, expected)
        places.step(said.astype(np.float64))
        over = np.flatnonzero(places.ended).tolist()
        if over:
            record.begin(over)
            places.begin({place: sources[place] for place in over})
    return np.concatenate(figures)


def _known(figures: Any) -> Reals:
    """Return what only the simulator knows of intervals, in numbers of a like size."""
    of = dict(zip(_core.INTERVAL_FIGURES, figures.T, strict=True))
    link_bps, base_rtt_s = np.maximum(of["link_bps"], 1.0), np.maximum(of["base_rtt_s"], 1e-6)
    shares = [of["goodput_bps"] / link_bps, of["others_bps"] / link_bps]
    queue = (of["rtt_s"] - base_rtt_s) / np.maximum(0.05, 0.25 * base_rtt_s)
    sizes = [np.log(link_bps), np.log(base_rtt_s), np.log(np.maximum(of["cwnd_packets"], 1.0))]
    known = [*(np.clip(share, 0.0, 2.0) for share in shares), np.clip(queue, 0.0, 8.0), *sizes]
    return np.stack(known, axis=1).astype(np.float32)


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
    """The networks, what they know of the scale of things, and how they get better."""

    def __init__(self, plan: Plan, places: Places) -> None:
        self._jax, optax = _library("jax"), _library("optax")
        if tuple(places.bounds) != (-1.0, 1.0):
            raise InputError("network.output: training makes networks that say -1 to 1")
        self._plan = plan
        self._draw = np.random.default_rng([plan.seed, plan.places])
        known = _known(places.figures).shape[1]
        self._scale, self._scale_of_known = _Scale(places.inputs), _Scale(known)
        keys = self._jax.random.split(self._jax.random.PRNGKey(plan.seed), 2)
        sizes = [*plan.hidden, 1]
        self._weights = {
            "says": _first_weights(self._jax, keys[0], [places.inputs, *sizes]),
            "expects": _first_weights(self._jax, keys[1], [places.inputs + known, *sizes]),
        }
        self._deviation = plan.deviations[0]
        self._optimiser = optax.chain(
            optax.clip_by_global_norm(0.5), optax.inject_hyperparams(optax.adam)(plan.rate)
        )
        self._state = self._optimiser.init(self._weights)
        self._asked, self._improved = _functions(self._jax, optax, self._optimiser, plan)

    def say(self, seen: Reals, known: Reals) -> tuple[Reals, Reals, Reals]:
        """Return what each agent says, the log of how likely that was, and what is expected."""
        self._scale.note(seen)
        self._scale_of_known.note(known)
        scaled = self._scale.of(seen), self._scale_of_known.of(known)
        middle, expected = map(np.asarray, self._asked(self._weights, *scaled))
        deviation = self._deviation
        noise = self._draw.standard_normal(len(seen)).astype(np.float32)
        odds = -0.5 * noise**2 - np.log(deviation)
        return middle + deviation * noise, odds.astype(np.float32), expected

    def learn(self, batch: Batch, done: float) -> None:
        """Get better, by what is known of these turns; `done` is how much of the plan is done."""
        plan = self._plan
        first, last = plan.deviations
        self._state[1].hyperparams["learning_rate"] = self._jax.numpy.asarray(
            plan.rate * (1 - done)
        )
        gained = (batch.gained - batch.gained.mean()) / (batch.gained.std() + 1e-8)
        scaled = self._scale.of(batch.seen), self._scale_of_known.of(batch.known)
        whole = (*scaled, batch.said, batch.odds, gained, batch.worth)
        size = len(gained) // plan.batches
        for _ in range(plan.epochs):
            # As many in each, so that what is compiled for one is for all.
            order = self._draw.permutation(len(gained))[: size * plan.batches]
            for rows in order.reshape(plan.batches, size):
                part = tuple(column[rows] for column in whole)
                self._weights, self._state = self._improved(
                    self._weights, self._state, self._deviation, part
                )
        self._deviation = first * (last / first) ** done

    @property
    def deviation(self) -> float:
        """How far what is said lies from the network's output."""
        return self._deviation

    def network(self) -> Layers:
        """Return what decides, with the scale of what is seen in its first layer."""
        layers = [tuple(map(np.asarray, layer)) for layer in self._weights["says"]]
        (weight, bias), *others = layers
        deviation = self._scale.deviation.astype(np.float64)
        first = weight / deviation[:, None]
        made = [(first, bias - self._scale.mean @ first), *others]
        return Layers([Layer(weight, bias, Activation("tanh")) for weight, bias in made])


def _functions(jax: Any, optax: Any, optimiser: Any, plan: Plan) -> tuple[Any, Any]:
    """Return what asks both networks, and what improves them by a batch."""
    jnp = jax.numpy

    def through(layers: Any, values: Any) -> Any:
        for weight, bias in layers[:-1]:
            values = jnp.tanh(values @ weight + bias)
        weight, bias = layers[-1]
        return (values @ weight + bias)[:, 0]

    def asked(weights: Any, seen: Any, known: Any) -> tuple[Any, Any]:
        everything = jnp.concatenate([seen, known], axis=1)
        return jnp.tanh(through(weights["says"], seen)), through(weights["expects"], everything)

    def loss(weights: Any, deviation: Any, part: Any) -> Any:
        seen, known, said, odds, gained, worth = part
        middle, expected = asked(weights, seen, known)
        now = -0.5 * ((said - middle) / deviation) ** 2 - jnp.log(deviation)
        ratio = jnp.exp(now - odds)
        kept = jnp.clip(ratio, 1 - plan.clip, 1 + plan.clip)
        return (
            -jnp.minimum(ratio * gained, kept * gained).mean()
            + 0.5 * ((expected - worth) ** 2).mean()
        )

    def improved(weights: Any, state: Any, deviation: Any, part: Any) -> tuple[Any, Any]:
        updates, state = optimiser.update(jax.grad(loss)(weights, deviation, part), state, weights)
        return optax.apply_updates(weights, updates), state

    return jax.jit(asked), jax.jit(improved)


def _first_weights(jax: Any, key: Any, sizes: Sequence[int]) -> list[tuple[Any, Any]]:
    """Return dense layers; the last says nearly nothing at first."""
    layers = []
    for number, (rows, across) in enumerate(pairwise(sizes)):
        key, own = jax.random.split(key)
        gain = 0.01 if number == len(sizes) - 2 else 1.0
        bound = gain * float(np.sqrt(6 / (rows + across)))
        weight = jax.random.uniform(own, (rows, across), minval=-bound, maxval=bound)
        layers.append((weight, jax.numpy.zeros(across)))
    return layers


def _library(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise RunError(f"training needs {name}: pip install 'skyhop[train]'") from None
