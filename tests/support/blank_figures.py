"""Blank figures on pages, because drawing takes most of the time of a report."""

from __future__ import annotations

from typing import Any

import pytest

from skyhop.data.figure_files import FigureWidth


def leave_blank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the drawings of a page's figures by blank ones; keep files, captions and views."""
    from skyhop.figures.style import Sheet
    from skyhop.report import page, parts, study

    draw_figure = parts.draw_figure

    def blank(width: FigureWidth) -> Sheet:
        sheet = Sheet(0.5, width)
        sheet.set_layout_engine("none")
        return sheet

    def blank_for(
        name: str, caption: str, _draw: object, *rest: Any, **options: Any
    ) -> parts.ReportFigure:
        return draw_figure(name, caption, blank, *rest, **options)

    for module in (page, study):
        monkeypatch.setattr(module, "draw_figure", blank_for)
