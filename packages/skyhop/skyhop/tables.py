"""Reading of untrusted Parquet files within a limit of memory.

A small file may contain a table that is larger than any memory, because repeated values compress to
almost nothing. Therefore the core checks the size of columns before it decodes them.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from skyhop import _core

if TYPE_CHECKING:
    import polars as pl

MOST_BYTES = 1_000_000_000
"""Default limit of a table's size in memory, in bytes.

Programs that draw a table need several times its size.
"""


def read_table(
    source: Path | bytes, names: Collection[str], most_bytes: int | None
) -> pl.DataFrame:
    """Return columns of a Parquet file with validated content; columns of lists are not allowed.

    Args:
        source: a file, or its content.
        names: names of the columns to read; those that the file lacks are left out.
        most_bytes: limit of the columns' size in memory, in bytes; None for no limit.

    Raises:
        _core.TooLargeError: the columns take more than `most_bytes`.
        ValueError: the file is damaged, or a column holds lists.
        OSError: the file cannot be read.
    """
    import polars as pl

    return pl.DataFrame(_core.ParquetFile(source).read(list(names), most_bytes))
