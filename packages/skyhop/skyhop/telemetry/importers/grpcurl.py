"""Recorded answers to get_history, as grpcurl prints them: ring buffers of the last 900 s or so.

The newest value of a ring buffer is at index (current - 1) modulo its length. The ring buffers hold
no time: `--start` gives the end of the oldest second. The list of outages holds their times, and
the outages are the seconds with lost pings: if enough of them are in the ring buffers, they give
the ring buffers' time. A file may hold several answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME, Sample
from skyhop.telemetry.gaps import SECOND_NS, last_full_second_ns
from skyhop.telemetry.gps import utc_of_gps_ns
from skyhop.telemetry.importers.input_file import (
    LATEST_NS,
    Importer,
    InputFile,
    Row,
    documents,
)

_DROP, _LATENCY = "popPingDropRate", "popPingLatencyMs"
_RINGS = {
    _DROP: "pop_ping_drop_rate",
    _LATENCY: "pop_ping_latency_ms",
    "downlinkThroughputBps": "downlink_throughput_bps",
    "uplinkThroughputBps": "uplink_throughput_bps",
    "powerIn": "power_w",
}
_LONGEST = 1_000_000
"""Largest length of a ring buffer in seconds; early firmware had 43,200."""
_OUTAGE_REASON = "EVENT_REASON_OUTAGE_"
_COMPARED_S = 900
"""Number of the newest seconds that are compared with the outages."""

_Outage = tuple[int, int]
"""Begin and end of an outage, in ns since 1970."""


def _samples(source: InputFile) -> Iterator[Sample]:
    try:
        histories = [answer["dishGetHistory"] for answer in documents(source)]
        outages = sorted({one for history in histories for one in _outages(history)})
        seconds: dict[int, Sample] = {}
        last = 0
        for history in histories:
            current = int(history.get("current", 0))
            if current < last:
                raise InputError(
                    f"{source.file}: the terminal restarted between two answers: give each a file "
                    "and a --start of its own"
                )
            last = current
            seconds.update(_seconds(source, history, current))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _unlike(source) from None
    if len(histories) > 1:
        source.notes.append(f"{len(histories)} answers")
    yield from _placed(source, dict(sorted(seconds.items())), outages)


def _seconds(
    source: InputFile, history: Mapping[str, Any], current: int
) -> Iterator[tuple[int, Sample]]:
    """Yield the values of each second, with the second's number since the terminal booted."""
    rings = {name: list(history[name]) for name in _RINGS if name in history}
    length = len(rings.get(_DROP, ()))
    if not 0 < length <= _LONGEST or any(len(ring) != length for ring in rings.values()):
        raise ValueError(length)
    for number in range(max(0, current - length), current):
        at = number % length
        row = Row(source, 1, {name: _text(ring[at]) for name, ring in rings.items()})
        values: Sample = {ours: row.value(theirs) for theirs, ours in _RINGS.items()}
        # After a lost ping the ring buffer repeats the previous latency; 0 means no latency.
        if (row.value(_DROP) or 0) >= 1 or not row.value(_LATENCY):
            values["pop_ping_latency_ms"] = None
        yield number, values


def _placed(
    source: InputFile, seconds: Mapping[int, Sample], outages: list[_Outage]
) -> Iterator[Sample]:
    """Yield the seconds with their times, and the outages, each at its end."""
    if not seconds:
        return
    first, last = min(seconds), max(seconds)
    end_ns = _end_ns(seconds, outages)
    # Without a start and without outages, the first second ends at 0.
    first_ns = last_full_second_ns(source.start_ns)
    if end_ns is not None and source.options.start_ns is None:
        first_ns = (end_ns + SECOND_NS // 2) // SECOND_NS * SECOND_NS - (last - first) * SECOND_NS
        source.notes.append("its times are those of its outages")
    shift_ns = 0
    if end_ns is not None and source.options.start_ns is not None:
        shift_ns = first_ns + (last - first) * SECOND_NS - end_ns
    times = {first_ns + (number - first) * SECOND_NS: sample for number, sample in seconds.items()}
    begin_ns = first_ns - SECOND_NS
    placed = {} if end_ns is None else {end + shift_ns: end - begin for begin, end in outages}
    inside = {end: length for end, length in placed.items() if begin_ns < end <= max(times)}
    if outages:
        left = len(outages) - len(inside)
        what = "outside these seconds" if inside else "that match no lost pings"
        unused = [f"{left} {what} not used"] if left else []
        source.notes.append(", ".join([f"{len(inside)} outages", *unused]))
    for time_ns in sorted({*times, *inside}):
        outage = {"outage_s": inside[time_ns] / SECOND_NS} if time_ns in inside else {}
        yield {TIME: time_ns, **times.get(time_ns, {}), **outage}


def _outages(history: Mapping[str, Any]) -> Iterator[_Outage]:
    """Yield the outages: older firmware lists them in GPS time, newer logs events in Unix time."""
    for outage in history.get("outages") or ():
        begin_ns = utc_of_gps_ns(int(outage["startTimestampNs"]))
        yield _checked(begin_ns, int(outage.get("durationNs", 0)))
    for event in (history.get("eventLog") or {}).get("events") or ():
        if str(event.get("reason", "")).startswith(_OUTAGE_REASON):
            yield _checked(int(event["startTimestampNs"]), int(event.get("durationNs", 0)))


def _checked(begin_ns: int, length_ns: int) -> _Outage:
    if not (0 < begin_ns < LATEST_NS and 0 <= length_ns < LATEST_NS - begin_ns):
        raise ValueError(begin_ns)
    return begin_ns, begin_ns + length_ns


def _end_ns(seconds: Mapping[int, Sample], outages: list[_Outage]) -> int | None:
    """Return the end of the last second, at which outages and lost pings match best.

    None if they match nowhere: if half of the lost pings remain without an outage.
    """
    import numpy as np

    last = max(seconds)
    first = max(min(seconds), last - _COMPARED_S + 1)
    count = last - first + 1
    drops = np.zeros(count)
    for number, sample in seconds.items():
        if number >= first:
            drops[number - first] = sample["pop_ping_drop_rate"] or 0.0
    if not outages or not drops.any():
        return None
    origin_ns = max(end for _, end in outages)
    edges_s = (np.array(outages, float) - origin_ns).ravel() / SECOND_NS
    edges_s = np.maximum.accumulate(edges_s)
    down_s = np.concatenate(
        [[0.0], np.cumsum(np.diff(edges_s) * (np.arange(edges_s.size - 1) % 2 == 0))]
    )
    ends_s = np.arange(0.0, count, 0.25)
    bounds_s = ends_s[:, None] - count + np.arange(count + 1)
    shares = np.diff(np.interp(bounds_s, edges_s, down_s))
    misses = np.abs(shares - drops).sum(axis=1)
    best = int(np.argmin(misses))
    if misses[best] >= drops.sum() / 2:
        return None
    return origin_ns + round(float(ends_s[best]) * SECOND_NS)


def _text(value: Any) -> str:
    return "" if isinstance(value, bool | list | dict) else str(value)


def _unlike(source: InputFile) -> InputError:
    return InputError(f"{source.file}: is not get_history as grpcurl prints it")


FORMAT = Importer(
    "grpcurl",
    "a terminal's recorded get_history, as grpcurl prints it",
    lambda source: any("dishGetHistory" in line for line in source.head),
    _samples,
)
