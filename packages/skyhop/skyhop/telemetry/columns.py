"""Samples as columns: checks of values, tables, and merging of rows by time.

The module loads polars only for tables: services that store telemetry need none.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from skyhop.errors import InputError
from skyhop.telemetry.fields import BY_NAME, FIELDS, TIME, Sample, Type, Value, unknown_field

if TYPE_CHECKING:
    import polars as pl

_INT64_END = 2**63


def time_of(sample: Sample) -> int:
    """Return a sample's time in ns since 1970."""
    time_ns = sample[TIME]
    assert isinstance(time_ns, int), "samples have a time"
    return time_ns


def checked(sample: Sample) -> Sample:
    """Return a sample without unknown values, each value converted to the type of its column.

    NaN and infinite numbers count as unknown.

    Raises:
        InputError: the sample has no time, an unknown field, or a value of a wrong type.
    """
    time_ns = sample.get(TIME)
    if type(time_ns) is not int or not 0 <= time_ns < _INT64_END:
        raise InputError(f'telemetry: {TIME}: expected nanoseconds since 1970, not "{time_ns}"')
    values: Sample = {TIME: time_ns}
    for name, value in sample.items():
        if name != TIME and value is not None:
            converted = checked_value(name, value)
            if converted is not None:
                values[name] = converted
    return values


def checked_value(name: str, value: Value) -> Value:
    """Return a value converted to its column's type; None for NaN and infinite numbers.

    Raises:
        InputError: there is no such column, or the value has another type.
    """
    field = BY_NAME.get(name)
    if field is None:
        raise unknown_field(name)
    if field.type is Type.TEXT and isinstance(value, str):
        # Lone surrogates cannot be encoded as UTF-8: replace them.
        return value.encode("utf-8", "replace").decode("utf-8")
    if field.type is Type.BOOLEAN and isinstance(value, bool):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        if field.type is Type.NUMBER:
            return float(value) if abs(value) <= sys.float_info.max else None
        if field.type is Type.INTEGER and value == value // 1 and abs(value) < _INT64_END:
            return int(value)
    raise InputError(f'telemetry: {name}: expected a value of type {field.type}, not "{value}"')


def schema(names: Iterable[str] | None = None) -> pl.Schema:
    """Return the schema of a day's table: `time_ns` and the named fields, by default all."""
    import polars as pl

    types = {
        Type.NUMBER: pl.Float64(),
        Type.INTEGER: pl.Int64(),
        Type.BOOLEAN: pl.Boolean(),
        Type.TEXT: pl.String(),
    }
    fields = FIELDS if names is None else [BY_NAME[name] for name in names]
    return pl.Schema({TIME: pl.Int64(), **{field.name: types[field.type] for field in fields}})


def table_of(samples: Sequence[Sample], names: Iterable[str] | None = None) -> pl.DataFrame:
    """Return samples as a table in the same order; the samples must have passed `checked`."""
    import polars as pl

    columns = schema(names)
    return pl.DataFrame(
        {name: [sample.get(name) for sample in samples] for name in columns}, columns
    )


def merge_by_time(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Merge tables into one, sorted by time, with one row per time and null in missing columns.

    If several rows have the same time, each column takes its last value that is not null. The first
    column of each table is `time_ns`.
    """
    import polars as pl

    rows = pl.concat(tables, how="diagonal")
    if rows[TIME].n_unique() < rows.height:
        last = pl.exclude(TIME).drop_nulls().last()
        rows = rows.group_by(TIME, maintain_order=True).agg(last)
    return rows.sort(TIME, maintain_order=True)
