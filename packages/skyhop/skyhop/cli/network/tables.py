"""Tables of rows whose keys end in units, as commands print them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skyhop.analysis.tables import MISSING, three_digits
from skyhop.cli.tables import Cells, print_table

_UNITS = {"_ms": "ms", "_percent": "%"}


def print_columns(rows: Sequence[Mapping[str, Any]], keys: Sequence[int] = (0,)) -> None:
    """Print rows as a table, with the units of their keys below the titles.

    Args:
        rows: rows with the same keys.
        keys: indices of the columns that identify the rows.
    """
    columns = []
    for key in rows[0] if rows else ():
        unit = next((unit for end, unit in _UNITS.items() if key.endswith(end)), "")
        name = key.removesuffix(next((end for end in _UNITS if key.endswith(end)), ""))
        values = [row[key] for row in rows]
        numeric = any(isinstance(value, int | float) for value in values)
        columns.append(Cells(_titled(name), unit, [_text(value) for value in values], numeric))
    print_table(columns, keys=keys)


def print_some(rows: Sequence[Mapping[str, Any]], keys: Sequence[int], most: int) -> None:
    """Print the first rows of a table, at most `most`, and how many more there are."""
    print_columns(rows[:most], keys)
    if len(rows) > most:
        print(f"and {len(rows) - most:,} more: --json and --csv print all")


def _titled(name: str) -> str:
    return name.replace("_", " ").replace("rtt", "RTT")


def _text(value: Any) -> str:
    if value is None:
        return MISSING
    if isinstance(value, int):
        return f"{value:,}"
    return three_digits(value) if isinstance(value, float) else str(value)
