"""Tensors of a checkpoint, as somebody expects them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.errors import InputError
from skyhop.policies.checkpoint import Checkpoint, names_of
from skyhop.policies.torch_file import TorchFile

_MOST_LISTED = 20


def dense(
    checkpoint: Checkpoint, weight: str, bias: str, inputs: int | None, outputs: int | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return a layer's weights, by input and output, and its biases; PyTorch's are the other way.

    A layer of PyTorch may have no bias.

    Raises:
        InputError: they are not there, or of another shape.
    """
    is_torch = isinstance(checkpoint, TorchFile)
    shape = (outputs, inputs) if is_torch else (inputs, outputs)
    taken = take(checkpoint, weight, *shape)
    weights = taken.T if is_torch else taken
    if is_torch and bias not in checkpoint.shapes:
        return weights, np.zeros(weights.shape[1])
    return weights, take(checkpoint, bias, weights.shape[1])


def take(checkpoint: Checkpoint, name: str, *expected: int | None) -> FloatArray:
    """Read a tensor of a shape, where None is any size.

    Raises:
        InputError: it is not there, or of another shape, or holds what is no number.
    """
    shapes = checkpoint.shapes
    if name not in shapes:
        there = listed(names_of(shapes)) or "none"
        raise InputError(f"{checkpoint.file}: has no tensor {name}; it has {there}")
    fits = len(shapes[name]) == len(expected) and all(
        size == wanted if wanted else size > 0
        for size, wanted in zip(shapes[name], expected, strict=True)
    )
    if not fits:
        raise InputError(
            f"{checkpoint.file}: {name} holds {_shape(shapes[name])} numbers; expected "
            f"{_shape(expected)}: it is of another network"
        )
    taken = checkpoint.read(name)
    if not np.isfinite(taken.astype(np.float32)).all():
        raise InputError(f"{checkpoint.file}: {name} holds what is no number: it is damaged")
    return taken


def listed(names: Sequence[str]) -> str:
    """Return names as messages have them."""
    more = len(names) - _MOST_LISTED
    return ", ".join(names[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def _shape(sizes: Sequence[int | None]) -> str:
    return " x ".join("any" if size is None else str(size) for size in sizes) or "single"
