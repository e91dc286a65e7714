"""Changes of a scenario for each value of an axis: drawn from a seed, or read from a CSV file.

Values are drawn by Python's `random`, seeded with the axis value. This repeats published
experiments whose changes were drawn in the same way.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from skyhop.data.quantities import seconds
from skyhop.errors import InputError
from skyhop.study.file import Changes, Draw
from skyhop.study.keys import Value

_CHANGED = ("link", "rtt", "rate", "loss", "outage")


def drawn_changes(changes: Changes, seed: int) -> list[dict[str, Any]]:
    """Return the `[[change]]` entries drawn with a seed: one per changed link at each time."""
    source = Random(seed)
    first_s, every_s = seconds(changes.first), seconds(changes.every or "0 s")
    return [
        entry
        for place in range(changes.count or 0)
        for entry in _changes_at(first_s + place * every_s, changes.draw or (), source)
    ]


def _changes_at(t_s: float, draws: Sequence[Draw], source: Random) -> Iterator[dict[str, Any]]:
    """Yield the changes at one time.

    Draws without a key are made too, so that later draws get the same random numbers.
    """
    by_link: dict[str | None, dict[str, Any]] = {}
    for draw in draws:
        value = _draw(draw, source)
        if draw.key is not None:
            entry = by_link.setdefault(draw.link, {"at": f"{t_s:.9g} s"})
            if draw.link is not None:
                entry["link"] = draw.link
            entry[draw.key] = f"{value:.9g} {draw.unit}"
    yield from by_link.values()


def _draw(draw: Draw, source: Random) -> float:
    if draw.law == "randint":
        return source.randint(int(draw.low), int(draw.high))
    value = source.uniform(draw.low, draw.high)
    return value if draw.digits is None else round(value, draw.digits)


def read_changes(file: str, column: str, value: Value) -> list[dict[str, Any]]:
    """Return the `[[change]]` entries in those rows of a CSV file that have `value` in `column`.

    Raises:
        InputError: the file cannot be read, lacks a column, or has no row with this value.
    """
    header, rows = read_table(file)
    for name in (column, "at"):
        if name not in header:
            raise InputError(f"{file}: the column `{name}` is missing")
    for name in header:
        if name not in (column, "at", *_CHANGED):
            expected = ", ".join((column, "at", *_CHANGED))
            raise InputError(f"{file}: unknown column `{name}`; expected some of {expected}")
    found = [row for row in rows if row[column] == str(value)]
    if not found:
        raise InputError(f"{file}: no row with {column} = {value}")
    return [{name: row[name] for name in ("at", *_CHANGED) if row.get(name)} for row in found]


@lru_cache(8)
def read_table(file: str) -> tuple[Sequence[str], Sequence[dict[str, str]]]:
    """Return the column names of a CSV file, and its rows as dictionaries; cached.

    Raises:
        InputError: the file cannot be read, or is not CSV.
    """
    try:
        with Path(file).open(encoding="utf-8", newline="") as source:
            reader = csv.DictReader(source, strict=True)
            header, rows = reader.fieldnames or (), list(reader)
    except OSError as error:
        raise InputError(f"{file}: cannot read: {error.strerror}") from None
    except (ValueError, csv.Error) as error:
        raise InputError(f"{file}: not CSV: {error}") from None
    for line, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise InputError(f"{file}: row {line} has more or fewer cells than the header")
    return header, rows
