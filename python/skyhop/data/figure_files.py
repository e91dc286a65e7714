"""What figures may be written as, and how wide."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias, get_args

from skyhop.errors import InputError

FigureKind: TypeAlias = Literal["png", "svg", "pdf"]
FIGURE_KINDS: tuple[FigureKind, ...] = get_args(FigureKind)

FigureWidth: TypeAlias = Literal["page", "two-column", "one-column"]
FIGURE_WIDTHS: tuple[FigureWidth, ...] = get_args(FigureWidth)
"""Where a figure goes: a page on a screen, or two or one column of a paper (7.16 and 3.5 in)."""


def is_figure(output: Path) -> bool:
    """Tell whether a file's name is a figure's."""
    return output.suffix.lower() in {f".{kind}" for kind in FIGURE_KINDS}


def figure_kind(output: Path) -> FigureKind:
    """Return what a figure is written as: what its file's name ends in.

    Raises:
        InputError: that is nothing that figures can be.
    """
    for kind in FIGURE_KINDS:
        if output.suffix.lower() == f".{kind}":
            return kind
    raise InputError(
        f"{output}: figures are PNG, SVG or PDF: give a name that ends in .png, .svg or .pdf"
    )
