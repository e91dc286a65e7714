"""Storage of telemetry: a Parquet file per node and day, DIR/NODE/YYYY-MM-DD.parquet.

New samples are appended to the day's journal (YYYY-MM-DD.jsonl in the same directory), a line per
sample. To fold a journal is to merge its lines into the day's Parquet file. `tidy` folds a journal
that has grown large or whose day is over, and `close` folds all journals. A line without its
newline is ignored, files are replaced atomically, and a journal is deleted only after the Parquet
file is written: a killed process loses at most the lines that it had not written. A lock on the
journal serialises writers. Readers take no lock: they read the journal before the Parquet file, so
that they miss no line that is folded in between.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from skyhop import tables
from skyhop.errors import InputError, RunError
from skyhop.telemetry import maps
from skyhop.telemetry.columns import checked, merge_by_time, schema, table_of, time_of
from skyhop.telemetry.fields import BY_NAME, FIELDS, TIME, Sample, Type

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

DAY_NS = 86_400 * 10**9
_NODE = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_FOLDED, _JOURNAL = ".parquet", ".jsonl"
_LARGE_JOURNAL = 4 << 20
"""Size in bytes above which `tidy` folds a journal before its day is over: two hours at 1 Hz."""
_ROWS_TO_JUDGE = 4096
_PARQUET = b"PAR1"
"""Magic number at the beginning of a Parquet file."""


class Store:
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
        days: dict[date, list[Sample]] = {}
        for sample in map(checked, samples):
            days.setdefault(_day_of(time_of(sample)), []).append(sample)
        place = self._directory_of(node)
        if days:
            _make(place)
        for day, of_day in days.items():
            lines = "".join(json.dumps(s, separators=(",", ":")) + "\n" for s in of_day)
            _write_lines(place / f"{day}{_JOURNAL}", lines.encode())

    def tidy(self, now_ns: int, only: str | None = None) -> bool:
        """Fold one journal that is large or whose day is over; return whether one was due.

        A day at 1 Hz takes half a second and 200 MB, pyarrow included; services leave it to
        `tidying.tidy_in_subprocess`.

        Args:
            now_ns: current time, UTC in ns since 1970.
            only: name of a node, to fold journals of this node only.

        Raises:
            InputError: the day's file is damaged.
            RunError: the day's file cannot be written; the journal is kept.
        """
        today = _day_of(now_ns)
        for node, day, journal in self._journals():
            if only not in (None, node):
                continue
            # Wait a minute past midnight for the day's last samples to arrive.
            if day < _day_of(now_ns - 60 * 10**9) or (
                day <= today and _size(journal) > _LARGE_JOURNAL
            ):
                self._fold(node, day)
                return True
        return False

    def close(self) -> None:
        """Fold all journals; the store can be used again.

        Raises:
            InputError: a day's file is damaged.
            RunError: a day's file cannot be written; its journal is kept.
        """
        for node, day, _ in list(self._journals()):
            self._fold(node, day)

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

        names = _names(fields, step_ns)
        frames = []
        for node in self.nodes() if nodes is None else dict.fromkeys(nodes):
            for day in self.days(node):
                begin_ns = _begin_ns(day)
                if (to_ns is not None and begin_ns >= to_ns) or (
                    from_ns is not None and begin_ns + DAY_NS <= from_ns
                ):
                    continue
                of_day = pl.DataFrame(pl.from_arrow(self._day(node, day, names)))
                frames.append(of_day.select(pl.lit(node).alias("node"), pl.all()))
        if not frames:
            empty = pl.DataFrame(pl.from_arrow(schema(names).empty_table()))
            frames.append(empty.select(pl.lit("").alias("node"), pl.all()))
        return _chosen(pl.concat(frames), from_ns, to_ns, step_ns)

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
        _make(place)
        write_file(place / maps.FILE, content)

    def map_file(self, node: str) -> Path | None:
        """Return the file of a node's newest obstruction map; None if there is none.

        Raises:
            InputError: the node's name is not valid.
        """
        file = self._directory_of(node) / maps.FILE
        return file if file.is_file() else None

    def delete(self, node: str) -> None:
        """Remove all telemetry of a node, if there is any.

        Raises:
            InputError: the node's name is not valid.
            RunError: the telemetry cannot be removed.
        """
        place = self._directory_of(node)
        try:
            with suppress(FileNotFoundError):
                shutil.rmtree(place)
        except OSError as error:
            raise RunError(f"{place}: cannot remove: {error.strerror}") from None

    def expire(self, before_ns: int) -> int:
        """Remove the files of days that ended before a time; return the number of removed files.

        Raises:
            RunError: a file cannot be removed.
        """
        removed = 0
        for node in self.nodes():
            for day, file in list(_files(self._directory_of(node))):
                if _begin_ns(day) + DAY_NS <= before_ns:
                    try:
                        file.unlink(missing_ok=True)
                    except OSError as error:
                        raise RunError(f"{file}: cannot remove: {error.strerror}") from None
                    removed += 1
        return removed

    def _directory_of(self, node: str) -> Path:
        if not _NODE.fullmatch(node):
            raise InputError(
                f'"{node}" cannot be a node\'s name: up to 63 lower-case letters, digits, "-", "." '
                'and "_", beginning with a letter or digit'
            )
        return self.directory / node

    def _journals(self) -> Iterator[tuple[str, date, Path]]:
        for node in self.nodes():
            for day, file in _files(self._directory_of(node)):
                if file.suffix == _JOURNAL:
                    yield node, day, file

    def _day(self, node: str, day: date, names: Sequence[str]) -> pa.Table:
        """Return a day's rows by time; it reads the journal first (see the module's docstring)."""
        place = self._directory_of(node)
        with suppress(FileNotFoundError):
            lines = (place / f"{day}{_JOURNAL}").read_bytes()
            new = table_of(_samples(lines), names)
            return merge_by_time([_read_day(place / f"{day}{_FOLDED}", names), new])
        return _read_day(place / f"{day}{_FOLDED}", names)

    def _fold(self, node: str, day: date) -> None:
        """Merge the journal of a day into the day's file, and delete the journal."""
        import pyarrow as pa

        from skyhop.data.files import write_file

        place = self._directory_of(node)
        journal, file = place / f"{day}{_JOURNAL}", place / f"{day}{_FOLDED}"
        with _locked(journal, create=False) as stream:
            if stream is None:
                return
            new = _samples(stream.read())
            known = _column_names(file).union(*new)
            names = [field.name for field in FIELDS if field.name in known]
            rows = _read_day(file, names)
            # New samples are usually later than all rows: merge only rows from the first one on.
            before, after = _split_at(rows, min(map(time_of, new), default=0))
            rows = pa.concat_tables([before, merge_by_time([after, table_of(new, names)])])
            write_file(file, _parquet(rows))
            journal.unlink()


class TelemetryFile:
    """Telemetry of one node in a Parquet file (such as a run's); it is read like a `Store`.

    Args:
        file: the file, which has `time_ns` and any of the fields; other columns are ignored.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(
        self,
        nodes: Sequence[str] | None = None,
        fields: Sequence[str] | None = None,
        from_ns: int | None = None,
        to_ns: int | None = None,
        step_ns: int | None = None,
    ) -> pl.DataFrame:
        """Return samples as a frame, as `Store.read` does.

        The file does not name its node: the frame has the node in `nodes`, by default the file's
        name.

        Raises:
            InputError: there is no such field, the step is not positive, several nodes are given,
                or the file is not telemetry.
            RunError: the file cannot be read.
        """
        import polars as pl

        if nodes is not None and len(nodes) > 1:
            raise InputError(f"{self._file}: is of one node: name one with --node")
        node = nodes[0] if nodes else self.nodes()[0]
        rows = merge_by_time([_read_day(self._file, _names(fields, step_ns))])
        frame = pl.DataFrame(pl.from_arrow(rows)).select(pl.lit(node).alias("node"), pl.all())
        return _chosen(frame, from_ns, to_ns, step_ns)

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


def open_telemetry(place: Path) -> Store | TelemetryFile:
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


def _names(fields: Sequence[str] | None, step_ns: int | None) -> list[str]:
    """Return the names of the requested fields, by default all; check the names and the step."""
    names = [field.name for field in FIELDS] if fields is None else list(dict.fromkeys(fields))
    for name in names:
        if name not in BY_NAME:
            raise InputError(
                f'telemetry: there is no field "{name}": see skyhop docs telemetry-fields'
            )
    if step_ns is not None and step_ns <= 0:
        raise InputError("telemetry: the step has to be longer than 0")
    return names


def _chosen(
    frame: pl.DataFrame, from_ns: int | None, to_ns: int | None, step_ns: int | None
) -> pl.DataFrame:
    import polars as pl

    if from_ns is not None:
        frame = frame.filter(pl.col(TIME) >= from_ns)
    if to_ns is not None:
        frame = frame.filter(pl.col(TIME) < to_ns)
    return frame if step_ns is None else _stepped(frame, step_ns)


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
def _locked(journal: Path, *, create: bool) -> Iterator[io.FileIO | None]:
    """Open a journal with an exclusive lock; yield None if it does not exist.

    If the journal is folded and deleted while this waits for the lock, it is opened again.
    """
    while True:
        try:
            flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
            stream = io.FileIO(os.open(journal, flags, 0o644), "r+")
        except FileNotFoundError:
            if create:
                _make(journal.parent)
                continue
            yield None
            return
        except OSError as error:
            raise RunError(f"{journal}: cannot write: {error.strerror}") from None
        with stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            if os.fstat(stream.fileno()).st_nlink == 0:
                continue
            yield stream
            return


def _write_lines(journal: Path, lines: bytes) -> None:
    """Append lines to a journal; on failure remove the lines that were already written."""
    with _locked(journal, create=True) as stream:
        assert stream is not None, "created if it was missing"
        end = _end_of_lines(stream)
        try:
            stream.truncate(end)
            stream.seek(end)
            written = 0
            while written < len(lines):
                written += stream.write(lines[written:]) or 0
        except OSError as error:
            with suppress(OSError):
                stream.truncate(end)
            raise RunError(f"{journal}: cannot write: {error.strerror}") from None


def _end_of_lines(stream: io.FileIO) -> int:
    """Return the offset after the last complete line; a killed process may leave a partial one."""
    size = stream.seek(0, os.SEEK_END)
    end = size
    while end > 0:
        begin = max(end - 4096, 0)
        stream.seek(begin)
        found = stream.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _samples(lines: bytes) -> list[Sample]:
    """Return a journal's samples; skip lines that a power failure has damaged."""
    samples = []
    for line in lines[: lines.rfind(b"\n") + 1].splitlines():
        with suppress(ValueError, TypeError, AttributeError, RecursionError, InputError):
            samples.append(checked(json.loads(line)))
    return samples


def _column_names(file: Path) -> set[str]:
    """Return the names of the columns in a day's file; empty if there is no file."""
    with _opened(file) as content:
        return set() if content is None else set(_names_in(content))


def _read_day(file: Path, names: Sequence[str]) -> pa.Table:
    """Return the rows of a day's file; an empty table if there is no file."""
    import pyarrow as pa

    columns = schema(names)
    with _opened(file) as content:
        if content is None:
            return columns.empty_table()
        present = _names_in(content)
        if TIME not in present:
            raise ValueError(f"it has no column {TIME}")
        known = [name for name in columns.names if name in present]
        rows = tables.read_table(content, known, tables.MOST_BYTES)
        # Older files lack fields that were added later.
        arrays = [
            rows[column.name].cast(column.type)
            if column.name in known
            else pa.nulls(rows.num_rows, column.type)
            for column in columns
        ]
        rows = pa.Table.from_arrays(arrays, schema=columns)
        if rows[TIME].null_count:
            raise ValueError("rows without a time")
    return rows


def _names_in(content: pa.BufferReader) -> list[str]:
    import pyarrow.parquet as pq

    names: list[str] = pq.ParquetFile(content).schema_arrow.names
    content.seek(0)
    return names


@contextmanager
def _opened(file: Path) -> Iterator[pa.BufferReader | None]:
    """Yield the content of a day's file, None if it does not exist; convert errors to skyhop's."""
    import pyarrow as pa

    try:
        content = file.read_bytes()
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise RunError(f"{file}: cannot read: {error.strerror}") from None
    try:
        yield pa.BufferReader(content)
    except tables.TooLargeError as error:
        raise InputError(f"{file}: {error}: move it away, or split it") from None
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        why = " ".join(str(error).split())[:200]
        raise InputError(f"{file}: is damaged ({why}): move it away, or delete it") from None


def _split_at(rows: pa.Table, time_ns: int) -> tuple[pa.Table, pa.Table]:
    """Split rows, which are sorted by time, into rows before `time_ns` and rows from it on."""
    import pyarrow.compute as pc

    count = pc.sum(pc.less(rows[TIME], time_ns)).as_py() or 0
    return rows.slice(0, count), rows.slice(count)


def _parquet(rows: pa.Table) -> bytes:
    """Return the content of a day's file, compressed, without columns that are all null."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    known = [n for n in rows.schema.names if n == TIME or rows[n].null_count < rows.num_rows]
    rows = rows.select(known)
    few = [name for name in known if _has_few_values(rows[name])]
    numbers = [n for n in known if n not in few and rows.schema.field(n).type == pa.float64()]
    sink = pa.BufferOutputStream()
    # A terminal's numbers have 24 significant bits; after a split into bytes, the rest is zeros.
    pq.write_table(
        rows,
        sink,
        compression="zstd",
        use_dictionary=few,
        column_encoding={**dict.fromkeys(numbers, "BYTE_STREAM_SPLIT"),
                         TIME: "DELTA_BINARY_PACKED"},
        store_schema=False,
    )  # fmt: skip
    return bytes(sink.getvalue())


def _has_few_values(column: pa.ChunkedArray) -> bool:
    """Return whether a column has few distinct values, estimated from its first rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.type == pa.string():
        return True
    if column.type == pa.bool_():
        return False
    head = column.slice(0, _ROWS_TO_JUDGE)
    return bool(pc.count_distinct(head).as_py() < len(head) / 8)


def _files(place: Path) -> Iterator[tuple[date, Path]]:
    for file in _listed(place):
        if file.suffix in (_FOLDED, _JOURNAL) and _DAY.fullmatch(file.stem):
            with suppress(ValueError):
                yield date.fromisoformat(file.stem), file


def _listed(place: Path) -> list[Path]:
    try:
        return sorted(place.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(f"{place}: cannot read: {error.strerror}") from None


def _make(place: Path) -> None:
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{place}: cannot make it: {error.strerror}") from None


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def _day_of(time_ns: int) -> date:
    return datetime.fromtimestamp(time_ns // 10**9, UTC).date()


def _begin_ns(day: date) -> int:
    return (day - date(1970, 1, 1)) // timedelta(days=1) * DAY_NS
