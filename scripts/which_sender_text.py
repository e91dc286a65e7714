"""Numbers, intervals and Markdown of the page docs/results/which-sender.md."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from skyhop.analysis.statistics import Interval

WIDTH = 120


def number(value: float) -> str:
    """Return a number as text, with three digits or one decimal."""
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"  # noqa: PLR2004


def signed(value: float) -> str:
    """Return a number as text, with its sign."""
    return ("+" if value > 0 else "\N{MINUS SIGN}" if value < 0 else "") + number(abs(value))


def bounds(interval: Interval, *, plus: bool = False) -> str:
    """Return an interval in brackets; `plus` adds signs, for intervals of differences."""
    if interval.low is None or interval.high is None:
        return "[no interval]"
    write = signed if plus else number
    return f"[{write(interval.low)}, {write(interval.high)}]"


def strong(text: str, is_strong: bool = True) -> str:
    """Return a text in bold if `is_strong`."""
    return f"**{text}**" if is_strong else text


def item(text: str, below: Sequence[str] = ()) -> str:
    """Return a list item with a nested list below it; empty nested items are left out."""
    lines = [wrapped(f"- {text}")]
    # Python's Markdown treats items with less than four spaces as part of the same list.
    lines += [textwrap.indent(wrapped(f"- {own}", WIDTH - 4), "    ") for own in below if own]
    return "\n".join(lines)


def wrapped(text: str, width: int = WIDTH) -> str:
    """Wrap paragraphs and list items to a line width."""
    return "\n\n".join(
        textwrap.fill(
            " ".join(part.split()),
            width,
            subsequent_indent="  " if part.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for part in text.strip("\n").split("\n\n")
    )
