"""Round trips, a line each: `unix_ns,rtt_ms`, with these names above or without.

`unix_ns` is the answer's arrival. The testbed demo's latency.csv has `seq,sent_s,rtt_ms` instead:
when a probe was sent, and no round trip where it was lost. Samples are means of seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from skyhop.telemetry.fields import Sample
from skyhop.telemetry.importers.source import Importer, Probe, Source, seconds_of

_COLUMNS = ["unix_ns", "rtt_ms"]
_SENT = ["seq", "sent_s", "rtt_ms"]
_LONGEST_MS = 600_000
_FIRST = re.compile(r"[0-9]{16,19},[0-9.]+")


def _probes(source: Source) -> Iterator[Probe]:
    if source.columns == _SENT:
        yield from _sent(source)
        return
    for row in source.rows(None if source.columns == _COLUMNS else _COLUMNS):
        at_ns, rtt_ms = row.time_ns("unix_ns"), row.needed("rtt_ms")
        if rtt_ms < 0:
            raise row.wrong(f"rtt_ms: {rtt_ms:g} is less than 0")
        yield Probe(at_ns, rtt_ms)


def _sent(source: Source) -> Iterator[Probe]:
    for row in source.rows():
        sent_ns, rtt_ms = row.time_ns("sent_s"), row.value("rtt_ms")
        if rtt_ms is None:
            yield Probe(sent_ns, None)
        elif 0 <= rtt_ms < _LONGEST_MS:
            yield Probe(sent_ns + round(rtt_ms * 1e6), rtt_ms)
        else:
            raise row.wrong(f"rtt_ms: {rtt_ms:g} cannot be")


def _samples(source: Source) -> Iterator[Sample]:
    return seconds_of(_probes(source), with_losses=source.columns == _SENT)


FORMAT = Importer(
    "rtt",
    "round trips: unix_ns,rtt_ms, as in the files of Victoria, and the demo's latency.csv",
    lambda source: (
        source.columns in (_COLUMNS, _SENT) or bool(_FIRST.fullmatch(source.lines[0].strip()))
    ),
    _samples,
    probes=_probes,
)
