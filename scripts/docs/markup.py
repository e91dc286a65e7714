"""Markdown for the generated pages: cells, tables, and whole pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

PLACEHOLDER = re.compile(r"<(?=[A-Za-z/])")


def cell(text: object) -> str:
    """Return a text as a table cell: one line, with bars and HTML tags escaped."""
    one_line = " ".join(str(text).split())
    return prose(one_line).replace("|", "\\|")


def prose(text: str) -> str:
    """Return a text that is escaped so that no part is read as HTML."""
    return PLACEHOLDER.sub("&lt;", text)


def code(text: object) -> str:
    """Return a text as inline code; an empty text stays empty."""
    return f"`{text}`" if str(text) else ""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; cells are Markdown, so callers format code and escape text."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def sentence(text: str) -> str:
    """Return a text with a capital letter at its beginning and a full stop at its end."""
    text = " ".join(text.split())
    if text[:1].islower() and not re.match(r"[a-z]+[_.=(]", text):
        text = text[0].upper() + text[1:]
    return text if not text or text[-1] in ".:!?" else text + "."


def page(title: str, opening: str, *parts: str) -> str:
    """Return a page: its title, the sentence that says for whom it is, and its parts."""
    return "\n\n".join([f"# {title}", opening, *parts]) + "\n"
