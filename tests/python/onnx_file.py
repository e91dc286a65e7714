"""A network for tests: one matrix and what is added, as ONNX's protocol buffers are laid out."""

from __future__ import annotations

import struct
from collections.abc import Sequence

_FLOAT = 1
"""Of TensorProto.DataType."""


def linear(weights: Sequence[float], bias: float) -> bytes:
    """Return the ONNX file of a network that says weights x seen + bias."""
    size = len(weights)
    node = b"".join(_field(1, name) for name in (b"seen", b"w", b"b"))
    node += _field(2, b"said") + _field(4, b"Gemm")
    graph = _field(1, node) + _field(2, b"test")
    graph += _field(5, _tensor(b"w", (size, 1), weights)) + _field(5, _tensor(b"b", (1,), (bias,)))
    graph += _field(11, _value(b"seen", (1, size))) + _field(12, _value(b"said", (1, 1)))
    return _number(1, 8) + _field(8, _number(2, 17)) + _field(7, graph)


def _tensor(name: bytes, shape: Sequence[int], values: Sequence[float]) -> bytes:
    sizes = b"".join(_number(1, size) for size in shape)
    raw = struct.pack(f"<{len(values)}f", *values)
    return sizes + _number(2, _FLOAT) + _field(8, name) + _field(9, raw)


def _value(name: bytes, shape: Sequence[int]) -> bytes:
    sizes = b"".join(_field(1, _number(1, size)) for size in shape)
    return _field(1, name) + _field(2, _field(1, _number(1, _FLOAT) + _field(2, sizes)))


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    content = bytearray()
    while value >= 0x80:
        content.append(value & 0x7F | 0x80)
        value >>= 7
    content.append(value)
    return bytes(content)
