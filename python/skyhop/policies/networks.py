"""Which tensors of a checkpoint are whose layers, and the ONNX network that they come to.

A dense layer is y = x W + b. A batch norm that follows it takes the mean and divides by the
deviation that training has left, which is a dense layer again: both become one, in double
precision.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.errors import InputError
from skyhop.policies.checkpoint import Checkpoint, names_of
from skyhop.policies.onnx import SAID, SEEN, Node, encode
from skyhop.policies.sage import sage
from skyhop.policies.tensors import dense, listed, take
from skyhop.policies.torch_file import TorchFile

_BATCH_NORM_EPSILON = 1e-3
"""Of `tf.layers.batch_normalization`, where nothing else is said."""
_TF_SLOPE, _TORCH_SLOPE = 0.2, 0.01
"""Of `tf.nn.leaky_relu` and `torch.nn.LeakyReLU`, where nothing else is said."""
_MATRIX = 2
_MOST_NAMES = 20
_OPERATORS = {"relu": "Relu", "tanh": "Tanh", "leaky-relu": "LeakyRelu"}


@dataclass(frozen=True)
class Activation:
    """What follows a layer."""

    name: Literal["relu", "tanh", "leaky-relu"]
    slope: float | None = None
    """Of leaky-relu below 0; without it that of what wrote the checkpoint."""

    def __str__(self) -> str:
        return self.name if self.slope is None else f"{self.name} {self.slope:g}"


@dataclass(frozen=True)
class Layer:
    """A dense layer: a weight per input and output, what is added, and what follows."""

    weight: FloatArray
    bias: FloatArray
    activation: Activation | None


class Network(Protocol):
    """What comes of a checkpoint; as text what it is made of."""

    @property
    def inputs(self) -> int:
        """How many numbers it sees, what it remembers apart."""

    def onnx(self) -> bytes:
        """Return its ONNX file."""


@dataclass(frozen=True)
class Layers:
    """Layers, each of which takes what the one before makes."""

    layers: Sequence[Layer]

    @property
    def inputs(self) -> int:
        """How many numbers the first of them takes."""
        return len(self.layers[0].weight)

    def __str__(self) -> str:
        """Return its sizes with what follows each layer: 30 -> 32 tanh -> 1."""
        sizes = [str(len(self.layers[0].weight))]
        sizes += [f"{len(made.bias)} {made.activation or ''}".strip() for made in self.layers]
        return " -> ".join(sizes)

    def onnx(self) -> bytes:
        """Return its ONNX file."""
        nodes: list[Node] = []
        constants: dict[str, FloatArray] = {}
        for i, layer in enumerate(self.layers):
            constants |= {f"w{i}": layer.weight, f"b{i}": layer.bias}
            before = nodes[-1].output if nodes else SEEN
            nodes.append(Node("Gemm", (before, f"w{i}", f"b{i}"), f"dense{i}"))
            if layer.activation:
                nodes.append(_activation(layer.activation, f"dense{i}", f"active{i}"))
        last = nodes.pop()
        nodes.append(Node(last.operator, last.inputs, SAID, last.numbers))
        return encode(nodes, constants, self.inputs, len(self.layers[-1].bias))


def _activation(activation: Activation, before: str, output: str) -> Node:
    slope = {} if activation.slope is None else {"alpha": activation.slope}
    return Node(_OPERATORS[activation.name], (before,), output, slope)


_LEAKY = Activation("leaky-relu", _TF_SLOPE)
_TANH = Activation("tanh")


def _astraea(checkpoint: Checkpoint, inputs: int) -> Layers:
    """Astraea's actor: 50 -> 256 -> 128 -> 64 -> 1.

    HKUST-SING/astraea-open-source, python/agent/agent.py, class Actor, with the sizes of
    python/astraea.json (read as copied into ShengtongZhu/astraea): `fc1` to `fc3`, after each of
    which stand a batch norm without scale and a leaky ReLU, then a dense layer with tanh, times an
    action scale of 1. The observation is scaled by the card's features.
    """
    return _actor(checkpoint, inputs, ("fc1", "fc2", "fc3"))


def _orca(checkpoint: Checkpoint, inputs: int) -> Layers:
    """Orca's actor: 70 -> 256 -> 256 -> 1.

    Soheil-ab/Orca, rl-module/agent.py, class Actor, with the sizes of rl-module/params.json: `fc1`
    and `fc2`, after each of which stand a batch norm without scale and a leaky ReLU, then a dense
    layer with tanh, times an action scale of 1.
    """
    return _actor(checkpoint, inputs, ("fc1", "fc2"))


def _actor(checkpoint: Checkpoint, inputs: int, hidden: Sequence[str]) -> Layers:
    """Return an actor of TensorFlow 1's layers, which numbers those that were given no name."""
    layers = []
    for i, name in enumerate(hidden):
        scope = f"actor/batch_normalization{f'_{i}' if i else ''}"
        layer = dense(checkpoint, f"actor/{name}/kernel", f"actor/{name}/bias", inputs)
        layers.append(_normed(checkpoint, scope, layer))
        inputs = len(layers[-1].bias)
    last = dense(checkpoint, "actor/dense/kernel", "actor/dense/bias", inputs, 1)
    return Layers([*layers, Layer(*last, _TANH)])


def _normed(checkpoint: Checkpoint, scope: str, layer: tuple[FloatArray, FloatArray]) -> Layer:
    """Return a dense layer with the batch norm that follows it, and a leaky ReLU."""
    weight, bias = layer
    beta, mean, variance = (
        take(checkpoint, f"{scope}/{name}", len(bias))
        for name in ("beta", "moving_mean", "moving_variance")
    )
    if variance.min() < 0:
        raise InputError(
            f"{checkpoint.file}: {scope}/moving_variance has a number below 0: it is damaged"
        )
    scale = 1.0 / np.sqrt(variance + _BATCH_NORM_EPSILON)
    return Layer(weight * scale, (bias - mean) * scale + beta, _LEAKY)


def _aurora(checkpoint: Checkpoint, inputs: int) -> Layers:
    """Aurora's policy: 30 -> 32 -> 16 -> 1, the mean of a Gaussian, which is not bounded.

    PCCproject/PCC-RL, src/gym/stable_solve.py: an MLP policy of stable-baselines (PPO1), of which
    the saved model's output `act` is the mean. Stable-Baselines-Team/stable-baselines,
    stable_baselines/common/policies.py and distributions.py: `model/pi_fc0`, `model/pi_fc1` with
    tanh, then `model/pi`, linear; observations are not scaled. Early releases had all of it in a
    scope `pi`; `oldpi` is the policy before the last update. Ports to stable-baselines3 have the
    same network as `mlp_extractor.policy_net` and `action_net`.
    """
    if "action_net.weight" in checkpoint.shapes:
        hidden = [f"mlp_extractor.policy_net.{i}" for i in range(0, 2 * _MOST_NAMES, 2)]
        names = [(f"{name}.weight", f"{name}.bias") for name in (*hidden, "action_net")]
    else:
        scope = "pi/model/pi" if "pi/model/pi/w" in checkpoint.shapes else "model/pi"
        hidden = [f"{scope}_fc{i}" for i in range(_MOST_NAMES)]
        names = [(f"{name}/w", f"{name}/b") for name in (*hidden, scope)]
    (first, *others), last = names[:-1], names[-1]
    # The first layer is there, or it is told of; how many follow is the training's choice.
    names = [first, *(pair for pair in others if pair[0] in checkpoint.shapes), last]
    return _chain(checkpoint, names, _TANH, None, inputs=inputs, outputs=1)


NETWORKS: dict[str, Callable[[Checkpoint, int], Network]] = {
    "astraea": _astraea,
    "aurora": _aurora,
    "orca": _orca,
    "sage": sage,
}
"""By the card's name: what makes its network of a checkpoint, for so many inputs."""


def plain(checkpoint: Checkpoint, hidden: Activation, last: Activation | None) -> Network:
    """Return the network of a checkpoint that holds dense layers in their order, and nothing else.

    PyTorch's are in the order in which they were made, TensorFlow's by their names with their
    numbers counted.

    Raises:
        InputError: there is another tensor, or layers do not follow one another.
    """
    is_torch = isinstance(checkpoint, TorchFile)
    if hidden.name == "leaky-relu" and hidden.slope is None:
        hidden = Activation(hidden.name, _TORCH_SLOPE if is_torch else _TF_SLOPE)
    names = [name for name in names_of(checkpoint.shapes) if checkpoint.shapes[name]]
    pairs = {name: _bias_of(name) for name in names if len(checkpoint.shapes[name]) == _MATRIX}
    others = set(names) - pairs.keys() - {bias for bias in pairs.values() if bias}
    if others or not pairs or None in pairs.values():
        told = sorted(others) or [name for name in pairs if pairs[name] is None]
        raise InputError(
            f"{checkpoint.file}: expected nothing but weights and biases of dense layers, found "
            f"{listed(told)}: save the policy's network alone, or name its --card"
        )
    ordered = list(pairs) if is_torch else sorted(pairs, key=_counted)
    chosen = [(name, pairs[name] or "") for name in ordered]
    return _chain(checkpoint, chosen, hidden, last)


def _bias_of(name: str) -> str | None:
    """Return the name of the bias that belongs to a weight."""
    for weight, bias in (("weight", "bias"), ("kernel", "bias"), ("weights", "biases"), ("w", "b")):
        bias_name, found = re.subn(
            rf"(^|[./]){weight}(?=$|/\.ATTRIBUTES/)", rf"\g<1>{bias}", name, count=1
        )
        if found:
            return bias_name
    return None


def _counted(name: str) -> list[tuple[int, str]]:
    """Return what names are sorted by: their parts, with numbers as such."""
    parts = re.split(r"(\d+)", name.replace("/", "\0"))
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _chain(
    checkpoint: Checkpoint,
    names: Sequence[tuple[str, str]],
    hidden: Activation,
    last: Activation | None,
    *,
    inputs: int | None = None,
    outputs: int | None = None,
) -> Layers:
    """Return the network of layers that are there one after another."""
    layers: list[Layer] = []
    for i, (weight, bias) in enumerate(names):
        is_last = i == len(names) - 1
        layer = dense(checkpoint, weight, bias, inputs, outputs if is_last else None)
        layers.append(Layer(*layer, last if is_last else hidden))
        inputs = len(layer[1])
    return Layers(layers)
