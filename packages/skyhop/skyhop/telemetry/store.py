"""Storage of telemetry: a Parquet file per node and day, DIR/NODE/YYYY-MM-DD.parquet.

New samples are appended to the day's journal (YYYY-MM-DD.jsonl in the same directory), a line per
sample. To fold a journal is to merge its lines into the day's Parquet file. `tidy` folds journals
that have grown large or whose day is over, and `close` folds all journals. A partial line is
ignored, files are replaced atomically, and a journal is deleted only after the Parquet file is
written: a killed process loses at most the lines that it had not written. A lock on the journal
serialises writers. Readers take no lock: they read the journal before the Parquet file, so that
they miss no line that is folded in between.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from skyhop import _core, tables
from skyhop.data.marks import Mark
from skyhop.errors import InputError, RunError, SkyhopError
from skyhop.telemetry import maps
from skyhop.telemetry.columns import checked, merge_by_time, schema, table_of, time_of
from skyhop.telemetry.fields import BY_NAME, FIELDS, TIME, Sample, Type, unknown_field

if TYPE_CHECKING:
    import polars as pl

DAY_NS = 86_400 * 10**9
_NODE = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_FOLDED, _JOURNAL = ".parquet", ".jsonl"
MARK = Mark("telemetry of a node; skyhop removes days that are too old")
"""Mark of a node's directory."""
_LARGE_JOURNAL = 4 << 20
"""Size in bytes above which `tidy` folds a journal before its day is over: two hours at 1 Hz."""
_ROWS_TO_JUDGE = 4096
_PARQUET = b"PAR1"
"""Magic number at the beginning of a Parquet file."""
_Period = tuple[int | None, int | None]
"""Start (included) and end (excluded) in ns since 1970; None for no limit."""


class Telemetry(ABC):
    """Telemetry that can be read: a directory of several nodes, or one file of one node."""

    @abstractmethod
    def nodes(self) -> list[str]:
        """Return the names of the nodes that have telemetry, sorted."""

    @abstractmethod
    def days(self, node: str) -> list[date]:
        """Return the days (UTC) for which a node has telemetry, earliest first."""

    @abstractmethod
    def _tables(
        self, nodes: Sequence[str] | None, names: Sequence[str], period: _Period
    ) -> Iterator[tuple[str, pl.DataFrame]]:
        """Yield nodes and tables of their rows, by time: at least the stored rows of the period.

        A table has `time_ns`, and may lack others of the columns `names`.
        """

    def read(
        self,
        nodes: Sequence[str] | None = None,
        fields: Sequence[str] | None = None,
        from_ns: int | None = None,
        to_ns: int | None = None,
        step_ns: int | None = None,
    ) -> pl.DataFrame:
        """Return samples as a frame: `node`, `time_ns`, and a column per field.

        Args:
            nodes: the nodes, in the order of the result; all by default.
            fields: the fields, in the order of columns; all by default.
            from_ns: start of the period in ns since 1970, included.
            to_ns: end of the period in ns since 1970, excluded.
            step_ns: length of intervals in ns. Each interval becomes one row with its start as
                `time_ns`: a number is the mean, a value of another type is the last known one.

        Raises:
            InputError: there is no such field or node, the step is not positive, or a file is
                damaged.
            RunError: a file cannot be read.
        """
        import polars as pl

        names = [field.name for field in FIELDS] if fields is None else list(dict.fromkeys(fields))
        for name in names:
            if name not in BY_NAME:
                raise unknown_field(name)
        if step_ns is not None and step_ns <= 0:
            raise InputError("telemetry: the step has to be longer than 0")
        # The empty table has all columns, in their order.
        found = [("", table_of((), names)), *self._tables(nodes, names, (from_ns, to_ns))]
        frames = [
            table.select(pl.lit(node, pl.String).alias("node"), pl.all()) for node, table in found
        ]
        frame = pl.concat(frames, how="diagonal")
        if from_ns is not None:
            frame = frame.filter(pl.col(TIME) >= from_ns)
        if to_ns is not None:
            frame = frame.filter(pl.col(TIME) < to_ns)
        return frame if step_ns is None else _stepped(frame, step_ns)


class Store(Telemetry):
    """Telemetry of nodes in a directory, which is created if it is missing.

    Any number of threads and processes may append and read.

    Args:
        directory: directory of the telemetry.

    Raises:
        InputError: `directory` exists and is not a directory.
        RunError: `directory` cannot be created.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        if directory.exists() and not directory.is_dir():
            raise InputError(f"{directory}: is not a directory: give another for telemetry")
        _make(directory)

    def append(self, node: str, samples: Sequence[Sample]) -> None:
        """Append samples of a node, in any order; they are written, but not synced, on return.

        If a sample with the same time is stored already, its values are replaced or added.

        Raises:
            InputError: a sample or the node's name is not valid; nothing is stored then.
            RunError: writing fails, for example because the disk is full. Earlier samples are kept;
                some of the new samples may have been stored. Append all of the new samples again.
        """
        lines: dict[date, list[str]] = defaultdict(list)
        for sample in map(checked, samples):
            line = json.dumps(sample, separators=(",", ":"))
            lines[_day_of(time_of(sample))].append(f"{line}\n")
        place = self._directory_of(node)
        for day, of_day in lines.items():
            _write_lines(place / f"{day}{_JOURNAL}", "".join(of_day).encode())

    def tidy(self, now_ns: int | None = None) -> int:
        """Fold the journals that are large or whose day is over; return how many there were.

        A day at 1 Hz takes half a second and 200 MB, polars included; services leave it to
        `tidying.tidy_in_subprocess`.

        Args:
            now_ns: current time, UTC in ns since 1970; by default all journals are folded.

        Raises:
            InputError: a day's file is damaged. The other journals are folded.
            RunError: a day's file cannot be written; its journal is kept. The others are folded.
        """
        folded, failures = 0, []
        for node in self.nodes():
            for day, file in _files(self._directory_of(node)):
                if file.suffix == _JOURNAL and (now_ns is None or _is_due(day, file, now_ns)):
                    try:
                        self._fold(node, day)
                    except SkyhopError as error:
                        failures.append(error)
                    folded += 1
        if failures:
            raise failures[0]
        return folded

    def close(self) -> None:
        """Fold all journals; the store can be used again.

        Raises:
            InputError, RunError: as for `tidy`.
        """
        self.tidy()

    def nodes(self) -> list[str]:
        """Return the names of the nodes that have telemetry, sorted."""
        return sorted(
            place.name
            for place in _listed(self.directory)
            if _NODE.fullmatch(place.name) and place.is_dir()
        )

    def days(self, node: str) -> list[date]:
        """Return the days (UTC) for which a node has telemetry, earliest first.

        Raises:
            InputError: there is no such node.
        """
        place = self._directory_of(node)
        if not place.is_dir():
            raise InputError(f'{self.directory}: there is no telemetry of a node "{node}"')
        return sorted({day for day, _ in _files(place)})

    def write_map(self, node: str, content: bytes) -> None:
        """Store a node's obstruction map, replacing the stored one.

        Raises:
            InputError: the node's name is not valid.
            RunError: the map cannot be written; the stored one is kept.
        """
        from skyhop.data.files import write_file

        place = self._directory_of(node)
        _make_node(place)
        write_file(place / maps.FILE, content)

    def map_file(self, node: str) -> Path | None:
        """Return the file of a node's newest obstruction map; None if there is none.

        Raises:
            InputError: the node's name is not valid.
        """
        file = self._directory_of(node) / maps.FILE
        return file if file.is_file() else None

    def delete(self, node: str) -> None:
        """Remove all telemetry of a node, if there is any; other files in its directory stay.

        Raises:
            InputError: the node's name is not valid, or a store has not created its directory.
            RunError: the telemetry cannot be removed.
        """
        place = self._directory_of(node)
        if place.exists() and not MARK.is_on(place):
            raise InputError(f"{place}: is not a directory of skyhop's: move it, or remove it")
        with _trying("remove", place):
            MARK.remove(place, [place / maps.FILE, *(file for _, file in _files(place))])

    def expire(self, before_ns: int) -> int:
        """Remove the files of days that ended before a time; return the number of removed files.

        Directories that no store has created lose nothing.

        Raises:
            RunError: a file cannot be removed.
        """
        removed = 0
        own = [place for place in map(self._directory_of, self.nodes()) if MARK.is_on(place)]
        for place in own:
            for day, file in _files(place):
                if _begin_ns(day) + DAY_NS <= before_ns:
                    with _trying("remove", file):
                        file.unlink(missing_ok=True)
                    removed += 1
        return removed

    def _directory_of(self, node: str) -> Path:
        if not _NODE.fullmatch(node):
            raise InputError(
                f'"{node}" cannot be a node\'s name: up to 63 lower-case letters, digits, "-", "." '
                'and "_", beginning with a letter or digit'
            )
        return self.directory / node

    def _tables(
        self, nodes: Sequence[str] | None, names: Sequence[str], period: _Period
    ) -> Iterator[tuple[str, pl.DataFrame]]:
        from_ns, to_ns = period
        for node in self.nodes() if nodes is None else dict.fromkeys(nodes):
            for day in self.days(node):
                begin_ns = _begin_ns(day)
                if (to_ns is None or begin_ns < to_ns) and (
                    from_ns is None or begin_ns + DAY_NS > from_ns
                ):
                    yield node, self._day(node, day, names)

    def _day(self, node: str, day: date, names: Sequence[str]) -> pl.DataFrame:
        """Return a day's rows by time; it reads the journal first (see the module's docstring)."""
        file = self._directory_of(node) / f"{day}{_FOLDED}"
        new = _samples(_content(file.with_suffix(_JOURNAL)) or b"")
        rows = _read_day(file, names)
        return merge_by_time([rows, table_of(new, names)]) if new else rows

    def _fold(self, node: str, day: date) -> None:
        """Merge the journal of a day into the day's file, and delete the journal."""
        import polars as pl

        from skyhop.data.files import write_file

        file = self._directory_of(node) / f"{day}{_FOLDED}"
        journal = file.with_suffix(_JOURNAL)
        with (
            _trying("fold", journal),
            suppress(FileNotFoundError),
            _locked(journal, "rb+") as lines,
        ):
            new = _samples(lines.read())
            added = table_of(new, {name for sample in new for name in sample} - {TIME})
            rows = _read_day(file, list(BY_NAME))
            # New samples are usually later than all rows: merge only rows from the first one on.
            first_ns = min(map(time_of, new), default=0)
            count = int((rows[TIME] < first_ns).sum())
            parts = [rows.slice(0, count), merge_by_time([rows.slice(count), added])]
            write_file(file, _parquet(pl.concat(parts, how="diagonal")))
            journal.unlink()


class TelemetryFile(Telemetry):
    """Telemetry of one node in a Parquet file (such as a run's).

    The file does not name its node: `read` uses the node's name that it is given, or else the
    file's name.

    Args:
        file: the file, which has `time_ns` and any of the fields; other columns are ignored.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def nodes(self) -> list[str]:
        """Return the default name of the file's node: the file's name without its suffix."""
        return [self._file.stem]

    def days(self, _node: str) -> list[date]:
        """Return the days (UTC) for which the file has samples, earliest first.

        Raises:
            InputError: the file is not telemetry.
            RunError: the file cannot be read.
        """
        times = self.read(fields=())[TIME].to_list()
        return sorted(set(map(_day_of, times)))

    def _tables(
        self, nodes: Sequence[str] | None, names: Sequence[str], _period: _Period
    ) -> Iterator[tuple[str, pl.DataFrame]]:
        if nodes is not None and len(nodes) > 1:
            raise InputError(f"{self._file}: is of one node: name one with --node")
        node = nodes[0] if nodes else self.nodes()[0]
        yield node, merge_by_time([_read_day(self._file, names)])


def open_telemetry(place: Path) -> Telemetry:
    """Open a telemetry directory, or a Parquet file of telemetry, for reading.

    Raises:
        InputError: `place` is neither of these.
    """
    if place.is_dir():
        return Store(place)
    if is_telemetry_file(place):
        return TelemetryFile(place)
    if place.exists():
        raise InputError(
            f"{place}: is neither a directory of telemetry nor a Parquet file: bring it in with "
            "skyhop telemetry import"
        )
    raise InputError(f"{place}: there is no such directory or file of telemetry")


def is_telemetry_file(file: Path) -> bool:
    """Return whether a file is a Parquet file, judged by its magic number."""
    try:
        with file.open("rb") as stream:
            return stream.read(len(_PARQUET)) == _PARQUET
    except OSError:
        return False


def _stepped(frame: pl.DataFrame, step_ns: int) -> pl.DataFrame:
    import polars as pl

    begin = pl.col(TIME) // step_ns * step_ns
    aggregates = [
        pl.col(name).mean()
        if BY_NAME[name].type is Type.NUMBER
        else pl.col(name).drop_nulls().last()
        for name in frame.columns[2:]
    ]
    return frame.group_by("node", begin.alias(TIME), maintain_order=True).agg(aggregates)


@contextmanager
def _trying(what: str, place: Path) -> Iterator[None]:
    """Convert an OSError to a RunError, such as "PLACE: cannot read: Permission denied"."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{place}: cannot {what}: {error.strerror}") from None


@contextmanager
def _locked(journal: Path, mode: Literal["ab+", "rb+"]) -> Iterator[io.FileIO]:
    """Open a journal with an exclusive lock; again if it is folded and deleted meanwhile."""
    while True:
        if mode == "ab+":
            # Another process may delete the node meanwhile.
            _make_node(journal.parent)
        with journal.open(mode, buffering=0) as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            if os.fstat(stream.fileno()).st_nlink > 0:
                yield stream
                return


def _write_lines(journal: Path, lines: bytes) -> None:
    """Append lines to a journal; on failure remove the lines that were already written."""
    with _trying("write", journal), _locked(journal, "ab+") as stream:
        end = stream.seek(0, os.SEEK_END)
        # End the partial line that a killed process may have left.
        if end > 0 and os.pread(stream.fileno(), 1, end - 1) != b"\n":
            lines = b"\n" + lines
        try:
            while lines:
                lines = lines[stream.write(lines) :]
        except OSError:
            with suppress(OSError):
                stream.truncate(end)
            raise


def _samples(lines: bytes) -> list[Sample]:
    """Return a journal's samples; skip lines that a power failure has damaged."""
    samples = []
    for line in lines[: lines.rfind(b"\n") + 1].splitlines():
        with suppress(ValueError, TypeError, AttributeError, RecursionError, InputError):
            samples.append(checked(json.loads(line)))
    return samples


def _content(file: Path) -> bytes | None:
    """Return the content of a file; None if it does not exist."""
    with _trying("read", file), suppress(FileNotFoundError):
        return file.read_bytes()
    return None


def _read_day(file: Path, names: Sequence[str]) -> pl.DataFrame:
    """Return the rows of a day's file, with those columns of `names` that it has; none if missing.

    Raises:
        InputError: the file is damaged, or too large.
        RunError: the file cannot be read.
    """
    import polars as pl

    content = _content(file)
    if content is None:
        return table_of((), ())
    columns = schema(names)
    try:
        rows = tables.read_table(content, columns.names(), tables.MOST_BYTES)
        if TIME not in rows.columns:
            raise ValueError(f"it has no column {TIME}")
        if rows[TIME].null_count():
            raise ValueError(f"rows lack {TIME}")
        return rows.select(
            pl.col(name).cast(columns[name]) for name in columns if name in rows.columns
        )
    except _core.TooLargeError as error:
        raise InputError(f"{file}: {error}: move it away, or split it") from None
    except (ValueError, pl.exceptions.PolarsError) as error:
        why = " ".join(str(error).split())[:200]
        raise InputError(f"{file}: is damaged ({why}): move it away, or delete it") from None


def _parquet(rows: pl.DataFrame) -> bytes:
    """Return the content of a day's file, compressed, without columns that are all null."""
    known = [n for n in BY_NAME if n in rows.columns and rows[n].null_count() < rows.height]
    encodings = {name: _encoding(rows[name]) for name in known}
    return _core.parquet_bytes(rows.select(TIME, *known), {TIME: "differences", **encodings})


def _encoding(column: pl.Series) -> str:
    """Return how a column is encoded, judged by its type and its first rows."""
    import polars as pl

    if column.dtype == pl.Boolean:
        return "plain"
    head = column.head(_ROWS_TO_JUDGE)
    if column.dtype == pl.String or head.n_unique() < len(head) / 8:
        return "dictionary"
    # A terminal's numbers have 24 significant bits; after a split into bytes, the rest is zeros.
    return "split bytes" if column.dtype == pl.Float64 else "plain"


def _is_due(day: date, journal: Path, now_ns: int) -> bool:
    """Return whether a journal is large, or its day ended a minute ago, so that none is late."""
    with suppress(FileNotFoundError):
        is_large = journal.stat().st_size > _LARGE_JOURNAL
        return day < _day_of(now_ns - 60 * 10**9) or (day <= _day_of(now_ns) and is_large)
    return False


def _files(place: Path) -> Iterator[tuple[date, Path]]:
    for file in _listed(place):
        if file.suffix in (_FOLDED, _JOURNAL) and _DAY.fullmatch(file.stem):
            with suppress(ValueError):
                yield date.fromisoformat(file.stem), file


def _listed(place: Path) -> list[Path]:
    with _trying("read", place), suppress(FileNotFoundError):
        return sorted(place.iterdir())
    return []


def _make(place: Path) -> None:
    with _trying("make it", place):
        place.mkdir(parents=True, exist_ok=True)


def _make_node(place: Path) -> None:
    with _trying("make it", place):
        MARK.make(place)


def _day_of(time_ns: int) -> date:
    return datetime.fromtimestamp(time_ns // 10**9, UTC).date()


def _begin_ns(day: date) -> int:
    return (day - date(1970, 1, 1)).days * DAY_NS
