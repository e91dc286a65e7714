"""LENS' processed files: `timestamp,rtt` of ping, `timestamp,rtt,uplink,downlink` of IRTT.

Timestamps are seconds (ping) or nanoseconds (IRTT) since 1970; RTTs and one-way delays are in ms.
In IRTT's files, -1 in any of the three delays marks a lost probe (the other two are then 0). The
file is read as by `skyhop path import`. Samples are means over seconds.
"""

from __future__ import annotations

from collections.abc import Iterator

from skyhop.telemetry.fields import Sample
from skyhop.telemetry.importers.input_file import (
    Importer,
    InputFile,
    Probe,
    read_probes,
    second_means,
)

_PING = ["timestamp", "rtt"]
_IRTT = [*_PING, "uplink", "downlink"]


def _probes(source: InputFile) -> Iterator[Probe]:
    if source.columns not in (_PING, _IRTT):
        raise source.wrong(1, f"expected {','.join(_PING)} or {','.join(_IRTT)}")
    yield from read_probes(source, "csv")[0]


def _samples(source: InputFile) -> Iterator[Sample]:
    # Files of ping have answered probes only, so losses are not known.
    return second_means(_probes(source), with_losses=source.columns == _IRTT)


FORMAT = Importer(
    "lens",
    "LENS: processed CSV of ping or IRTT",
    lambda source: source.columns in (_PING, _IRTT),
    _samples,
    basis="documentation",
    probes=_probes,
)
