"""Answers of terminals that were recorded: JSON as grpcurl prints it, plain or gzipped."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format

from skyhop.dish import device_pb2
from skyhop.dish.readings import ObstructionMap, obstruction_map_of
from skyhop.dish.sky import Frame
from skyhop.errors import InputError

if TYPE_CHECKING:
    from google.protobuf.message import Message

_MOST_BYTES = 64 << 20
_STUMBLES = (ValueError, TypeError, AttributeError, OverflowError, RecursionError)
"""What the protocol's library raises besides, of what is no answer."""
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
    return status_of(_content(file), str(file))


def read_history(file: Path) -> device_pb2.DishGetHistoryResponse:
    """Read a recorded answer to get_history.

    Raises:
        InputError: the file cannot be read or is not such an answer.
    """
    return history_of(_content(file), str(file))


def read_map(file: Path) -> device_pb2.DishGetObstructionMapResponse:
    """Read a recorded answer to dish_get_obstruction_map.

    Raises:
        InputError: the file cannot be read or is not such an answer.
    """
    return map_of(_content(file), str(file))


def seen_in(file: Path, status_file: Path | None = None) -> ObstructionMap:
    """Return the sky of a recorded obstruction map.

    Where its terminal pointed stands in the same file, as in those that agents keep, or in another.

    Raises:
        InputError: a file cannot be read or is not such an answer.
    """
    if status_file is not None:
        return obstruction_map_of(read_map(file), read_status(status_file))
    return seen_of(_content(file), str(file))


def seen_of(content: bytes, origin: str) -> ObstructionMap:
    """Return the sky of a recorded obstruction map; `origin` stands in errors.

    Raises:
        InputError: it is not such an answer.
    """
    answer = map_of(content, origin)
    has_pointing = f'"{_KEYS["dish_get_status"]}"'.encode() in content
    return obstruction_map_of(answer, status_of(content, origin) if has_pointing else None)


def recorded_map(seen: ObstructionMap) -> bytes:
    """Return an obstruction map as `seen_in` reads it; values have three decimals."""
    grid = seen.grid
    in_terminals = grid.frame == Frame.TERMINAL
    return json.dumps(
        {
            "dishGetObstructionMap": {
                "numRows": grid.rows,
                "numCols": grid.columns,
                "minElevationDeg": seen.min_elevation_deg,
                "maxThetaDeg": grid.max_theta_deg,
                "mapReferenceFrame": "FRAME_UT" if in_terminals else "FRAME_EARTH",
                "snr": [-1 if value < 0 else round(value, 3) for value in seen.snr],
            },
            "dishGetStatus": {
                "boresightAzimuthDeg": grid.pointing.azimuth_deg,
                "boresightElevationDeg": 90 - grid.pointing.tilt_deg,
            },
        },
        separators=(",", ":"),
    ).encode()


def status_of(content: bytes, origin: str) -> device_pb2.DishGetStatusResponse:
    """Return what a recorded answer to get_status says; `origin` stands in errors.

    Raises:
        InputError: it is not such an answer.
    """
    return _answer(content, origin, "dish_get_status").dish_get_status


def history_of(content: bytes, origin: str) -> device_pb2.DishGetHistoryResponse:
    """Return what a recorded answer to get_history says: all its rings have one length.

    Raises:
        InputError: it is not such an answer.
    """
    history = _answer(content, origin, "dish_get_history").dish_get_history
    lengths = {name: len(getattr(history, name)) for name in _RINGS}
    length = lengths["pop_ping_drop_rate"]
    for name, other in lengths.items():
        if other not in {0, length}:
            raise InputError(
                f"{origin}: {name} has {other} values, pop_ping_drop_rate {length}; expected as "
                "many"
            )
    if not length:
        raise InputError(f"{origin}: a history without a value; expected pop_ping_drop_rate")
    return history


def map_of(content: bytes, origin: str) -> device_pb2.DishGetObstructionMapResponse:
    """Return what a recorded answer to dish_get_obstruction_map says.

    Raises:
        InputError: it is not such an answer.
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
    """Return an answer: all of it as grpcurl prints it, or what it says alone."""
    try:
        read: Any = json.loads(content)
        # Halves of characters, which the protocol's library stumbles over.
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
    said: Message = getattr(answer, name)
    said.SetInParent()
    try:
        json_format.ParseDict(read[found[0]] if found else read, said, ignore_unknown_fields=True)
    except (json_format.ParseError, *_STUMBLES) as error:
        raise InputError(f"{origin}: not what a terminal says: {error}") from None
    if not found and not said.ByteSize():
        raise InputError(f"{origin}: expected {_KEYS[name]}, as grpcurl prints it")
    return answer
