"""RTTs, one line each: `unix_ns,rtt_ms`, with or without a header line.

`unix_ns` is the arrival time of the answer. The testbed demo's latency.csv has `seq,sent_s,rtt_ms`
instead: `sent_s` is the sending time of the probe, and `rtt_ms` is empty if the probe was lost.
Samples are means over seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from skyhop.telemetry.fields import Sample
from skyhop.telemetry.importers.input_file import Importer, InputFile, Probe, second_means

_COLUMNS = ["unix_ns", "rtt_ms"]
_SENT = ["seq", "sent_s", "rtt_ms"]
_LONGEST_MS = 600_000
_FIRST = re.compile(r"[0-9]{16,19},[0-9.]+")


def _probes(source: InputFile) -> Iterator[Probe]:
    if source.columns == _SENT:
        yield from _sent(source)
        return
    for row in source.rows(None if source.columns == _COLUMNS else _COLUMNS):
        at_ns, rtt_ms = row.time_ns("unix_ns"), row.needed("rtt_ms")
        if rtt_ms < 0:
            raise row.wrong(f"rtt_ms: {rtt_ms:g} is less than 0")
        yield Probe(at_ns, rtt_ms)


def _sent(source: InputFile) -> Iterator[Probe]:
    for row in source.rows():
        sent_ns, rtt_ms = row.time_ns("sent_s"), row.value("rtt_ms")
        if rtt_ms is None:
            yield Probe(sent_ns, None)
        elif 0 <= rtt_ms < _LONGEST_MS:
            yield Probe(sent_ns + round(rtt_ms * 1e6), rtt_ms)
        else:
            raise row.wrong(f"rtt_ms: {rtt_ms:g} cannot be")


def _samples(source: InputFile) -> Iterator[Sample]:
    return second_means(_probes(source), with_losses=source.columns == _SENT)


FORMAT = Importer(
    "rtt",
    "round trips: unix_ns,rtt_ms, as in the files of Victoria, and the demo's latency.csv",
    lambda source: (
        source.columns in (_COLUMNS, _SENT) or bool(_FIRST.fullmatch(source.lines[0].strip()))
    ),
    _samples,
    probes=_probes,
)
