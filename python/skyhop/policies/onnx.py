"""ONNX files, as its protocol buffers are laid out: operators over rows of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from skyhop.policies.wire import content, number, real

SEEN = "seen"
"""The name of the input."""
SAID = "said"
"""The name of the output."""
_IR, _OPERATORS = 8, 17
"""Versions: of the file, and of the set of operators."""
_FLOAT = 1
"""Of TensorProto.DataType, and of AttributeProto.AttributeType."""


@dataclass(frozen=True)
class Node:
    """An operator, the names of what it takes, and of what it makes."""

    operator: str
    inputs: Sequence[str]
    output: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Its attributes."""


@dataclass(frozen=True)
class Memory:
    """A row of numbers that a network takes in, and what it makes of it for the next time."""

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
    """Return the file of a network that makes `SAID`, a row of `outputs`, of `SEEN`."""
    graph = b"".join(content(1, _node(node)) for node in nodes) + content(2, b"policy")
    graph += b"".join(content(5, _tensor(name, held)) for name, held in constants.items())
    graph += content(11, _row(SEEN, inputs)) + content(12, _row(SAID, outputs))
    for entry in memory:
        graph += content(11, _row(entry.input, entry.size))
        graph += content(12, _row(entry.output, entry.size))
    return number(1, _IR) + content(8, number(2, _OPERATORS)) + content(7, graph)


def _node(node: Node) -> bytes:
    names = b"".join(content(1, name.encode()) for name in node.inputs)
    names += content(2, node.output.encode()) + content(4, node.operator.encode())
    return names + b"".join(
        content(5, content(1, name.encode()) + real(2, value) + number(20, _FLOAT))
        for name, value in node.numbers.items()
    )


def _tensor(name: str, held: npt.ArrayLike) -> bytes:
    array = np.asarray(held, "<f4")
    sizes = b"".join(number(1, size) for size in array.shape)
    return sizes + number(2, _FLOAT) + content(8, name.encode()) + content(9, array.tobytes())


def _row(name: str, size: int) -> bytes:
    sizes = b"".join(content(1, number(1, axis)) for axis in (1, size))
    return content(1, name.encode()) + content(2, content(1, number(1, _FLOAT) + content(2, sizes)))
