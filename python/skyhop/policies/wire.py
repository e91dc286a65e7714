"""Protocol buffers as they are on the wire: what TensorFlow's and ONNX's files are made of."""

from __future__ import annotations

import struct
from collections import defaultdict

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}
_MORE = 0x80
_LONGEST = 10
"""Bytes of a number of 64 bits."""


def number(field: int, value: int) -> bytes:
    """Return a field that holds a whole number, which is not negative."""
    return varint(field << 3 | _VARINT) + varint(value)


def real(field: int, value: float) -> bytes:
    """Return a field that holds a float of 32 bits."""
    return varint(field << 3 | _FIXED32) + struct.pack("<f", value)


def content(field: int, data: bytes) -> bytes:
    """Return a field that holds bytes: text, or a message."""
    return varint(field << 3 | _BYTES) + varint(len(data)) + data


def varint(value: int) -> bytes:
    """Return a number as it is written, seven bits to a byte."""
    data = bytearray()
    while value >= _MORE:
        data.append(value & ~_MORE & 0xFF | _MORE)
        value >>= 7
    data.append(value)
    return bytes(data)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at `at`, and where what follows it begins.

    Raises:
        ValueError: the data end before the number does.
    """
    value = 0
    for i, byte in enumerate(data[at : at + _LONGEST]):
        value |= (byte & ~_MORE) << 7 * i
        if byte < _MORE:
            return value, at + i + 1
    raise ValueError("a number in it has no end")


class Message:
    """The fields of a message.

    Raises:
        ValueError: the data are no message.
    """

    def __init__(self, data: bytes) -> None:
        self._fields: dict[int, list[int | bytes]] = defaultdict(list)
        at = 0
        while at < len(data):
            key, at = read_varint(data, at)
            value, at = _value(data, at, key & 7)
            self._fields[key >> 3].append(value)

    def number(self, field: int) -> int:
        """Return the number of a field, which is 0 where it is left out."""
        value = self._fields[field][-1] if field in self._fields else 0
        if isinstance(value, bytes):
            raise ValueError(f"field {field} of a message is no number")
        return value

    def messages(self, field: int) -> list[Message]:
        """Return all messages of a field."""
        found = self._fields.get(field, [])
        if any(isinstance(value, int) for value in found):
            raise ValueError(f"field {field} of a message is no message")
        return [Message(value) for value in found if isinstance(value, bytes)]


def _value(data: bytes, at: int, kind: int) -> tuple[int | bytes, int]:
    if kind == _VARINT:
        return read_varint(data, at)
    if kind == _BYTES:
        size, at = read_varint(data, at)
    elif kind in _SIZES:
        size = _SIZES[kind]
    else:
        raise ValueError("a message in it has a field of no known kind")
    held = data[at : at + size]
    if len(held) < size:
        raise ValueError("a message in it ends within a field")
    return held if kind == _BYTES else int.from_bytes(held, "little"), at + size
