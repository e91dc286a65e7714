"""The report of runs: a page and its figures."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from skyhop.analysis.comparison import Comparison
from skyhop.analysis.run_page import RunsPage, runs_page
from skyhop.analysis.timeline import Timeline
from skyhop.data.files import write_files
from skyhop.data.reading import read_runs
from skyhop.errors import InputError
from skyhop.figures.comparison import draw_comparison
from skyhop.figures.style import png_bytes
from skyhop.figures.timeline import draw_timeline
from skyhop.report.parts import ReportFigure, figures_directory, render


def write_report(
    run_dirs: Sequence[Path | str],
    output: Path | str,
    *,
    title: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write one HTML file about the runs, and its figures as PNGs beside it.

    The HTML needs nothing but itself. The figures are also files in `figures_directory(output)`.
    Everything is written whole or not at all.

    Args:
        run_dirs: run directories, or directories that hold run directories.
        output: the HTML file; its directory must exist.
        title: the page's heading, by default the two ends of the path.
        progress: called with the number of figures drawn so far and of all.

    Returns:
        The path of the HTML file.

    Raises:
        InputError: a directory is not a run directory, or `output` cannot be a file.
        RunError: the report cannot be written.
    """
    output = Path(output)
    if output.suffix.lower() not in {".html", ".htm"}:
        raise InputError(f"{output}: a report is HTML: give a name that ends in .html")
    page = runs_page(read_runs(run_dirs), title)
    figures = []
    for drawn, planned in enumerate(page.figures, start=1):
        png = png_bytes(_drawn(planned.view()))
        figures.append(ReportFigure(planned.file, planned.caption, png, planned.run))
        if progress is not None:
            progress(drawn, len(page.figures))
    folder = figures_directory(output)
    contents = {f"{folder.name}/{figure.file}": figure.png for figure in figures}
    contents[output.name] = _html(page, figures, list(contents)).encode()
    stale = _stale(folder, {figure.file for figure in figures})
    write_files(output.parent, contents)
    for file in stale:
        file.unlink()
    return output


def _drawn(view: Timeline | Comparison) -> Figure:
    return draw_comparison(view) if isinstance(view, Comparison) else draw_timeline(view)


def _html(page: RunsPage, figures: Sequence[ReportFigure], files: Sequence[str]) -> str:
    return render(
        "report.html.jinja",
        page=page,
        several=len(page.runs) > 1,
        overview=[figure for figure in figures if figure.run is None],
        figures={figure.run: figure for figure in figures},
        figure_files=files,
    )


def _stale(folder: Path, kept: set[str]) -> list[Path]:
    """List the figures of an earlier report of the same name that this one does not have."""
    ours = re.compile(r"((comparison|path)(-\d+)?|run-\d+-.*)\.png")
    found = folder.iterdir() if folder.is_dir() else []
    return [file for file in found if ours.fullmatch(file.name) and file.name not in kept]
