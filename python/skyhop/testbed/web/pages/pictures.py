"""Figures that a process of its own draws, as pictures of a page."""

from __future__ import annotations

from typing import Any

from markupsafe import escape
from starlette.responses import Response

from skyhop.errors import InputError, RunError
from skyhop.testbed.web.ask import Ask

_LINE = 62
_NARROW = "one-column"


def picture(ask: Ask, kind: str, **asked: Any) -> Response:
    """Return a figure; where there is none, a picture that says why."""
    width = _NARROW if ask.query("width") == "narrow" else "page"
    try:
        made = ask.rooms.drawings.made(kind, width=width, **asked)
    except (InputError, RunError) as error:
        return Response(_said(str(error)), media_type="image/svg+xml")
    return Response(made.read_bytes(), media_type="image/png")


def _said(text: str) -> str:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) > _LINE:
            lines.append("")
        lines[-1] += f" {word}"
    rows = "".join(
        f'<text x="16" y="{30 + 22 * number}">{escape(line.strip())}</text>'
        for number, line in enumerate(lines[:8])
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 520 {24 + 22 * min(len(lines), 8)}" '
        f'font-family="sans-serif" font-size="15" fill="#5b6470">{rows}</svg>'
    )
