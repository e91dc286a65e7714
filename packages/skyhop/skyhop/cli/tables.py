"""Tables on standard output: text wraps, and columns that do not fit go to a further table."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Literal

from skyhop.analysis.tables import MISSING, SEPARATOR, Table, shared_out
from skyhop.cli.terminal import shown_text

PIPE_WIDTH = 80
"""Characters per line if standard output is not a terminal and COLUMNS is not set."""

_GAP = 2
"""Number of blanks between columns."""

_NARROWEST_TEXT = 16
"""Least width in characters of a column of wrapped text, unless a word is longer."""

_WORD_SHARE = 0.4
"""Largest share of the line for one word; longer words are broken, at a separator if possible."""


@dataclass(frozen=True)
class Cells:
    """Heading and cells (as text) of one column."""

    title: str
    unit: str
    texts: Sequence[str]
    numeric: bool = True

    @property
    def full(self) -> int:
        """Width in characters at which no cell wraps."""
        return max(self.heading, *(_width(text) for text in self.texts), 0)

    @property
    def heading(self) -> int:
        """Width in characters of the longest word of the heading, which may wrap at each word."""
        return max(_width(word) for word in [*self.title.split(), self.unit, ""])

    def least(self, width: int) -> int:
        """Return the least readable width (characters) in a line of `width`; numbers never wrap."""
        if self.numeric:
            return self.full
        words = (_width(word) for text in self.texts for word in text.split())
        longest_word = min(max(words, default=0), int(_WORD_SHARE * width))
        return max(self.heading, min(self.full, _NARROWEST_TEXT), longest_word)


def cells_of(table: Table) -> list[Cells]:
    """Return the columns of a table, whose cells are text already."""
    return [
        Cells(column.title, column.unit, [row[place] for row in table.rows], column.numeric)
        for place, column in enumerate(table.columns)
    ]


def print_table(
    columns: Sequence[Cells],
    *,
    importance: Sequence[int] | None = None,
    keys: Sequence[int] = (0,),
    title: str = "",
) -> None:
    """Print a table to standard output, as wide as the terminal.

    Columns that do not fit into the line form a further table below, which repeats the `keys`
    columns.

    Args:
        columns: columns from left to right, all with the same number of cells.
        importance: indices of columns in descending importance: columns in front go to the first
            table; by default from left to right.
        keys: indices of the columns that identify the rows.
        title: line above the table.
    """
    columns = [_plain(column) for column in columns]
    title = shown_text(title)
    if title:
        print(title)
    order = importance or range(len(columns))
    for number, widths in enumerate(blocks(columns, order, keys, terminal_width())):
        rows = list(zip(*(columns[place].texts for place in widths), strict=True))
        if number:
            # Leave out rows that have no value in any column of the further table.
            values = [place not in keys for place in widths]
            rows = [row for row in rows if set(compress(row, values)) - {MISSING, ""}]
            if not rows:
                continue
            print()
        _print(columns, widths, rows)


def print_wrapped(line: str) -> None:
    """Print a line of text, wrapped between words at the terminal's width and then indented."""
    print(
        textwrap.fill(
            shown_text(line), terminal_width(), subsequent_indent="  ",
            break_long_words=False, break_on_hyphens=False,
        )
    )  # fmt: skip


def terminal_width() -> int:
    """Return the characters per line: of COLUMNS, else of the terminal, else `PIPE_WIDTH`."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isdecimal() and int(given) > 0 else PIPE_WIDTH


def blocks(
    columns: Sequence[Cells], importance: Iterable[int], keys: Sequence[int], width: int
) -> Iterator[dict[int, int]]:
    """Yield tables of at most `width` characters that together hold every column.

    A table maps the indices of its columns, from left to right, to their widths. Every table begins
    with the columns `keys`. A table is wider only if `keys` and one more column do not fit.
    """
    keys = [place for place in keys if place < len(columns)]
    waiting = [place for place in importance if place not in keys]
    while True:
        chosen = {place: columns[place].least(width) for place in keys}
        left = width + _GAP - sum(least + _GAP for least in chosen.values())
        alone = True
        for place in list(waiting):
            least = columns[place].least(width) + _GAP
            if least <= left or alone:
                chosen[place] = least - _GAP
                left -= least
                waiting.remove(place)
                alone = False
        yield _widened(columns, chosen, left)
        if not waiting:
            return


def _widened(columns: Sequence[Cells], chosen: dict[int, int], left: int) -> dict[int, int]:
    """Distribute the `left` characters among columns whose text wraps, by the width they lack."""
    wider = shared_out(
        {place: columns[place].full - least for place, least in chosen.items()}, left
    )
    return {place: chosen[place] + wider[place] for place in sorted(chosen)}


def _plain(cells: Cells) -> Cells:
    """Return a column whose texts are safe to print; its names may come from damaged files."""
    title, texts = shown_text(cells.title), [shown_text(text) for text in cells.texts]
    return Cells(title, cells.unit, texts, cells.numeric)


def _print(columns: Sequence[Cells], widths: dict[int, int], rows: Sequence[Sequence[str]]) -> None:
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
    for row in rows:
        # As Text, so that text from files is not taken for markup.
        cells_of_row = zip(row, widths.values(), strict=True)
        table.add_row(*(Text(_broken(text, width)) for text, width in cells_of_row))
    total = sum(widths.values()) + _GAP * (len(widths) - 1)
    Console(width=max(total, 1), highlight=False, emoji=False).print(table)


def _broken(text: str, width: int) -> str:
    """Break words longer than `width`, if possible after a separator such as a hyphen."""
    if _width(text) <= width:
        return text
    return " ".join(_broken_word(word, width) for word in text.split(" "))


def _broken_word(word: str, width: int) -> str:
    if _width(word) <= width:
        return word
    lines = [""]
    for part in SEPARATOR.split(word):
        if lines[-1] and _width(lines[-1] + part) > width:
            lines.append(part)
        else:
            lines[-1] += part
    return "\n".join(lines)


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


__all__ = [
    "PIPE_WIDTH",
    "Cells",
    "blocks",
    "cells_of",
    "print_table",
    "print_wrapped",
    "terminal_width",
]
