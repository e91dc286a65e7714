"""Tables as LaTeX for papers: a `tabular` with the rules of booktabs, and units in its headings."""

from __future__ import annotations

import re

from skyhop.analysis.tables import Column, Table

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


def latex_table(table: Table, title: str) -> str:
    r"""Return a table as LaTeX, which needs `\usepackage{booktabs}`.

    Numbers are right-aligned and written as on the page; units are below the headings.
    """
    sides = "".join("r" if column.numeric else "l" for column in table.columns)
    heads = [_row([escaped(column.title) for column in table.columns])]
    if any(column.unit for column in table.columns):
        heads.append(_row([escaped(f"({c.unit})" if c.unit else "") for c in table.columns]))
    rows = [
        _row([_cell(column, text) for column, text in zip(table.columns, row, strict=True)])
        for row in table.rows
    ]
    groups = _groups(table) if any(name for name, _ in table.groups) else []
    return "\n".join(
        [
            f"% {' '.join(title.split())}",
            r"% In the preamble: \usepackage{booktabs}",
            rf"\begin{{tabular}}{{{sides}}}",
            r"\toprule",
            *groups,
            *heads,
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def escaped(text: str) -> str:
    """Return LaTeX code that prints the text."""
    return "".join(_SPECIAL.get(letter, letter) for letter in text)


def _groups(table: Table) -> list[str]:
    """Return the row of common headings above the columns' headings, with a rule below each."""
    cells, rules, column = [], [], 1
    for name, span in table.groups:
        if name:
            cells.append(rf"\multicolumn{{{span}}}{{c}}{{{escaped(name)}}}")
            rules.append(rf"\cmidrule(lr){{{column}-{column + span - 1}}}")
        else:
            cells += [""] * span
        column += span
    return [_row(cells), "".join(rules)]


def _cell(column: Column, text: str) -> str:
    cell = escaped(text)
    return _NUMBER.sub("$-$", cell) if column.numeric else cell


def _row(cells: list[str]) -> str:
    # LaTeX would take a bracket at the start of a row for an argument of the previous row's end.
    cells = [f"{{}}{cell}" if cell.startswith("[") else cell for cell in cells]
    return " & ".join(cells) + r" \\"
