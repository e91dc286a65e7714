"""Parquet from outside, with limits: a small file may hold tables that no memory does.

What a file announces is asked before it is read, and what its texts take before they are written
out: a text that repeats takes next to nothing in a file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

MOST_BYTES = 1_000_000_000
"""What a table may take in memory unless it may be large.

What draws it takes as much several times.
"""


_BEHIND = 8
"""Bytes behind a file's footer."""


class TooLargeError(Exception):
    """A table takes more memory than it may; the message has no name of a file."""


def read_table(
    source: Path | pa.BufferReader, names: Collection[str], most_bytes: int | None
) -> pa.Table:
    """Return columns of a Parquet file that have one value a row, checked to their last letter.

    Args:
        source: a file, or its content.
        names: of the columns; others are not read.
        most_bytes: what they may take in memory; None is any.

    Raises:
        TooLargeError: they would take more.
        ValueError, pyarrow.ArrowException: it is damaged, or has lists in a column.
        OSError: it cannot be read.
    """
    import pyarrow.parquet as pq

    # Nor read_table: threads of Arrow may outlive the interpreter, which then aborts.
    with pq.ParquetFile(source, pre_buffer=False) as announced:
        rows = announced.metadata.num_rows
        texts = _texts(announced.metadata, names)
        check_size(_announced_bytes(source, names), rows, most_bytes)
    if not isinstance(source, Path):
        source.seek(0)
    with pq.ParquetFile(source, pre_buffer=False, read_dictionary=texts) as file:
        table = file.read(columns=list(names), use_threads=False)
    # Also what is in the columns: letters of texts.
    table.validate(full=True)
    check_size(table.nbytes + _written_out_bytes(table), rows, most_bytes)
    return _written_out(table)


def check_size(size: int, rows: int, most_bytes: int | None) -> None:
    """Raise a TooLargeError where a table takes more memory than it may."""
    if most_bytes is not None and size > most_bytes:
        raise TooLargeError(
            f"{rows:,} rows take {size / 1e9:.1f} GB of memory; at most {most_bytes / 1e9:g} GB"
        )


def leaf_bytes(source: Path | pa.BufferReader) -> int:
    """Return what all numbers take by the file's own account, those in lists too.

    Raises:
        ValueError: it is damaged.
        OSError: it cannot be read.
    """
    return sum(max(8 * values, size) for _, values, size, _ in _announced(source))


def _announced_bytes(source: Path | pa.BufferReader, names: Collection[str]) -> int:
    """Return what columns take, by the file's own account, with each text once.

    Raises:
        ValueError: it is damaged; a column holds more than a value a row, or texts of which each is
            made of the one before it, so that a few bytes are many texts, each long.
    """
    size = 0
    for (name, *inside), values, column_bytes, is_of_prefixes in _announced(source):
        if name not in names:
            continue
        if inside or is_of_prefixes:
            raise ValueError(f"{name}: expected one value a row, plain or of a dictionary")
        size += max(8 * values, column_bytes)
    return size


def _announced(source: Path | pa.BufferReader) -> list[tuple[list[str], int, int, bool]]:
    """Return what a file's footer says of its columns; Arrow's own way there aborts on some."""
    from skyhop import _core

    if isinstance(source, Path):
        with source.open("rb") as file:
            return _core.parquet_columns(_footer(file, source.stat().st_size))
    return _core.parquet_columns(_footer(source, source.size()))


def _footer(file: BinaryIO | pa.BufferReader, size: int) -> bytes:
    """Return what lies before the length and the magic number at a file's end."""
    file.seek(max(0, size - _BEHIND))
    length = int.from_bytes(file.read(_BEHIND)[:4], "little")
    if length > size - _BEHIND:
        raise ValueError("its footer is longer than the file")
    file.seek(size - _BEHIND - length)
    return file.read(length)


def _texts(metadata: pq.FileMetaData, names: Collection[str]) -> list[str]:
    """Return which columns hold texts: one that repeats takes next to nothing in a file."""
    columns = map(metadata.schema.column, range(metadata.num_columns))
    return [c.path for c in columns if c.physical_type == "BYTE_ARRAY" and c.path in names]


def _pieces(table: pa.Table) -> Iterator[pa.DictionaryArray]:
    """Yield those of its columns that were read as dictionaries."""
    import pyarrow as pa

    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            yield from column.chunks


def _written_out_bytes(table: pa.Table) -> int:
    """Return what the texts of its dictionaries take where each stands as often as it is used."""
    import pyarrow.compute as pc

    lengths = (
        pc.take(pc.binary_length(piece.dictionary), piece.indices) for piece in _pieces(table)
    )
    # In as many bits as it takes: lengths have 32.
    return sum(pc.sum(each.cast("int64")).as_py() or 0 for each in lengths)


def _written_out(table: pa.Table) -> pa.Table:
    """Return the table with texts for dictionaries of them."""
    import pyarrow as pa

    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields, metadata=table.schema.metadata))
