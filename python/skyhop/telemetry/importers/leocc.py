"""LeoCC's traces: mahimahi's format, and a file of one-way delays in ms, a line per 10 ms.

The delays are looked for beside the trace, in the file whose name has "delay" in place of "bw";
the round trip is twice the delay, as LeoCC replays it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME, Sample
from skyhop.telemetry.importers import mahimahi
from skyhop.telemetry.importers.source import SECOND_NS, Importer, Row, Seconds, Source, opened

_STEP_NS = 10_000_000
_LONGEST_MS = 60_000


def _samples(source: Source) -> Iterator[Sample]:
    rtt_ms = dict(_round_trips(source))
    for sample in mahimahi.samples(source):
        time_ns = sample[TIME]
        assert isinstance(time_ns, int), "samples have a time"
        yield {**sample, "probe_rtt_ms": rtt_ms.get(time_ns)}


def _round_trips(source: Source) -> Iterator[tuple[int, float]]:
    delays = opened(_beside(source.file), source.options)
    seconds, found = Seconds(), []
    for number, line in enumerate(delays.lines, 1):
        row = Row(delays, number, {"delay": line})
        delay_ms = row.needed("delay")
        if not 0 <= delay_ms < _LONGEST_MS:
            raise row.wrong(f"a delay of {delay_ms:g} ms cannot be")
        # Whole seconds of the trace are counted from its start, wherever UTC's are.
        at_ns = source.start_ns // SECOND_NS * SECOND_NS + (number - 1) * _STEP_NS
        found += list(seconds.add(at_ns, {"rtt": 2 * delay_ms}))
    for sample in [*found, *seconds.rest()]:
        time_ns, rtt_ms = sample[TIME], sample["rtt"]
        assert isinstance(time_ns, int), "made above"
        assert isinstance(rtt_ms, float), "made above"
        yield time_ns, rtt_ms


def _beside(file: Path) -> Path:
    names = [file.name.replace("bw", "delay", 1)]
    # One of the two may be gzipped.
    names += [f"{names[0]}.gz", names[0].removesuffix(".gz")]
    for name in names:
        if name != file.name and (file.parent / name).is_file():
            return file.parent / name
    raise InputError(
        f'{file}: its delays are missing: a file beside it whose name has "delay" in place of "bw"'
    )


FORMAT = Importer(
    "leocc",
    "LeoCC: mahimahi's format, with a file of delays beside it",
    lambda source: mahimahi.is_it(source) and "bw" in source.file.name,
    _samples,
)
