"""LeoCC's traces: mahimahi's format, and a file of one-way delays in ms, a line per 10 ms.

Both files are read as by `skyhop path import`. The file of delays is in the directory of the trace;
its name has "delay" in place of "bw". The RTT is twice the delay, as in LeoCC's replay.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from skyhop import _core
from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME, Sample
from skyhop.telemetry.importers import mahimahi
from skyhop.telemetry.importers.input_file import (
    SECOND_NS,
    Importer,
    InputFile,
    SecondMeans,
    read_input,
)

DELAY_STEP_S = 0.01
"""Time between two delays in seconds."""
_STEP_NS = round(DELAY_STEP_S * SECOND_NS)


def _samples(source: InputFile) -> Iterator[Sample]:
    rtt_ms = dict(_round_trips(source))
    for sample in mahimahi.samples(source):
        time_ns = sample[TIME]
        assert isinstance(time_ns, int), "samples have a time"
        yield {**sample, "probe_rtt_ms": rtt_ms.get(time_ns)}


def delays_ms(source: InputFile) -> list[float]:
    """Return the one-way delay of each 10 ms of a trace, from the file next to it.

    Raises:
        InputError: the file is missing, or a delay is impossible.
    """
    file = delay_file(source.file)
    if file is None:
        raise InputError(
            f'{source.file}: the file of its delays is missing: put it next to it, with "delay" in '
            'its name in place of "bw"'
        )
    delays = read_input(file, source.options)
    return _core.read_leocc_delays(delays.content, str(delays.file))


def _round_trips(source: InputFile) -> Iterator[tuple[int, float]]:
    seconds, found = SecondMeans(), []
    for step, delay_ms in enumerate(delays_ms(source)):
        # The trace's seconds count from its start, which need not be a full second of UTC.
        at_ns = source.start_ns // SECOND_NS * SECOND_NS + step * _STEP_NS
        found += list(seconds.add(at_ns, {"rtt": 2 * delay_ms}))
    for sample in [*found, *seconds.flush()]:
        time_ns, rtt_ms = sample[TIME], sample["rtt"]
        assert isinstance(time_ns, int), "set above"
        assert isinstance(rtt_ms, float), "set above"
        yield time_ns, rtt_ms


def delay_file(file: Path) -> Path | None:
    """Return the file of delays next to a trace; None if there is none."""
    names = [file.name.replace("bw", "delay", 1)]
    # Each of the two files may be plain or gzipped.
    names += [f"{names[0]}.gz", names[0].removesuffix(".gz")]
    for name in names:
        if name != file.name and (file.parent / name).is_file():
            return file.parent / name
    return None


def matches(source: InputFile) -> bool:
    """Return whether a file is a trace of mahimahi whose name says that it is LeoCC's."""
    return mahimahi.matches(source) and "bw" in source.file.name


FORMAT = Importer(
    "leocc",
    "LeoCC: mahimahi's format, with a file of delays next to it",
    matches,
    _samples,
)
