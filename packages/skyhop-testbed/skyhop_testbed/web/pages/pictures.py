"""Responses with figures, which a subprocess draws."""

from __future__ import annotations

from typing import Any

from markupsafe import escape
from starlette.responses import Response

from skyhop.errors import InputError, RunError
from skyhop_testbed.web.page_request import PageRequest

_LINE = 62
_NARROW = "one-column"


def picture(request: PageRequest, kind: str, **arguments: Any) -> Response:
    """Return a figure as PNG, or an SVG with the reason if it cannot be drawn."""
    width = _NARROW if request.query("width") == "narrow" else "page"
    try:
        made = request.state.drawings.get(kind, width=width, **arguments)
    except (InputError, RunError) as error:
        return Response(_message_svg(str(error)), media_type="image/svg+xml")
    return Response(made.read_bytes(), media_type="image/png")


def _message_svg(text: str) -> str:
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
        'font-family="sans-serif" font-size="15" fill="#5b6470">'
        # The ground covers the word "drawing" behind the picture.
        f'<rect width="100%" height="100%" fill="#fff"/>{rows}</svg>'
    )
