"""mahimahi's traces: a line per delivery opportunity of a 1500-byte packet, its time in ms.

Rates are wire rates, as in `skyhop path import`: a packet counts as 1514 bytes. The file contains
neither the time nor the direction of the measurement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME, Sample
from skyhop.telemetry.importers.input_file import SECOND_NS, Importer, InputFile, end_of_second

PACKET_BITS = 1514 * 8
"""Size of a packet on the wire, in bits."""
_LONGEST_MS = 7 * 86_400_000
_DIGITS = 12


def samples(source: InputFile) -> Iterator[Sample]:
    """Yield the rate of each completely measured second; 0 for seconds without packets."""
    name = capacity(source)
    last, packets, second = 0, 0, 0
    for at_ms in packet_times_ms(source):
        last = at_ms
        while at_ms >= (second + 1) * 1000:
            end_ns = end_of_second(source.start_ns + second * SECOND_NS)
            yield {TIME: end_ns, name: float(packets * PACKET_BITS)}
            packets, second = 0, second + 1
        packets += 1
    if last >= second * 1000 + 990:
        end_ns = end_of_second(source.start_ns + second * SECOND_NS)
        yield {TIME: end_ns, name: float(packets * PACKET_BITS)}


def packet_times_ms(source: InputFile) -> Iterator[int]:
    """Yield the time of each packet in ms since the start of the trace, in ascending order."""
    last = 0
    for number, line in enumerate(source.lines, 1):
        at_ms = _whole_ms(source, number, line)
        if at_ms < last:
            raise source.wrong(number, f"{at_ms} comes after {last}")
        last = at_ms
        yield at_ms


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


def _whole_ms(source: InputFile, number: int, line: str) -> int:
    """Parse a line as a whole number of ms."""
    text = line.strip()
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS or int(text) > _LONGEST_MS:
        raise source.wrong(number, f'expected the ms of a packet, not "{text[:40]}"')
    return int(text)


def matches(source: InputFile) -> bool:
    """Return whether the first lines are whole numbers in ascending order."""
    texts = [line.strip() for line in source.head]
    if not all(text.isascii() and text.isdigit() and len(text) <= _DIGITS for text in texts):
        return False
    numbers = [int(text) for text in texts]
    return numbers == sorted(numbers)


FORMAT = Importer(
    "mahimahi",
    "mahimahi: the ms in which each packet of 1500 bytes may pass",
    lambda source: matches(source) and "bw" not in source.file.name,
    samples,
)
