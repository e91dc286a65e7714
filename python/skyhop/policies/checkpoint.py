"""A checkpoint, from what a user points at: a file of it, its prefix, or a directory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from skyhop.data.arrays import FloatArray
from skyhop.errors import InputError
from skyhop.policies.bundle import Bundle
from skyhop.policies.torch_file import TorchFile

_OF_BUNDLES = re.compile(r"\.(?:index|meta|data-\d{5}-of-\d{5})$")
_NEWEST = re.compile(r'^model_checkpoint_path: "([^"\0]+)"', re.MULTILINE)
_MOST_STATE = 1 << 20


class Checkpoint(Protocol):
    """Tensors of real numbers by their names."""

    file: Path
    shapes: dict[str, tuple[int, ...]]

    def read(self, name: str) -> FloatArray:
        """Return a tensor's numbers."""


def open_checkpoint(place: Path) -> Checkpoint:
    """Open a checkpoint of TensorFlow or PyTorch.

    Raises:
        InputError: none is there, or it is damaged.
    """
    if place.is_dir():
        return Bundle(_prefix_in(place))
    prefix = place.with_name(_OF_BUNDLES.sub("", place.name))
    if prefix.with_name(f"{prefix.name}.index").is_file() or prefix != place:
        return Bundle(prefix)
    if not place.is_file():
        raise InputError(f"{place}: is not there, nor is {place.name}.index: expected a checkpoint")
    return TorchFile(place)


def _prefix_in(directory: Path) -> Path:
    """Return the checkpoint of a directory: a SavedModel's, the newest, or the only one."""
    saved = directory / "variables" / "variables"
    if saved.with_name("variables.index").is_file():
        return saved
    if newest := _newest(directory):
        return newest
    found = sorted(directory.glob("*.index"))
    if len(found) != 1:
        names = ", ".join(file.name for file in found) or "none"
        raise InputError(f"{directory}: expected one checkpoint (*.index), found {names}: name one")
    return found[0].with_suffix("")


def _newest(directory: Path) -> Path | None:
    """Return what TensorFlow noted beside its checkpoints as the newest of them, if it is there."""
    try:
        with (directory / "checkpoint").open(encoding="utf-8", errors="replace") as opened:
            noted = _NEWEST.search(opened.read(_MOST_STATE))
        # It may be the path on the machine that wrote it.
        name = Path(noted[1]).name if noted else ""
        return directory / name if name and (directory / f"{name}.index").is_file() else None
    except OSError:
        return None


def names_of(shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Return the names of a network's tensors, without what its training kept beside each."""
    return [name for name in shapes if not _OF_TRAINING.search(name)]


_OF_TRAINING = re.compile(
    r"/(?:Adam|Momentum|RMSProp|Adagrad)(?:_\d+)?$|\.OPTIMIZER_SLOT|(?:^|[./])optimizer(?:[./_]|$)"
)
