"""Sage's network, which remembers: encoder, GRU, encoder, MLP, and the mean of a mixture.

It is made of what Acme 0.2.0 and Sonnet 2 call LayerNormMLP, GRU, LayerNormAndResidualMLP and
MultivariateGaussianMixture (Soheil-ab/sage, sage_rl/offline/offline_agent.py, make_networks, type
1909, with the sizes of rl_module/config-rl-eval.yaml). A checkpoint of TensorFlow 2 names tensors
by the attributes that lead to them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.policies.checkpoint import Checkpoint
from skyhop.policies.onnx import SAID, SEEN, Memory, Node, encode
from skyhop.policies.tensors import dense, take

_UNITS = 1024
"""Of the GRU, which is what the card says that the network remembers."""
_MEMORY, _NEXT = "h", "h_next"
"""As the card calls them."""
_LAYERS = "policy/_layers"
_VARIABLE = "/.ATTRIBUTES/VARIABLE_VALUE"


@dataclass
class Graph:
    """A network that is more than layers in their order, while it is put together."""

    inputs: int
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, FloatArray] = field(default_factory=dict)
    memory: list[Memory] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    """What it is made of, in words."""

    def __str__(self) -> str:
        return " -> ".join([str(self.inputs), *self.parts])

    def onnx(self) -> bytes:
        """Return its ONNX file."""
        return encode(self.nodes, self.constants, self.inputs, 1, self.memory)

    def add(self, operator: str, *inputs: str | FloatArray, output: str = "") -> str:
        """Add an operator on what others make and on constants; return what it makes."""
        names = [given if isinstance(given, str) else self._keep(given) for given in inputs]
        made = output or f"made{len(self.nodes)}"
        self.nodes.append(Node(operator, names, made))
        return made

    def _keep(self, numbers: FloatArray) -> str:
        name = f"held{len(self.constants)}"
        self.constants[name] = numbers
        return name


def sage(checkpoint: Checkpoint, inputs: int, units: int = _UNITS) -> Graph:
    """Sage's policy: 69 -> 256 -> GRU 1024 -> 256 -> 256 -> the mean of five Gaussians.

    The agent acts by the mean (rl_module/tcpactor_evalcrr.py, StochasticMeanHead), moved to its
    bounds, which is the card's to do.
    """
    graph = Graph(inputs)
    encoded, width = _encoder(graph, checkpoint, 0, SEEN, inputs)
    remembered = _gru(graph, checkpoint, encoded, width, units)
    encoded, width = _encoder(graph, checkpoint, 2, remembered, units)
    thought, width = _residual(graph, checkpoint, encoded, width)
    _mean(graph, checkpoint, thought, width)
    return graph


def _encoder(
    graph: Graph, checkpoint: Checkpoint, place: int, seen: str, inputs: int
) -> tuple[str, int]:
    """Add a dense layer, a layer norm and tanh; return what they make, and its width."""
    scope = f"{_LAYERS}/{place}/_proprio_encoder/_network/_layers"
    weight, bias = _linear(checkpoint, f"{scope}/0", inputs)
    made = graph.add("Gemm", seen, weight, bias)
    made = graph.add("Tanh", _norm(graph, checkpoint, f"{scope}/1", made, len(bias)))
    graph.parts.append(f"{len(bias)} norm tanh")
    return made, len(bias)


def _gru(graph: Graph, checkpoint: Checkpoint, seen: str, inputs: int, units: int) -> str:
    """Add Sonnet's GRU: its update takes the new, where ONNX's keeps the old.

    The reset acts on what is remembered, before that is multiplied.
    """
    scope = f"{_LAYERS}/1"
    of_seen = np.split(_take(checkpoint, f"{scope}/_w_i", inputs, 3 * units), 3, axis=1)
    of_memory = np.split(_take(checkpoint, f"{scope}/_w_h", units, 3 * units), 3, axis=1)
    biases = np.split(_take(checkpoint, f"{scope}/b", 3 * units), 3)

    def sums(part: int, memory: str) -> str:
        of_input = graph.add("Gemm", seen, of_seen[part], biases[part])
        return graph.add("Gemm", memory, of_memory[part], of_input)

    update = graph.add("Sigmoid", sums(0, _MEMORY))
    reset = graph.add("Sigmoid", sums(1, _MEMORY))
    new = graph.add("Tanh", sums(2, graph.add("Mul", reset, _MEMORY)))
    change = graph.add("Mul", update, graph.add("Sub", new, _MEMORY))
    graph.memory.append(Memory(_MEMORY, _NEXT, units))
    graph.parts.append(f"GRU {units}")
    return graph.add("Add", _MEMORY, change, output=_NEXT)


def _residual(graph: Graph, checkpoint: Checkpoint, seen: str, inputs: int) -> tuple[str, int]:
    """Add a dense layer, and blocks of two that add to what they take, and are normed."""
    scope = f"{_LAYERS}/3/_module/_layers"
    weight, bias = _linear(checkpoint, f"{scope}/0/_layers/0", inputs)
    made, width = graph.add("Gemm", seen, weight, bias), len(bias)
    blocks = 1
    # One block is there, or it is told of; how many follow is the training's choice.
    while f"{scope}/{blocks + 1}/_layer_norm/scale{_VARIABLE}" in checkpoint.shapes:
        blocks += 1
    for block in range(1, blocks + 1):
        layers = f"{scope}/{block}/_layer/_layers"
        first, second = f"{layers}/0", f"{layers}/1"
        weight, bias = _linear(checkpoint, first, width)
        hidden = graph.add("Relu", graph.add("Gemm", made, weight, bias))
        added = graph.add("Gemm", hidden, *_linear(checkpoint, second, len(bias), width))
        added = graph.add("Add", added, made)
        made = _norm(graph, checkpoint, f"{scope}/{block}/_layer_norm", added, width)
    graph.parts.append(f"{width}, with {blocks} residual blocks")
    return made, width


def _mean(graph: Graph, checkpoint: Checkpoint, seen: str, inputs: int) -> None:
    """Add the mean of a mixture: that of each component by how likely it is."""
    scope = f"{_LAYERS}/4"
    likely, bias = _linear(checkpoint, f"{scope}/_logit_layer", inputs)
    components = len(bias)
    likely_each = graph.add("Softmax", graph.add("Gemm", seen, likely, bias))
    means = graph.add("Gemm", seen, *_linear(checkpoint, f"{scope}/_loc_layer", inputs, components))
    graph.add("ReduceSum", graph.add("Mul", likely_each, means), output=SAID)
    graph.parts.append(f"mean of {components} Gaussians")


def _norm(graph: Graph, checkpoint: Checkpoint, scope: str, seen: str, width: int) -> str:
    """Add a layer norm; Sonnet's epsilon is ONNX's."""
    scale, offset = (_take(checkpoint, f"{scope}/{name}", width) for name in ("scale", "offset"))
    return graph.add("LayerNormalization", seen, scale, offset)


def _linear(
    checkpoint: Checkpoint, scope: str, inputs: int, outputs: int | None = None
) -> tuple[FloatArray, FloatArray]:
    return dense(checkpoint, f"{scope}/w{_VARIABLE}", f"{scope}/b{_VARIABLE}", inputs, outputs)


def _take(checkpoint: Checkpoint, name: str, *sizes: int) -> FloatArray:
    return take(checkpoint, f"{name}{_VARIABLE}", *sizes)
