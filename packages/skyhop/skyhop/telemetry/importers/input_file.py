"""Parts that importers share: files and their lines, tables, times, and means of seconds."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from skyhop import _core
from skyhop.errors import InputError
from skyhop.telemetry.fields import TIME, Sample

SECOND_NS = 10**9
MOST_BYTES = 256 << 20
"""Largest file in bytes, uncompressed: a month at 1 Hz, or an hour of pings every 4 ms."""
LATEST_NS = 4_102_444_800 * SECOND_NS
"""Latest accepted time in ns since 1970, the year 2100; a larger number is probably not a time."""
_LATEST_S = 10**11
"""Largest number that is read as seconds since 1970; a larger one is milliseconds."""
_LARGEST = 1e30
"""Largest accepted number: above all measurements, and finite after any conversion of units."""
_KIND_BYTES = 300
"""Number of bytes from which the core tells the kind of a file."""
_PIECE = 1 << 16
"""Number of bytes that are decompressed at a time, so that a cut loses only what follows it."""
_JSON = re.compile(r"\s*\[?\s*\{")
_CUT = "the compressed file ends early"
CUT_LINE = "its last line is cut off"
"""Remark on a file without its last line, which has no line end."""
_HEAD = 5
"""Number of lines at the beginning of a file by which its format is recognised."""
_NULLS = frozenset({"", "-", "null", "none", "nan", "na", "n/a"})


class CutLineError(InputError):
    """Error about the last line of a file, which has no line end and so may be cut off."""


@dataclass(frozen=True)
class Options:
    """Values that files of some formats lack.

    Attributes:
        start_ns: start time of a file whose times are relative, in ns since 1970.
        direction: "down" or "up", for rates without a direction.
    """

    start_ns: int | None = None
    direction: str | None = None


@dataclass(frozen=True)
class InputFile:
    """File to import: its path, its lines without line ends, and the options.

    Attributes:
        notes: remarks on what was taken from the file and what was left, in the order of reading.
        named: names of the columns of its table.
        used: names of the columns that were read.
    """

    file: Path
    lines: list[str]
    options: Options
    notes: list[str] = field(default_factory=list, compare=False)
    named: dict[str, None] = field(default_factory=dict, compare=False)
    used: set[str] = field(default_factory=set, compare=False)
    is_open: bool = False
    """Whether the last line has no line end, so that it may be cut off."""

    @property
    def text(self) -> str:
        """Text of the file."""
        return "\n".join(self.lines)

    @property
    def content(self) -> bytes:
        """Text of the file in UTF-8."""
        return (self.text if self.is_open else f"{self.text}\n").encode()

    @property
    def log_format(self) -> str:
        """Format of the log, as `skyhop path import` tells it by the first lines."""
        return _core.log_format("\n".join(self.head).encode())

    @property
    def account(self) -> str:
        """Line about what was taken from the file and what was left; may be empty."""
        unused = ", ".join(name for name in self.named if name and name not in self.used)
        left = [f"not used: {unused}"] if unused else []
        return " ".join("; ".join([*self.notes, *left]).split())

    @property
    def head(self) -> list[str]:
        """The first lines, by which formats are recognised."""
        return self.lines[:_HEAD]

    @property
    def columns(self) -> list[str]:
        """Names of the columns, which the first line holds."""
        try:
            first = next(csv.reader(self.lines[:1]), [])
        except csv.Error:
            return []
        return [name.strip() for name in first]

    def rows(self, columns: Iterable[str] | None = None) -> Iterator[Row]:
        """Yield the rows of a CSV table, without a last row after others that is cut off.

        Args:
            columns: names of the columns; by default they are in the first line.
        """
        names = self.columns if columns is None else list(columns)
        self.named.update(dict.fromkeys(names))
        if len(set(names)) < len(names):
            raise self.wrong(1, "two columns have the same name")
        first = 2 if columns is None else 1
        is_empty = True
        for number, cells in _cells(self, first):
            # Programs that append to a file write its header line again: skip it.
            if cells and cells != names:
                if len(cells) < len(names) and self._may_be_cut(number):
                    if is_empty:
                        raise self.wrong(number, f"{len(cells)} cells, expected {len(names)}")
                    self.notes.append(CUT_LINE)
                    return
                is_empty = False
                yield Row(self, number, dict(zip(names, cells, strict=False)), len(cells))

    def wrong(self, number: int, what: str) -> InputError:
        """Return the error to raise about line `number`."""
        error = CutLineError if self._may_be_cut(number) else InputError
        return error(f"{self.file}: line {number}: {what}")

    def _may_be_cut(self, number: int) -> bool:
        return self.is_open and number == len(self.lines) > 1

    @property
    def start_ns(self) -> int:
        """Start time of a file with relative times, in ns since 1970; 0 if it was not given."""
        return self.options.start_ns or 0


@dataclass(frozen=True)
class Row:
    """Row of a table, with access to its cells by column.

    Methods that read a cell raise `InputError`, with the line's number, if the cell does not have
    the expected form.
    """

    source: InputFile
    number: int
    cells: Mapping[str, str]
    length: int = 0

    def text(self, name: str) -> str | None:
        """Return a cell's text, None if it is empty or missing."""
        self.source.used.add(name)
        cell = self.cells.get(name, "").strip()
        return None if cell.lower() in _NULLS else cell

    def value(self, name: str, scale: float = 1.0) -> float | None:
        """Return a cell as a number, times `scale`; None if it is empty or missing."""
        cell = self.text(name)
        return None if cell is None else self.as_number(name, cell) * scale

    def needed(self, name: str) -> float:
        """Return a cell as a number; an empty or missing one is an error."""
        found = self.value(name)
        if found is None:
            raise self.wrong(f"{name}: expected a number")
        return found

    def flag(self, name: str) -> bool | None:
        """Return a cell as True or False; None if it is empty or missing."""
        cell = self.text(name)
        if cell is None:
            return None
        if cell.lower() not in ("true", "false", "1", "0"):
            raise self.wrong(f'{name}: expected True or False, not "{cell}"')
        return cell.lower() in ("true", "1")

    def as_number(self, name: str, cell: str) -> float:
        """Parse the text of a cell as a number; `name` is its column, for errors."""
        try:
            # float() would also accept 1_000 and digits of other scripts.
            number = float(cell) if cell.isascii() and "_" not in cell else math.nan
        except ValueError:
            number = math.nan
        if not abs(number) < _LARGEST:
            raise self.wrong(f'{name}: expected a number, not "{cell[:40]}"')
        return number

    def time_ns(self, name: str) -> int:
        """Parse a time in ns: seconds, milliseconds or nanoseconds since 1970, or ISO 8601.

        A time without a zone is UTC.
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
        """Return the error to raise about the row."""
        return self.source.wrong(self.number, what)


class Probe(NamedTuple):
    """Result of a probe, or of several consecutive lost ones."""

    time_ns: int
    """Arrival time of the answer, or approximate time of the loss, in ns since 1970."""
    rtt_ms: float | None
    """Round-trip time; None for a lost probe."""
    times: int = 1
    """Number of consecutive lost probes that this entry stands for; 1 for an answered probe."""


@dataclass(frozen=True)
class Importer:
    """Importer of one format."""

    name: str
    description: str
    """Description of the format in one line, for `--help` and the page of telemetry fields."""
    matches: Callable[[InputFile], bool]
    """Function that returns whether a file has the format, by its first lines and its name."""
    samples: Callable[[InputFile], Iterator[Sample]]
    basis: str = "files"
    """Source from which the importer was written: published "files", the "code" that writes such
    files, or only their "documentation"."""
    probes: Callable[[InputFile], Iterator[Probe]] | None = None
    """Function that yields single RTTs, for formats that hold them."""
    is_general: bool = False
    """Whether files of other formats match, too, so that those are tried before."""


@dataclass
class SecondMeans:
    """Accumulator that reduces more frequent values to one sample per second, of their means.

    Times have to be in order; the sample of a second is yielded when the next second begins.
    """

    _end_ns: int = -1
    _sums: dict[str, tuple[float, int]] = field(default_factory=dict)

    def add(
        self, time_ns: int, values: Mapping[str, float | None], times: int = 1
    ) -> Iterator[Sample]:
        """Add values of a time, with weight `times`; yield the previous second's sample if over."""
        end_ns = end_of_second(time_ns)
        if end_ns != self._end_ns:
            yield from self.flush()
            self._end_ns = end_ns
        for name, value in values.items():
            if value is not None:
                total, count = self._sums.get(name, (0.0, 0))
                self._sums[name] = (total + value * times, count + times)

    def flush(self) -> Iterator[Sample]:
        """Yield the sample of the current second, if it has values."""
        if self._sums:
            means = {name: total / count for name, (total, count) in self._sums.items()}
            yield {TIME: self._end_ns, **means}
        self._sums = {}


def second_means(probes: Iterable[Probe], *, with_losses: bool) -> Iterator[Sample]:
    """Yield the mean RTT and loss of each second.

    Args:
        probes: the probes, ordered by time.
        with_losses: whether the file records losses; if not, the loss of samples is unknown.
    """
    seconds = SecondMeans()
    for probe in probes:
        is_lost = probe.rtt_ms is None
        loss = {"probe_loss": float(is_lost)} if with_losses else {}
        values = {"probe_rtt_ms": probe.rtt_ms, **loss}
        yield from seconds.add(probe.time_ns, values, probe.times)
    yield from seconds.flush()


def end_of_second(time_ns: int) -> int:
    """Return the end of the second that contains a time; a whole second is the start of one.

    >>> end_of_second(0), end_of_second(1), end_of_second(10**9)
    (1000000000, 1000000000, 2000000000)
    """
    return (time_ns // SECOND_NS + 1) * SECOND_NS


def iso_ns(text: str) -> int | None:
    """Parse an ISO 8601 time (UTC if it has no zone) to ns since 1970; None if it is invalid."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return (since.days * 86_400 + since.seconds) * SECOND_NS + since.microseconds * 1000


def read_probes(source: InputFile, log_format: str) -> tuple[list[Probe], bool]:
    """Read round trips as `skyhop path import` does: "ping", or "csv" with a time and a round trip.

    Returns:
        The probes, in the order of their times; and whether the file records losses.

    Raises:
        InputError: the file does not have the format, or its times are not known.
    """
    read = _core.read_round_trips(source.content, log_format, str(source.file))
    source.notes.append(read.account)
    outcomes = read.outcomes
    if not outcomes:
        raise InputError(f"{source.file}: holds no round trips")
    shift_ns = 0
    if not read.unix:
        if source.options.start_ns is None:
            raise InputError(
                f"{source.file}: its lines have no dates: give the log's --start, or log with "
                "ping -D (fping -D)"
            )
        shift_ns = source.options.start_ns - outcomes[0][0]
    if not 0 <= outcomes[0][0] + shift_ns <= outcomes[-1][0] + shift_ns < LATEST_NS:
        raise InputError(f"{source.file}: its times are not between 1970 and 2100")
    probes = [Probe(at_ns + shift_ns, rtt_ms, times) for at_ns, rtt_ms, times in outcomes]
    return probes, read.losses_known


def round_trip_importer(
    name: str,
    description: str,
    matches: Callable[[InputFile], bool] | None = None,
    basis: str = "files",
) -> Importer:
    """Return the importer of a format that `skyhop path import` reads by the same name.

    Samples are means over seconds; probes that were not answered are losses, each at about the time
    at which it was sent. Without `matches` the core tells the format.
    """

    def probes(source: InputFile) -> Iterator[Probe]:
        yield from read_probes(source, name)[0]

    def samples(source: InputFile) -> Iterator[Sample]:
        return second_means(probes(source), with_losses=True)

    def is_told(source: InputFile) -> bool:
        return source.log_format == name

    return Importer(name, description, matches or is_told, samples, basis, probes)


def documents(source: InputFile) -> list[Any]:
    """Return the JSON documents of a file, one after another; of a list, its items.

    The last of several may be cut off: a note of the file says so.

    Raises:
        InputError: the file is not JSON.
    """
    text, decoder = source.text, json.JSONDecoder()
    found: list[Any] = []
    at = _after_separators(text, 0)
    while at < len(text):
        try:
            document, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            if found and text.count("{", at) > text.count("}", at):
                source.notes.append("its last document is cut off")
                break
            line = text.count("\n", 0, at) + 1
            raise source.wrong(line, "is not JSON of whole documents") from None
        found.append(document)
        at = _after_separators(text, end)
    return found


def _after_separators(text: str, at: int) -> int:
    """Return the place of the next document of a text."""
    while at < len(text) and text[at] in " \t\n\r,[]":
        at += 1
    return at


def read_input(file: Path, options: Options) -> InputFile:
    """Read a text file, plain or gzipped; the name "-" is the standard input.

    Raises:
        InputError: the file cannot be read, is not text, is empty or too large.
    """
    content, is_cut = _content_of(file)
    text = _text_of(file, content)
    lines = text.replace("\r\n", "\n").split("\n")
    # JSON may be a single line, and its readers leave out a document that is cut.
    if is_cut and not _JSON.match(text):
        lines.pop()
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise InputError(f"{file}: {_CUT}, before a whole line" if is_cut else f"{file}: is empty")
    notes = [f"{_CUT}: what stands whole before its end counts"] * is_cut
    is_open = not is_cut and text.endswith(lines[-1])
    return InputFile(file, lines, options, notes, is_open=is_open)


def _content_of(file: Path) -> tuple[bytes, bool]:
    """Return the content of a file, and whether the end of a compressed one is missing."""
    is_cut = False
    try:
        with _standard_input() if str(file) == "-" else file.open("rb") as raw:
            content = raw.read(MOST_BYTES + 1)
        if content.startswith(b"\x1f\x8b"):
            content, is_cut = _decompressed(content)
    except (OSError, zlib.error) as error:
        why = getattr(error, "strerror", None) or "is damaged gzip data"
        raise InputError(f"{file}: cannot read it: {why}") from None
    if len(content) > MOST_BYTES:
        raise InputError(f"{file}: is larger than {MOST_BYTES >> 20} MB: split it")
    return content, is_cut


def _decompressed(content: bytes) -> tuple[bytes, bool]:
    """Decompress gzip data, and return whether its end is missing."""
    pieces: list[bytes] = []
    size = 0
    with gzip.open(io.BytesIO(content)) as stream:
        while size <= MOST_BYTES:
            try:
                piece = stream.read1(_PIECE)
            except EOFError:
                return b"".join(pieces), True
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
    return b"".join(pieces), False


@cache
def _standard_input_bytes() -> bytes:
    return sys.stdin.buffer.read(MOST_BYTES + 1)


def _standard_input() -> io.BytesIO:
    """Return the standard input, which a command may read several times."""
    return io.BytesIO(_standard_input_bytes())


def _text_of(file: Path, content: bytes) -> str:
    if kind := _core.other_kind(content[:_KIND_BYTES]):
        raise InputError(f"{file}: {kind}")
    try:
        return content.decode("utf-16" if content.startswith(b"\xff\xfe") else "utf-8-sig")
    except UnicodeDecodeError:
        # The console of Windows writes ping's words in encodings of its own.
        if _core.log_format(content[:4096]) == "ping":
            return content.decode("utf-8", "replace")
        raise InputError(f"{file}: is not UTF-8 text") from None


def _cells(source: InputFile, first: int) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(source.lines[first - 1 :])
    try:
        for cells in reader:
            yield first + reader.line_num - 1, cells
    except csv.Error as error:
        raise source.wrong(first + reader.line_num - 1, str(error)) from None
