"""Tables as LaTeX for papers: no wider than a column, with the rules of booktabs, and with units.

Headings and text wrap, and repeated cells of the first columns are left empty. If a table is too
wide in 10 pt, it gets smaller; then the columns that do not fit go to a further `tabular`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, takewhile
from operator import eq

from skyhop.analysis.tables import SEPARATOR, Column, Table, shared_out
from skyhop.data.figure_files import FigureWidth
from skyhop.report.latex_text import base_letter, escaped, row_start

_NUMBER = re.compile(r"-(?=[\d.])")
"""Pattern of the hyphen of a negative number, which LaTeX writes as a longer minus."""

_ROOM_PT: Mapping[FigureWidth, float] = {"one-column": 252, "two-column": 516, "page": 516}
"""Widths of a column and of the text in IEEEtran.cls; a page is printed as wide as a text."""


@dataclass(frozen=True)
class _Size:
    """Size of a table's text, and the space on both sides of its columns."""

    command: str
    points: float
    separation_pt: float
    stretch: float
    """Width of letters relative to their size; small fonts of Computer Modern are wider."""


_SIZES = (
    _Size("", 10, 6, 1.0), _Size("\\small", 9, 4, 1.028), _Size("\\footnotesize", 8, 3, 1.063),
    _Size("\\scriptsize", 7, 2.5, 1.139),
)  # fmt: skip
"""Sizes of tables in the order of preference: the first one at which a table fits."""
_POINTS_OF_PARTS = 8
"""Largest size of a table that fits at no size, so that it has several parts."""

_TEXT_LETTERS = 8
"""Least width of a column of wrapped text in letters, unless a word is longer."""
_HEADING_LETTERS = 24
"""Width in letters from which headings of numbers wrap, even if there is room."""
_WORD_SHARE = 0.4
"""Largest share of the room for one word; longer words break at a separator."""


@dataclass(frozen=True)
class _Widths:
    """Least and full widths (pt) of a table's columns; between these, headings and text wrap."""

    least: Sequence[float]
    full: Sequence[float]


def latex_table(table: Table, title: str, width: FigureWidth = "page") -> str:
    r"""Return a table as LaTeX, which needs `\usepackage{array, booktabs, makecell}`.

    Numbers are right-aligned and written as on the page; units are below the headings.

    Args:
        table: the table.
        title: comment on the first line.
        width: place of the table; a page has the text width of two columns.
    """
    size, blocks = _layout(table, _ROOM_PT[width])
    lines = [f"% {' '.join(title.split())}"]
    if table.note:
        lines.append(f"% {table.note}")
    lines.append(r"% In the preamble: \usepackage{array, booktabs, makecell}")
    shrunk = rf"{size.command}\setlength{{\tabcolsep}}{{{size.separation_pt:g}pt}}"
    body = [
        line
        for number, widths in enumerate(blocks)
        for line in ([r"\par\medskip"] if number else []) + _tabular(table, widths, size)
    ]
    return "\n".join([*lines, *(["{" + shrunk, *body, r"\par}"] if size.command else body), ""])


def _layout(table: Table, room_pt: float) -> tuple[_Size, list[dict[int, float]]]:
    """Return the size of a table's text, and its parts: the widths (pt) of each part's columns.

    Every part has the columns that identify the rows.
    """
    keys = _key_columns(table)
    found = {
        size: list(_blocks(table, keys, _widths_pt(table, size, room_pt), size, room_pt))
        for size in _SIZES
    }
    fitting = [
        size
        for size, blocks in found.items()
        if all(_width_of(part.values(), size) <= room_pt + 0.1 for part in blocks)
    ]
    whole = [size for size in fitting if len(found[size]) == 1]
    parts = [size for size in fitting if size.points <= _POINTS_OF_PARTS]
    chosen = [*whole, *parts, _SIZES[-1]][0]
    return chosen, found[chosen]


def _width_of(columns: Collection[float], size: _Size) -> float:
    """Return the width (pt) of columns of these widths side by side."""
    return sum(columns) + 2 * size.separation_pt * (len(columns) - 1)


def _key_columns(table: Table) -> list[int]:
    """Return the indices of the first columns, of text, which identify the rows."""
    numeric = [place for place, column in enumerate(table.columns) if column.numeric]
    return list(range(numeric[0])) if numeric else []


def _blocks(
    table: Table, keys: Sequence[int], widths: _Widths, size: _Size, room_pt: float
) -> Iterator[dict[int, float]]:
    """Yield the widths (pt) of the columns of each part, which fits into the room if possible."""
    waiting = [unit for unit in _units(table) if not set(unit) & set(keys)]
    while True:
        chosen, alone = list(keys), True
        while waiting:
            wanted = [*chosen, *waiting[0]]
            if not alone and _width_of([widths.least[p] for p in wanted], size) > room_pt:
                break
            chosen, alone = wanted, False
            waiting.pop(0)
        part = {place: widths.least[place] for place in chosen}
        # Text has its full width before headings have theirs.
        for numeric in (False, True):
            places = [place for place in chosen if table.columns[place].numeric == numeric]
            left_pt = room_pt - _width_of(part.values(), size)
            # In tenths of a point, so that widths are whole numbers.
            lacking = {place: round(10 * (widths.full[place] - part[place])) for place in places}
            wider = shared_out(lacking, int(10 * left_pt))
            part |= {place: part[place] + wider[place] / 10 for place in places}
        yield part
        if not waiting:
            return


def _units(table: Table) -> Iterator[list[int]]:
    """Yield the indices of columns that stay together: those with a common heading."""
    ends = accumulate(span for _, span in table.groups)
    for (name, span), end in zip(table.groups, ends, strict=True):
        places = list(range(end - span, end))
        yield from [places] if name else [[place] for place in places]


def _widths_pt(table: Table, size: _Size, room_pt: float) -> _Widths:
    least, full = [], []
    for place, column in enumerate(table.columns):
        cells = [row[place] for row in table.rows]
        widest = max((_width_pt(cell, size) for cell in cells), default=0.0)
        heading = [*column.title.split(), *_unit(column).split(), ""]
        shortest = widest
        if not column.numeric:
            words = [word for cell in cells for word in _words(cell, size, room_pt)]
            enough = max(_width_pt(word, size) for word in [*words, "n" * _TEXT_LETTERS])
            shortest = min(widest, enough)
        least.append(max(shortest, *(_width_pt(word, size) for word in heading)))
        heading_pt = max(_width_pt(text, size) for text in (column.title, _unit(column)))
        if column.numeric:
            heading_pt = min(heading_pt, _width_pt("n" * _HEADING_LETTERS, size))
        full.append(max(widest, heading_pt, least[-1]))
    return _Widths(least, full)


def _words(text: str, size: _Size, room_pt: float) -> Iterator[str]:
    """Yield what stays on one line: words, and the parts of very long ones."""
    for word in text.split():
        is_long = _width_pt(word, size) > _WORD_SHARE * room_pt
        yield from SEPARATOR.split(word) if is_long else [word]


@lru_cache(maxsize=10_000)
def _width_pt(text: str, size: _Size) -> float:
    """Return the width of text in Computer Modern in points."""
    from matplotlib import get_data_path
    from matplotlib.font_manager import get_font

    font = get_font(f"{get_data_path()}/fonts/ttf/cmr10.ttf")
    # At a large size, because the renderer rounds widths to pixels.
    font.set_size(_MEASURED_PT, 72)
    letters = map(base_letter, " ".join(text.split()))
    font.set_text("".join(_SIMILAR.get(c, c if c.isascii() else _OTHER) for c in letters))
    width_pt = float(font.get_width_height()[0]) / 64 / _MEASURED_PT * size.points * size.stretch
    return width_pt + _MARGIN_LETTERS * size.points


_MEASURED_PT = 200.0
_MARGIN_LETTERS = 0.05
"""Addition to the measured width of a text, as a share of the font size."""
_SIMILAR = {"\N{EN DASH}": "n", " ": "-", "_": "n", "\N{DEGREE SIGN}": "n",
            "\N{RIGHTWARDS ARROW}": "M", "\N{HORIZONTAL ELLIPSIS}": "M", "\N{EM DASH}": "M",
            "\\": "n", "{": "n", "}": "n", "|": "i", "^": "n", "~": "n"}  # fmt: skip
"""Letter of ASCII that is about as wide in Computer Modern, for characters that the font lacks."""
_OTHER = "+"
"""Letter as wide as most signs, such as ±."""


def _tabular(table: Table, widths: Mapping[int, float], size: _Size) -> list[str]:
    wrapped = {
        place
        for place, width_pt in widths.items()
        if not table.columns[place].numeric
        and any(_width_pt(row[place], size) > width_pt + 0.1 for row in table.rows)
    }
    sides = [
        rf">{{\raggedright\arraybackslash}}p{{{width_pt:.1f}pt}}"
        if place in wrapped
        else _side(table.columns[place])
        for place, width_pt in widths.items()
    ]
    return [
        rf"\begin{{tabular}}{{@{{}}{''.join(sides)}@{{}}}}",
        r"\toprule",
        *_groups(table, widths, size),
        *_headings(table, widths, size),
        r"\midrule",
        *_rows(table, widths, wrapped, size),
        r"\bottomrule",
        r"\end{tabular}",
    ]


def _rows(
    table: Table, widths: Mapping[int, float], wrapped: Collection[int], size: _Size
) -> Iterator[str]:
    """Yield the rows; a cell of the first columns is empty if it repeats the cell above it."""
    keys = _key_columns(table)
    before: list[str] = []
    for row in table.rows:
        names = [row[place] for place in keys]
        alike = len(list(takewhile(bool, map(eq, names, before))))
        if before and not alike and (len(keys) > 1 or wrapped):
            yield r"\addlinespace"
        cells = {
            place: _breakable(row[place], width_pt, size)
            if place in wrapped
            else _cell(table.columns[place], row[place])
            for place, width_pt in widths.items()
        }
        yield _row([*(cells | dict.fromkeys(keys[:alike], "")).values()])
        before = names


def _breakable(text: str, width_pt: float, size: _Size) -> str:
    """Return text for a column in which words wider than the column break at separators."""
    words = (
        SEPARATOR.split(word) if _width_pt(word, size) > width_pt + 0.1 else [word]
        for word in text.split()
    )
    return " ".join(r"\allowbreak{}".join(map(escaped, parts)) for parts in words)


def _headings(table: Table, widths: Mapping[int, float], size: _Size) -> Iterator[str]:
    """Yield the row of titles and, if there are any, the row of units."""
    columns = [(table.columns[place], width_pt) for place, width_pt in widths.items()]
    yield _row([_lines(c.title, width_pt, size, f"b{_side(c)}") for c, width_pt in columns])
    if any(column.unit for column, _ in columns):
        yield _row([_lines(_unit(c), width_pt, size, f"t{_side(c)}") for c, width_pt in columns])


def _lines(text: str, width_pt: float, size: _Size, aligned: str) -> str:
    """Return a heading, in several lines if it is wider than its column."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and _width_pt(longer, size) > width_pt + 0.1:
            lines.append(word)
        else:
            lines[-1] = longer
    if len(lines) == 1:
        return escaped(lines[0])
    text = r" \\ ".join(row_start(escaped(line)) for line in lines)
    return rf"\makecell[{aligned}]{{{text}}}"


def _groups(table: Table, widths: Mapping[int, float], size: _Size) -> list[str]:
    """Return the row of common headings above the columns' headings, with a rule below each."""
    cells, rules, first, column = [], [], 0, 1
    for name, span in table.groups:
        shown = [place for place in range(first, first + span) if place in widths]
        first += span
        if not shown:
            continue
        if name:
            text = _lines(name, _width_of([widths[place] for place in shown], size), size, "b")
            cells.append(rf"\multicolumn{{{len(shown)}}}{{c}}{{{text}}}")
            rules.append(rf"\cmidrule(lr){{{column}-{column + len(shown) - 1}}}")
        else:
            cells += [""] * len(shown)
        column += len(shown)
    return [_row(cells), "".join(rules)] if rules else []


def _side(column: Column) -> str:
    return "r" if column.numeric else "l"


def _unit(column: Column) -> str:
    return f"({column.unit})" if column.unit else ""


def _cell(column: Column, text: str) -> str:
    cell = escaped(text)
    return _NUMBER.sub("$-$", cell) if column.numeric else cell


def _row(cells: list[str]) -> str:
    return row_start(" & ".join(cells)) + r" \\"
