"""What figures may be written as, and how wide."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from skyhop.errors import InputError

FigureKind: TypeAlias = Literal["png", "svg", "pdf"]
FIGURE_KINDS: tuple[FigureKind, ...] = get_args(FigureKind)

FigureWidth: TypeAlias = Literal["page", "two-column", "one-column"]
FIGURE_WIDTHS: tuple[FigureWidth, ...] = get_args(FigureWidth)
"""Where a figure goes: a page on a screen, or two or one column of a paper (7.16 and 3.5 in)."""


AnimationKind: TypeAlias = Literal["mp4", "gif"]
ANIMATION_KINDS: tuple[AnimationKind, ...] = get_args(AnimationKind)


def animation_kind(output: Path) -> AnimationKind:
    """Return what an animation is written as: what its file's name ends in.

    Raises:
        InputError: that is nothing that animations can be, or needs a program that is missing.
    """
    for kind in ANIMATION_KINDS:
        if output.suffix.lower() == f".{kind}":
            if kind == "mp4" and shutil.which("ffmpeg") is None:
                raise InputError(
                    f"{output}: MP4 is made by ffmpeg, which is not installed: install it, or give "
                    "a name that ends in .gif"
                )
            return kind
    raise InputError(f"{output}: animations are MP4 or GIF: give a name that ends in .mp4 or .gif")


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
