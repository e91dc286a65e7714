"""TensorFlow's checkpoints: PREFIX.index says what there is, PREFIX.data-00000-of-00001 holds it.

It is what `tf.train.Saver` of TensorFlow 1 writes, TensorFlow 2, and a SavedModel under
`variables`. The index is LevelDB's table: blocks of sorted names, of which each leaves out what it
begins with like the one before; their values are messages, and so is that of the empty name, the
header. Blocks and tensors have checksums, and what does not have its own is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.errors import InputError
from skyhop.policies.wire import Message, read_varint

_MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
_FOOTER = 48
_TRAILER = 5
"""Bytes that follow a block: how it is compressed, and its checksum."""
_MOST_INDEX = 1 << 26
_MOST_TENSOR, _MOST_OFFSET = 1 << 28, 1 << 48
"""Bytes; networks of more are refused by cards."""
_TYPES = {1: "<f4", 2: "<f8", 14: "bfloat16", 19: "<f2"}
"""Of DataType, those of real numbers."""
_POLYNOMIAL = 0x82F63B78
"""Of CRC-32C."""


class Bundle:
    """A checkpoint: the shapes of its tensors by their names, and their numbers.

    Raises:
        InputError: it is not there, or no checkpoint, or damaged.
    """

    def __init__(self, prefix: Path) -> None:
        self.file = prefix.with_name(f"{prefix.name}.index")
        self._prefix = prefix
        try:
            held = _table(_read(self.file, 0, None))
            header = Message(held.pop(b"", b""))
            if header.number(2):
                raise ValueError("its numbers are big-endian, which is not read here")
            self._shards = header.number(1) or 1
            entries = {name.decode(): _entry(value) for name, value in held.items()}
        except ValueError as error:
            raise InputError(f"{self.file}: is no whole checkpoint: {error}") from None
        self._entries = {name: entry for name, entry in entries.items() if entry.type in _TYPES}
        self.shapes = {name: entry.shape for name, entry in self._entries.items()}

    def read(self, name: str) -> FloatArray:
        """Return a tensor's numbers.

        Raises:
            InputError: they are not there, or damaged.
        """
        entry = self._entries[name]
        shard = f"{self._prefix.name}.data-{entry.shard:05d}-of-{self._shards:05d}"
        file = self._prefix.with_name(shard)
        try:
            _check_size(entry)
            data = _read(file, entry.offset, entry.size)
            if len(data) < entry.size:
                raise ValueError("the file ends before it: copy all of the checkpoint")
            if crc32c(data) != _unmask(entry.checksum):
                raise ValueError("its checksum is another: copy the checkpoint anew")
        except ValueError as error:
            raise InputError(f"{file}: {name} is no whole tensor: {error}") from None
        return _numbers(data, _TYPES[entry.type]).reshape(entry.shape)


@dataclass(frozen=True)
class _Entry:
    """A BundleEntryProto."""

    type: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    is_sliced: bool


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of some bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_OF_BYTE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _crc_of_byte(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_CRC_OF_BYTE = [_crc_of_byte(byte) for byte in range(256)]


def _unmask(masked: int) -> int:
    """Return a checksum as it was before it was stored: see crc32c.h of LevelDB."""
    rotated = masked - 0xA282EAD8 & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


def _read(file: Path, offset: int, size: int | None) -> bytes:
    """Read a part of a file, or all of an index."""
    try:
        with file.open("rb") as opened:
            opened.seek(offset)
            data = opened.read(_MOST_INDEX + 1 if size is None else size)
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    if size is None and len(data) > _MOST_INDEX:
        raise ValueError(f"it has more than {_MOST_INDEX >> 20} MB")
    return data


def _table(data: bytes) -> dict[bytes, bytes]:
    """Return the values of a table by their names."""
    if len(data) < _FOOTER or data[-len(_MAGIC) :] != _MAGIC:
        raise ValueError("it does not end as an index of TensorFlow does")
    footer = data[-_FOOTER:]
    _, _, at = _handle(footer, 0)
    offset, size, _ = _handle(footer, at)
    table: dict[bytes, bytes] = {}
    end, left = 0, _MOST_INDEX
    for _, handle in _pairs(_block(data, offset, size)):
        offset, size, _ = _handle(handle, 0)
        # Else a small file could be as long as the square of its size.
        if offset < end:
            raise ValueError("its blocks do not follow one another")
        end = offset + size + _TRAILER
        for name, value in _pairs(_block(data, offset, size)):
            left -= len(name)
            if left < 0:
                raise ValueError("its names are too long")
            table[name] = value
    return table


def _handle(data: bytes, at: int) -> tuple[int, int, int]:
    """Return where a block begins, its size, and where what follows this handle begins."""
    offset, at = read_varint(data, at)
    size, at = read_varint(data, at)
    return offset, size, at


def _block(data: bytes, offset: int, size: int) -> bytes:
    whole = data[offset : offset + size + _TRAILER]
    if len(whole) < size + _TRAILER:
        raise ValueError("it ends within a block")
    if crc32c(whole[:-4]) != _unmask(int.from_bytes(whole[-4:], "little")):
        raise ValueError("the checksum of a block is another: copy it anew")
    if whole[size]:
        raise ValueError("its blocks are compressed, which TensorFlow does not do by itself")
    return whole[:size]


def _pairs(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Return the names of a block and their values; at its end stand places to begin at."""
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (restarts + 1)
    at, name = 0, b""
    while at < end:
        shared, at = read_varint(block, at)
        unlike, at = read_varint(block, at)
        size, at = read_varint(block, at)
        if shared > len(name) or at + unlike + size > end:
            raise ValueError("a block in it ends within an entry")
        name = name[:shared] + block[at : at + unlike]
        at += unlike
        yield name, block[at : at + size]
        at += size
    if at != end:
        raise ValueError("a block in it has no end")


def _entry(data: bytes) -> _Entry:
    message = Message(data)
    shapes = message.messages(2)
    return _Entry(
        type=message.number(1),
        shape=tuple(axis.number(1) for shape in shapes for axis in shape.messages(2)),
        shard=message.number(3),
        offset=message.number(4),
        size=message.number(5),
        checksum=message.number(6),
        is_sliced=bool(message.messages(7)),
    )


def _check_size(entry: _Entry) -> None:
    width = 2 if _TYPES[entry.type] == "bfloat16" else np.dtype(_TYPES[entry.type]).itemsize
    if entry.is_sliced:
        raise ValueError("it is stored in slices, which are not put together here")
    if entry.size != math.prod(entry.shape) * width:
        raise ValueError(f"it has {entry.size} bytes, which is not what its shape comes to")
    if entry.size > _MOST_TENSOR or entry.offset > _MOST_OFFSET:
        raise ValueError(f"it has more than {_MOST_TENSOR >> 20} MB")


def _numbers(data: bytes, kind: str) -> FloatArray:
    if kind == "bfloat16":
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
    return np.frombuffer(data, kind).astype(np.float64)
