"""Output of `irtt client -o FILE`: every round trip of one or several measurements, as JSON.

The file is read as by `skyhop path import`. Samples are means over seconds.
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


def _probes(source: InputFile) -> Iterator[Probe]:
    yield from read_probes(source, "irtt")[0]


def _samples(source: InputFile) -> Iterator[Sample]:
    return second_means(_probes(source), with_losses=True)


FORMAT = Importer(
    "irtt",
    "irtt: output of a client (irtt client -o FILE)",
    lambda source: source.log_format == "irtt" and '"round_trips"' in source.text,
    _samples,
    probes=_probes,
)
