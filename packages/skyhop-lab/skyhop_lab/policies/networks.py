"""Networks that come from checkpoints or training, and their ONNX files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from skyhop.data.arrays import FloatArray
from skyhop_lab.policies.graph import INPUT_NAME, OUTPUT_NAME, Graph

_OPERATORS = {"relu": "Relu", "tanh": "Tanh", "leaky-relu": "LeakyRelu"}


@dataclass(frozen=True)
class Activation:
    """Activation function that follows a dense layer."""

    name: Literal["relu", "tanh", "leaky-relu"]
    slope: float | None = None
    """Slope of leaky-relu below 0; `None` for the default of the checkpoint's framework."""

    def __str__(self) -> str:
        return self.name if self.slope is None else f"{self.name} {self.slope:g}"


@dataclass(frozen=True)
class Layer:
    """Dense layer: weights (inputs x outputs), biases, and the activation that follows."""

    weight: FloatArray
    bias: FloatArray
    activation: Activation | None


class Network(Protocol):
    """Network of a checkpoint; `str` gives a summary of its layers."""

    @property
    def inputs(self) -> int:
        """Number of inputs, not counting the recurrent memory."""

    def onnx(self) -> bytes:
        """Encode the network as an ONNX file."""


@dataclass(frozen=True)
class DenseNetwork:
    """Feed-forward network of dense layers."""

    layers: Sequence[Layer]

    @property
    def inputs(self) -> int:
        """Number of inputs of the first layer."""
        return len(self.layers[0].weight)

    def __str__(self) -> str:
        """Return sizes and activations of the layers, such as "30 -> 32 tanh -> 1"."""
        sizes = [str(len(self.layers[0].weight))]
        sizes += [f"{len(made.bias)} {made.activation or ''}".strip() for made in self.layers]
        return " -> ".join(sizes)

    def onnx(self) -> bytes:
        """Encode the network as an ONNX file."""
        graph = Graph(self.inputs, len(self.layers[-1].bias))
        made = INPUT_NAME
        for i, layer in enumerate(self.layers, 1):
            output = OUTPUT_NAME if i == len(self.layers) else ""
            then = layer.activation
            made = graph.add("Gemm", made, layer.weight, layer.bias, output="" if then else output)
            if then:
                slope = {} if then.slope is None else {"alpha": then.slope}
                made = graph.add(_OPERATORS[then.name], made, output=output, **slope)
        return graph.onnx()
