"""Checkpoints of PyTorch: a zip of a pickle, which describes the tensors, and of their storages.

A pickle can call any function that it names. The unpickler here accepts only the names that occur
in a state_dict, and replaces them by harmless stand-ins. Any other name is an error, which is
raised before anything is imported or called.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.errors import InputError

_TYPES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "BFloat16Storage": "bfloat16",
}
_IGNORED_STORAGES = {f"{kind}Storage" for kind in ("Long", "Int", "Short", "Char", "Byte", "Bool")}
"""Storages of integers, such as counters, which are not part of a network."""
_OPCODES = {
    "PROTO", "FRAME", "STOP", "MARK", "POP", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1",
    "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "EMPTY_TUPLE", "TUPLE",
    "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM",
    "SETITEMS", "BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET", "GLOBAL",
    "STACK_GLOBAL", "REDUCE", "NEWOBJ", "BUILD", "BINPERSID",
}  # fmt: skip
"""Opcodes that may occur in the pickle of a state_dict."""
_MOST_PICKLE = 1 << 24
_MOST_TENSOR = 1 << 28
_DEEPEST = 16
_EXPECTED = "expected what torch.save of PyTorch 1.6 or later writes of a state_dict()"


class TorchFile:
    """Open PyTorch checkpoint: the shapes of its floating-point tensors by name, and their values.

    Keys of nested dictionaries are joined with dots.

    Raises:
        InputError: the file is missing, damaged, no checkpoint, or would call a function.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            self._root, data = _read_pickle(file)
            tensors = _tensors_by_name(_unpickle(data))
        except ValueError as error:
            raise InputError(f"{file}: is no supported checkpoint: {error}") from None
        except OSError as error:
            raise InputError(f"{file}: cannot be read: {error.strerror or error}") from None
        self._tensors = {name: one for name, one in tensors.items() if one.type in _TYPES}
        self.shapes = {name: one.shape for name, one in self._tensors.items()}

    def read(self, name: str) -> FloatArray:
        """Read the values of a tensor.

        Raises:
            InputError: the values are missing or damaged.
        """
        tensor = self._tensors[name]
        try:
            with zipfile.ZipFile(self.file) as opened:
                data = _read_member(opened, f"{self._root}data/{tensor.key}", _MOST_TENSOR)
            return _values(tensor, data)
        except (ValueError, OSError) as error:
            raise InputError(f"{self.file}: {name} is no complete tensor: {error}") from None


# These are named tuples, because a pickle could change attributes of other objects after they were
# checked.
class _Storage(NamedTuple):
    """File with the numbers of tensors inside the zip, and their type."""

    type: str
    key: str


class _Tensor(NamedTuple):
    """View of a storage: offset, shape and strides, all counted in elements."""

    type: str
    key: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _RebuildTensor:
    """Stand-in for the function `torch._utils._rebuild_tensor_v2`."""

    __slots__ = ()

    def __call__(
        self, storage: object, offset: object, shape: object, strides: object, *_: object
    ) -> _Tensor:
        if not isinstance(storage, _Storage):
            raise pickle.UnpicklingError("a tensor of it has no storage")
        sizes, steps = _non_negative(shape), _non_negative(strides)
        (begin,) = _non_negative((offset,))
        if len(sizes) != len(steps):
            raise pickle.UnpicklingError("a tensor of it has no shape")
        return _Tensor(storage.type, storage.key, begin, sizes, steps)


class _RebuildParameter:
    """Stand-in for `torch._utils._rebuild_parameter`, which returns the parameter's tensor."""

    __slots__ = ()

    def __call__(self, tensor: object, *_: object) -> object:
        return tensor


def _non_negative(values: object) -> tuple[int, ...]:
    """Check that values are a tuple of non-negative integers, and return the tuple."""
    if isinstance(values, tuple) and all(type(v) is int and 0 <= v < 1 << 40 for v in values):
        return values
    raise pickle.UnpicklingError("a tensor of it has no shape")


_ALLOWED: dict[tuple[str, str], object] = {
    ("torch._utils", "_rebuild_tensor_v2"): _RebuildTensor(),
    ("torch._utils", "_rebuild_parameter"): _RebuildParameter(),
    ("collections", "OrderedDict"): OrderedDict,
    **{("torch", name): name for name in (*_TYPES, *_IGNORED_STORAGES)},
}


class _Unpickler(pickle.Unpickler):
    """Unpickler that builds only dictionaries of tensors."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) in _ALLOWED:
            return _ALLOWED[module, name]
        raise pickle.UnpicklingError(
            f"it names {module}.{name}, which is not called here: {_EXPECTED}"
        )

    def persistent_load(self, pid: object) -> _Storage:
        match pid:
            case ("storage", str(kind), str(key), *_) if (
                kind in _TYPES or kind in _IGNORED_STORAGES
            ):
                return _Storage(kind, key)
        raise pickle.UnpicklingError("a storage of it has an unknown type")


def _read_pickle(file: Path) -> tuple[str, bytes]:
    """Return the name of the zip's root directory, and its pickle."""
    try:
        with zipfile.ZipFile(file) as opened:
            found = [name for name in opened.namelist() if name.split("/")[1:] == ["data.pkl"]]
            if len(found) != 1:
                raise ValueError(f"it has no data.pkl: {_EXPECTED}")
            root = found[0].removesuffix("data.pkl")
            if f"{root}byteorder" in opened.namelist():
                order = _read_member(opened, f"{root}byteorder", 16)
                if order != b"little":
                    raise ValueError("its numbers are big-endian, which is not supported")
            return root, _read_member(opened, found[0], _MOST_PICKLE)
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise ValueError(f"{str(error).lower()}: {_EXPECTED}") from None


def _read_member(opened: zipfile.ZipFile, name: str, most: int) -> bytes:
    """Read a file of the zip, of at most `most` bytes, and check its checksum."""
    try:
        if opened.getinfo(name).file_size > most:
            raise ValueError(f"{name} in it has more than {most >> 20} MB")
        return opened.read(name)
    except KeyError:
        raise ValueError(f"it has no {name}") from None
    except ValueError:
        raise
    # For damaged files zipfile raises more exceptions than it documents.
    except Exception as error:
        raise ValueError(f"{name} in it is damaged: {error}") from None


def _unpickle(data: bytes) -> object:
    try:
        for opcode, arg, _ in pickletools.genops(data):
            if opcode.name not in _OPCODES:
                raise ValueError(
                    f"its pickle has the opcode {opcode.name}, which no state_dict has"
                )
            # The unpickler allocates its memo up to the highest index that occurs.
            if opcode.name == "LONG_BINPUT" and isinstance(arg, int) and arg > len(data):
                raise ValueError("its pickle has a memo larger than itself")
        return _Unpickler(io.BytesIO(data)).load()
    except ValueError:
        raise
    except pickle.UnpicklingError as error:
        raise ValueError(str(error)) from None
    # A damaged pickle can raise nearly any exception.
    except Exception as error:
        raise ValueError(f"its pickle is damaged ({type(error).__name__})") from None


def _tensors_by_name(content: object) -> dict[str, _Tensor]:
    if not isinstance(content, dict):
        raise ValueError(f"it contains no dictionary of tensors: {_EXPECTED}")
    return dict(_walk(content, "", set(), 0))


def _walk(
    content: dict[object, object], prefix: str, visited: set[int], depth: int
) -> Iterator[tuple[str, _Tensor]]:
    """Yield the tensors in nested dictionaries; a dictionary that occurs twice is read once."""
    if id(content) in visited or depth > _DEEPEST:
        return
    visited.add(id(content))
    # Call dict.items, because a pickle may have replaced methods of the object itself.
    for key, value in dict.items(content):
        if not isinstance(key, str):
            continue
        if isinstance(value, _Tensor):
            yield f"{prefix}{key}", value
        elif isinstance(value, dict):
            yield from _walk(value, f"{prefix}{key}.", visited, depth + 1)


def _values(tensor: _Tensor, data: bytes) -> FloatArray:
    kind = _TYPES[tensor.type]
    raw = np.frombuffer(data, "<u2" if kind == "bfloat16" else kind)
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.strides, strict=True))
    # Strides of 0 would let a small storage expand to a tensor of any size.
    if tensor.offset + max(last, math.prod(tensor.shape) - 1) >= len(raw):
        raise ValueError("its file has fewer numbers than its shape")
    steps = [step * raw.itemsize for step in tensor.strides]
    values = raw[tensor.offset :]
    view = np.lib.stride_tricks.as_strided(values, tensor.shape, steps, writeable=False)
    if kind == "bfloat16":
        return (view.astype("<u4") << 16).view("<f4").astype(np.float64)
    return view.astype(np.float64)
