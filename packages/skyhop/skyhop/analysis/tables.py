"""Tables as view models: columns with titles and units, and the text of each cell."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MISSING = "\N{EN DASH}"

SEPARATOR = re.compile(r"(?<=[-_/.,:=])")
"""Places in a long word at which a line may break."""


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
    note: str = ""
    """Note below the table, such as the meaning of ±."""


def three_digits(value: float) -> str:
    """Return a number with three significant digits and no exponent: 0.012, 9.23, 47.7, 1,240."""
    return f"{value:,.{_decimals(value)}f}" if value else "0"


def short_number(value: float) -> str:
    """Return a number without exponent and final zeros: 0.1, 12.5; whole numbers as they are."""
    if float(value).is_integer():
        return f"{value:,.0f}"
    return f"{float(f'{value:.3g}'):,.12g}"


def plus_minus(value: float, reach: float) -> str:
    """Return a value and its uncertainty, both with the decimals of the latter: 138.2 ± 0.3.

    The uncertainty has one significant digit, or two if the first is 1.
    """
    no_reach = f"{three_digits(value)} ± 0"
    if not reach:
        return no_reach
    first = math.floor(math.log10(float(f"{abs(reach):.0e}")))
    is_one = f"{abs(reach):.0e}".startswith("1")
    decimals = min(max(is_one - first, 0), _decimals(value) + _MORE_DECIMALS)
    shown = f"{reach:,.{decimals}f}"
    # What rounds to zero, such as the rounding errors of a mean of equal values, shows no digits.
    return f"{value:,.{decimals}f} ± {shown}" if shown.strip("-0.,") else no_reach


_MORE_DECIMALS = 2
"""Largest number of decimals that an uncertainty adds to the three digits of its value."""


def _decimals(value: float) -> int:
    """Return the number of decimals with which a number has three significant digits."""
    return next((d for least, d in ((99.95, 0), (9.995, 1), (0.9995, 2)) if abs(value) >= least), 3)


def shared_out(lacking: Mapping[int, int], left: int) -> dict[int, int]:
    """Share out width that is `left` among columns, in proportion to the width that each lacks."""
    waiting, shares = dict(lacking), {}
    for place in sorted(lacking):
        wanting = sum(waiting.values())
        shares[place] = waiting.pop(place) * min(max(left, 0), wanting) // max(wanting, 1)
        left -= shares[place]
    return shares
