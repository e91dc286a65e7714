"""Checkpoints for tests in TensorFlow's and PyTorch's formats, written without them."""

from __future__ import annotations

import io
import pickle
import sys
import types
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop_lab.policies.wire import bytes_field, varint, varint_field

_BLOCK = 600
"""Size in bytes of names and values at which a table starts another block."""
_RESTART = 16


def _of_byte(crc: int) -> int:
    """Return the entry of the CRC-32C table for a byte."""
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


_OF_BYTES = [_of_byte(byte) for byte in range(256)]


def crc32c(data: bytes) -> int:
    """Return the CRC-32C checksum of bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _OF_BYTES[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF


def write_bundle(prefix: Path, tensors: Mapping[str, FloatArray]) -> None:
    """Write PREFIX.index and PREFIX.data-00000-of-00001."""
    data = b""
    entries = {b"": varint_field(1, 1) + bytes_field(3, varint_field(1, 1))}
    for name in sorted(tensors):
        numbers = np.asarray(tensors[name], "<f4")
        raw = numbers.tobytes()
        shape = b"".join(bytes_field(2, varint_field(1, size)) for size in numbers.shape)
        entry = (
            varint_field(1, 1)
            + bytes_field(2, shape)
            + varint_field(4, len(data))
            + varint_field(5, len(raw))
        )
        entries[name.encode()] = entry + varint(6 << 3 | 5) + masked(raw).to_bytes(4, "little")
        data += raw
    prefix.parent.mkdir(parents=True, exist_ok=True)
    prefix.with_name(f"{prefix.name}.data-00000-of-00001").write_bytes(data)
    prefix.with_name(f"{prefix.name}.index").write_bytes(index_of(list(blocks_of(entries))))


def blocks_of(entries: Mapping[bytes, bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Return the blocks of a table, each with its last name."""
    block, restarts, before, count = b"", [0], b"", 0
    for name, value in entries.items():
        if count % _RESTART == 0 and count:
            restarts.append(len(block))
            before = b""
        shared = next(
            (i for i, (a, b) in enumerate(zip(name, before, strict=False)) if a != b),
            min(len(name), len(before)),
        )
        block += varint(shared) + varint(len(name) - shared) + varint(len(value))
        block += name[shared:] + value
        before, count = name, count + 1
        if len(block) > _BLOCK:
            yield name, block + _numbers([*restarts, len(restarts)])
            block, restarts, before, count = b"", [0], b"", 0
    if block:
        yield before, block + _numbers([*restarts, len(restarts)])


def index_of(blocks: Sequence[tuple[bytes, bytes]], compression: int = 0) -> bytes:
    """Return a table of blocks, each with its checksum."""
    data, handles = b"", {}

    def place(block: bytes) -> bytes:
        nonlocal data
        handle = varint(len(data)) + varint(len(block))
        whole = block + bytes([compression])
        data += whole + masked(whole).to_bytes(4, "little")
        return handle

    for name, block in blocks:
        handles[name] = place(block)
    meta = place(_numbers([0, 1]))
    index = b"".join(
        varint(0) + varint(len(name)) + varint(len(handle)) + name + handle
        for name, handle in handles.items()
    )
    footer = meta + place(index + _numbers([0, 1]))
    return data + footer.ljust(40, b"\0") + 0xDB4775248B80FB57.to_bytes(8, "little")


def _numbers(values: Sequence[int]) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)


def write_torch(file: Path, tensors: Mapping[str, FloatArray], *, nested: str = "") -> None:
    """Write a state_dict in the format of torch.save."""
    state = OrderedDict((name, _Tensor(i, held)) for i, (name, held) in enumerate(tensors.items()))
    state._metadata = OrderedDict(version=1)  # type: ignore[attr-defined]
    held: object = {nested: state, "epoch": 3, "lr": 0.1} if nested else state
    write_zip(file, _pickled(held), list(tensors.values()))


def write_zip(file: Path, data: bytes, arrays: Sequence[FloatArray]) -> None:
    with zipfile.ZipFile(file, "w") as written:
        written.writestr("archive/data.pkl", data)
        written.writestr("archive/byteorder", "little")
        for i, held in enumerate(arrays):
            written.writestr(f"archive/data/{i}", np.asarray(held, "<f4").tobytes())
        written.writestr("archive/version", "3\n")


def torch_pickle(tensors: Mapping[str, FloatArray]) -> bytes:
    """Return the content of data.pkl."""
    return _pickled({name: _Tensor(i, held) for i, (name, held) in enumerate(tensors.items())})


class _Tensor:
    """Tensor that pickles as PyTorch's do."""

    def __init__(self, key: int, held: FloatArray) -> None:
        self.key = key
        self.held = np.asarray(held, np.float32)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        strides = tuple(step // 4 for step in np.ascontiguousarray(self.held).strides)
        shape = self.held.shape
        rebuild = sys.modules["torch._utils"].__dict__["_rebuild_tensor_v2"]
        return rebuild, (
            _Storage(self.key, self.held.size),
            0,
            shape,
            strides,
            False,
            OrderedDict(),
        )


class _Storage:
    def __init__(self, key: int, size: int) -> None:
        self.key, self.size = key, size


class _Pickler(pickle.Pickler):
    def persistent_id(self, held: object) -> tuple[Any, ...] | None:
        if not isinstance(held, _Storage):
            return None
        kind = sys.modules["torch"].__dict__["FloatStorage"]
        return "storage", kind, str(held.key), "cpu", held.size


def _pickled(held: object) -> bytes:
    written = io.BytesIO()
    with _as_if_torch_were_here():
        _Pickler(written, protocol=2).dump(held)
    return written.getvalue()


@contextmanager
def _as_if_torch_were_here() -> Iterator[None]:
    """Allow names of PyTorch to be pickled without importing it."""

    def rebuild() -> None: ...

    rebuild.__module__, rebuild.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    torch.__dict__["FloatStorage"] = type("FloatStorage", (), {"__module__": "torch"})
    utils.__dict__["_rebuild_tensor_v2"] = rebuild
    before = {name: sys.modules.get(name) for name in ("torch", "torch._utils")}
    sys.modules.update({"torch": torch, "torch._utils": utils})
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
