"""Pages of results: templates, Markdown tables, wrapped lines, and parts of existing pages."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import jinja2

from skyhop.errors import RunError
from validation import ROOT

RESULTS = ROOT / "docs" / "results"
WIDTH = 120
"""Upper limit on the length of lines of a page, outside tables, in characters."""


class MissingError(RunError):
    """A program that a section needs is missing here; the message says what to install."""


@cache
def templates() -> jinja2.Environment:
    """Return the environment of the templates, which have filters that break lines."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"wrapped": wrapped, "paragraphs": paragraphs}
    return environment


def render(template: str, **values: object) -> str:
    """Return the text of a template, which `templates/NAME.md.jinja` holds."""
    return templates().get_template(f"{template}.md.jinja").render(values)


def wrapped(text: str) -> str:
    """Break the long lines of Markdown outside tables; list items continue under their text."""
    lines = text.split("\n")
    return "\n".join(
        filled(line) if len(line) > WIDTH and line[0] not in "|#<" else line for line in lines
    )


def filled(text: str, width: int = WIDTH) -> str:
    """Break a paragraph or list item at spaces, into lines that are as long as they may be."""
    return textwrap.fill(
        " ".join(text.split()),
        width,
        subsequent_indent="  " if text.startswith("- ") else "",
        break_long_words=False,
        break_on_hyphens=False,
    )


def paragraphs(text: str) -> str:
    """Break the lines of paragraphs again, whatever lines they have; tables stay."""
    blocks = text.strip("\n").split("\n\n")
    return "\n\n".join(each if each.startswith("|") else filled(each) for each in blocks) + "\n"


def row(*cells: object) -> str:
    """Return a row of a table; an unknown value, `None`, is a dash."""
    texts = ["-" if cell is None else str(cell) for cell in cells]
    return "|" + "".join(f" {text} |" if text else " |" for text in texts)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as Markdown."""
    return "\n".join([row(*head), f"|{'---|' * len(head)}", *(row(*cells) for cells in rows)])


def table_of(rows: Sequence[Mapping[str, object]]) -> str:
    """Return a table of rows with the same keys, which are its headings."""
    return table([*rows[0]], [[*one.values()] for one in rows])


def percent(part: float) -> str:
    """Format a relative difference in per cent."""
    return f"{100 * part:+.1f} %"


def yes_or_no(is_within: bool) -> str:
    """Return the cell of a column that says whether a row is within its tolerance."""
    return "yes" if is_within else "**no**"


def with_part(page: str, name: str, text: str) -> str:
    """Return a page in which a text replaces what stands between the comments NAME and /NAME."""
    mark = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    page, count = mark.subn(lambda found: f"{found[1]}\n{text}\n\n{found[2]}", page)
    if count != 1:
        raise RunError(f"the page has no mark <!-- {name} -->")
    return page
