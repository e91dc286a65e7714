"""Values of an axis from a file: each row is one, says with which of the others it goes, sets keys.

Moments at which something happened differ from path to path, and so does their number: they cannot
be crossed with anything. A row of the file is one value of the axis. Columns that are called like
other axes say with which of their values it goes; all further ones are keys of the scenario.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from skyhop.errors import InputError
from skyhop.study.drawn import read_table
from skyhop.study.file import Setting, Value


def listed_labels(file: str, name: str) -> list[Value]:
    """Return what stands in the column called like the axis, each once.

    Raises:
        InputError: the file cannot be read, has no such column, or no row.
    """
    header, rows = read_table(file)
    if name not in header:
        raise InputError(f"{file}: the column `{name}` is missing")
    if not rows:
        raise InputError(f"{file}: has no rows")
    return list(dict.fromkeys(_value(row[name]) for row in rows))


def keys_of_rows(file: str, name: str, others: Collection[str]) -> list[str]:
    """Return the columns that are keys of the scenario."""
    return [column for column in read_table(file)[0] if column != name and column not in others]


def check_rows(file: str, name: str, others: Mapping[str, Sequence[Value]]) -> None:
    """Check that rows go with values that there are, each once.

    Raises:
        InputError: one does not; the message names it.
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
    """Yield the rows that go with the other axes' values: the axis's value, and keys that are set.

    An empty cell sets nothing.
    """
    header, rows = read_table(file)
    chosen = {column: str(label) for column, label in labels.items() if column in header}
    for row in rows:
        if all(row[column] == label for column, label in chosen.items()):
            keys = (c for c in header if c != name and c not in labels and row[c])
            yield _value(row[name]), {key: _value(row[key]) for key in keys}


def _value(text: str) -> Value:
    """Return a cell: a number where it is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
