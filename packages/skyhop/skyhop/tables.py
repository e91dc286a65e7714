"""Reading of untrusted Parquet files within a limit of memory.

A small file may contain a table that is larger than any memory, because repeated values compress to
almost nothing. Therefore the sizes in the footer are checked before the file is read, and the size
of texts is checked before dictionary columns are decoded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

MOST_BYTES = 1_000_000_000
"""Default limit of a table's size in memory, in bytes.

Programs that draw a table need several times its size.
"""


_TRAILER_BYTES = 8
"""Bytes after a Parquet footer: its length (4) and the magic number (4)."""


class TooLargeError(Exception):
    """Error: a table takes more memory than allowed; the message does not name the file."""


def read_table(
    source: Path | pa.BufferReader, names: Collection[str], most_bytes: int | None
) -> pa.Table:
    """Return columns of a Parquet file with validated content; columns of lists are not allowed.

    Args:
        source: a file, or its content.
        names: names of the columns to read.
        most_bytes: limit of the columns' size in memory, in bytes; None for no limit.

    Raises:
        TooLargeError: the columns take more than `most_bytes`.
        ValueError, pyarrow.ArrowException: the file is damaged, or a column holds lists.
        OSError: the file cannot be read.
    """
    import pyarrow.parquet as pq

    # Not pq.read_table: its threads may outlive the interpreter, which then aborts.
    with pq.ParquetFile(source, pre_buffer=False) as unread:
        rows = unread.metadata.num_rows
        texts = _text_columns(unread.metadata, names)
        check_size(_footer_bytes(source, names), rows, most_bytes)
    if not isinstance(source, Path):
        source.seek(0)
    with pq.ParquetFile(source, pre_buffer=False, read_dictionary=texts) as file:
        table = file.read(columns=list(names), use_threads=False)
    # `full` also validates the values, such as the UTF-8 of texts.
    table.validate(full=True)
    check_size(table.nbytes + _decoded_text_bytes(table), rows, most_bytes)
    return _with_decoded_texts(table)


def check_size(size: int, rows: int, most_bytes: int | None) -> None:
    """Raise a TooLargeError if a table of `size` bytes exceeds the limit; None for no limit."""
    if most_bytes is not None and size > most_bytes:
        raise TooLargeError(
            f"{rows:,} rows take {size / 1e9:.1f} GB of memory; at most {most_bytes / 1e9:g} GB"
        )


def leaf_bytes(source: Path | pa.BufferReader) -> int:
    """Return the number of bytes of all values according to the footer, including those in lists.

    Raises:
        ValueError: the file is damaged.
        OSError: the file cannot be read.
    """
    return sum(max(8 * values, size) for _, values, size, _ in _columns(source))


def _footer_bytes(source: Path | pa.BufferReader, names: Collection[str]) -> int:
    """Return the bytes of columns according to the footer; a dictionary entry counts once.

    Raises:
        ValueError: the file is damaged; a column holds lists; or its texts are encoded as prefixes
            of each other (DELTA_BYTE_ARRAY), so that a few bytes may be many long texts.
    """
    size = 0
    for (name, *inside), values, column_bytes, is_of_prefixes in _columns(source):
        if name not in names:
            continue
        if inside or is_of_prefixes:
            raise ValueError(f"{name}: expected one value a row, plain or of a dictionary")
        size += max(8 * values, column_bytes)
    return size


def _columns(source: Path | pa.BufferReader) -> list[tuple[list[str], int, int, bool]]:
    """Return each column's path, number of values, bytes, and whether it is DELTA_BYTE_ARRAY.

    The core reads the footer, because Arrow's own reader aborts on some damaged footers.
    """
    from skyhop import _core

    if isinstance(source, Path):
        with source.open("rb") as file:
            return _core.parquet_columns(_footer(file, source.stat().st_size))
    return _core.parquet_columns(_footer(source, source.size()))


def _footer(file: BinaryIO | pa.BufferReader, size: int) -> bytes:
    """Return the footer; it precedes its length and the magic number at the end of the file."""
    file.seek(max(0, size - _TRAILER_BYTES))
    length = int.from_bytes(file.read(_TRAILER_BYTES)[:4], "little")
    if length > size - _TRAILER_BYTES:
        raise ValueError("its footer is longer than the file")
    file.seek(size - _TRAILER_BYTES - length)
    return file.read(length)


def _text_columns(metadata: pq.FileMetaData, names: Collection[str]) -> list[str]:
    """Return the names of text columns, which are read as dictionaries to limit their size."""
    columns = map(metadata.schema.column, range(metadata.num_columns))
    return [c.path for c in columns if c.physical_type == "BYTE_ARRAY" and c.path in names]


def _dictionary_chunks(table: pa.Table) -> Iterator[pa.DictionaryArray]:
    """Yield the chunks of the columns that were read as dictionaries."""
    import pyarrow as pa

    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            yield from column.chunks


def _decoded_text_bytes(table: pa.Table) -> int:
    """Return the bytes that the dictionary columns take after decoding, with one text per row."""
    import pyarrow.compute as pc

    lengths = (
        pc.take(pc.binary_length(chunk.dictionary), chunk.indices)
        for chunk in _dictionary_chunks(table)
    )
    # Lengths are 32 bits wide; their sum may overflow that.
    return sum(pc.sum(each.cast("int64")).as_py() or 0 for each in lengths)


def _with_decoded_texts(table: pa.Table) -> pa.Table:
    """Return the table with its dictionary columns decoded to texts."""
    import pyarrow as pa

    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields, metadata=table.schema.metadata))
