"""What models have saved: numbers that are numbers, arrays of the shapes they have to be."""

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
    """Return the object that a file holds.

    Raises:
        InputError: it holds none.
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
        InputError: it is none, or one is no number.
    """
    if not isinstance(values, list) or not all(
        isinstance(v, int | float) and not isinstance(v, bool) and abs(v) < _LARGEST for v in values
    ):
        raise damaged(what, "a number is none")
    return np.array(values, dtype=np.float64)


def npz_bytes(arrays: Mapping[str, Any]) -> bytes:
    """Return arrays as a file of numpy's, the same bytes for the same arrays."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name, array in sorted(arrays.items()):
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
            # A time of now would make two files of one model.
            file.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue())
    return content.getvalue()


def npz_arrays(
    content: bytes, shapes: Mapping[str, Sequence[int | None]], what: str
) -> dict[str, FloatArray]:
    """Return the arrays of a file of numpy's, as floating point.

    Args:
        content: the file.
        shapes: by name, the shape that each has to have; None is any length.
        what: what messages call it.

    Raises:
        InputError: it is none, or lacks one of them.
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
        wanted in (None, is_so) for wanted, is_so in zip(shape, array.shape, strict=True)
    )
    if not fits:
        raise damaged(what, f"{name} is of shape {array.shape}, not {tuple(shape)}")
    values: FloatArray = array.astype(np.float64)
    if not (np.abs(values) < _LARGEST).all():
        raise damaged(what, f"{name} has values that are no numbers")
    return values


def damaged(what: str, why: str) -> InputError:
    """Return what to raise about a model's file."""
    return InputError(f"the model's {what} is damaged ({why}): train it again")
