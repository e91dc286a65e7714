"""Parts of all reports: figures in a page, files in the page's directory, and templates."""

from __future__ import annotations

import base64
import io
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import jinja2
from markupsafe import escape

from skyhop.data.figure_files import FIGURE_KINDS, FigureKind, FigureWidth
from skyhop.data.files import check_place, write_files

if TYPE_CHECKING:
    from skyhop.figures.style import Sheet

_PHONE: FigureWidth = "one-column"
_PHONE_DPI = 220
"""Pixels per inch of a narrow picture: two for each pixel of a phone of 385 pixels."""
_GENERATOR = '<meta name="generator" content="skyhop">'
"""Tag by which skyhop recognises its pages."""


@dataclass(frozen=True)
class FigureFiles:
    """Directory, formats and width of the files of a report's figures."""

    directory: Path | None = None
    """Directory of the figures; None for `figures_directory` of the page."""
    kinds: Sequence[FigureKind] = FIGURE_KINDS
    width: FigureWidth = "page"
    """Width of the figures in files; the page itself has a wide and a narrow picture of each."""
    height_in: float | None = None
    """Height of the figures in files in inches; by default it depends on their content."""
    footer: bool = True
    """Whether the figures in files have the note below their axes."""


@dataclass(frozen=True)
class ReportFigure:
    """Figure of a report, drawn for the page and as files."""

    name: str
    """Name of the figure's files, without the suffix."""
    caption: str
    wide: bytes
    """Picture for screens, as WebP."""
    narrow: bytes
    """Picture for phones, with the layout for one column of a paper, as WebP."""
    files: Mapping[str, bytes]
    """Contents of the figure's files, by file name."""
    run: int | None = None
    """Index of the run that the figure shows; None for all runs."""
    heading: str = ""
    """Heading of a figure about a run's terminal; empty for other figures."""

    @property
    def wide_uri(self) -> str:
        """Data URI of the wide picture."""
        return _data_uri(self.wide)

    @property
    def narrow_uri(self) -> str:
        """Data URI of the narrow picture."""
        return _data_uri(self.narrow)


def draw_figure(
    name: str,
    caption: str,
    draw: Callable[[FigureWidth], Sheet],
    wanted: FigureFiles,
    run: int | None = None,
    *,
    heading: str = "",
) -> ReportFigure:
    """Draw a figure for the page, for phones and as files; `draw` draws the figure for a width."""
    # Pages without figures need no drawing library.
    from skyhop.figures.style import figure_bytes, shape_figure

    widths: set[FigureWidth] = {"page", _PHONE, wanted.width}
    figures = {width: draw(width) for width in widths}
    wide = figure_bytes(figures["page"], "png")
    narrow = figure_bytes(figures[_PHONE], "png", dpi=_PHONE_DPI)
    of_files, is_like_page = figures[wanted.width], wanted.height_in is None and wanted.footer
    if not is_like_page:
        of_files = shape_figure(draw(wanted.width), wanted.height_in, footer=wanted.footer)
    files = {
        f"{name}.{kind}": wide
        if kind == "png" and is_like_page and wanted.width == "page"
        else figure_bytes(of_files, kind)
        for kind in wanted.kinds
    }
    return ReportFigure(name, caption, _compact(wide), _compact(narrow), files, run, heading)


@dataclass(frozen=True)
class PageFiles:
    """Directory of the files that belong to a page, and its address on the page."""

    directory: Path
    address: str
    """Address of the directory relative to the page, with a slash at its end."""
    is_of_page: bool
    """Whether the directory has its name from the page, and not from the user."""

    @property
    def name(self) -> str:
        """Name of the directory, as the page shows it."""
        return unquote(self.address).removesuffix("/")

    def earlier_names(self, page: Path) -> set[str]:
        """Return the names of the files that an earlier page of skyhop at this place links.

        None in a directory that the user named, because other pages may link its files.
        """
        if not self.is_of_page:
            return set()
        try:
            text = page.read_text("utf-8")
        except (OSError, ValueError):
            return set()
        links = re.findall(rf'href="{re.escape(str(escape(self.address)))}([^"]+)"', text)
        names = {unquote(unescape(link)) for link in links} if _GENERATOR in text else set()
        return {name for name in names if "/" not in name}

    def links(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """Return the names of files, each with its address relative to the page."""
        return [(name, self.address + quote(name)) for name in names]


def page_files(output: Path, wanted: FigureFiles) -> PageFiles:
    """Return the directory and addresses of the files of a page."""
    directory = (wanted.directory or figures_directory(output)).resolve()
    relative = os.path.relpath(directory, output.parent.resolve())
    address = f"{quote(Path(relative).as_posix())}/"
    return PageFiles(directory, address, wanted.directory is None)


def write_page(output: Path, html: str, place: PageFiles, files: Mapping[str, bytes]) -> None:
    """Write a page and its files, and remove files that only an earlier page at this place links.

    All of them are written, or none; files outside the page's directory are written first.

    Raises:
        InputError: the parent directory of the page or of the files' directory does not exist.
        RunError: a file cannot be written.
    """
    folder = place.directory
    stale = place.earlier_names(output) - files.keys()
    contents = {f"{folder.name}/{name}": content for name, content in files.items()}
    page = {output.name: html.encode()}
    if folder.parent == output.parent.resolve():
        write_files(output.parent, contents | page)
    else:
        check_place(output)
        write_files(folder.parent, contents)
        write_files(output.parent, page)
    for name in stale:
        (folder / name).unlink(missing_ok=True)


def figures_directory(output: Path | str) -> Path:
    """Return the directory of a report's figures: report-figures/ for report.html."""
    output = Path(output)
    return output.with_name(f"{output.stem}-figures")


def _compact(png: bytes) -> bytes:
    """Return a PNG as WebP with 256 colours, a fourth as large: a page has many figures."""
    from PIL import Image

    content = io.BytesIO()
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    few_colours = picture.quantize(256, dither=Image.Dither.NONE).convert("RGB")
    few_colours.save(content, "webp", lossless=True, quality=60)
    return content.getvalue()


def _data_uri(webp: bytes) -> str:
    return f"data:image/webp;base64,{base64.b64encode(webp).decode()}"


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
