"""Results of a ping measurement of RIPE Atlas, as JSON: an array, or one result per line.

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
    yield from read_probes(source, "atlas")[0]


def _samples(source: InputFile) -> Iterator[Sample]:
    return second_means(_probes(source), with_losses=True)


FORMAT = Importer(
    "atlas",
    "RIPE Atlas: results of a ping measurement, as JSON",
    lambda source: source.log_format == "atlas",
    _samples,
    basis="documentation",
    probes=_probes,
)
