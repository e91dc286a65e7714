"""What `ping -D` of Linux prints: LENS' raw files and LEOViz' latency files are such.

Samples are means of seconds; what sequence numbers leave out is lost. LENS' files begin with the
first answer, LEOViz' with ping's own first line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from skyhop.telemetry.fields import Sample
from skyhop.telemetry.importers.source import (
    LATEST_NS,
    SECOND_NS,
    Importer,
    Probe,
    Source,
    seconds_of,
)

_ANSWER = re.compile(
    r"\[(\d{1,11})\.(\d{1,9})\] \d+ bytes from .*?icmp_seq=(\d{1,9}) .*?time=([0-9.]{1,12}) ?ms"
)
_NUMBERS = 1 << 16
"""Sequence numbers begin again after so many."""
_AHEAD = _NUMBERS // 2


def _probes(source: Source) -> Iterator[Probe]:
    last = None
    for number, line in enumerate(source.lines, 1):
        found = _ANSWER.match(line)
        if found is None:
            if line.startswith("[") and "bytes from" in line:
                raise source.wrong(number, "is not what ping -D prints")
            continue
        # "1700182800.4": a tenth of a second.
        at_ns = int(found[1]) * SECOND_NS + int(found[2].ljust(9, "0"))
        if at_ns >= LATEST_NS:
            raise source.wrong(number, "its time is later than 2100")
        ahead = 1 if last is None else (int(found[3]) - last) % _NUMBERS
        try:
            rtt_ms = float(found[4])
        except ValueError:
            raise source.wrong(number, f'time: expected a number, not "{found[4]}"') from None
        # What overtook is no loss; what is a repeat counts as an answer.
        lost = ahead - 1 if 1 <= ahead < _AHEAD else 0
        last = int(found[3]) if ahead < _AHEAD else last
        if lost:
            yield Probe(at_ns, None, lost)
        yield Probe(at_ns, rtt_ms)


def _samples(source: Source) -> Iterator[Sample]:
    return seconds_of(_probes(source), with_losses=True)


FORMAT = Importer(
    "ping",
    "what ping -D prints: LENS' raw ping files, LEOViz' latency files",
    lambda source: any(_ANSWER.match(line) for line in source.head),
    _samples,
    probes=_probes,
)
