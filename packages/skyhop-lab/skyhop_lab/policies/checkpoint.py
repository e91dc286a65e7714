"""Opening of checkpoints, given one of their files, their prefix, or their directory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from skyhop.data.arrays import FloatArray
from skyhop.errors import InputError
from skyhop_lab.policies.bundle import Bundle
from skyhop_lab.policies.torch_file import TorchFile

_BUNDLE_SUFFIX = re.compile(r"\.(?:index|meta|data-\d{5}-of-\d{5})$")
_NEWEST = re.compile(r'^model_checkpoint_path: "([^"\0]+)"', re.MULTILINE)
_MOST_STATE = 1 << 20


class Checkpoint(Protocol):
    """Open checkpoint: the shapes of its floating-point tensors by name, and their values."""

    file: Path
    shapes: dict[str, tuple[int, ...]]

    def read(self, name: str) -> FloatArray:
        """Read the values of a tensor, as double-precision numbers."""


def open_checkpoint(place: Path) -> Checkpoint:
    """Open a TensorFlow or PyTorch checkpoint.

    Raises:
        InputError: there is no checkpoint, or it is damaged.
    """
    if place.is_dir():
        return Bundle(_prefix_in(place))
    prefix = place.with_name(_BUNDLE_SUFFIX.sub("", place.name))
    if prefix.with_name(f"{prefix.name}.index").is_file() or prefix != place:
        return Bundle(prefix)
    if not place.is_file():
        raise InputError(f"{place}: is not there, nor is {place.name}.index: expected a checkpoint")
    return TorchFile(place)


def _prefix_in(directory: Path) -> Path:
    """Return the prefix of the checkpoint in a directory: a SavedModel's, newest, or only one."""
    saved = directory / "variables" / "variables"
    if saved.with_name("variables.index").is_file():
        return saved
    if newest := _newest_prefix(directory):
        return newest
    found = sorted(directory.glob("*.index"))
    if len(found) != 1:
        names = ", ".join(file.name for file in found) or "none"
        raise InputError(f"{directory}: expected one checkpoint (*.index), found {names}: name one")
    return found[0].with_suffix("")


def _newest_prefix(directory: Path) -> Path | None:
    """Return the prefix that TensorFlow's file `checkpoint` names as the newest, if it exists."""
    try:
        with (directory / "checkpoint").open(encoding="utf-8", errors="replace") as opened:
            newest = _NEWEST.search(opened.read(_MOST_STATE))
        # An absolute path is from the machine that wrote the checkpoint: only the file name counts.
        name = Path(newest[1]).name if newest else ""
        return directory / name if name and (directory / f"{name}.index").is_file() else None
    except OSError:
        return None


def network_tensors(shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Return the names of a network's tensors, without the tensors of its optimiser."""
    return [name for name in shapes if not _OPTIMISER_TENSOR.search(name)]


_OPTIMISER_TENSOR = re.compile(
    r"/(?:Adam|Momentum|RMSProp|Adagrad)(?:_\d+)?$|\.OPTIMIZER_SLOT|(?:^|[./])optimizer(?:[./_]|$)"
)
