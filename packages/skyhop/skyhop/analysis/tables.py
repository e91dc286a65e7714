"""Tables as view models: columns with titles and units, and the text of each cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MISSING = "\N{EN DASH}"


@dataclass(frozen=True)
class Column:
    """Column of a table: its title, unit and number format."""

    key: str
    """Key of the column's value in a row."""
    title: str
    unit: str
    """Unit of the text that `text` returns; empty for numbers without a unit."""
    write: Callable[[Any], str]
    numeric: bool = True

    def text(self, row: Mapping[str, Any]) -> str:
        """Return the row's value as text, in the column's unit; a dash if it is missing."""
        value = row.get(self.key)
        return MISSING if value is None else self.write(value)


@dataclass(frozen=True)
class Table:
    """Columns of a table with their cells as text."""

    groups: Sequence[tuple[str, int]]
    """Common headings above the columns' titles, each with its number of columns."""
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]


def three_digits(value: float) -> str:
    """Return a number with three significant digits and no exponent: 0.012, 9.23, 47.7, 1,240."""
    for least, decimals in ((99.95, 0), (9.995, 1), (0.9995, 2)):
        if abs(value) >= least:
            return f"{value:,.{decimals}f}"
    return f"{value:.3f}" if value else "0"
