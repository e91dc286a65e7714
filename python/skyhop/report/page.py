"""The report of runs: a page and its figures."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from skyhop.analysis.comparison import Comparison
from skyhop.analysis.run_page import RunsPage, runs_page
from skyhop.analysis.timeline import Timeline
from skyhop.data.figure_files import FIGURE_KINDS, FigureWidth
from skyhop.data.reading import read_runs
from skyhop.errors import InputError
from skyhop.figures.comparison import draw_comparison
from skyhop.figures.sources import comparison_figure, run_figure
from skyhop.figures.style import Sheet, save
from skyhop.figures.timeline import draw_timeline
from skyhop.report.parts import (
    FigureFiles,
    FilesBeside,
    ReportFigure,
    drawn_for,
    files_beside,
    render,
    write_page,
)

_PNG = FigureFiles(kinds=("png",))


def write_report(
    run_dirs: Sequence[Path | str],
    output: Path | str,
    *,
    title: str | None = None,
    figures: FigureFiles = _PNG,
    progress: Callable[[int, int], None] | None = None,
    force_size: bool = False,
) -> Path:
    """Write one HTML file about the runs, and its figures as files beside it.

    The HTML needs nothing but itself. Everything is written whole or not at all.

    Args:
        run_dirs: run directories, or directories that hold run directories.
        output: the HTML file; its directory must exist.
        title: the page's heading, by default the two ends of the path.
        figures: where the figures are written, as what and how wide; by default as PNGs into
            `figures_directory(output)`.
        progress: called with the number of figures drawn so far and of all.
        force_size: read the runs however much memory they take.

    Returns:
        The path of the HTML file.

    Raises:
        InputError: a directory is not a run directory, or `output` cannot be a file.
        RunError: the report cannot be written.
    """
    output = Path(output)
    if output.suffix.lower() not in {".html", ".htm"}:
        raise InputError(
            f"{output}: a report is a page or a figure: give a name that ends in .html, or in "
            ".png, .svg or .pdf"
        )
    page = runs_page(read_runs(run_dirs, force_size=force_size), title)
    drawn: list[ReportFigure] = []
    for planned in page.figures:
        draw = partial(_drawn, planned.view())
        drawn.append(drawn_for(planned.name, planned.caption, draw, figures, planned.run))
        if progress is not None:
            progress(len(drawn), len(page.figures))
    beside = files_beside(output, figures)
    files = {name: content for figure in drawn for name, content in figure.files.items()}
    stale = _stale(beside.directory, files) if figures.directory is None else []
    write_page(output, _html(page, drawn, beside), beside, files)
    for file in stale:
        file.unlink()
    return output


def write_figure(
    run_dirs: Sequence[Path | str],
    output: Path | str,
    *,
    width: FigureWidth = "page",
    force_size: bool = False,
) -> Path:
    """Write one figure: what a run did over time, or several runs side by side.

    Args:
        run_dirs: run directories, or directories that hold run directories.
        output: a name that ends in .png, .svg or .pdf; its directory must exist.
        width: what it is drawn for.
        force_size: read the runs however much memory they take.

    Raises:
        InputError: a directory is not a run directory, or `output` cannot be such a file.
        RunError: it cannot be written.
    """
    runs = read_runs(run_dirs, force_size=force_size)
    alone = len(runs) == 1
    figure = run_figure(runs[0], width=width) if alone else comparison_figure(runs, width=width)
    return save(figure, output)


def _drawn(view: Timeline | Comparison, width: FigureWidth) -> Sheet:
    if isinstance(view, Comparison):
        return draw_comparison(view, width)
    return draw_timeline(view, width)


def _html(page: RunsPage, figures: Sequence[ReportFigure], beside: FilesBeside) -> str:
    return render(
        "report.html.jinja",
        page=page,
        several=len(page.runs) > 1,
        overview=[figure for figure in figures if figure.run is None],
        figures={figure.run: figure for figure in figures},
        figures_of_page=figures,
        beside=beside,
    )


def _stale(folder: Path, kept: Mapping[str, bytes]) -> list[Path]:
    """List the figures of an earlier report of the same name that this one does not have."""
    ours = re.compile(rf"((comparison|path)(-\d+)?|run-\d+-.*)\.({'|'.join(FIGURE_KINDS)})")
    found = folder.iterdir() if folder.is_dir() else []
    return [file for file in found if ours.fullmatch(file.name) and file.name not in kept]
