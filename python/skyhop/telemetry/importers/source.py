"""What importers share: files and their lines, tables, times, and means of seconds."""

from __future__ import annotations

import csv
import gzip
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME, Sample

SECOND_NS = 10**9
MOST_BYTES = 256 << 20
"""Of text: a month of seconds, or an hour of a ping every 4 ms."""
LATEST_NS = 4_102_444_800 * SECOND_NS
"""2100; later than that, a time is a number of something else."""
_LATEST_S = 10**11
"""Larger numbers are milliseconds."""
_LARGEST = 1e30
"""No measurement is; what is multiplied by a unit stays a number."""
_HEAD = 5
_NULLS = frozenset({"", "-", "null", "none", "nan", "na", "n/a"})


@dataclass(frozen=True)
class Options:
    """What some files do not say.

    Attributes:
        start_ns: when a file begins whose times do not.
        direction: "down" or "up", of rates that do not say it.
    """

    start_ns: int | None = None
    direction: str | None = None


@dataclass(frozen=True)
class Source:
    """A file that is read: its name, its text without what ends lines, and what it does not say."""

    file: Path
    lines: list[str]
    options: Options

    @property
    def head(self) -> list[str]:
        """The first few lines."""
        return self.lines[:_HEAD]

    @property
    def columns(self) -> list[str]:
        """The names that the first line separates by commas."""
        return [name.strip() for name in self.lines[0].split(",")] if self.lines else []

    def rows(self, columns: Iterable[str] | None = None) -> Iterator[Row]:
        """Yield the rows of a table with commas, below its line of names unless they are given."""
        named = self.columns if columns is None else list(columns)
        if len(set(named)) < len(named):
            raise self.wrong(1, "two columns have the same name")
        first = 2 if columns is None else 1
        for number, cells in _cells(self, first):
            # Programs that append to a file write its head again.
            if cells and cells != named:
                yield Row(self, number, dict(zip(named, cells, strict=False)), len(cells))

    def wrong(self, number: int, what: str) -> InputError:
        """Return what to raise about a line."""
        return InputError(f"{self.file}: line {number}: {what}")

    @property
    def start_ns(self) -> int:
        """When a file begins whose times do not say it: 1970 unless that was given."""
        return self.options.start_ns or 0


@dataclass(frozen=True)
class Row:
    """A line of a table."""

    source: Source
    number: int
    cells: Mapping[str, str]
    length: int = 0

    def text(self, name: str) -> str | None:
        """Return a cell, None where it is empty or missing."""
        cell = self.cells.get(name, "").strip()
        return None if cell.lower() in _NULLS else cell

    def value(self, name: str, scale: float = 1.0) -> float | None:
        """Return a cell as a number, times `scale`; None where there is none."""
        cell = self.text(name)
        return None if cell is None else self.as_number(name, cell) * scale

    def needed(self, name: str) -> float:
        """Return a cell that has to be a number."""
        found = self.value(name)
        if found is None:
            raise self.wrong(f"{name}: expected a number")
        return found

    def flag(self, name: str) -> bool | None:
        """Return a cell as True or False; None where there is none."""
        cell = self.text(name)
        if cell is None:
            return None
        if cell.lower() not in ("true", "false", "1", "0"):
            raise self.wrong(f'{name}: expected True or False, not "{cell}"')
        return cell.lower() in ("true", "1")

    def as_number(self, name: str, cell: str) -> float:
        """Return a text as a number."""
        try:
            # Python would take 1_000 and other alphabets' digits.
            number = float(cell) if cell.isascii() and "_" not in cell else math.nan
        except ValueError:
            number = math.nan
        if not abs(number) < _LARGEST:
            raise self.wrong(f'{name}: expected a number, not "{cell[:40]}"')
        return number

    def time_ns(self, name: str) -> int:
        """Return a time: seconds, milliseconds or nanoseconds since 1970, or ISO 8601.

        Without a zone it is UTC.
        """
        cell = self.text(name)
        if cell is None:
            raise self.wrong(f"{name}: expected a time")
        if re.fullmatch(r"[0-9]{16,30}", cell):
            at_ns = int(cell)
        elif re.match(r"[0-9]{4}-", cell):
            found_ns = iso_ns(cell)
            at_ns = -1 if found_ns is None else found_ns
        else:
            number = self.as_number(name, cell)
            at_ns = round(number * (10**6 if number > _LATEST_S else 10**9))
        if not 0 <= at_ns < LATEST_NS:
            raise self.wrong(f'{name}: "{cell[:40]}" is no time between 1970 and 2100')
        return at_ns

    def wrong(self, what: str) -> InputError:
        """Return what to raise about the row."""
        return self.source.wrong(self.number, what)


class Probe(NamedTuple):
    """What became of a probe, or of several that were lost."""

    time_ns: int
    """When its answer came, or would have come."""
    rtt_ms: float | None
    """None where it was lost."""
    times: int = 1


@dataclass(frozen=True)
class Importer:
    """A format."""

    name: str
    what: str
    """In a line, for help and for docs/telemetry.md."""
    is_it: Callable[[Source], bool]
    samples: Callable[[Source], Iterator[Sample]]
    basis: str = "files"
    """What it was made after: "files" that were published, the "code" that writes them, or their
    "documentation" alone."""
    probes: Callable[[Source], Iterator[Probe]] | None = None
    """Round trips as they are, where the file holds them."""


@dataclass
class Seconds:
    """Means of what happens more often than once a second, as one sample per second.

    Seconds have to come in order; one that is over is handed out.
    """

    _end_ns: int = -1
    _sums: dict[str, tuple[float, int]] = field(default_factory=dict)

    def add(
        self, time_ns: int, values: Mapping[str, float | None], times: int = 1
    ) -> Iterator[Sample]:
        """Count values of a time in, so many times, and yield the second before, if it is over."""
        end_ns = end_of_second(time_ns)
        if end_ns != self._end_ns:
            yield from self.rest()
            self._end_ns = end_ns
        for name, value in values.items():
            if value is not None:
                total, count = self._sums.get(name, (0.0, 0))
                self._sums[name] = (total + value * times, count + times)

    def rest(self) -> Iterator[Sample]:
        """Yield the last second."""
        if self._sums:
            means = {name: total / count for name, (total, count) in self._sums.items()}
            yield {TIME: self._end_ns, **means}
        self._sums = {}


def seconds_of(probes: Iterable[Probe], *, with_losses: bool) -> Iterator[Sample]:
    """Yield means of seconds.

    Args:
        probes: in their order.
        with_losses: whether the file tells what was lost.
    """
    seconds = Seconds()
    for probe in probes:
        is_lost = probe.rtt_ms is None
        loss = {"probe_loss": float(is_lost)} if with_losses else {}
        values = {"probe_rtt_ms": probe.rtt_ms, **loss}
        yield from seconds.add(probe.time_ns, values, probe.times)
    yield from seconds.rest()


def end_of_second(time_ns: int) -> int:
    """Return the end of the second in which something happens.

    >>> end_of_second(0), end_of_second(1), end_of_second(10**9)
    (1000000000, 1000000000, 2000000000)
    """
    return (time_ns // SECOND_NS + 1) * SECOND_NS


def iso_ns(text: str) -> int | None:
    """Return a moment of ISO 8601 in ns, UTC where it has no zone; None where it is not one."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return (since.days * 86_400 + since.seconds) * SECOND_NS + since.microseconds * 1000


def opened(file: Path, options: Options) -> Source:
    """Read a file, plain or gzipped.

    Raises:
        InputError: it cannot be read, is no text, is empty or too large.
    """
    try:
        with file.open("rb") as raw:
            is_packed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(file) if is_packed else file.open("rb") as unpacked:
            content = unpacked.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or "is not what gzip wrote"
        raise InputError(f"{file}: cannot read it: {why}") from None
    if len(content) > MOST_BYTES:
        raise InputError(f"{file}: is larger than {MOST_BYTES >> 20} MB: split it")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{file}: is not UTF-8 text") from None
    lines = text.replace("\r\n", "\n").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise InputError(f"{file}: is empty")
    return Source(file, lines, options)


def _cells(source: Source, first: int) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(source.lines[first - 1 :])
    try:
        for cells in reader:
            yield first + reader.line_num - 1, cells
    except csv.Error as error:
        raise source.wrong(first + reader.line_num - 1, str(error)) from None
