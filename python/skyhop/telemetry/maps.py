"""Obstruction maps as they are kept and sent: the newest of a node, in its directory of telemetry.

It is one file of JSON, an answer to dish_get_obstruction_map as grpcurl prints it, with where the
terminal pointed beside it (`skyhop.dish.messages` writes and reads it). It is sent gzipped.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib

from skyhop.errors import InputError

FILE = "obstruction_map.json"
EVERY_S = 15.0
"""How often a terminal is asked for it: as often as satellites are chosen."""
_LARGEST = 1 << 20
_ANSWER = "dishGetObstructionMap"
_GZIP = 31


def packed(content: bytes) -> str:
    """Return a map's file as a text to be sent."""
    packer = zlib.compressobj(wbits=_GZIP)
    return base64.b64encode(packer.compress(content) + packer.flush()).decode()


def unpacked(text: object) -> bytes:
    """Return a map's file of a text that was sent.

    Raises:
        InputError: it is none, or is too large.
    """
    if not isinstance(text, str):
        raise InputError("map: expected a text")
    unpacking = zlib.decompressobj(wbits=_GZIP)
    try:
        content = unpacking.decompress(base64.b64decode(text, validate=True), _LARGEST)
        if not unpacking.eof:
            raise InputError("map: is cut off, or too large")
        said = json.loads(content)[_ANSWER]
        side, other, values = said["numRows"], said["numCols"], said["snr"]
        is_whole = isinstance(values, list) and 0 < side * other == len(values)
    except (binascii.Error, zlib.error, ValueError, TypeError, KeyError, RecursionError):
        raise InputError("map: is no obstruction map") from None
    if not is_whole:
        raise InputError("map: has not as many values as rows times columns")
    return content
