"""Pages without pictures: drawing them takes most of the time of a report."""

from __future__ import annotations

from typing import Any

import pytest

from skyhop.data.figure_files import FigureWidth


def leave_blank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every figure of a page its files, captions and view, and nothing that is drawn."""
    from skyhop.figures.style import Sheet
    from skyhop.report import page, parts, study

    drawn_for = parts.drawn_for

    def blank(width: FigureWidth) -> Sheet:
        sheet = Sheet(0.5, width)
        # There is nothing to lay out.
        sheet.set_layout_engine("none")
        return sheet

    def blank_for(
        name: str, caption: str, _draw: object, *rest: Any, **options: Any
    ) -> parts.ReportFigure:
        return drawn_for(name, caption, blank, *rest, **options)

    for module in (page, study):
        monkeypatch.setattr(module, "drawn_for", blank_for)
