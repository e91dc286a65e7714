"""Reading of traced routes: traceroute, tracert, `mtr --json`, JSON of scamper and RIPE Atlas.

A file may hold any number of traces, one after another; between traces of traceroute, other lines
are ignored, and so are times before the lines. Hops need numeric addresses (`traceroute -n`,
`tracert -d`, `mtr -n`), or have them in brackets after the name. tracert is read in any language: a
trace begins with its hop 1, and the lines before name the destination.
"""

from __future__ import annotations

import ipaddress
import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skyhop.errors import InputError
from skyhop.telemetry.importers.input_file import InputFile, Options, documents, read_input

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_HEADER = re.compile(r"traceroute6? to (\S+)(?: \(([^)]+)\))?", re.IGNORECASE)
_BEFORE = re.compile(
    r"\s*(?:\[[^\]]{1,60}\]|\w{3}\s+\d{1,2}\s+[\d:.]{8,15}|\d{4}-\d\d-\d\d[T ][\d:.,+Z-]{5,30}"
    r"|[\d:]{8}(?:[.,]\d+)?|\d{9,13}(?:\.\d+)?):?(?=\s|$)"
)
"""Time that another program, such as ts(1), puts before a line."""
_HOP = re.compile(r"\s*(\d{1,3})\s+(?=\S)(.*)")
_TIME = re.compile(r"(\S+)\s*ms\b")
_TRACERT_PROBE = r"\s+(?:(<?\d+)\s+[^\W\d_]{1,8}|\*)"
_TRACERT_HOP = re.compile(rf"\s*(\d{{1,3}}){_TRACERT_PROBE * 3}\s+(\S.*)")
"""Hop of tracert: three round trips in ms, a unit in any language, then the router or words."""
_BELOW_ONE_MS = 0.5
"""Round trip that stands for "<1 ms"."""
_BRACKETS = re.compile(r"\(([^)]+)\)")
_MOST_HOPS = 255
_LONGEST_MS = 1e6
_LONGEST_LINE = 2000


@dataclass(frozen=True)
class Hop:
    """Hop of a traced route; address and RTT are None if no router answered."""

    distance: int
    """Distance from the host in hops: the TTL of the probes to this hop."""
    address: Address | None
    rtt_ms: float | None
    """Median RTT of the hop's probes."""


@dataclass(frozen=True)
class Trace:
    """One traced route: its hops, ordered by distance, at most one per distance."""

    destination: Address | None
    hops: tuple[Hop, ...]


def read_traces(file: Path, notes: list[str] | None = None) -> list[Trace]:
    """Return the traces of a file, plain or gzipped, in the file's order.

    Args:
        file: the file.
        notes: list to which a line is added if a part of the file was left.

    Raises:
        InputError: the file cannot be read, or holds no trace.
    """
    source = read_input(file, Options())
    if source.lines[0].lstrip()[:1] in ("{", "["):
        traces = list(_parse_json(source))
    else:
        traces = list(_parse_traceroute(source)) or list(_parse_tracert(source))
    if not traces:
        raise InputError(
            f"{file}: holds no trace: expected what traceroute or tracert prints, mtr --json, or "
            "traces of scamper or RIPE Atlas as JSON"
        )
    if notes is not None and source.account:
        notes.append(f"{file}: {source.account}")
    return traces


def _parse_traceroute(source: InputFile) -> Iterator[Trace]:
    destination: Address | None = None
    hops: list[Hop] | None = None
    for number, written in enumerate(source.lines, 1):
        line = _without_time(written)
        header = _HEADER.match(line[:_LONGEST_LINE])
        if header:
            if hops is not None:
                yield Trace(destination, tuple(hops))
            destination, hops = _address(header[2] or header[1]), []
        elif hops is not None and (found := _HOP.fullmatch(line)):
            distance = int(found[1])
            # Distances increase within a trace; lines of other programs have no such number.
            if not (hops[-1].distance if hops else 0) < distance <= _MOST_HOPS:
                raise source.wrong(number, f"hop {distance} is out of order")
            hops.append(_hop(source, number, distance, found[2]))
    if hops is not None:
        yield Trace(destination, tuple(hops))


def _parse_tracert(source: InputFile) -> Iterator[Trace]:
    destination: Address | None = None
    hops: list[Hop] = []
    for number, written in enumerate(source.lines, 1):
        line = _without_time(written)[:_LONGEST_LINE]
        if found := _TRACERT_HOP.fullmatch(line):
            distance = int(found[1])
            if distance == 1 and hops:
                yield Trace(destination or hops[-1].address, tuple(hops))
                hops = []
            if not (hops[-1].distance if hops else 0) < distance <= _MOST_HOPS:
                raise source.wrong(number, f"hop {distance} is out of order")
            hops.append(_tracert_hop(source, number, found))
        elif (address := _first_address(line)) is not None:
            # A header: "Tracing route to dns.google [8.8.8.8]".
            if hops:
                yield Trace(destination, tuple(hops))
            destination, hops = address, []
    if hops:
        yield Trace(destination, tuple(hops))


def _tracert_hop(source: InputFile, number: int, found: re.Match[str]) -> Hop:
    times = [
        _BELOW_ONE_MS if text.startswith("<") else float(text)
        for text in found.group(2, 3, 4)
        if text is not None
    ]
    distance = int(found[1])
    if not times:
        return Hop(distance, None, None)
    address = _first_address(found[5])
    if address is None:
        raise source.wrong(number, "names no address: run tracert -d")
    return Hop(distance, address, _median(source, number, times))


def begins_trace(line: str) -> bool:
    """Return whether a line is the first of a trace of traceroute, possibly after a time."""
    return _HEADER.match(_without_time(line).strip()) is not None


def _without_time(line: str) -> str:
    """Return a line without the time that another program has put before it."""
    before = _BEFORE.match(line)
    return line if before is None else line[before.end() :].removeprefix(" ")


def _hop(source: InputFile, number: int, distance: int, text: str) -> Hop:
    """Parse the answers in the line of a hop; the hop gets the first address."""
    # Three probes answered by three routers take some 300 characters.
    if len(text) > _LONGEST_LINE:
        raise source.wrong(number, "is longer than any hop's line")
    times = []
    for found in _TIME.findall(text):
        try:
            times.append(float(found))
        except ValueError:
            raise source.wrong(number, f'"{found[:40]}" is no time in ms') from None
    address = _first_address(text)
    if not times:
        return Hop(distance, None, None)
    if address is None:
        raise source.wrong(number, "names no address: run traceroute -n")
    return Hop(distance, address, _median(source, number, times))


def _median(source: InputFile, number: int, times: Sequence[float]) -> float:
    if not all(math.isfinite(t) and 0 <= t < _LONGEST_MS for t in times):
        raise source.wrong(number, "a round trip cannot take that long, or less than 0")
    return statistics.median(times)


def _first_address(text: str) -> Address | None:
    found = [_address(inner) for inner in _BRACKETS.findall(text)]
    found += [_address(word.rstrip(".,")) for word in text.split()]
    return next((address for address in found if address is not None), None)


def _address(text: object) -> Address | None:
    try:
        return ipaddress.ip_address(str(text).strip("[]").partition("%")[0])
    except ValueError:
        return None


def _parse_json(source: InputFile) -> Iterator[Trace]:
    for number, found in enumerate(documents(source), 1):
        if not isinstance(found, dict):
            raise _unlike(source, number)
        try:
            if "report" in found:
                yield _parse_mtr(source, number, found["report"])
            elif found.get("type") == "trace":
                yield _parse_scamper(source, number, found)
            elif "prb_id" in found:
                yield from _parse_atlas(source, number, found)
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
            raise _unlike(source, number) from None


def _parse_mtr(source: InputFile, number: int, report: Any) -> Trace:
    """Parse an mtr report as one trace, with the mean RTT of each hop."""
    hops = []
    for place, hub in enumerate(report["hubs"], 1):
        address = _first_address(str(hub["host"]))
        answered = float(hub["Loss%"]) < 100  # noqa: PLR2004 (per cent)
        if answered and address is None:
            raise InputError(
                f"{source.file}: document {number}: hop {place} names no address: run mtr -n"
            )
        rtt_ms = _median(source, number, [float(hub["Avg"])]) if answered else None
        hops.append(Hop(place, address if answered else None, rtt_ms))
    return Trace(_first_address(str(report["mtr"]["dst"])), tuple(hops))


def _parse_scamper(source: InputFile, number: int, trace: Any) -> Trace:
    answers: dict[int, list[tuple[Address | None, float]]] = {}
    for hop in trace.get("hops", []):
        distance = int(hop["probe_ttl"])
        if not 0 < distance <= _MOST_HOPS:
            raise _unlike(source, number)
        answers.setdefault(distance, []).append((_address(hop["addr"]), float(hop["rtt"])))
    hops = [
        Hop(distance, answers[distance][0][0],
            _median(source, number, [rtt_ms for _, rtt_ms in answers[distance]]))
        for distance in sorted(answers)
    ]  # fmt: skip
    return Trace(_address(trace["dst"]), tuple(hops))


def _parse_atlas(source: InputFile, number: int, result: Any) -> Iterator[Trace]:
    if result["type"] != "traceroute":
        raise InputError(
            f"{source.file}: holds results of RIPE Atlas of type {str(result['type'])[:40]}: "
            "expected traceroute (skyhop path import reads ping)"
        )
    hops: dict[int, Hop] = {}
    for hop in result.get("result", []):
        # A probe that cannot send has an error in place of hops, and hop 255 is the end of silence.
        distance = int(hop.get("hop", 0))
        if 0 < distance < _MOST_HOPS:
            packets = [one for one in hop.get("result", []) if "rtt" in one and "late" not in one]
            hops[distance] = Hop(distance, None, None)
            if packets:
                rtt_ms = _median(source, number, [float(one["rtt"]) for one in packets])
                hops[distance] = Hop(distance, _address(packets[0]["from"]), rtt_ms)
    if hops:
        yield Trace(_address(result.get("dst_addr")), tuple(hops[one] for one in sorted(hops)))


def _unlike(source: InputFile, number: int) -> InputError:
    return InputError(
        f"{source.file}: document {number} is neither mtr --json nor a trace of scamper or RIPE "
        "Atlas"
    )
