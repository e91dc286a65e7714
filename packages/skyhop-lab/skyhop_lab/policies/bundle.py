"""Checkpoints of TensorFlow (TensorBundle): an index PREFIX.index, and PREFIX.data-00000-of-00001.

`tf.train.Saver` of TensorFlow 1 writes this format, and so does TensorFlow 2; a SavedModel has such
a checkpoint under `variables`. The index is a LevelDB table: blocks of sorted names with prefix
compression. Its values are protocol buffers; the value of the empty name is the header. Blocks and
tensors have checksums, and a wrong checksum is an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from skyhop.data.arrays import FloatArray
from skyhop.errors import InputError
from skyhop_lab.policies.wire import Message, read_varint

_MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
_FOOTER = 48
_TRAILER = 5
"""Number of bytes after a block: type of compression and checksum."""
_MOST_INDEX = 1 << 26
_MOST_TENSOR, _MOST_OFFSET = 1 << 28, 1 << 48
"""Upper limits on a tensor's size and on offsets, in bytes; cards reject networks that are larger.
"""
_TYPES = {1: "<f4", 2: "<f8", 14: "bfloat16", 19: "<f2"}
"""Real types of DataType (types.proto), as numpy names them."""
_POLYNOMIAL = 0x82F63B78
"""Polynomial of CRC-32C, bits reversed."""


class Bundle:
    """Open TensorFlow checkpoint: shapes of its floating-point tensors by name, and their values.

    Raises:
        InputError: the index is missing, damaged, or of another format.
    """

    def __init__(self, prefix: Path) -> None:
        self.file = prefix.with_name(f"{prefix.name}.index")
        self._prefix = prefix
        try:
            table = _parse_table(_read(self.file, 0, None))
            header = Message(table.pop(b"", b""))
            if header.number(2):
                raise ValueError("its numbers are big-endian, which is not supported")
            self._shards = header.number(1) or 1
            entries = {name.decode(): _parse_entry(value) for name, value in table.items()}
        except ValueError as error:
            raise InputError(f"{self.file}: is no complete checkpoint: {error}") from None
        self._entries = {name: entry for name, entry in entries.items() if entry.type in _TYPES}
        self.shapes = {name: entry.shape for name, entry in self._entries.items()}

    def read(self, name: str) -> FloatArray:
        """Read the values of a tensor.

        Raises:
            InputError: the values are missing or damaged.
        """
        entry = self._entries[name]
        shard = f"{self._prefix.name}.data-{entry.shard:05d}-of-{self._shards:05d}"
        file = self._prefix.with_name(shard)
        try:
            _check_size(entry)
            data = _read(file, entry.offset, entry.size)
            if len(data) < entry.size:
                raise ValueError("the file ends before it: copy the whole checkpoint again")
            if crc32c(data) != _unmask(entry.checksum):
                raise ValueError("its checksum is wrong: copy the checkpoint again")
        except ValueError as error:
            raise InputError(f"{file}: {name} is no complete tensor: {error}") from None
        return _numbers(data, _TYPES[entry.type]).reshape(entry.shape)


@dataclass(frozen=True)
class _Entry:
    """Fields of a BundleEntryProto (tensor_bundle.proto)."""

    type: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    is_sliced: bool


def crc32c(data: bytes) -> int:
    """Return the CRC-32C checksum of data (RFC 3720, appendix B.4)."""
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
    """Return the checksum for a stored value, which LevelDB masks (crc32c.h)."""
    rotated = masked - 0xA282EAD8 & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


def _read(file: Path, offset: int, size: int | None) -> bytes:
    """Read a part of a file; with `size` None read the whole file, an index."""
    try:
        with file.open("rb") as opened:
            opened.seek(offset)
            data = opened.read(_MOST_INDEX + 1 if size is None else size)
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    if size is None and len(data) > _MOST_INDEX:
        raise ValueError(f"it has more than {_MOST_INDEX >> 20} MB")
    return data


def _parse_table(data: bytes) -> dict[bytes, bytes]:
    """Return the values in a LevelDB table by their names."""
    if len(data) < _FOOTER or data[-len(_MAGIC) :] != _MAGIC:
        raise ValueError("it lacks the end of an index of TensorFlow")
    footer = data[-_FOOTER:]
    _, _, at = _parse_handle(footer, 0)
    offset, size, _ = _parse_handle(footer, at)
    table: dict[bytes, bytes] = {}
    end, left = 0, _MOST_INDEX
    for _, handle in _parse_block(_read_block(data, offset, size)):
        offset, size, _ = _parse_handle(handle, 0)
        # Overlapping blocks would let a small file expand to the square of its size in memory.
        if offset < end:
            raise ValueError("its blocks do not follow one another")
        end = offset + size + _TRAILER
        for name, value in _parse_block(_read_block(data, offset, size)):
            left -= len(name)
            if left < 0:
                raise ValueError("its names are too long")
            table[name] = value
    return table


def _parse_handle(data: bytes, at: int) -> tuple[int, int, int]:
    """Return offset and size of a block, and the offset after this block handle."""
    offset, at = read_varint(data, at)
    size, at = read_varint(data, at)
    return offset, size, at


def _read_block(data: bytes, offset: int, size: int) -> bytes:
    whole = data[offset : offset + size + _TRAILER]
    if len(whole) < size + _TRAILER:
        raise ValueError("it ends within a block")
    if crc32c(whole[:-4]) != _unmask(int.from_bytes(whole[-4:], "little")):
        raise ValueError("the checksum of a block is wrong: copy it again")
    if whole[size]:
        raise ValueError("its blocks are compressed, which is not supported")
    return whole[:size]


def _parse_block(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the names and values in a block; the block's restart points follow them."""
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (restarts + 1)
    at, name = 0, b""
    while at < end:
        shared, at = read_varint(block, at)
        unshared, at = read_varint(block, at)
        size, at = read_varint(block, at)
        if shared > len(name) or at + unshared + size > end:
            raise ValueError("a block in it ends within an entry")
        name = name[:shared] + block[at : at + unshared]
        at += unshared
        yield name, block[at : at + size]
        at += size
    if at != end:
        raise ValueError("a block in it ends at the wrong place")


def _parse_entry(data: bytes) -> _Entry:
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
        raise ValueError("it is stored in slices, which are not supported")
    if entry.size != math.prod(entry.shape) * width:
        raise ValueError(f"it has {entry.size} bytes, which does not fit its shape")
    if entry.size > _MOST_TENSOR or entry.offset > _MOST_OFFSET:
        raise ValueError(f"it has more than {_MOST_TENSOR >> 20} MB")


def _numbers(data: bytes, kind: str) -> FloatArray:
    if kind == "bfloat16":
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
    return np.frombuffer(data, kind).astype(np.float64)
