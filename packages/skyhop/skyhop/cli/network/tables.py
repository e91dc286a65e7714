"""Tables of rows whose keys end in units, as commands print them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skyhop.analysis.tables import MISSING, three_digits
from skyhop.cli.tables import Cells, print_table

_UNITS = {"_ms": "ms", "_percent": "%"}
MOST_SHOWN = 40
"""Largest number of rows of a printed table; --json and --csv print all rows."""


def print_columns(rows: Sequence[Mapping[str, Any]], title: str = "") -> None:
    """Print rows as a table, with the units of their keys below the titles."""
    columns = []
    for key in rows[0] if rows else ():
        unit = next((unit for end, unit in _UNITS.items() if key.endswith(end)), "")
        name = key.removesuffix(next((end for end in _UNITS if key.endswith(end)), ""))
        values = [row[key] for row in rows]
        numeric = any(isinstance(value, int | float) for value in values)
        columns.append(Cells(_titled(name), unit, [_text(value) for value in values], numeric))
    print_table(columns, title=title)


def print_some(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the first rows of a table, and how many more there are."""
    print_columns(rows[:MOST_SHOWN])
    if len(rows) > MOST_SHOWN:
        print(f"and {len(rows) - MOST_SHOWN:,} more: --json and --csv print all")
    print()


def _titled(name: str) -> str:
    return name.replace("_", " ").replace("rtt", "RTT")


def _text(value: Any) -> str:
    if value is None:
        return MISSING
    if isinstance(value, int):
        return f"{value:,}"
    return three_digits(value) if isinstance(value, float) else str(value)
