"""Obstruction maps in storage and in messages.

A node's telemetry directory holds the node's newest map as a JSON file: the answer to
dish_get_obstruction_map as grpcurl prints it, and the direction in which the terminal pointed.
Messages carry the file gzipped, in base64.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from pathlib import Path
from typing import Any

from skyhop.errors import InputError
from skyhop.telemetry.obstruction import MAX_THETA_DEG, Frame, Grid, ObstructionMap, Pointing

FILE = "obstruction_map.json"
EVERY_S = 15.0
"""Interval in s of requests of the map, the interval at which Starlink reassigns satellites."""
_LARGEST = 1 << 20
_ANSWER, _STATUS = "dishGetObstructionMap", "dishGetStatus"
_FRAMES = {Frame.TERMINAL: "FRAME_UT", Frame.EARTH: "FRAME_EARTH"}
_GZIP = 31
"""Value of zlib's `wbits` for gzip with the largest window."""


def recorded_map(seen: ObstructionMap) -> bytes:
    """Return the content of an obstruction map's file.

    Values are rounded to three decimals.
    """
    grid = seen.grid
    return json.dumps(
        {
            _ANSWER: {
                "numRows": grid.rows,
                "numCols": grid.columns,
                "minElevationDeg": seen.min_elevation_deg,
                "maxThetaDeg": grid.max_theta_deg,
                "mapReferenceFrame": _FRAMES[grid.frame],
                "snr": [-1 if value < 0 else round(value, 3) for value in seen.snr],
            },
            _STATUS: {
                "boresightAzimuthDeg": grid.pointing.azimuth_deg,
                "boresightElevationDeg": 90 - grid.pointing.tilt_deg,
            },
        },
        separators=(",", ":"),
    ).encode()


def parse_map(content: bytes, origin: str) -> ObstructionMap:
    """Parse the content of an obstruction map's file; `origin` names it in errors.

    A terminal without a recorded direction is assumed to lie flat, with azimuth 0.

    Raises:
        InputError: the content is not a map, or has not as many values as rows times columns.
    """
    try:
        recorded: dict[str, Any] = json.loads(content)
        answer, status = recorded[_ANSWER], recorded.get(_STATUS, {})
        frame = answer.get("mapReferenceFrame")
        grid = Grid(
            int(answer["numRows"]),
            int(answer["numCols"]),
            float(answer.get("maxThetaDeg") or MAX_THETA_DEG),
            Frame.TERMINAL if frame == _FRAMES[Frame.TERMINAL] else Frame.EARTH,
            Pointing(
                float(status.get("boresightAzimuthDeg", 0)),
                90 - float(status.get("boresightElevationDeg", 90)),
            ),
        )
        snr = [float(value) if value >= 0 else -1.0 for value in answer["snr"]]
        min_elevation_deg = float(answer.get("minElevationDeg", 0))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise InputError(f"{origin}: is no obstruction map") from None
    if not 0 < grid.rows * grid.columns == len(snr):
        raise InputError(f"{origin}: has not as many values as rows times columns")
    return ObstructionMap(grid, snr, min_elevation_deg)


def read_map(file: Path) -> ObstructionMap:
    """Read the obstruction map of a telemetry directory.

    Raises:
        InputError: the file cannot be read, or is not a map.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: cannot read: {error.strerror}") from None
    return parse_map(content, str(file))


def encode_map(content: bytes) -> str:
    """Return the content of a map file as text for a message: gzipped, in base64."""
    packer = zlib.compressobj(wbits=_GZIP)
    return base64.b64encode(packer.compress(content) + packer.flush()).decode()


def decode_map(text: object) -> bytes:
    """Return the content of a map file, given its text in a message.

    Raises:
        InputError: the text is not a map, or is too large.
    """
    if not isinstance(text, str):
        raise InputError("map: expected a text")
    unpacking = zlib.decompressobj(wbits=_GZIP)
    try:
        content = unpacking.decompress(base64.b64decode(text, validate=True), _LARGEST)
    except (binascii.Error, zlib.error, ValueError):
        raise InputError("map: is no obstruction map") from None
    if not unpacking.eof:
        raise InputError("map: is cut off, or too large")
    parse_map(content, "map")
    return content
