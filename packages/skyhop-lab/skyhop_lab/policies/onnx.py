"""Encoding of ONNX files (onnx.proto): graphs of operators over rows of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from skyhop_lab.policies.wire import bytes_field, float_field, varint_field

INPUT_NAME = "seen"
"""Name of a network's input in ONNX files."""
OUTPUT_NAME = "said"
"""Name of a network's output in ONNX files."""
_IR, _OPERATORS = 8, 17
"""Versions of the format (IR) and of the operator set."""
_FLOAT = 1
"""Value of FLOAT in TensorProto.DataType and AttributeProto.AttributeType."""


@dataclass(frozen=True)
class Node:
    """Operator of the graph, with the names of its inputs and its output."""

    operator: str
    inputs: Sequence[str]
    output: str
    attributes: Mapping[str, float] = field(default_factory=dict)
    """Values of the operator's attributes by name."""


@dataclass(frozen=True)
class Memory:
    """Recurrent state: the input with the previous state, and the output with the next state."""

    input: str
    output: str
    size: int


def encode(
    nodes: Sequence[Node],
    constants: Mapping[str, npt.ArrayLike],
    inputs: int,
    outputs: int,
    memory: Sequence[Memory] = (),
) -> bytes:
    """Encode a network with the input `INPUT_NAME` and the output `OUTPUT_NAME`.

    Both are rows of numbers, of the lengths `inputs` and `outputs`.
    """
    graph = b"".join(bytes_field(1, _node(node)) for node in nodes) + bytes_field(2, b"policy")
    graph += b"".join(bytes_field(5, _tensor(name, held)) for name, held in constants.items())
    graph += bytes_field(11, _row(INPUT_NAME, inputs)) + bytes_field(12, _row(OUTPUT_NAME, outputs))
    for entry in memory:
        graph += bytes_field(11, _row(entry.input, entry.size))
        graph += bytes_field(12, _row(entry.output, entry.size))
    return (
        varint_field(1, _IR) + bytes_field(8, varint_field(2, _OPERATORS)) + bytes_field(7, graph)
    )


def _node(node: Node) -> bytes:
    names = b"".join(bytes_field(1, name.encode()) for name in node.inputs)
    names += bytes_field(2, node.output.encode()) + bytes_field(4, node.operator.encode())
    return names + b"".join(
        bytes_field(
            5, bytes_field(1, name.encode()) + float_field(2, value) + varint_field(20, _FLOAT)
        )
        for name, value in node.attributes.items()
    )


def _tensor(name: str, values: npt.ArrayLike) -> bytes:
    array = np.asarray(values, "<f4")
    sizes = b"".join(varint_field(1, size) for size in array.shape)
    return (
        sizes
        + varint_field(2, _FLOAT)
        + bytes_field(8, name.encode())
        + bytes_field(9, array.tobytes())
    )


def _row(name: str, size: int) -> bytes:
    sizes = b"".join(bytes_field(1, varint_field(1, axis)) for axis in (1, size))
    return bytes_field(1, name.encode()) + bytes_field(
        2, bytes_field(1, varint_field(1, _FLOAT) + bytes_field(2, sizes))
    )
