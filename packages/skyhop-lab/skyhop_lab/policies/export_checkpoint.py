"""Export of a checkpoint's tensors to a .npz file, for `skyhop policy convert`.

    python export_checkpoint.py CHECKPOINT TENSORS.npz

CHECKPOINT is one of TensorFlow (its prefix, its .index file, or a directory: a SavedModel, or one
whose file `checkpoint` names the newest), or the file that torch.save wrote for a state_dict().

This script needs Python 3.7 or later, numpy, and TensorFlow 2 (which also reads checkpoints of
TensorFlow 1) or PyTorch 1.13 or later, but not skyhop.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

_OF_TENSORFLOW = r"\.(index|meta|data-\d{5}-of-\d{5})$"


def read_tensorflow(source: Path) -> dict[str, Any]:
    """Return the floating-point tensors of a TensorFlow checkpoint, sorted by name."""
    import tensorflow as tf

    prefix = source.with_name(re.sub(_OF_TENSORFLOW, "", source.name))
    if (source / "variables" / "variables.index").is_file():
        prefix = source / "variables" / "variables"
    elif source.is_dir():
        state = tf.train.get_checkpoint_state(str(source))
        if state is None:
            raise SystemExit(f"{source}: does not name its newest checkpoint: give an .index file")
        # An absolute path is from the machine that wrote the checkpoint: only the name counts.
        prefix = source / Path(state.model_checkpoint_path).name
    reader = tf.train.load_checkpoint(str(prefix))
    types = reader.get_variable_to_dtype_map()
    return {name: reader.get_tensor(name) for name in sorted(types) if types[name].is_floating}


def read_torch(source: Path) -> dict[str, Any]:
    """Return the floating-point tensors of a PyTorch checkpoint, without running code in it.

    Keys of nested dictionaries are joined with dots.
    """
    import torch

    def walk(content: dict[str, Any], prefix: str) -> None:
        for key, value in content.items():
            if isinstance(value, dict):
                walk(value, f"{prefix}{key}.")
            elif torch.is_tensor(value) and value.is_floating_point():
                # numpy has no bfloat16.
                exact = value if value.dtype == torch.float64 else value.float()
                tensors[f"{prefix}{key}"] = exact.detach().numpy()

    tensors: dict[str, Any] = {}
    walk(torch.load(str(source), map_location="cpu", weights_only=True), "")
    return tensors


def main(source: Path, output: Path) -> None:
    """Read the checkpoint `source`, and write its tensors to `output`."""
    is_torch = source.is_file() and not re.search(_OF_TENSORFLOW, source.name)
    is_torch = is_torch and not source.with_name(f"{source.name}.index").is_file()
    tensors = read_torch(source) if is_torch else read_tensorflow(source)
    arrays: dict[str, Any] = {
        name: np.asarray(values, "<f8" if values.dtype == np.float64 else "<f4")
        for name, values in tensors.items()
    }
    np.savez(output, __framework__="torch" if is_torch else "tensorflow", **arrays)
    print(f"{output}: {len(arrays)} tensors")


if __name__ == "__main__":
    if len(sys.argv) != 3 or not sys.argv[2].endswith(".npz"):  # noqa: PLR2004
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
