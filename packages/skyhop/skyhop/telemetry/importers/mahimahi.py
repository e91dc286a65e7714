"""mahimahi's traces: a line per delivery opportunity of a 1500-byte packet, its time in ms.

The file is read as by `skyhop path import`: rates are wire rates, so that a packet counts as 1514
bytes. The file contains neither the time nor the direction of the measurement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from skyhop import _core
from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME, Sample
from skyhop.telemetry.importers.input_file import SECOND_NS, Importer, InputFile, end_of_second

PACKET_BITS = 1514 * 8
"""Size of a packet on the wire, in bits."""
_LEAST_MS = 990
"""Length in ms from which on a last second is whole: its last ms may have no packet."""


def samples(source: InputFile) -> Iterator[Sample]:
    """Yield the rate of each completely measured second; 0 for seconds without packets."""
    name, packets = capacity(source), packets_per_ms(source)
    for second, begin_ms in enumerate(range(0, len(packets) - _LEAST_MS + 1, 1000)):
        of_second = packets[begin_ms : begin_ms + 1000]
        bps = sum(of_second) * PACKET_BITS * 1000 / len(of_second)
        yield {TIME: end_of_second(source.start_ns + second * SECOND_NS), name: bps}


def packets_per_ms(source: InputFile) -> list[int]:
    """Return the number of packets in each ms of the trace."""
    return _core.read_mahimahi(source.content, str(source.file))


def capacity(source: InputFile) -> str:
    """Return the capacity column of the trace's direction.

    The direction is that of the options. Without one, it is up if the name of the file or its
    directory has the word up or uplink, otherwise down.
    """
    direction = source.options.direction
    if direction is None:
        words = re.findall("[a-z]+", f"{source.file.parent.name} {source.file.name}".lower())
        direction = "up" if {"up", "uplink"} & set(words) else "down"
    if direction not in ("down", "up"):
        raise InputError(f'--direction: expected down or up, not "{direction}"')
    return f"{direction}link_capacity_bps"


def matches(source: InputFile) -> bool:
    """Return whether the first line is a whole number, as in traces of mahimahi and of LeoCC."""
    return source.log_format == "mahimahi"


FORMAT = Importer(
    "mahimahi",
    "mahimahi: the ms in which each packet of 1500 bytes may pass",
    lambda source: matches(source) and "bw" not in source.file.name,
    samples,
)
