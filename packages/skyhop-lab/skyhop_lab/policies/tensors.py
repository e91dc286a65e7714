"""Reading of single tensors in a checkpoint, with checks of their names and shapes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.errors import InputError
from skyhop_lab.policies.checkpoint import Checkpoint, network_tensors
from skyhop_lab.policies.torch_file import TorchFile

_MOST_LISTED = 20


def read_dense(
    checkpoint: Checkpoint, weight: str, bias: str, inputs: int | None, outputs: int | None = None
) -> tuple[FloatArray, FloatArray]:
    """Read a dense layer: weights (inputs x outputs) and biases.

    PyTorch stores the weights transposed. Biases are 0 if a layer of PyTorch has none.

    Raises:
        InputError: a tensor is missing, or has another shape.
    """
    is_torch = isinstance(checkpoint, TorchFile)
    shape = (outputs, inputs) if is_torch else (inputs, outputs)
    stored = read_tensor(checkpoint, weight, *shape)
    weights = stored.T if is_torch else stored
    if is_torch and bias not in checkpoint.shapes:
        return weights, np.zeros(weights.shape[1])
    return weights, read_tensor(checkpoint, bias, weights.shape[1])


def read_tensor(checkpoint: Checkpoint, name: str, *expected: int | None) -> FloatArray:
    """Read a tensor of the expected shape, in which `None` stands for any size.

    Raises:
        InputError: the tensor is missing, has another shape, or is not finite.
    """
    shapes = checkpoint.shapes
    if name not in shapes:
        names = list_names(network_tensors(shapes)) or "none"
        raise InputError(f"{checkpoint.file}: has no tensor {name}; it has {names}")
    fits = len(shapes[name]) == len(expected) and all(
        size == wanted if wanted else size > 0
        for size, wanted in zip(shapes[name], expected, strict=True)
    )
    if not fits:
        raise InputError(
            f"{checkpoint.file}: {name} holds {_shape(shapes[name])} numbers; expected "
            f"{_shape(expected)}: it belongs to another network"
        )
    values = checkpoint.read(name)
    if not np.isfinite(values.astype(np.float32)).all():
        raise InputError(f"{checkpoint.file}: {name} has values that are not finite: it is damaged")
    return values


def list_names(names: Sequence[str]) -> str:
    """Join at most the first 20 names for a message."""
    more = len(names) - _MOST_LISTED
    return ", ".join(names[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def _shape(sizes: Sequence[int | None]) -> str:
    return " x ".join("any" if size is None else str(size) for size in sizes) or "single"
