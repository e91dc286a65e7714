"""Seconds that were missed, and the history that a terminal keeps, which fills them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from skyhop.telemetry.columns import time_of
from skyhop.telemetry.fields import TIME, Sample

if TYPE_CHECKING:
    import polars as pl

SECOND_NS = 10**9


def second_ns(time_ns: int) -> int:
    """Return the end of the second that a terminal speaks of at a time: the last that is over.

    >>> second_ns(10**9), second_ns(10**9 + 1), second_ns(2 * 10**9 - 1)
    (1000000000, 1000000000, 1000000000)
    """
    return time_ns // SECOND_NS * SECOND_NS


def filled(status: Sequence[Sample], history: Sequence[Sample]) -> Iterator[Sample]:
    """Yield what history knows beyond status, by second, with its end as time.

    A second that status missed, or in which the terminal did not answer, gets history's whole row;
    any other gets what status does not say, such as the power. Where both speak, status counts.

    Args:
        status: samples of a terminal, in any order, with the time of asking or their second's end.
        history: rows of its rings, likewise.
    """
    said: dict[int, set[str]] = {}
    for sample in status:
        known = {name for name, value in sample.items() if value is not None}
        said.setdefault(second_ns(time_of(sample)), set()).update(known)
    for row in history:
        end_ns = second_ns(time_of(row))
        new: Sample = {
            name: value
            for name, value in row.items()
            if value is not None and name not in said.get(end_ns, ()) and name != TIME
        }
        if new:
            yield {TIME: end_ns, **new}


def gaps(frame: pl.DataFrame, field: str | None = None) -> pl.DataFrame:
    """Return the times of which there is nothing, each node's by time.

    Args:
        frame: of `Store.read` without a step: `node`, `time_ns`, fields.
        field: where given, seconds without a value of this field are missed too.

    Returns:
        A frame with `node`, `from_ns` (the end of the last second before), `to_ns` (the end of the
        last that is missing) and `seconds`.
    """
    import polars as pl

    if field is not None:
        frame = frame.filter(pl.col(field).is_not_null())
    end = pl.col(TIME) // SECOND_NS * SECOND_NS
    ends = frame.select("node", end.alias("end_ns")).unique().sort("node", "end_ns")
    return (
        ends.with_columns(from_ns=pl.col("end_ns").shift(1).over("node"))
        .with_columns(seconds=(pl.col("end_ns") - pl.col("from_ns")) // SECOND_NS - 1)
        .filter(pl.col("seconds") > 0)
        .select("node", "from_ns", (pl.col("end_ns") - SECOND_NS).alias("to_ns"), "seconds")
    )
