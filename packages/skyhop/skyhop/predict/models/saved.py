"""Checked reading of models' files, and writing of arrays."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.errors import InputError

_LARGEST = 1e30
_MOST_BYTES = 200 << 20


def json_object(content: bytes, what: str) -> dict[str, Any]:
    """Parse a file as a JSON object.

    Raises:
        InputError: the file is not a JSON object.
    """
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise damaged(what, f"it is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise damaged(what, "it is no object")
    return found


def floats(values: object, what: str) -> FloatArray:
    """Return a list of numbers as an array.

    Raises:
        InputError: the value is not a list, or an element is not a number below 1e30.
    """
    if not isinstance(values, list) or not all(
        isinstance(v, int | float) and not isinstance(v, bool) and abs(v) < _LARGEST for v in values
    ):
        raise damaged(what, "a value is not a number")
    return np.array(values, dtype=np.float64)


def npz_bytes(arrays: Mapping[str, Any]) -> bytes:
    """Return arrays as an .npz file, with the same bytes for the same arrays."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name, array in sorted(arrays.items()):
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
            # The default modification time is the current time, which would make files differ.
            file.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue())
    return content.getvalue()


def npz_arrays(
    content: bytes, shapes: Mapping[str, Sequence[int | None]], what: str
) -> dict[str, FloatArray]:
    """Return the arrays of an .npz file, as float64.

    Args:
        content: content of the file.
        shapes: required shapes of the arrays, by name; None stands for any length.
        what: name of the file in messages.

    Raises:
        InputError: the file is not an .npz file, or an array is missing or has a wrong shape.
    """
    found = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            if sum(member.file_size for member in file.infolist()) > _MOST_BYTES:
                raise damaged(what, "it is too large")
            for name, shape in shapes.items():
                with file.open(f"{name}.npy") as member:
                    array = np.lib.format.read_array(
                        io.BytesIO(member.read(_MOST_BYTES)), allow_pickle=False
                    )
                found[name] = _checked(array, shape, name, what)
    except (
        zipfile.BadZipFile, zlib.error, KeyError, ValueError, EOFError, OSError, SyntaxError,
        NotImplementedError, RuntimeError, TypeError, OverflowError, MemoryError,
    ) as error:  # fmt: skip
        raise damaged(what, " ".join(str(error).split())[:100]) from None
    return found


def _checked(array: Any, shape: Sequence[int | None], name: str, what: str) -> FloatArray:
    if array.dtype.kind not in "fiu":
        raise damaged(what, f"{name} holds no numbers")
    fits = array.ndim == len(shape) and all(
        wanted in (None, length) for wanted, length in zip(shape, array.shape, strict=True)
    )
    if not fits:
        raise damaged(what, f"{name} is of shape {array.shape}, not {tuple(shape)}")
    values: FloatArray = array.astype(np.float64)
    if not (np.abs(values) < _LARGEST).all():
        raise damaged(what, f"{name} has values that are no numbers")
    return values


def damaged(what: str, why: str) -> InputError:
    """Return the error to raise about a damaged model file."""
    return InputError(f"the model's {what} is damaged ({why}): train it again")
