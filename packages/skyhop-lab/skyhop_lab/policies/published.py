"""Networks of published policies, read from the tensors of their checkpoints.

A dense layer is y = x W + b. A batch norm after it subtracts the mean and divides by the standard
deviation, both from the training. That is another linear map, so both are merged into one layer, in
double precision.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.errors import InputError
from skyhop_lab.policies.networks import Activation, DenseNetwork, Layer, Network
from skyhop_lab.policies.sage import sage_network
from skyhop_lab.policies.tensors import Checkpoint, list_names

_BATCH_NORM_EPSILON = 1e-3
"""Default epsilon of `tf.layers.batch_normalization`."""
_TF_SLOPE, _TORCH_SLOPE = 0.2, 0.01
"""Default slopes of `tf.nn.leaky_relu` and `torch.nn.LeakyReLU`."""
_MATRIX = 2
_MOST_NAMES = 20
_LEAKY = Activation("leaky-relu", _TF_SLOPE)
_TANH = Activation("tanh")


def _astraea(checkpoint: Checkpoint, inputs: int) -> DenseNetwork:
    """Read Astraea's actor: 50 -> 256 -> 128 -> 64 -> 1.

    HKUST-SING/astraea-open-source, python/agent/agent.py, class Actor, with the sizes of
    python/astraea.json (read as copied into ShengtongZhu/astraea): `fc1` to `fc3`, each followed by
    a batch norm without scale and a leaky ReLU, then a dense layer with tanh, times an
    action scale of 1. The observation is scaled by the card's features.
    """
    return _actor(checkpoint, inputs, ("fc1", "fc2", "fc3"))


def _orca(checkpoint: Checkpoint, inputs: int) -> DenseNetwork:
    """Read Orca's actor: 70 -> 256 -> 256 -> 1.

    Soheil-ab/Orca, rl-module/agent.py, class Actor, with the sizes of rl-module/params.json: `fc1`
    and `fc2`, each followed by a batch norm without scale and a leaky ReLU, then a dense
    layer with tanh, times an action scale of 1.
    """
    return _actor(checkpoint, inputs, ("fc1", "fc2"))


def _actor(checkpoint: Checkpoint, inputs: int, hidden: Sequence[str]) -> DenseNetwork:
    """Read an actor written with TensorFlow 1, which numbers batch norms without a name."""
    layers = []
    for i, name in enumerate(hidden):
        scope = f"actor/batch_normalization{f'_{i}' if i else ''}"
        layer = checkpoint.read_dense(f"actor/{name}/kernel", f"actor/{name}/bias", inputs)
        layers.append(_merge_batch_norm(checkpoint, scope, layer))
        inputs = len(layers[-1].bias)
    last = checkpoint.read_dense("actor/dense/kernel", "actor/dense/bias", inputs, 1)
    return DenseNetwork([*layers, Layer(*last, _TANH)])


def _merge_batch_norm(
    checkpoint: Checkpoint, scope: str, layer: tuple[FloatArray, FloatArray]
) -> Layer:
    """Merge a dense layer and the batch norm after it into one layer, followed by a leaky ReLU."""
    weight, bias = layer
    beta, mean, variance = (
        checkpoint.read(f"{scope}/{name}", len(bias))
        for name in ("beta", "moving_mean", "moving_variance")
    )
    if variance.min() < 0:
        raise InputError(
            f"{checkpoint.file}: {scope}/moving_variance has a value below 0: it is damaged"
        )
    scale = 1.0 / np.sqrt(variance + _BATCH_NORM_EPSILON)
    return Layer(weight * scale, (bias - mean) * scale + beta, _LEAKY)


def _aurora(checkpoint: Checkpoint, inputs: int) -> DenseNetwork:
    """Read Aurora's policy: 30 -> 32 -> 16 -> 1, the unbounded mean of a Gaussian.

    PCCproject/PCC-RL, src/gym/stable_solve.py: an MLP policy of stable-baselines (PPO1); the saved
    model's output `act` is its mean. Stable-Baselines-Team/stable-baselines,
    stable_baselines/common/policies.py and distributions.py: `model/pi_fc0`, `model/pi_fc1` with
    tanh, then `model/pi`, linear; observations are not scaled. Early releases had all layers in a
    scope `pi`; `oldpi` is the policy before the last update. Ports to stable-baselines3 have the
    same network as `mlp_extractor.policy_net` and `action_net`.
    """
    if "action_net.weight" in checkpoint.tensors:
        hidden = [f"mlp_extractor.policy_net.{i}" for i in range(0, 2 * _MOST_NAMES, 2)]
        names = [(f"{name}.weight", f"{name}.bias") for name in (*hidden, "action_net")]
    else:
        scope = "pi/model/pi" if "pi/model/pi/w" in checkpoint.tensors else "model/pi"
        hidden = [f"{scope}_fc{i}" for i in range(_MOST_NAMES)]
        names = [(f"{name}/w", f"{name}/b") for name in (*hidden, scope)]
    (first, *others), last = names[:-1], names[-1]
    # The number of hidden layers is chosen at training; only the first is required.
    names = [first, *(pair for pair in others if pair[0] in checkpoint.tensors), last]
    return _read_layers(checkpoint, names, _TANH, None, inputs=inputs, outputs=1)


NETWORKS: dict[str, Callable[[Checkpoint, int], Network]] = {
    "astraea": _astraea,
    "aurora": _aurora,
    "orca": _orca,
    "sage": sage_network,
}
"""Functions that read a network with a given number of inputs from a checkpoint, by the card's
name.
"""


def plain_network(checkpoint: Checkpoint, hidden: Activation, last: Activation | None) -> Network:
    """Read the network of a checkpoint that contains only dense layers.

    PyTorch's layers are in the order of the file, TensorFlow's in the natural order of their names.

    Raises:
        InputError: the checkpoint has another tensor, or sizes of consecutive layers differ.
    """
    if hidden.name == "leaky-relu" and hidden.slope is None:
        hidden = Activation(hidden.name, _TORCH_SLOPE if checkpoint.is_torch else _TF_SLOPE)
    names = [name for name in checkpoint.network_tensors() if checkpoint.tensors[name].ndim]
    pairs = {name: _bias_name(name) for name in names if checkpoint.tensors[name].ndim == _MATRIX}
    others = set(names) - pairs.keys() - {bias for bias in pairs.values() if bias}
    if others or not pairs or None in pairs.values():
        unexpected = sorted(others) or [name for name in pairs if pairs[name] is None]
        raise InputError(
            f"{checkpoint.file}: expected nothing but weights and biases of dense layers, found "
            f"{list_names(unexpected)}: save the policy's network alone, or name its --card"
        )
    ordered = list(pairs) if checkpoint.is_torch else sorted(pairs, key=_natural_order)
    chosen = [(name, pairs[name] or "") for name in ordered]
    return _read_layers(checkpoint, chosen, hidden, last)


def _bias_name(name: str) -> str | None:
    """Return the name of the bias for a weight's name; `None` if the name is not a weight's."""
    for weight, bias in (("weight", "bias"), ("kernel", "bias"), ("weights", "biases"), ("w", "b")):
        bias_name, found = re.subn(
            rf"(^|[./]){weight}(?=$|/\.ATTRIBUTES/)", rf"\g<1>{bias}", name, count=1
        )
        if found:
            return bias_name
    return None


def _natural_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key for a name, in which numbers compare by value."""
    parts = re.split(r"(\d+)", name.replace("/", "\0"))
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _read_layers(
    checkpoint: Checkpoint,
    names: Sequence[tuple[str, str]],
    hidden: Activation,
    last: Activation | None,
    *,
    inputs: int | None = None,
    outputs: int | None = None,
) -> DenseNetwork:
    """Read consecutive layers, each given by the names of its weight and its bias."""
    layers: list[Layer] = []
    for i, (weight, bias) in enumerate(names):
        is_last = i == len(names) - 1
        layer = checkpoint.read_dense(weight, bias, inputs, outputs if is_last else None)
        layers.append(Layer(*layer, last if is_last else hidden))
        inputs = len(layer[1])
    return DenseNetwork(layers)
