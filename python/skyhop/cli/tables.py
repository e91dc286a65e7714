"""Tables on a terminal: as many columns as fit, and none of them cut."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from skyhop.analysis.tables import Table
from skyhop.cli.terminal import shown_text

_GAP = 2
"""Blanks between columns."""
_FOLDED = 16
"""Text is folded to so many characters at the least."""


@dataclass(frozen=True)
class Cells:
    """One column and what stands in it."""

    title: str
    unit: str
    texts: Sequence[str]
    numeric: bool = True

    @property
    def full(self) -> int:
        """The width at which nothing is folded."""
        return max(self.heading, *(_width(text) for text in self.texts), 0)

    @property
    def least(self) -> int:
        """The least width that is still easy to read: figures are never folded."""
        return self.full if self.numeric else max(self.heading, min(self.full, _FOLDED))

    @property
    def heading(self) -> int:
        """What the heading needs, a word per line if need be."""
        return max(_width(word) for word in [*self.title.split(), self.unit, ""])


def cells_of(table: Table) -> list[Cells]:
    """Return a written table's columns."""
    return [
        Cells(column.title, column.unit, [row[place] for row in table.rows], column.numeric)
        for place, column in enumerate(table.columns)
    ]


def print_table(
    columns: Sequence[Cells],
    *,
    importance: Sequence[int] | None = None,
    title: str = "",
    more: str = "--json has them",
) -> None:
    """Print a table to standard output, at the terminal's width; a pipe gets all of it.

    Args:
        columns: from left to right, all with as many texts.
        importance: the places of columns, those first that are left out last; from left to right
            where not given.
        title: a line above.
        more: where to find what was left out.
    """
    columns = [_plain(column) for column in columns]
    title = shown_text(title)
    width = terminal_width()
    shown = fitting(columns, importance or range(len(columns)), width)
    if title:
        print(title)
    _print(columns, shown)
    left_out = [c.title for place, c in enumerate(columns) if place not in shown]
    if left_out:
        print(f"left out at {width} columns: {', '.join(left_out)}; {more}")


def _plain(cells: Cells) -> Cells:
    """Return a column as a terminal can show it: names come from files."""
    title, texts = shown_text(cells.title), [shown_text(text) for text in cells.texts]
    return Cells(title, cells.unit, texts, cells.numeric)


def terminal_width() -> int | None:
    """Return the width of the terminal that standard output is; None where it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fitting(
    columns: Sequence[Cells], importance: Sequence[int], width: int | None
) -> dict[int, int]:
    """Return the places of those columns that fit, from left to right, and how wide each is."""
    if width is None:
        return {place: cells.full for place, cells in enumerate(columns)}
    chosen: dict[int, int] = {}
    left = width + _GAP
    for place in importance:
        least = columns[place].least + _GAP
        if least <= left or not chosen:
            chosen[place] = columns[place].least
            left -= least
    lacking = {place: columns[place].full - least for place, least in chosen.items()}
    for place in sorted(chosen):
        # Text shares what is left by what each lacks.
        wanting = sum(lacking.values())
        wider = lacking.pop(place) * min(max(left, 0), wanting) // max(wanting, 1)
        chosen[place] += wider
        left -= wider
    return dict(sorted(chosen.items()))


def _print(columns: Sequence[Cells], widths: dict[int, int]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as Printed
    from rich.text import Text

    table = Printed(
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, _GAP // 2),
        collapse_padding=True,
        header_style="bold",
    )
    for place, width in widths.items():
        cells = columns[place]
        justify: Literal["left", "right"] = "right" if cells.numeric else "left"
        heading = Text("\n".join(_heading(cells, width)))
        table.add_column(heading, justify=justify, width=width, overflow="fold", vertical="top")
    for row in zip(*(columns[place].texts for place in widths), strict=True):
        # As Text: what comes from files is no markup.
        table.add_row(*(Text(text) for text in row))
    total = sum(widths.values()) + _GAP * (len(widths) - 1)
    Console(width=max(total, 1), highlight=False, emoji=False).print(table)


def _heading(cells: Cells, width: int) -> Iterator[str]:
    line = ""
    for word in cells.title.split():
        if line and _width(f"{line} {word}") > width:
            yield line
            line = word
        else:
            line = f"{line} {word}".strip()
    if line:
        yield line
    if cells.unit:
        yield cells.unit


def _width(text: str) -> int:
    from rich.cells import cell_len

    return max((cell_len(line) for line in text.split("\n")), default=0)


__all__ = ["Cells", "cells_of", "fitting", "print_table", "terminal_width"]
