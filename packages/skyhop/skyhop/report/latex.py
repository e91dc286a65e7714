"""Tables as LaTeX for papers: as wide as a column, with the rules of booktabs, and with units.

Headings and text wrap, and repeated cells of the first columns are left empty. If a table is too
wide in 10 pt, it gets smaller; then the columns that do not fit go to a further `tabular`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, takewhile
from operator import eq

from skyhop.analysis.tables import Column, Table, shared_out
from skyhop.data.figure_files import FigureWidth
from skyhop.figures.style import LAYOUTS

_SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''",
    "`": r"\`{}",
    "\N{EN DASH}": "--", "\N{EM DASH}": "---", "\N{HORIZONTAL ELLIPSIS}": r"\ldots{}",
    "\N{MULTIPLICATION SIGN}": r"$\times$", "\N{PLUS-MINUS SIGN}": r"$\pm$",
    "\N{MICRO SIGN}": r"$\mu$", "\N{GREEK SMALL LETTER MU}": r"$\mu$",
    "\N{DEGREE SIGN}": r"$^\circ$", "\N{MINUS SIGN}": "$-$", "\N{ALMOST EQUAL TO}": r"$\approx$",
    "\N{LESS-THAN OR EQUAL TO}": r"$\leq$", "\N{GREATER-THAN OR EQUAL TO}": r"$\geq$",
    "\N{RIGHTWARDS ARROW}": r"$\rightarrow$", "\N{SUPERSCRIPT TWO}": "$^2$",
}  # fmt: skip
"""LaTeX for characters that are special in LaTeX or missing in its fonts."""

_NUMBER = re.compile(r"-(?=[\d.])")
"""Pattern of the hyphen of a negative number, which LaTeX writes as a longer minus."""


_PT_PER_IN = 72.27


@dataclass(frozen=True)
class _Size:
    """Size of a table's text, and the space on both sides of its columns."""

    command: str
    points: float
    separation_pt: float


_SIZES = (
    _Size("", 10, 6), _Size("\\small", 9, 4), _Size("\\footnotesize", 8, 3),
    _Size("\\scriptsize", 7, 2.5),
)  # fmt: skip
"""Sizes of tables in the order of preference: the first one at which a table fits."""
_SIZE_OF_PARTS = _SIZES[2]
"""Size of a table that fits at no size, so that it has several parts."""

_TEXT_LETTERS = 8
"""Least width of a column of wrapped text in letters, unless a word is longer."""


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
    room_pt = LAYOUTS["two-column" if width == "page" else width].width_in * _PT_PER_IN
    size, blocks = _layout(table, room_pt)
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


def escaped(text: str) -> str:
    """Return LaTeX code that prints the text."""
    return "".join(_SPECIAL.get(letter, letter) for letter in text)


def _layout(table: Table, room_pt: float) -> tuple[_Size, list[dict[int, float]]]:
    """Return the size of a table's text, and its parts: the widths (pt) of each part's columns.

    Every part has the columns that identify the rows.
    """
    keys = _key_columns(table)
    found = {
        size: list(_blocks(table, keys, _widths_pt(table, size), size, room_pt)) for size in _SIZES
    }
    fits = next((size for size, blocks in found.items() if len(blocks) == 1), _SIZE_OF_PARTS)
    return fits, found[fits]


def _key_columns(table: Table) -> list[int]:
    """Return the indices of the first columns, of text, which identify the rows."""
    numeric = [place for place, column in enumerate(table.columns) if column.numeric]
    return list(range(numeric[0])) if numeric else []


def _blocks(
    table: Table, keys: Sequence[int], widths: _Widths, size: _Size, room_pt: float
) -> Iterator[dict[int, float]]:
    """Yield the widths (pt) of the columns of each part, which fits into the room if possible."""
    waiting = [unit for unit in _units(table) if not set(unit) & set(keys)]
    gap_pt = 2 * size.separation_pt
    while True:
        chosen, alone = list(keys), True
        while waiting:
            wanted = [*chosen, *waiting[0]]
            if not alone and sum(widths.least[p] + gap_pt for p in wanted) > room_pt:
                break
            chosen, alone = wanted, False
            waiting.pop(0)
        left_pt = room_pt - sum(widths.least[place] + gap_pt for place in chosen)
        # In tenths of a point, so that widths are whole numbers.
        lacking = {p: round(10 * (widths.full[p] - widths.least[p])) for p in chosen}
        wider = shared_out(lacking, int(10 * left_pt))
        yield {place: widths.least[place] + wider[place] / 10 for place in chosen}
        if not waiting:
            return


def _units(table: Table) -> Iterator[list[int]]:
    """Yield the indices of columns that stay together: those with a common heading."""
    ends = accumulate(span for _, span in table.groups)
    for (name, span), end in zip(table.groups, ends, strict=True):
        places = list(range(end - span, end))
        yield from [places] if name else [[place] for place in places]


def _widths_pt(table: Table, size: _Size) -> _Widths:
    least, full = [], []
    for place, column in enumerate(table.columns):
        cells = [row[place] for row in table.rows]
        widest = max((_width_pt(cell, size) for cell in cells), default=0.0)
        heading = max(_width_pt(word, size) for word in [*column.title.split(), _unit(column), ""])
        if not column.numeric:
            words = max(_width_pt(word, size) for cell in ["", *cells] for word in cell.split(" "))
            wrapped = min(widest, max(words, _width_pt("n" * _TEXT_LETTERS, size)))
        least.append(max(heading, widest if column.numeric else wrapped))
        full.append(max(widest, _width_pt(column.title, size), least[-1]))
    return _Widths(least, full)


@lru_cache(maxsize=10_000)
def _width_pt(text: str, size: _Size) -> float:
    """Return the width of text in Computer Modern in points."""
    from matplotlib import get_data_path
    from matplotlib.font_manager import get_font

    font = get_font(f"{get_data_path()}/fonts/ttf/cmr10.ttf")
    # At a large size, because the renderer rounds widths to pixels.
    font.set_size(_MEASURED_PT, 72)
    font.set_text("".join(_SIMILAR.get(c, c if c.isascii() else "n") for c in text))
    width_pt = float(font.get_width_height()[0]) / 64 / _MEASURED_PT * size.points
    return width_pt + _MARGIN_LETTERS * size.points


_MEASURED_PT = 200.0
_MARGIN_LETTERS = 0.05
"""Addition to the measured width of a text, as a share of the font size."""
_SIMILAR = {"\N{PLUS-MINUS SIGN}": "+", "\N{EN DASH}": "n", "\N{EM DASH}": "M", " ": "i", "_": "n",
            "\N{RIGHTWARDS ARROW}": "M", "\N{HORIZONTAL ELLIPSIS}": "M", "\\": "n",
            "{": "n", "}": "n", "<": "+", ">": "+", "|": "i", "^": "n", "~": "n"}  # fmt: skip
"""Letter of ASCII that is about as wide in Computer Modern, for characters that the font lacks."""


def _tabular(table: Table, widths: Mapping[int, float], size: _Size) -> list[str]:
    columns = [table.columns[place] for place in widths]
    wraps = {
        place: not table.columns[place].numeric
        and any(_width_pt(row[place], size) > width + 0.1 for row in table.rows)
        for place, width in widths.items()
    }
    sides = "".join(
        rf">{{\raggedright\arraybackslash}}p{{{width:.1f}pt}}" if wraps[place]
        else "r" if table.columns[place].numeric else "l"
        for place, width in widths.items()
    )  # fmt: skip
    headings = [
        _heading(column, width, size)
        for column, width in zip(columns, widths.values(), strict=True)
    ]
    heads = [_row(headings)]
    if any(column.unit for column in columns):
        heads.append(_row([escaped(_unit(column)) for column in columns]))
    return [
        rf"\begin{{tabular}}{{@{{}}{sides}@{{}}}}",
        r"\toprule",
        *_groups(table, widths, size),
        *heads,
        r"\midrule",
        *_rows(table, list(widths)),
        r"\bottomrule",
        r"\end{tabular}",
    ]


def _rows(table: Table, places: Sequence[int]) -> Iterator[str]:
    """Yield the rows; a cell of the first columns is empty if it repeats the cell above it."""
    keys = _key_columns(table)
    before: list[str] = []
    for row in table.rows:
        names = [row[place] for place in keys]
        alike = len(list(takewhile(bool, map(eq, names, before))))
        if before and not alike and len(keys) > 1:
            yield r"\addlinespace"
        cells = {place: _cell(table.columns[place], row[place]) for place in places}
        yield _row([*(cells | dict.fromkeys(keys[:alike], "")).values()])
        before = names


def _heading(column: Column, width_pt: float, size: _Size) -> str:
    """Return a column's title, in several lines if it is wider than the column."""
    lines = [""]
    for word in column.title.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and _width_pt(longer, size) > width_pt + 0.1:
            lines.append(word)
        else:
            lines[-1] = longer
    if len(lines) == 1:
        return escaped(lines[0])
    side = "r" if column.numeric else "l"
    text = r" \\ ".join(map(escaped, lines))
    return rf"\makecell[b{side}]{{{text}}}"


def _groups(table: Table, widths: Mapping[int, float], size: _Size) -> list[str]:
    """Return the row of common headings above the columns' headings, with a rule below each."""
    cells, rules, first, column = [], [], 0, 1
    for name, span in table.groups:
        shown = [place for place in range(first, first + span) if place in widths]
        first += span
        if not shown:
            continue
        if name:
            gaps_pt = 2 * size.separation_pt * (len(shown) - 1)
            title = Column("", name, "", str)
            text = _heading(title, sum(widths[place] for place in shown) + gaps_pt, size)
            text = text.replace(r"\makecell[br]", r"\makecell[b]")
            cells.append(rf"\multicolumn{{{len(shown)}}}{{c}}{{{text}}}")
            rules.append(rf"\cmidrule(lr){{{column}-{column + len(shown) - 1}}}")
        else:
            cells += [""] * len(shown)
        column += len(shown)
    return [_row(cells), "".join(rules)] if rules else []


def _unit(column: Column) -> str:
    return f"({column.unit})" if column.unit else ""


def _cell(column: Column, text: str) -> str:
    cell = escaped(text)
    return _NUMBER.sub("$-$", cell) if column.numeric else cell


def _row(cells: list[str]) -> str:
    # LaTeX would take a bracket at the start of a row for an argument of the previous row's end.
    cells = [f"{{}}{cell}" if cell.startswith("[") else cell for cell in cells]
    return " & ".join(cells) + r" \\"
