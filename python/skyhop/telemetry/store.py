"""Where telemetry is kept: a Parquet file per node and day, DIR/NODE/YYYY-MM-DD.parquet.

What is new stands in the day's journal beside it (YYYY-MM-DD.jsonl), a line per sample, and is
folded into the day's file by `tidy`, when the journal has grown or the day is over, or by `close`.
A line counts only with its end, a file appears whole or not at all, and the journal goes after the
file has taken it in: who is killed loses at most what was not written. A lock on the journal keeps
processes apart. Readers do not write: they read the journal, then the file, so that nothing that is
folded meanwhile is missed.
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
from skyhop.telemetry.columns import brought_together, checked, schema, table_of, time_of
from skyhop.telemetry.fields import BY_NAME, FIELDS, TIME, Sample, Type

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

DAY_NS = 86_400 * 10**9
_NODE = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_FOLDED, _JOURNAL = ".parquet", ".jsonl"
_LARGE_JOURNAL = 4 << 20
"""Bytes from which on `tidy` folds a journal before its day is over: two hours of one terminal."""
_ROWS_TO_JUDGE = 4096
_PARQUET = b"PAR1"
"""How a Parquet file begins."""


class Store:
    """Telemetry of nodes in a directory, which is made where it is missing.

    Any number of threads and processes may append and read.

    Args:
        directory: where it is.

    Raises:
        InputError: something else than a directory is there.
        RunError: it cannot be made.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        if directory.exists() and not directory.is_dir():
            raise InputError(f"{directory}: is not a directory: give another for telemetry")
        _make(directory)

    def append(self, node: str, samples: Sequence[Sample]) -> None:
        """Keep samples of a node, in any order; they are on the disk's way when it returns.

        A time that is there already is complemented: what the new sample knows counts.

        Raises:
            InputError: a sample or the node's name cannot be; nothing of them is kept then.
            RunError: it cannot be written, for example because the disk is full. What was there
                stays; of these samples whole days may have been kept: append them again.
        """
        days: dict[date, list[Sample]] = {}
        for sample in map(checked, samples):
            days.setdefault(_day_of(time_of(sample)), []).append(sample)
        place = self._of(node)
        if days:
            _make(place)
        for day, of_day in days.items():
            lines = "".join(json.dumps(s, separators=(",", ":")) + "\n" for s in of_day)
            _write_lines(place / f"{day}{_JOURNAL}", lines.encode())

    def tidy(self, now_ns: int, only: str | None = None) -> bool:
        """Fold one journal that is large or whose day is over; return whether there was one.

        Of all nodes, or of the one that is named.

        A day of 1 Hz takes half a second and 200 MB, pyarrow included; services leave it to
        `tidying.tidy_apart`.

        Raises:
            InputError: the day's file is damaged.
            RunError: it cannot be written; the journal stays.
        """
        today = _day_of(now_ns)
        for node, day, journal in self._journals():
            if only not in (None, node):
                continue
            # A minute past midnight, most of what belongs to the day has come.
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
            RunError: one cannot be written; its journal stays.
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
            nodes: of which nodes, in which order; of all by default.
            fields: which fields, in which order; all by default.
            from_ns: from this time on, included.
            to_ns: until this time, not included.
            step_ns: one row per so much time, which has its beginning as `time_ns`: means of
                numbers, of other types the last that is known.

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
        """Return the nodes of which there is telemetry, by name."""
        return sorted(
            place.name
            for place in _listed(self.directory)
            if _NODE.fullmatch(place.name) and place.is_dir()
        )

    def days(self, node: str) -> list[date]:
        """Return the days (UTC) of which there is telemetry of a node, earliest first.

        Raises:
            InputError: there is no such node.
        """
        place = self._of(node)
        if not place.is_dir():
            raise InputError(f'{self.directory}: there is no telemetry of a node "{node}"')
        return sorted({day for day, _ in _files(place)})

    def keep_map(self, node: str, content: bytes) -> None:
        """Keep a node's obstruction map, in place of the one before.

        Raises:
            InputError: a node cannot have that name.
            RunError: it cannot be written; the one before stays.
        """
        from skyhop.data.files import write_file

        place = self._of(node)
        _make(place)
        write_file(place / maps.FILE, content)

    def map_file(self, node: str) -> Path | None:
        """Return where a node's newest obstruction map is; None where there is none.

        Raises:
            InputError: a node cannot have that name.
        """
        file = self._of(node) / maps.FILE
        return file if file.is_file() else None

    def delete(self, node: str) -> None:
        """Remove all telemetry of a node, if there is any.

        Raises:
            InputError: a node cannot have that name.
            RunError: it cannot be removed.
        """
        place = self._of(node)
        try:
            with suppress(FileNotFoundError):
                shutil.rmtree(place)
        except OSError as error:
            raise RunError(f"{place}: cannot remove: {error.strerror}") from None

    def expire(self, before_ns: int) -> int:
        """Remove days that were over at that time; return how many files went.

        Raises:
            RunError: one cannot be removed.
        """
        gone = 0
        for node in self.nodes():
            for day, file in list(_files(self._of(node))):
                if _begin_ns(day) + DAY_NS <= before_ns:
                    try:
                        file.unlink(missing_ok=True)
                    except OSError as error:
                        raise RunError(f"{file}: cannot remove: {error.strerror}") from None
                    gone += 1
        return gone

    def _of(self, node: str) -> Path:
        if not _NODE.fullmatch(node):
            raise InputError(
                f'"{node}" cannot be a node\'s name: up to 63 lower-case letters, digits, "-", "." '
                'and "_", beginning with a letter or digit'
            )
        return self.directory / node

    def _journals(self) -> Iterator[tuple[str, date, Path]]:
        for node in self.nodes():
            for day, file in _files(self._of(node)):
                if file.suffix == _JOURNAL:
                    yield node, day, file

    def _day(self, node: str, day: date, names: Sequence[str]) -> pa.Table:
        """Return a day's rows by time, one each; the journal is read first, see the top."""
        place = self._of(node)
        with suppress(FileNotFoundError):
            lines = (place / f"{day}{_JOURNAL}").read_bytes()
            new = table_of(_samples(lines), names)
            return brought_together([_folded(place / f"{day}{_FOLDED}", names), new])
        return _folded(place / f"{day}{_FOLDED}", names)

    def _fold(self, node: str, day: date) -> None:
        """Bring the journal of a day into its file."""
        import pyarrow as pa

        from skyhop.data.files import write_file

        place = self._of(node)
        journal, file = place / f"{day}{_JOURNAL}", place / f"{day}{_FOLDED}"
        with _locked(journal, create=False) as held:
            if held is None:
                return
            new = _samples(held.read())
            known = _known(file).union(*new)
            names = [field.name for field in FIELDS if field.name in known]
            rows = _folded(file, names)
            # Nearly always all that is new is at the end: what is before stays as it is.
            before, touched = _parted(rows, min(map(time_of, new), default=0))
            rows = pa.concat_tables([before, brought_together([touched, table_of(new, names)])])
            write_file(file, _parquet(rows))
            journal.unlink()


class OneFile:
    """Telemetry of one node in a Parquet file, read like a store; a run's telemetry.parquet is one.

    Args:
        file: has `time_ns`, and any of the fields; other columns are left out.
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

        The file does not say whose it is: its node is the one that is named, else its own name.

        Raises:
            InputError: there is no such field, the step is not positive, several nodes are named,
                or the file is no telemetry.
            RunError: it cannot be read.
        """
        import polars as pl

        if nodes is not None and len(nodes) > 1:
            raise InputError(f"{self._file}: is of one node: name one with --node")
        node = nodes[0] if nodes else self.nodes()[0]
        rows = brought_together([_folded(self._file, _names(fields, step_ns))])
        frame = pl.DataFrame(pl.from_arrow(rows)).select(pl.lit(node).alias("node"), pl.all())
        return _chosen(frame, from_ns, to_ns, step_ns)

    def nodes(self) -> list[str]:
        """Return what its node is called where none is named."""
        return [self._file.stem]

    def days(self, _node: str) -> list[date]:
        """Return the days (UTC) of which it has samples, earliest first.

        Raises:
            InputError: the file is no telemetry.
            RunError: it cannot be read.
        """
        times = self.read(fields=())[TIME].to_list()
        return sorted(set(map(_day_of, times)))


def telemetry_in(place: Path) -> Store | OneFile:
    """Return what reads the telemetry of a directory, or of a Parquet file.

    Raises:
        InputError: it is neither.
    """
    if place.is_dir():
        return Store(place)
    if is_telemetry_file(place):
        return OneFile(place)
    if place.exists():
        raise InputError(
            f"{place}: is neither a directory of telemetry nor a Parquet file: bring it in with "
            "skyhop telemetry import"
        )
    raise InputError(f"{place}: there is no such directory or file of telemetry")


def is_telemetry_file(file: Path) -> bool:
    """Return whether a file is of Parquet, as its first bytes have it."""
    try:
        with file.open("rb") as stream:
            return stream.read(len(_PARQUET)) == _PARQUET
    except OSError:
        return False


def _names(fields: Sequence[str] | None, step_ns: int | None) -> list[str]:
    """Return the names of columns that are asked for, all by default; check the step too."""
    names = [field.name for field in FIELDS] if fields is None else list(dict.fromkeys(fields))
    for name in names:
        if name not in BY_NAME:
            raise InputError(f'telemetry: there is no field "{name}": see docs/telemetry.md')
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
    summed = [
        pl.col(name).mean()
        if BY_NAME[name].type is Type.NUMBER
        else pl.col(name).drop_nulls().last()
        for name in frame.columns[2:]
    ]
    return frame.group_by("node", begin.alias(TIME), maintain_order=True).agg(summed)


@contextmanager
def _locked(journal: Path, *, create: bool) -> Iterator[io.FileIO | None]:
    """Open a journal, alone among all who write or fold it; None where there is none.

    Whoever waited for one that was folded meanwhile holds a file without a name: it opens anew.
    """
    while True:
        try:
            flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
            held = io.FileIO(os.open(journal, flags, 0o644), "r+")
        except FileNotFoundError:
            if create:
                _make(journal.parent)
                continue
            yield None
            return
        except OSError as error:
            raise RunError(f"{journal}: cannot write: {error.strerror}") from None
        with held:
            fcntl.flock(held, fcntl.LOCK_EX)
            if os.fstat(held.fileno()).st_nlink == 0:
                continue
            yield held
            return


def _write_lines(journal: Path, lines: bytes) -> None:
    """Append lines, all or none."""
    with _locked(journal, create=True) as held:
        assert held is not None, "made where it was missing"
        end = _end_of_lines(held)
        try:
            held.truncate(end)
            held.seek(end)
            written = 0
            while written < len(lines):
                written += held.write(lines[written:]) or 0
        except OSError as error:
            with suppress(OSError):
                held.truncate(end)
            raise RunError(f"{journal}: cannot write: {error.strerror}") from None


def _end_of_lines(held: io.FileIO) -> int:
    """Return where the last whole line ends: who was killed may have left half of one."""
    size = held.seek(0, os.SEEK_END)
    end = size
    while end > 0:
        begin = max(end - 4096, 0)
        held.seek(begin)
        found = held.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _samples(lines: bytes) -> list[Sample]:
    """Return a journal's samples, without what a loss of power has torn."""
    samples = []
    for line in lines[: lines.rfind(b"\n") + 1].splitlines():
        with suppress(ValueError, TypeError, AttributeError, RecursionError, InputError):
            samples.append(checked(json.loads(line)))
    return samples


def _known(file: Path) -> set[str]:
    """Return the names of a day's columns; none where there is no file."""
    with _opened(file) as content:
        return set() if content is None else set(_names_in(content))


def _folded(file: Path, names: Sequence[str]) -> pa.Table:
    """Return the rows of a day's file; none where there is no file."""
    import pyarrow as pa

    columns = schema(names)
    with _opened(file) as content:
        if content is None:
            return columns.empty_table()
        there = _names_in(content)
        if TIME not in there:
            raise ValueError(f"it has no column {TIME}")
        known = [name for name in columns.names if name in there]
        rows = tables.read_table(content, known, tables.MOST_BYTES)
        # A field that came later is not in older files.
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
    """Open a day's file, None where there is none; what is wrong with it is said in one line."""
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


def _parted(rows: pa.Table, time_ns: int) -> tuple[pa.Table, pa.Table]:
    """Return rows before a time, and those from it on; they are in the order of time."""
    import pyarrow.compute as pc

    count = pc.sum(pc.less(rows[TIME], time_ns)).as_py() or 0
    return rows.slice(0, count), rows.slice(count)


def _parquet(rows: pa.Table) -> bytes:
    """Return a day's file: without columns that are not known at all, small, and in one piece."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    known = [n for n in rows.schema.names if n == TIME or rows[n].null_count < rows.num_rows]
    rows = rows.select(known)
    few = [name for name in known if _repeats(rows[name])]
    numbers = [n for n in known if n not in few and rows.schema.field(n).type == pa.float64()]
    sink = pa.BufferOutputStream()
    # What a terminal says has 24 significant bits: split into bytes, the rest is zeros.
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


def _repeats(column: pa.ChunkedArray) -> bool:
    """Return whether a column has few values, judged by its beginning."""
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
