"""Output of Linux's `ping -D`, such as LENS' raw files and LEOViz' latency files.

Samples are means over seconds; missing sequence numbers are losses. LENS' files begin with the
first answer, LEOViz' files with the first line that ping prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from skyhop.telemetry.fields import Sample
from skyhop.telemetry.importers.input_file import (
    LATEST_NS,
    SECOND_NS,
    Importer,
    InputFile,
    Probe,
    second_means,
)

_ANSWER = re.compile(
    r"\[(\d{1,11})\.(\d{1,9})\] \d+ bytes from .*?icmp_seq=(\d{1,9}) .*?time=([0-9.]{1,12}) ?ms"
)
_NUMBERS = 1 << 16
"""Count after which sequence numbers wrap around."""
_AHEAD = _NUMBERS // 2
"""Least difference of sequence numbers at which an answer counts as late, not as after losses."""


def _probes(source: InputFile) -> Iterator[Probe]:
    last = None
    for number, line in enumerate(source.lines, 1):
        found = _ANSWER.match(line)
        if found is None:
            if line.startswith("[") and "bytes from" in line:
                raise source.wrong(number, "is not what ping -D prints")
            continue
        # The fraction of a second may have fewer than nine digits, as in "1700182800.4".
        at_ns = int(found[1]) * SECOND_NS + int(found[2].ljust(9, "0"))
        if at_ns >= LATEST_NS:
            raise source.wrong(number, "its time is later than 2100")
        ahead = 1 if last is None else (int(found[3]) - last) % _NUMBERS
        try:
            rtt_ms = float(found[4])
        except ValueError:
            raise source.wrong(number, f'time: expected a number, not "{found[4]}"') from None
        # A late answer is no loss; a duplicate counts as an answer.
        lost = ahead - 1 if 1 <= ahead < _AHEAD else 0
        last = int(found[3]) if ahead < _AHEAD else last
        if lost:
            yield Probe(at_ns, None, lost)
        yield Probe(at_ns, rtt_ms)


def _samples(source: InputFile) -> Iterator[Sample]:
    return second_means(_probes(source), with_losses=True)


FORMAT = Importer(
    "ping",
    "output of ping -D: LENS' raw ping files, LEOViz' latency files",
    lambda source: any(_ANSWER.match(line) for line in source.head),
    _samples,
    probes=_probes,
)
