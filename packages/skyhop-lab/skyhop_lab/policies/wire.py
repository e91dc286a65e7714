"""Wire format of protocol buffers, the format of TensorFlow's and ONNX's files."""

from __future__ import annotations

import struct
from collections import defaultdict

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}
_MORE = 0x80
_LONGEST_VARINT = 10
"""Largest size of a varint in bytes, for 64 bits."""


def varint_field(field: int, value: int) -> bytes:
    """Encode a field with a non-negative integer."""
    return varint(field << 3 | _VARINT) + varint(value)


def float_field(field: int, value: float) -> bytes:
    """Encode a field with a 32-bit float."""
    return varint(field << 3 | _FIXED32) + struct.pack("<f", value)


def bytes_field(field: int, data: bytes) -> bytes:
    """Encode a field with bytes: text, or an encoded message."""
    return varint(field << 3 | _BYTES) + varint(len(data)) + data


def varint(value: int) -> bytes:
    """Encode a non-negative integer as a varint, seven bits per byte."""
    data = bytearray()
    while value >= _MORE:
        data.append(value & ~_MORE & 0xFF | _MORE)
        value >>= 7
    data.append(value)
    return bytes(data)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode the varint at offset `at`; return its value and the offset after it.

    Raises:
        ValueError: the data ends within the varint.
    """
    value = 0
    for i, byte in enumerate(data[at : at + _LONGEST_VARINT]):
        value |= (byte & ~_MORE) << 7 * i
        if byte < _MORE:
            return value, at + i + 1
    raise ValueError("a number in it has no end")


class Message:
    """Decoded message: values of its fields, by field number.

    Raises:
        ValueError: the data is no message.
    """

    def __init__(self, data: bytes) -> None:
        self._fields: dict[int, list[int | bytes]] = defaultdict(list)
        at = 0
        while at < len(data):
            key, at = read_varint(data, at)
            value, at = _value(data, at, key & 7)
            self._fields[key >> 3].append(value)

    def number(self, field: int) -> int:
        """Return the integer in a field; 0 if the message does not have the field."""
        value = self._fields[field][-1] if field in self._fields else 0
        if isinstance(value, bytes):
            raise ValueError(f"field {field} of a message is no number")
        return value

    def messages(self, field: int) -> list[Message]:
        """Return all messages in a repeated field."""
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
    content = data[at : at + size]
    if len(content) < size:
        raise ValueError("a message in it ends within a field")
    return content if kind == _BYTES else int.from_bytes(content, "little"), at + size
