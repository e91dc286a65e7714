"""Options of commands that draw figures for papers: directory, format, panel, width, height."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from skyhop.cli.terminal import print_note
from skyhop.data.figure_files import FIGURE_KINDS, FIGURE_WIDTHS, FigureKind, FigureWidth

if TYPE_CHECKING:
    from skyhop.figures import Sheet
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
Plot = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FIGURE", help="Also draw a figure: PNG, SVG or PDF."),
]
PanelName = Annotated[
    str | None,
    typer.Option(
        "--panel", metavar="NAME",
        help="Draw only this panel of a single figure; a wrong name lists the panels.",
    ),
]  # fmt: skip
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
        InputError: there is no such format or width, or the directory's place does not exist or is
            a file's.
    """
    from skyhop.data.files import check_directory
    from skyhop.errors import InputError
    from skyhop.report import FigureFiles

    chosen = [_known(kind, FIGURE_KINDS, "--format") for kind in kinds or []]
    if directory is not None:
        check_directory(directory.resolve().parent)
    if directory is not None and directory.exists() and not directory.is_dir():
        raise InputError(f"--figures: {directory} is not a directory")
    default = otherwise if directory is None else FIGURE_KINDS
    chosen = list(dict.fromkeys(chosen)) or list(default)
    return FigureFiles(directory, tuple(chosen), _figure_width(width), height_in, footer)


@dataclass(frozen=True)
class FigureFile:
    """File of a command's single figure, and the shape of the figure."""

    file: Path
    width: FigureWidth
    height_in: float | None
    footer: bool

    def write(self, draw: Callable[[FigureWidth], Sheet]) -> None:
        """Draw the figure for its width, write its file, and say so.

        Raises:
            InputError: the height is too small for the figure.
            RunError: the file cannot be written.
        """
        from skyhop.figures.style import save, shape_figure

        save(shape_figure(draw(self.width), self.height_in, footer=self.footer), self.file)
        print_note(f"figure: {self.file}")


def figure_file(file: Path, width: str, height_in: float | None, *, footer: bool) -> FigureFile:
    """Return a figure's file and shape, from the values of the options; before any other work.

    Raises:
        InputError: the suffix or the width is unknown, the directory does not exist, or another one
            is in the file's place.
    """
    from skyhop.data.figure_files import figure_kind
    from skyhop.data.files import check_place

    figure_kind(file)
    check_place(file)
    return FigureFile(file, _figure_width(width), height_in, footer)


def figure_file_or_none(
    file: Path | None, width: str, height_in: float | None, *, footer: bool
) -> FigureFile | None:
    """Return the file and shape of a figure, as `figure_file`; None if no figure is wanted.

    Raises:
        InputError: as for `figure_file`; also for a width that is unknown, without a figure.
    """
    _figure_width(width)
    return None if file is None else figure_file(file, width, height_in, footer=footer)


def _figure_width(width: str) -> FigureWidth:
    return _known(width, FIGURE_WIDTHS, "--width")


def _known(word: str, known: tuple[T, ...], option: str) -> T:
    from skyhop.errors import InputError

    for one in known:
        if word == one:
            return one
    raise InputError(f'{option}: expected {", ".join(known[:-1])} or {known[-1]}, not "{word}"')
