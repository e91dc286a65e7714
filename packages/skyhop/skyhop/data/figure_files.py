"""File formats and widths of figures and animations."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from skyhop.errors import InputError

FigureKind: TypeAlias = Literal["png", "svg", "pdf"]
FIGURE_KINDS: tuple[FigureKind, ...] = get_args(FigureKind)

FigureWidth: TypeAlias = Literal["page", "two-column", "one-column"]
FIGURE_WIDTHS: tuple[FigureWidth, ...] = get_args(FigureWidth)
"""Widths of figures: a page on a screen, or two or one column of a paper (7.16 and 3.5 in)."""


AnimationKind: TypeAlias = Literal["mp4", "gif"]
ANIMATION_KINDS: tuple[AnimationKind, ...] = get_args(AnimationKind)


def animation_kind(output: Path) -> AnimationKind:
    """Return the format of an animation, from the suffix of its file's name.

    Raises:
        InputError: the suffix is not a format of animations, or MP4 is requested without ffmpeg.
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
    """Return whether the suffix of a file's name is a format of figures."""
    return output.suffix.lower() in {f".{kind}" for kind in FIGURE_KINDS}


def figure_kind(output: Path) -> FigureKind:
    """Return the format of a figure, from the suffix of its file's name.

    Raises:
        InputError: the suffix is not a format of figures.
    """
    for kind in FIGURE_KINDS:
        if output.suffix.lower() == f".{kind}":
            return kind
    raise InputError(
        f"{output}: figures are PNG, SVG or PDF: give a name that ends in .png, .svg or .pdf"
    )
