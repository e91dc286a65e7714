"""Options of the commands that draw for papers: where figures go, as what, and how wide."""

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
        "--figures", metavar="DIR", help="Where to write the figures; default: beside the page."
    ),
]
Kinds = Annotated[
    list[str] | None,
    typer.Option("--format", metavar="KIND", help="As what: png, svg or pdf; give it for each."),
]
Width = Annotated[
    str,
    typer.Option(
        "--width",
        metavar="WIDTH",
        help="For what: page, or one-column (3.5 in) or two-column (7.16 in) of a paper.",
    ),
]


def figure_files(
    directory: Path | None, kinds: list[str] | None, width: str, otherwise: tuple[FigureKind, ...]
) -> FigureFiles:
    """Return how figures are written, as the options say.

    Args:
        directory: of `--figures`.
        kinds: of `--format`.
        width: of `--width`.
        otherwise: the formats where neither formats nor a directory were asked for.

    Raises:
        InputError: there is no such format or width, or no place for the directory.
    """
    from skyhop.errors import InputError
    from skyhop.report import FigureFiles

    asked = [_known(kind, FIGURE_KINDS, "--format") for kind in kinds or []]
    if directory is not None and not directory.resolve().parent.is_dir():
        raise InputError(
            f"{directory.resolve().parent}: there is no such directory: create it first"
        )
    if directory is not None and directory.exists() and not directory.is_dir():
        raise InputError(f"--figures: {directory} is not a directory")
    default = otherwise if directory is None else FIGURE_KINDS
    return FigureFiles(directory, tuple(dict.fromkeys(asked)) or default, figure_width(width))


def figure_width(width: str) -> FigureWidth:
    """Return the width that is called so.

    Raises:
        InputError: there is none.
    """
    return _known(width, FIGURE_WIDTHS, "--width")


def _known(word: str, known: tuple[T, ...], option: str) -> T:
    from skyhop.errors import InputError

    for one in known:
        if word == one:
            return one
    raise InputError(f'{option}: expected {", ".join(known[:-1])} or {known[-1]}, not "{word}"')
