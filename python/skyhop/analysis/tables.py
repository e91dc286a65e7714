"""Tables as view models: columns with titles and units, and how each figure is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MISSING = "\N{EN DASH}"


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    key: str
    """The row's key."""
    title: str
    unit: str
    """The unit that `text` writes in; empty where there is none."""
    write: Callable[[Any], str]
    numeric: bool = True

    def text(self, row: Mapping[str, Any]) -> str:
        """Write the row's figure in this column's unit, a dash where there is none."""
        value = row.get(self.key)
        return MISSING if value is None else self.write(value)


@dataclass(frozen=True)
class Table:
    """A table whose cells are written already."""

    groups: Sequence[tuple[str, int]]
    """Headings above the headings, with the number of columns below each."""
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]


def three_digits(value: float) -> str:
    """Write three significant digits, no exponent, thousands apart: 0.012, 9.23, 47.7, 1,240."""
    for least, decimals in ((99.95, 0), (9.995, 1), (0.9995, 2)):
        if abs(value) >= least:
            return f"{value:,.{decimals}f}"
    return f"{value:.3f}" if value else "0"
