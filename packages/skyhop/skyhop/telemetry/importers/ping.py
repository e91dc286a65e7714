"""Output of ping with times, such as LENS' raw files and LEOViz' latency files.

The file is read as by `skyhop path import`. Samples are means over seconds; probes that were not
answered are losses, each at about the time at which it was sent.
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
    yield from read_probes(source, "ping")[0]


def _samples(source: InputFile) -> Iterator[Sample]:
    return second_means(_probes(source), with_losses=True)


FORMAT = Importer(
    "ping",
    "output of ping with times (ping -D, fping -D, ts): LENS' raw files, LEOViz' latency files",
    lambda source: source.log_format == "ping",
    _samples,
    probes=_probes,
)
