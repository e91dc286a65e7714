"""Round trips, a line each: `unix_ns,rtt_ms`, with these names above or without.

`time_ns` is the answer's arrival. Samples are means of seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from skyhop.telemetry.fields import Sample
from skyhop.telemetry.importers.source import Importer, Probe, Source, seconds_of

_COLUMNS = ["unix_ns", "rtt_ms"]
_FIRST = re.compile(r"[0-9]{16,19},[0-9.]+")


def _probes(source: Source) -> Iterator[Probe]:
    for row in source.rows(None if source.columns == _COLUMNS else _COLUMNS):
        at_ns, rtt_ms = row.time_ns("unix_ns"), row.needed("rtt_ms")
        if rtt_ms < 0:
            raise row.wrong(f"rtt_ms: {rtt_ms:g} is less than 0")
        yield Probe(at_ns, rtt_ms)


def _samples(source: Source) -> Iterator[Sample]:
    return seconds_of(_probes(source), with_losses=False)


FORMAT = Importer(
    "rtt",
    "round trips: unix_ns,rtt_ms, as in the files of Victoria",
    lambda source: source.columns == _COLUMNS or bool(_FIRST.fullmatch(source.lines[0].strip())),
    _samples,
    probes=_probes,
)
