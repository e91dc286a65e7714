"""Gaps: missing seconds of telemetry, and how a terminal's history fills them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from skyhop.telemetry.columns import time_of
from skyhop.telemetry.fields import TIME, Sample

if TYPE_CHECKING:
    import polars as pl

SECOND_NS = 10**9


def last_full_second_ns(time_ns: int) -> int:
    """Return the end of the last full second up to a time; a status at that time describes it.

    >>> [last_full_second_ns(time_ns) for time_ns in (10**9, 10**9 + 1, 2 * 10**9 - 1)]
    [1000000000, 1000000000, 1000000000]
    """
    return time_ns // SECOND_NS * SECOND_NS


def missing_from_status(status: Sequence[Sample], history: Sequence[Sample]) -> Iterator[Sample]:
    """Yield one sample per second with the values of the history that the status samples lack.

    For a second without a status sample, or in which the terminal did not answer, the sample is the
    whole row of the history. For any other second, it has only the values that the status sample
    does not have, such as the power. The time of a sample is the end of its second.

    Args:
        status: status samples of a terminal, in any order. A sample describes the last full second
            before its time.
        history: rows of the history of the same terminal, in any order, timed like `status`.
    """
    known: dict[int, set[str]] = {}
    for sample in status:
        names = {name for name, value in sample.items() if value is not None}
        known.setdefault(last_full_second_ns(time_of(sample)), set()).update(names)
    for row in history:
        end_ns = last_full_second_ns(time_of(row))
        new: Sample = {
            name: value
            for name, value in row.items()
            if value is not None and name not in known.get(end_ns, ()) and name != TIME
        }
        if new:
            yield {TIME: end_ns, **new}


def gaps(frame: pl.DataFrame, field: str | None = None) -> pl.DataFrame:
    """Return the gaps in telemetry, ordered by node and time.

    Args:
        frame: result of `Store.read` without a step: `node`, `time_ns`, fields.
        field: if given, a second without a value of this field also counts as missing.

    Returns:
        A frame with `node`, `from_ns` (the end of the last second before the gap), `to_ns` (the end
        of the last missing second) and `seconds` (the number of missing seconds).
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
