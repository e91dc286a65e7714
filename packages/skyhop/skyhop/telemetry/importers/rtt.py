"""RTTs, one line each: `unix_ns,rtt_ms`, with or without a header line.

`unix_ns` is the arrival time of the answer. The testbed demo's latency.csv has `seq,sent_s,rtt_ms`
instead: `sent_s` is the sending time of the probe, and `rtt_ms` is empty if the probe was lost.
The file is read as by `skyhop path import`. Samples are means over seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from skyhop.telemetry.fields import Sample
from skyhop.telemetry.importers.input_file import (
    Importer,
    InputFile,
    Probe,
    read_probes,
    second_means,
)

_COLUMNS = ["unix_ns", "rtt_ms"]
_SENT = ["seq", "sent_s", "rtt_ms"]
_FIRST = re.compile(r"[0-9]{16,19},[0-9.]+")


def _probes(source: InputFile) -> Iterator[Probe]:
    yield from read_probes(source, "csv")[0]


def _samples(source: InputFile) -> Iterator[Sample]:
    probes, losses_known = read_probes(source, "csv")
    return second_means(probes, with_losses=losses_known or source.columns == _SENT)


FORMAT = Importer(
    "rtt",
    "round trips: unix_ns,rtt_ms, as in the files of Victoria, and the demo's latency.csv",
    lambda source: (
        source.columns in (_COLUMNS, _SENT) or bool(_FIRST.fullmatch(source.lines[0].strip()))
    ),
    _samples,
    probes=_probes,
)
