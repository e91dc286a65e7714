"""Tables as LaTeX: a `tabular` with booktabs' rules, units in its heads, to be put into a paper."""

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
"""What LaTeX takes for something else, or fonts lack."""

_NUMBER = re.compile(r"-(?=[\d.])")
"""The hyphen of a negative number, where it is one: LaTeX's minus is longer."""


def latex_table(table: Table, title: str) -> str:
    r"""Return a table as LaTeX, which needs `\usepackage{booktabs}`.

    Numbers stand to the right, as written on the page; units stand below the heads.
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
    """Return text as LaTeX that prints it."""
    return "".join(_SPECIAL.get(letter, letter) for letter in text)


def _groups(table: Table) -> list[str]:
    """Return the headings above the headings, with a rule below each."""
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
    # A bracket at a row's begin would be taken for the row end's argument.
    cells = [f"{{}}{cell}" if cell.startswith("[") else cell for cell in cells]
    return " & ".join(cells) + r" \\"
