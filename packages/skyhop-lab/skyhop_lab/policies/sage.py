"""Sage's recurrent network: encoder, GRU, encoder, residual MLP, and the mean of a mixture.

Its parts are called LayerNormMLP, GRU, LayerNormAndResidualMLP and MultivariateGaussianMixture in
Acme 0.2.0 and Sonnet 2 (Soheil-ab/sage, sage_rl/offline/offline_agent.py, make_networks, type 1909,
with the sizes of rl_module/config-rl-eval.yaml). A checkpoint of TensorFlow 2 names tensors by the
attributes that lead to them.
"""

from __future__ import annotations

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop_lab.policies.graph import INPUT_NAME, OUTPUT_NAME, Graph
from skyhop_lab.policies.tensors import Checkpoint

_UNITS = 1024
"""Units of the GRU: size of the recurrent memory in the card."""
_MEMORY, _NEXT = "h", "h_next"
"""Names that the card gives to the memory's input and output."""
_LAYERS = "policy/_layers"
_VARIABLE = "/.ATTRIBUTES/VARIABLE_VALUE"


def sage_network(checkpoint: Checkpoint, inputs: int, units: int = _UNITS) -> Graph:
    """Read Sage's policy: 69 -> 256 -> GRU 1024 -> 256 -> 256 -> the mean of five Gaussians.

    The agent's action is the mean (rl_module/tcpactor_evalcrr.py, StochasticMeanHead), clipped to
    its bounds. The card does the clipping.
    """
    graph = Graph(inputs)
    encoded, width = _encoder(graph, checkpoint, 0, INPUT_NAME, inputs)
    state = _gru(graph, checkpoint, encoded, width, units)
    encoded, width = _encoder(graph, checkpoint, 2, state, units)
    hidden, width = _residual(graph, checkpoint, encoded, width)
    _mixture_mean(graph, checkpoint, hidden, width)
    return graph


def _encoder(
    graph: Graph, checkpoint: Checkpoint, index: int, source: str, inputs: int
) -> tuple[str, int]:
    """Add a dense layer, a layer norm and tanh; return the name and width of their output."""
    scope = f"{_LAYERS}/{index}/_proprio_encoder/_network/_layers"
    weight, bias = _linear(checkpoint, f"{scope}/0", inputs)
    made = graph.add("Gemm", source, weight, bias)
    made = graph.add("Tanh", _norm(graph, checkpoint, f"{scope}/1", made, len(bias)))
    graph.parts.append(f"{len(bias)} norm tanh")
    return made, len(bias)


def _gru(graph: Graph, checkpoint: Checkpoint, source: str, inputs: int, units: int) -> str:
    """Add Sonnet's GRU, whose update gate weights the new state; ONNX's weights the old state.

    The reset gate is applied to the state before the multiplication with the weights.
    """
    scope = f"{_LAYERS}/1"
    of_source = np.split(_read_variable(checkpoint, f"{scope}/_w_i", inputs, 3 * units), 3, axis=1)
    of_memory = np.split(_read_variable(checkpoint, f"{scope}/_w_h", units, 3 * units), 3, axis=1)
    biases = np.split(_read_variable(checkpoint, f"{scope}/b", 3 * units), 3)

    def sums(part: int, memory: str) -> str:
        of_input = graph.add("Gemm", source, of_source[part], biases[part])
        return graph.add("Gemm", memory, of_memory[part], of_input)

    update = graph.add("Sigmoid", sums(0, _MEMORY))
    reset = graph.add("Sigmoid", sums(1, _MEMORY))
    new = graph.add("Tanh", sums(2, graph.add("Mul", reset, _MEMORY)))
    change = graph.add("Mul", update, graph.add("Sub", new, _MEMORY))
    graph.remember(_MEMORY, _NEXT, units)
    graph.parts.append(f"GRU {units}")
    return graph.add("Add", _MEMORY, change, output=_NEXT)


def _residual(graph: Graph, checkpoint: Checkpoint, source: str, inputs: int) -> tuple[str, int]:
    """Add a dense layer and residual blocks of two dense layers and a layer norm each."""
    scope = f"{_LAYERS}/3/_module/_layers"
    weight, bias = _linear(checkpoint, f"{scope}/0/_layers/0", inputs)
    made, width = graph.add("Gemm", source, weight, bias), len(bias)
    blocks = 1
    # The number of blocks is chosen at training; only the first block is required.
    while f"{scope}/{blocks + 1}/_layer_norm/scale{_VARIABLE}" in checkpoint.tensors:
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


def _mixture_mean(graph: Graph, checkpoint: Checkpoint, source: str, inputs: int) -> None:
    """Add the mean of a Gaussian mixture: the components' means, weighted by probability."""
    scope = f"{_LAYERS}/4"
    logits, bias = _linear(checkpoint, f"{scope}/_logit_layer", inputs)
    components = len(bias)
    weights = graph.add("Softmax", graph.add("Gemm", source, logits, bias))
    means = graph.add(
        "Gemm", source, *_linear(checkpoint, f"{scope}/_loc_layer", inputs, components)
    )
    graph.add("ReduceSum", graph.add("Mul", weights, means), output=OUTPUT_NAME)
    graph.parts.append(f"mean of {components} Gaussians")


def _norm(graph: Graph, checkpoint: Checkpoint, scope: str, source: str, width: int) -> str:
    """Add a layer norm; Sonnet and ONNX have the same default epsilon, 1e-5."""
    scale, offset = (
        _read_variable(checkpoint, f"{scope}/{name}", width) for name in ("scale", "offset")
    )
    return graph.add("LayerNormalization", source, scale, offset)


def _linear(
    checkpoint: Checkpoint, scope: str, inputs: int, outputs: int | None = None
) -> tuple[FloatArray, FloatArray]:
    return checkpoint.read_dense(f"{scope}/w{_VARIABLE}", f"{scope}/b{_VARIABLE}", inputs, outputs)


def _read_variable(checkpoint: Checkpoint, name: str, *sizes: int) -> FloatArray:
    return checkpoint.read(f"{name}{_VARIABLE}", *sizes)
