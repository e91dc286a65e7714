"""Options of commands that draw figures for papers: directory, format and width."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from skyhop.data.figure_files import FIGURE_KINDS, FIGURE_WIDTHS, FigureKind, FigureWidth

if TYPE_CHECKING:
    from skyhop.report import FigureFiles

T = TypeVar("T", bound=str)

Figures = Annotated[
    Path | None,
    typer.Option(
        "--figures", metavar="DIR", help="Directory of the figures; default: next to the page."
    ),
]
Kinds = Annotated[
    list[str] | None,
    typer.Option("--format", metavar="KIND", help="Format: png, svg or pdf; repeatable."),
]
Width = Annotated[
    str,
    typer.Option(
        "--width",
        metavar="WIDTH",
        help="Width: page, or one-column (3.5 in) or two-column (7.16 in) of a paper.",
    ),
]

Height = Annotated[
    float | None,
    typer.Option(
        "--height", metavar="INCHES", min=0.5, max=100,
        help="Height of the figures in inches; default: by content.",
    ),
]  # fmt: skip
Footer = Annotated[
    bool, typer.Option("--footer/--no-footer", help="Whether figures have a grey note below them.")
]


def figure_files(
    directory: Path | None,
    kinds: list[str] | None,
    width: str,
    otherwise: tuple[FigureKind, ...],
    *,
    height_in: float | None = None,
    footer: bool = True,
) -> FigureFiles:
    """Return directory, formats and shape of figures, from the values of the options.

    Args:
        directory: value of `--figures`.
        kinds: values of `--format`.
        width: value of `--width`.
        otherwise: formats to use if neither formats nor a directory are given.
        height_in: value of `--height`.
        footer: value of `--footer`.

    Raises:
        InputError: there is no such format or width, or the directory cannot be created.
    """
    from skyhop.errors import InputError
    from skyhop.report import FigureFiles

    chosen = [_known(kind, FIGURE_KINDS, "--format") for kind in kinds or []]
    if directory is not None and not directory.resolve().parent.is_dir():
        raise InputError(
            f"{directory.resolve().parent}: there is no such directory: create it first"
        )
    if directory is not None and directory.exists() and not directory.is_dir():
        raise InputError(f"--figures: {directory} is not a directory")
    default = otherwise if directory is None else FIGURE_KINDS
    chosen = list(dict.fromkeys(chosen)) or list(default)
    return FigureFiles(directory, tuple(chosen), figure_width(width), height_in, footer)


def figure_width(width: str) -> FigureWidth:
    """Check the value of `--width`, and return it.

    Raises:
        InputError: there is no such width.
    """
    return _known(width, FIGURE_WIDTHS, "--width")


def _known(word: str, known: tuple[T, ...], option: str) -> T:
    from skyhop.errors import InputError

    for one in known:
        if word == one:
            return one
    raise InputError(f'{option}: expected {", ".join(known[:-1])} or {known[-1]}, not "{word}"')
