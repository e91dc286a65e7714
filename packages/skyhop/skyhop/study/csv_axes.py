"""Axes whose values are the rows of a CSV file.

Such axes are for values that differ from path to path, such as the times of events, and so cannot
be crossed with other axes. Each row of the file is one value of the axis. A column with the name of
another axis holds the value of that axis at which the row applies. All further columns are scenario
keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from skyhop.errors import InputError
from skyhop.study.changes import read_table
from skyhop.study.keys import Setting, Value


def csv_labels(file: str, name: str) -> list[Value]:
    """Return the distinct values in the column that has the name of the axis.

    Raises:
        InputError: the file cannot be read, has no such column, or no row.
    """
    header, rows = read_table(file)
    if name not in header:
        raise InputError(f"{file}: the column `{name}` is missing")
    if not rows:
        raise InputError(f"{file}: has no rows")
    return list(dict.fromkeys(_cell_value(row[name]) for row in rows))


def keys_of_rows(file: str, name: str, others: Collection[str]) -> list[str]:
    """Return the columns that hold scenario keys; `others` are the names of the other axes."""
    return [column for column in read_table(file)[0] if column != name and column not in others]


def check_rows(file: str, name: str, others: Mapping[str, Sequence[Value]]) -> None:
    """Check that rows refer to existing values of other axes, and that no row is repeated.

    Raises:
        InputError: a row is wrong; the message names its line.
    """
    header, rows = read_table(file)
    chosen = [column for column in header if column in others]
    seen = set()
    for line, row in enumerate(rows, start=2):
        for column in chosen:
            known = [str(value) for value in others[column]]
            if row[column] not in known:
                raise InputError(
                    f"{file}: row {line}: {column} has no value {row[column]!r}; "
                    f"it has {', '.join(known)}"
                )
        place = tuple(row[column] for column in (name, *chosen))
        if place in seen:
            raise InputError(f"{file}: row {line}: `{name}` has the same value twice there")
        seen.add(place)


def rows_with(
    file: str, name: str, labels: Mapping[str, Value]
) -> Iterator[tuple[Value, dict[str, Setting]]]:
    """Yield the rows that apply at these labels of other axes: axis value, and keys to set.

    A key with an empty cell is not set.
    """
    header, rows = read_table(file)
    chosen = {column: str(label) for column, label in labels.items() if column in header}
    for row in rows:
        if all(row[column] == label for column, label in chosen.items()):
            keys = (c for c in header if c != name and c not in labels and row[c])
            yield _cell_value(row[name]), {key: _cell_value(row[key]) for key in keys}


def _cell_value(text: str) -> Value:
    """Return a cell's text as a number if it is one, else unchanged."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
