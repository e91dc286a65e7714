"""Recorded answers of terminals: JSON as grpcurl prints it, plain or gzipped."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format

from skyhop.errors import InputError
from skyhop.telemetry.obstruction import ObstructionMap
from skyhop_testbed.dish import device_pb2
from skyhop_testbed.dish.readings import obstruction_map_of

if TYPE_CHECKING:
    from google.protobuf.message import Message

_MOST_BYTES = 64 << 20
_LIBRARY_ERRORS = (ValueError, TypeError, AttributeError, OverflowError, RecursionError)
"""Errors that protobuf raises in addition to ParseError on malformed answers."""
_RINGS = (
    "pop_ping_drop_rate",
    "pop_ping_latency_ms",
    "downlink_throughput_bps",
    "uplink_throughput_bps",
    "power_in",
)
_KEYS = {
    "dish_get_status": "dishGetStatus",
    "dish_get_history": "dishGetHistory",
    "dish_get_obstruction_map": "dishGetObstructionMap",
}


def read_status(file: Path) -> device_pb2.DishGetStatusResponse:
    """Read a recorded answer to get_status.

    Raises:
        InputError: the file cannot be read or is not such an answer.
    """
    return parse_status(_content(file), str(file))


def read_history(file: Path) -> device_pb2.DishGetHistoryResponse:
    """Read a recorded answer to get_history.

    Raises:
        InputError: the file cannot be read or is not such an answer.
    """
    return parse_history(_content(file), str(file))


def read_map(file: Path) -> device_pb2.DishGetObstructionMapResponse:
    """Read a recorded answer to dish_get_obstruction_map.

    Raises:
        InputError: the file cannot be read or is not such an answer.
    """
    return parse_map(_content(file), str(file))


def read_obstruction_map(file: Path, status_file: Path | None = None) -> ObstructionMap:
    """Read a recorded obstruction map, with the direction in which its terminal pointed.

    Args:
        file: the answer to dish_get_obstruction_map.
        status_file: an answer to get_status, for the direction; by default the direction is taken
            from `file`, if `file` contains one, as files of agents do.

    Raises:
        InputError: a file cannot be read or is not such an answer.
    """
    content = _content(file)
    answer = parse_map(content, str(file))
    if status_file is not None:
        return obstruction_map_of(answer, read_status(status_file))
    has_pointing = f'"{_KEYS["dish_get_status"]}"'.encode() in content
    return obstruction_map_of(answer, parse_status(content, str(file)) if has_pointing else None)


def parse_status(content: bytes, origin: str) -> device_pb2.DishGetStatusResponse:
    """Parse a recorded answer to get_status; `origin` names it in errors.

    Raises:
        InputError: the content is not such an answer.
    """
    return _answer(content, origin, "dish_get_status").dish_get_status


def parse_history(content: bytes, origin: str) -> device_pb2.DishGetHistoryResponse:
    """Parse a recorded answer to get_history; check that its rings have the same length.

    Raises:
        InputError: the content is not such an answer.
    """
    history = _answer(content, origin, "dish_get_history").dish_get_history
    lengths = {name: len(getattr(history, name)) for name in _RINGS}
    length = lengths["pop_ping_drop_rate"]
    for name, other in lengths.items():
        if other not in {0, length}:
            raise InputError(
                f"{origin}: {name} has {other} values, pop_ping_drop_rate {length}; expected as "
                "many of both"
            )
    if not length:
        raise InputError(f"{origin}: a history without a value; expected pop_ping_drop_rate")
    return history


def parse_map(content: bytes, origin: str) -> device_pb2.DishGetObstructionMapResponse:
    """Parse a recorded answer to dish_get_obstruction_map; `origin` names it in errors.

    Raises:
        InputError: the content is not such an answer.
    """
    answer = _answer(content, origin, "dish_get_obstruction_map").dish_get_obstruction_map
    if answer.num_rows * answer.num_cols != len(answer.snr) or not answer.snr:
        raise InputError(
            f"{origin}: a map of {answer.num_rows} x {answer.num_cols} has {len(answer.snr)} "
            "values; expected one for each"
        )
    return answer


def _content(file: Path) -> bytes:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: cannot read: {error.strerror}") from None
    if not content.startswith(b"\x1f\x8b"):
        return content
    unpacking = zlib.decompressobj(wbits=31)
    try:
        plain = unpacking.decompress(content, _MOST_BYTES)
    except zlib.error:
        raise InputError(f"{file}: the gzipped file is damaged") from None
    if not unpacking.eof:
        raise InputError(f"{file}: the gzipped file is cut off, or more than 64 MB")
    return plain


def _answer(content: bytes, origin: str, name: str) -> device_pb2.Response:
    """Parse an answer: the complete response as grpcurl prints it, or only its part `name`."""
    try:
        read: Any = json.loads(content)
        # Refuse lone surrogates ("\ud800"), on which protobuf fails.
        json.dumps(read, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InputError(f"{origin}: not JSON: {error}") from None
    if not isinstance(read, dict):
        raise InputError(f"{origin}: expected an answer of a terminal, a JSON object")
    found = [key for key in (name, _KEYS[name]) if key in read]
    others = [key for keys in _KEYS.items() for key in keys if key in read and key not in found]
    if not found and others:
        raise InputError(f"{origin}: holds {others[0]}; expected {_KEYS[name]}")
    answer = device_pb2.Response()
    part: Message = getattr(answer, name)
    part.SetInParent()
    try:
        json_format.ParseDict(read[found[0]] if found else read, part, ignore_unknown_fields=True)
    except (json_format.ParseError, *_LIBRARY_ERRORS) as error:
        raise InputError(f"{origin}: not an answer of a terminal: {error}") from None
    if not found and not part.ByteSize():
        raise InputError(f"{origin}: expected {_KEYS[name]}, as grpcurl prints it")
    return answer
