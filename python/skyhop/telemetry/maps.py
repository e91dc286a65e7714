"""Obstruction maps in storage and in messages.

A node's telemetry directory holds the node's newest map as a JSON file: the answer to
dish_get_obstruction_map as grpcurl prints it, and the direction in which the terminal pointed
(`skyhop.dish.messages` writes and reads such files). Messages carry the file gzipped, in base64.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib

from skyhop.errors import InputError

FILE = "obstruction_map.json"
EVERY_S = 15.0
"""Interval in s of requests of the map, the interval at which Starlink reassigns satellites."""
_LARGEST = 1 << 20
_ANSWER = "dishGetObstructionMap"
_GZIP = 31
"""Value of zlib's `wbits` for gzip with the largest window."""


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
        if not unpacking.eof:
            raise InputError("map: is cut off, or too large")
        answer = json.loads(content)[_ANSWER]
        rows, columns, values = answer["numRows"], answer["numCols"], answer["snr"]
        is_whole = isinstance(values, list) and 0 < rows * columns == len(values)
    except (binascii.Error, zlib.error, ValueError, TypeError, KeyError, RecursionError):
        raise InputError("map: is no obstruction map") from None
    if not is_whole:
        raise InputError("map: has not as many values as rows times columns")
    return content
