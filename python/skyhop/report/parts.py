"""What all reports share: figures in a page, tables, and the templates."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import jinja2

from skyhop.data.figure_files import FIGURE_KINDS, FigureKind, FigureWidth
from skyhop.data.files import write_files
from skyhop.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PHONE: FigureWidth = "one-column"


@dataclass(frozen=True)
class FigureFiles:
    """How a report's figures are written as files, beside being in the page."""

    directory: Path | None = None
    """Where; by default in `figures_directory` of the page."""
    kinds: Sequence[FigureKind] = FIGURE_KINDS
    width: FigureWidth = "page"
    """What they are drawn for; the page has its own, a wide one and one for phones."""


@dataclass(frozen=True)
class ReportFigure:
    """One figure of a report."""

    name: str
    """What its files are called, without what they end in."""
    caption: str
    wide_png: bytes
    narrow_png: bytes
    """For phones: laid out as for one column of a paper."""
    files: Mapping[str, bytes]
    """Its files by their names."""
    run: int | None = None
    """Which of the runs it is about; None: all of them."""
    heading: str = ""
    """Of a figure about a run's terminal."""

    @property
    def wide_uri(self) -> str:
        """The wide PNG as an address that holds it."""
        return _data_uri(self.wide_png)

    @property
    def narrow_uri(self) -> str:
        """The narrow PNG as an address that holds it."""
        return _data_uri(self.narrow_png)


def drawn_for(
    name: str,
    caption: str,
    draw: Callable[[FigureWidth], Figure],
    wanted: FigureFiles,
    run: int | None = None,
    *,
    heading: str = "",
) -> ReportFigure:
    """Draw a figure for the page, for phones and as files; `draw` draws it for a width."""
    # Pages without figures need no drawing library.
    from skyhop.figures.style import figure_bytes

    widths: set[FigureWidth] = {"page", _PHONE, wanted.width}
    figures = {width: draw(width) for width in widths}
    pngs = {width: figure_bytes(figure, "png") for width, figure in figures.items()}
    of_width = figures[wanted.width]
    files = {
        f"{name}.{kind}": pngs[wanted.width] if kind == "png" else figure_bytes(of_width, kind)
        for kind in wanted.kinds
    }
    return ReportFigure(name, caption, pngs["page"], pngs[_PHONE], files, run, heading)


@dataclass(frozen=True)
class FilesBeside:
    """The files beside a page: where they are, and how the page points to them."""

    directory: Path
    address: str
    """Of the directory, relative to the page; ends in a slash."""

    @property
    def name(self) -> str:
        """What the page calls it."""
        return unquote(self.address).removesuffix("/")

    def links(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """Return names with their addresses."""
        return [(name, self.address + quote(name)) for name in names]


def files_beside(output: Path, wanted: FigureFiles) -> FilesBeside:
    """Return where the files beside a page are to be."""
    directory = (wanted.directory or figures_directory(output)).resolve()
    relative = os.path.relpath(directory, output.parent.resolve())
    return FilesBeside(directory, f"{quote(Path(relative).as_posix())}/")


def write_page(output: Path, html: str, beside: FilesBeside, files: Mapping[str, bytes]) -> None:
    """Write a page and the files beside it.

    All of them are written, or none; files in another place than the page's go first.

    Raises:
        InputError: the directory that is to hold the page or the files' directory does not exist.
        RunError: they cannot be written.
    """
    folder = beside.directory
    contents = {f"{folder.name}/{name}": content for name, content in files.items()}
    page = {output.name: html.encode()}
    if folder.parent == output.parent.resolve():
        write_files(output.parent, contents | page)
        return
    if not output.parent.is_dir():
        raise InputError(f"{output.parent}: there is no such directory: create it first")
    write_files(folder.parent, contents)
    write_files(output.parent, page)


def figures_directory(output: Path | str) -> Path:
    """Return where the figures of a report are as files: report-figures/ for report.html."""
    output = Path(output)
    return output.with_name(f"{output.stem}-figures")


def _data_uri(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def render(template: str, **values: Any) -> str:
    """Return a page from one of the report's templates."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("skyhop", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)
