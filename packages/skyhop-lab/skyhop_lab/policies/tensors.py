"""Tensors of checkpoints, as export_checkpoint.py writes them, with checks of names and shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.errors import InputError

_EXPORTER = Path(__file__).with_name("export_checkpoint.py")
_FRAMEWORK = "__framework__"
"""Entry of the file with the name of the framework that wrote the checkpoint."""
_MOST_BYTES = 1 << 29
_MOST_LISTED = 20
_OPTIMISER_TENSOR = re.compile(
    r"/(?:Adam|Momentum|RMSProp|Adagrad)(?:_\d+)?$|\.OPTIMIZER_SLOT|(?:^|[./])optimizer(?:[./_]|$)"
)


@dataclass(frozen=True)
class Checkpoint:
    """Floating-point tensors of a checkpoint by name, in the order of the file."""

    file: Path
    is_torch: bool
    """Whether PyTorch wrote the checkpoint, which stores weights as outputs x inputs."""
    tensors: Mapping[str, FloatArray]

    def network_tensors(self) -> list[str]:
        """Return the names of the network's tensors, without the tensors of its optimiser."""
        return [name for name in self.tensors if not _OPTIMISER_TENSOR.search(name)]

    def read_dense(
        self, weight: str, bias: str, inputs: int | None, outputs: int | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return a dense layer: weights (inputs x outputs) and biases.

        Biases are 0 if a layer of PyTorch has none.

        Raises:
            InputError: a tensor is missing, or has another shape.
        """
        shape = (outputs, inputs) if self.is_torch else (inputs, outputs)
        stored = self.read(weight, *shape)
        weights = stored.T if self.is_torch else stored
        if self.is_torch and bias not in self.tensors:
            return weights, np.zeros(weights.shape[1])
        return weights, self.read(bias, weights.shape[1])

    def read(self, name: str, *expected: int | None) -> FloatArray:
        """Return a tensor of the expected shape, in which `None` stands for any size.

        Raises:
            InputError: the tensor is missing, has another shape, or is not finite.
        """
        if name not in self.tensors:
            names = list_names(self.network_tensors()) or "none"
            raise InputError(f"{self.file}: has no tensor {name}; it has {names}")
        values = self.tensors[name].astype(np.float64)
        fits = values.ndim == len(expected) and all(
            size == wanted if wanted else size > 0
            for size, wanted in zip(values.shape, expected, strict=True)
        )
        if not fits:
            raise InputError(
                f"{self.file}: {name} holds {_shape(values.shape)} numbers; expected "
                f"{_shape(expected)}: it belongs to another network"
            )
        if not np.isfinite(values.astype(np.float32)).all():
            raise InputError(f"{self.file}: {name} has values that are not finite: it is damaged")
        return values


def list_names(names: Sequence[str]) -> str:
    """Join at most the first 20 names for a message."""
    more = len(names) - _MOST_LISTED
    return ", ".join(names[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def _shape(sizes: Sequence[int | None]) -> str:
    return " x ".join("any" if size is None else str(size) for size in sizes) or "single"


def open_checkpoint(file: Path) -> Checkpoint:
    """Read the tensors that export_checkpoint.py wrote.

    Raises:
        InputError: the file is missing, damaged, too large, or of another format.
    """
    try:
        with np.load(file, allow_pickle=False) as opened:
            if sum(entry.file_size for entry in opened.zip.infolist()) > _MOST_BYTES:
                raise _refusal(file, f"has more than {_MOST_BYTES >> 20} MB")
            framework = str(opened[_FRAMEWORK]) if _FRAMEWORK in opened.files else ""
            if framework not in ("tensorflow", "torch"):
                raise _refusal(file, "has no exported tensors")
            arrays = {name: np.asarray(opened[name]) for name in opened.files}
    except OSError as error:
        raise _refusal(file, f"cannot be read: {error.strerror or error}") from None
    except InputError:
        raise
    # For damaged files numpy and zipfile raise more exceptions than they document.
    except Exception as error:
        raise _refusal(file, f"is no complete .npz file ({type(error).__name__})") from None
    tensors = {name: values for name, values in arrays.items() if values.dtype.kind == "f"}
    return Checkpoint(file, framework == "torch", tensors)


def _refusal(file: Path, why: str) -> InputError:
    return InputError(
        f"{file}: {why}; expected the file that this command writes where TensorFlow or PyTorch is "
        f"installed: python {_EXPORTER} CHECKPOINT tensors.npz"
    )
