"""mahimahi's traces: a line per packet of 1500 bytes, the ms in which it may pass.

Rates are wire rates, as `skyhop path import` has them: a packet counts 1514 bytes. The file says
neither when nor in which direction it was measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME, Sample
from skyhop.telemetry.importers.source import SECOND_NS, Importer, Source, end_of_second

_PACKET_BITS = 1514 * 8
_LONGEST_MS = 7 * 86_400_000
_DIGITS = 12


def samples(source: Source) -> Iterator[Sample]:
    """Yield the rate of each second that was measured to its end, seconds without packets too."""
    name = capacity(source)
    last, packets, second = 0, 0, 0
    for number, line in enumerate(source.lines, 1):
        at_ms = whole(source, number, line)
        if at_ms < last:
            raise source.wrong(number, f"{at_ms} comes after {last}")
        last = at_ms
        while at_ms >= (second + 1) * 1000:
            end_ns = end_of_second(source.start_ns + second * SECOND_NS)
            yield {TIME: end_ns, name: float(packets * _PACKET_BITS)}
            packets, second = 0, second + 1
        packets += 1
    if last >= second * 1000 + 990:
        end_ns = end_of_second(source.start_ns + second * SECOND_NS)
        yield {TIME: end_ns, name: float(packets * _PACKET_BITS)}


def capacity(source: Source) -> str:
    """Return the column of the direction that was asked for, or that the name has.

    The name is that of the file and of its directory.
    """
    direction = source.options.direction
    if direction is None:
        words = re.findall("[a-z]+", f"{source.file.parent.name} {source.file.name}".lower())
        direction = "up" if {"up", "uplink"} & set(words) else "down"
    if direction not in ("down", "up"):
        raise InputError(f'--direction: expected down or up, not "{direction}"')
    return f"{direction}link_capacity_bps"


def whole(source: Source, number: int, line: str) -> int:
    """Return a line as a whole number of ms."""
    text = line.strip()
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS or int(text) > _LONGEST_MS:
        raise source.wrong(number, f'expected the ms of a packet, not "{text[:40]}"')
    return int(text)


def is_it(source: Source) -> bool:
    """Tell whether every one of the first lines is a whole number, none less than before."""
    texts = [line.strip() for line in source.head]
    if not all(text.isascii() and text.isdigit() and len(text) <= _DIGITS for text in texts):
        return False
    numbers = [int(text) for text in texts]
    return numbers == sorted(numbers)


FORMAT = Importer(
    "mahimahi",
    "mahimahi: the ms in which a packet of 1500 bytes may pass",
    lambda source: is_it(source) and "bw" not in source.file.name,
    samples,
)
