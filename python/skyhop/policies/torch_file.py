"""PyTorch's checkpoints: a zip of a pickle, which says what there is, and of files of numbers.

A pickle can call whatever it names. This one may name what a state_dict is made of, which here are
stand-ins without effect; anything else ends the reading, before anything is imported or called.
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
_OTHERS = {f"{kind}Storage" for kind in ("Long", "Int", "Short", "Char", "Byte", "Bool")}
"""Storages that may be there, for counters, and are no part of a network."""
_OPCODES = {
    "PROTO", "FRAME", "STOP", "MARK", "POP", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1",
    "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "EMPTY_TUPLE", "TUPLE",
    "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM",
    "SETITEMS", "BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET", "GLOBAL",
    "STACK_GLOBAL", "REDUCE", "NEWOBJ", "BUILD", "BINPERSID",
}  # fmt: skip
"""What the pickle of a state_dict does."""
_MOST_PICKLE = 1 << 24
_MOST_TENSOR = 1 << 28
_DEEPEST = 16
_EXPECTED = "expected what torch.save of PyTorch 1.6 or later makes of a state_dict()"


class TorchFile:
    """A checkpoint: the shapes of its tensors by their names, and their numbers.

    Tensors in dictionaries in dictionaries have their names joined with dots.

    Raises:
        InputError: it is not there, or no checkpoint, or damaged, or would run something.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            self._root, data = _pickle_of(file)
            tensors = _named(_unpickled(data))
        except ValueError as error:
            raise InputError(f"{file}: is no checkpoint that is read here: {error}") from None
        except OSError as error:
            raise InputError(f"{file}: cannot be read: {error.strerror or error}") from None
        self._tensors = {name: held for name, held in tensors.items() if held.type in _TYPES}
        self.shapes = {name: held.shape for name, held in self._tensors.items()}

    def read(self, name: str) -> FloatArray:
        """Return a tensor's numbers.

        Raises:
            InputError: they are not there, or damaged.
        """
        held = self._tensors[name]
        try:
            with zipfile.ZipFile(self.file) as opened:
                data = _member(opened, f"{self._root}data/{held.key}", _MOST_TENSOR)
            return _numbers(held, data)
        except (ValueError, OSError) as error:
            raise InputError(f"{self.file}: {name} is no whole tensor: {error}") from None


# What a pickle makes has no attribute that it could set later, past what is looked at here.
class _Storage(NamedTuple):
    """A file of numbers."""

    type: str
    key: str


class _Tensor(NamedTuple):
    """Numbers of a storage: where they begin, and how far apart those of each axis are."""

    type: str
    key: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Tensors:
    """In the place of `torch._utils._rebuild_tensor_v2`."""

    __slots__ = ()

    def __call__(
        self, storage: object, offset: object, shape: object, strides: object, *_: object
    ) -> _Tensor:
        if not isinstance(storage, _Storage):
            raise pickle.UnpicklingError("a tensor of it has no storage")
        sizes, apart = _whole(shape), _whole(strides)
        (begin,) = _whole((offset,))
        if len(sizes) != len(apart):
            raise pickle.UnpicklingError("a tensor of it has no shape")
        return _Tensor(storage.type, storage.key, begin, sizes, apart)


class _Parameters:
    """In the place of `torch._utils._rebuild_parameter`: a parameter is its tensor."""

    __slots__ = ()

    def __call__(self, tensor: object, *_: object) -> object:
        return tensor


def _whole(values: object) -> tuple[int, ...]:
    """Return whole numbers that are not negative."""
    if isinstance(values, tuple) and all(type(v) is int and 0 <= v < 1 << 40 for v in values):
        return values
    raise pickle.UnpicklingError("a tensor of it has no shape")


_ALLOWED: dict[tuple[str, str], object] = {
    ("torch._utils", "_rebuild_tensor_v2"): _Tensors(),
    ("torch._utils", "_rebuild_parameter"): _Parameters(),
    ("collections", "OrderedDict"): OrderedDict,
    **{("torch", name): name for name in (*_TYPES, *_OTHERS)},
}


class _Unpickler(pickle.Unpickler):
    """Makes dictionaries of tensors, and nothing else."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) in _ALLOWED:
            return _ALLOWED[module, name]
        raise pickle.UnpicklingError(
            f"it names {module}.{name}, which is not called here: {_EXPECTED}"
        )

    def persistent_load(self, pid: object) -> _Storage:
        match pid:
            case ("storage", str(kind), str(key), *_) if kind in _TYPES or kind in _OTHERS:
                return _Storage(kind, key)
        raise pickle.UnpicklingError("a storage of it is of no known kind")


def _pickle_of(file: Path) -> tuple[str, bytes]:
    """Return the directory within the zip that all of it is in, and its pickle."""
    try:
        with zipfile.ZipFile(file) as opened:
            found = [name for name in opened.namelist() if name.split("/")[1:] == ["data.pkl"]]
            if len(found) != 1:
                raise ValueError(f"it has no data.pkl: {_EXPECTED}")
            root = found[0].removesuffix("data.pkl")
            if f"{root}byteorder" in opened.namelist():
                order = _member(opened, f"{root}byteorder", 16)
                if order != b"little":
                    raise ValueError("its numbers are big-endian, which is not read here")
            return root, _member(opened, found[0], _MOST_PICKLE)
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise ValueError(f"{str(error).lower()}: {_EXPECTED}") from None


def _member(opened: zipfile.ZipFile, name: str, most: int) -> bytes:
    """Return a file of the zip, whose checksum is looked at."""
    try:
        if opened.getinfo(name).file_size > most:
            raise ValueError(f"{name} in it has more than {most >> 20} MB")
        return opened.read(name)
    except KeyError:
        raise ValueError(f"it has no {name}") from None
    except ValueError:
        raise
    # A damaged zip makes the library stumble in more ways than it names.
    except Exception as error:
        raise ValueError(f"{name} in it is damaged: {error}") from None


def _unpickled(data: bytes) -> object:
    try:
        for opcode, arg, _ in pickletools.genops(data):
            if opcode.name not in _OPCODES:
                raise ValueError(f"its pickle does {opcode.name}, which no state_dict does")
            # The memory that a pickle's notes take is that of the highest number.
            if opcode.name == "LONG_BINPUT" and isinstance(arg, int) and arg > len(data):
                raise ValueError("its pickle notes more than it holds")
        return _Unpickler(io.BytesIO(data)).load()
    except ValueError:
        raise
    except pickle.UnpicklingError as error:
        raise ValueError(str(error)) from None
    # So many are the ways in which a damaged pickle ends.
    except Exception as error:
        raise ValueError(f"its pickle is damaged ({type(error).__name__})") from None


def _named(held: object) -> dict[str, _Tensor]:
    if not isinstance(held, dict):
        raise ValueError(f"it holds no dictionary of tensors: {_EXPECTED}")
    return dict(_walk(held, "", set(), 0))


def _walk(
    held: dict[object, object], prefix: str, seen: set[int], depth: int
) -> Iterator[tuple[str, _Tensor]]:
    """Return the tensors of nested dictionaries; of one that is there twice, the first time."""
    if id(held) in seen or depth > _DEEPEST:
        return
    seen.add(id(held))
    # Not those methods that a pickle may have put beside the entries.
    for key, value in dict.items(held):
        if not isinstance(key, str):
            continue
        if isinstance(value, _Tensor):
            yield f"{prefix}{key}", value
        elif isinstance(value, dict):
            yield from _walk(value, f"{prefix}{key}.", seen, depth + 1)


def _numbers(held: _Tensor, data: bytes) -> FloatArray:
    kind = _TYPES[held.type]
    raw = np.frombuffer(data, "<u2" if kind == "bfloat16" else kind)
    last = sum((size - 1) * apart for size, apart in zip(held.shape, held.strides, strict=True))
    # With steps of 0 a small storage would hold as much as one likes.
    if held.offset + max(last, math.prod(held.shape) - 1) >= len(raw):
        raise ValueError("its file has fewer numbers than its shape")
    steps = [apart * raw.itemsize for apart in held.strides]
    view = np.lib.stride_tricks.as_strided(raw[held.offset :], held.shape, steps, writeable=False)
    if kind == "bfloat16":
        return (view.astype("<u4") << 16).view("<f4").astype(np.float64)
    return view.astype(np.float64)
