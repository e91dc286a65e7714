"""Samples as columns: checks of values, tables, and merging of rows by time.

The module needs pyarrow only, so that services that store telemetry need not load polars.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from skyhop.errors import InputError
from skyhop.telemetry.fields import BY_NAME, FIELDS, TIME, Sample, Type, Value

if TYPE_CHECKING:
    import pyarrow as pa

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
        raise InputError(
            f'telemetry: there is no field "{name}": skyhop docs telemetry-fields lists them'
        )
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


def schema(names: Iterable[str] | None = None) -> pa.Schema:
    """Return the schema of a day's table: `time_ns` and the named fields, by default all."""
    import pyarrow as pa

    types = {
        Type.NUMBER: pa.float64(),
        Type.INTEGER: pa.int64(),
        Type.BOOLEAN: pa.bool_(),
        Type.TEXT: pa.string(),
    }
    fields = FIELDS if names is None else [BY_NAME[name] for name in names]
    return pa.schema(
        [pa.field(TIME, pa.int64(), nullable=False), *((f.name, types[f.type]) for f in fields)]
    )


def table_of(samples: Sequence[Sample], names: Iterable[str] | None = None) -> pa.Table:
    """Return samples as a table in the same order; the samples must have passed `checked`."""
    import pyarrow as pa

    columns = schema(names)
    arrays = [
        pa.array([sample.get(column.name) for sample in samples], column.type) for column in columns
    ]
    return pa.Table.from_arrays(arrays, schema=columns)


def merge_by_time(tables: Sequence[pa.Table]) -> pa.Table:
    """Merge tables into one, sorted by time, with one row per time and null in missing columns.

    If several rows have the same time, each column takes its last value that is not null. The first
    column of each table is `time_ns`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = pa.concat_tables(tables, promote_options="default")
    if pc.count_distinct(rows[TIME]).as_py() < rows.num_rows:
        names = rows.column_names
        last = [(name, "last") for name in names if name != TIME]
        rows = rows.group_by(TIME, use_threads=False).aggregate(last).rename_columns(names)
    return rows.sort_by(TIME)
