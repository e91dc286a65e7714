"""Report of runs: a page and its figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from skyhop.analysis.comparison import Comparison
from skyhop.analysis.network_map import NetworkMap
from skyhop.analysis.run_page import NETWORK, Lead, RunsPage, runs_page
from skyhop.analysis.terminal_page import terminal_part
from skyhop.analysis.timeline import Timeline
from skyhop.data.figure_files import FigureWidth
from skyhop.data.reading import read_runs
from skyhop.errors import InputError
from skyhop.figures.comparison import draw_comparison
from skyhop.figures.network_map import draw_network_map
from skyhop.figures.sources import comparison_figure, run_figure
from skyhop.figures.style import Sheet, save, shape_figure
from skyhop.figures.timeline import draw_timeline
from skyhop.report.parts import (
    FigureFiles,
    PageFiles,
    ReportFigure,
    draw_figure,
    page_files,
    render,
    write_page,
)

if TYPE_CHECKING:
    from skyhop.analysis.terminal_page import TerminalView

_PNG = FigureFiles(kinds=("png",))


def write_report(
    run_dirs: Sequence[Path | str],
    output: Path | str,
    *,
    title: str | None = None,
    lead: Lead | None = None,
    figures: FigureFiles = _PNG,
    progress: Callable[[int, int], None] | None = None,
    force_size: bool = False,
) -> Path:
    """Write one HTML file about the runs, and its figures as files in a directory next to it.

    The HTML file contains everything that it shows. Either all files are written or none.

    Args:
        run_dirs: run directories, or directories that hold run directories.
        output: the HTML file; its directory must exist.
        title: heading of the page; by default the two ends of the path.
        lead: question, answer and figure at the top of the page; its question is the heading.
        figures: directory, formats and width of the figures' files; by default PNGs in
            `figures_directory(output)`.
        progress: callback (figures drawn, all figures).
        force_size: read the runs even if they take much memory.

    Returns:
        The path of the HTML file.

    Raises:
        InputError: a directory is not a run directory, or `output` cannot be a file.
        RunError: the report cannot be written.
    """
    output = _checked(output)
    heading = title if lead is None else lead.question
    page = runs_page(read_runs(run_dirs, force_size=force_size), heading)
    planned_figures = [*([] if lead is None else [lead.figure]), *page.figures]
    drawn: list[ReportFigure] = []
    for planned in planned_figures:
        draw = partial(_drawn, planned.view())
        drawn.append(
            draw_figure(
                planned.name, planned.caption, draw, figures, planned.run, heading=planned.heading
            )
        )
        if progress is not None:
            progress(len(drawn), len(planned_figures))
    folder = page_files(output, figures)
    files = {name: content for figure in drawn for name, content in figure.files.items()}
    write_page(output, _html(page, lead, drawn, folder), folder, files)
    return output


def write_terminal_report(
    places: Sequence[Path],
    output: Path | str,
    *,
    figures: FigureFiles = _PNG,
) -> Path:
    """Write a page about the terminals of runs that were fetched from a testbed.

    Args:
        places: telemetry directories of the runs, from `terminal_page.fetched`.
        output: the HTML file; its directory must exist.
        figures: directory, formats and width of the figures' files, as for `write_report`.

    Raises:
        InputError: a directory has no telemetry, or `output` cannot be a file.
        RunError: the report cannot be written.
    """
    output = _checked(output)
    parts = [terminal_part(place) for place in places]
    drawn = [
        [
            draw_figure(
                f"terminal-{number}-{figure.name}", figure.caption,
                partial(_drawn, figure.view), figures, heading=figure.heading,
            )
            for figure in part.figures
        ]
        for number, part in enumerate(parts, 1)
    ]  # fmt: skip
    folder = page_files(output, figures)
    title = ", ".join(dict.fromkeys(part.name for part in parts))
    html = render(
        "terminal.html.jinja",
        title=title,
        parts=list(zip(parts, drawn, strict=True)),
        folder=folder,
    )
    files = {n: c for of_part in drawn for figure in of_part for n, c in figure.files.items()}
    write_page(output, html, folder, files)
    return output


def _checked(output: Path | str) -> Path:
    output = Path(output)
    if output.suffix.lower() not in {".html", ".htm"}:
        raise InputError(
            f"{output}: a report is a page or a figure: give a name that ends in .html, or in "
            ".png, .svg or .pdf"
        )
    return output


def write_figure(
    run_dirs: Sequence[Path | str],
    output: Path | str,
    *,
    panel: str | None = None,
    width: FigureWidth = "page",
    height_in: float | None = None,
    footer: bool = True,
    force_size: bool = False,
) -> Path:
    """Write one figure: a run over time, or a comparison of several runs.

    Args:
        run_dirs: run directories, or directories that hold run directories.
        output: file to write, .png, .svg or .pdf; its directory must exist.
        panel: name of a panel to draw alone, such as "goodput"; by default all panels.
        width: target of the figure: a page, or one or two columns of a paper.
        height_in: height in inches; by default it depends on the content.
        footer: whether the figure has the note below its axes.
        force_size: read the runs even if they take much memory.

    Raises:
        InputError: a directory is not a run directory, there is no such panel, the height is too
            small, or `output` cannot be such a file.
        RunError: the file cannot be written.
    """
    runs = read_runs(run_dirs, force_size=force_size)
    figure = (
        run_figure(runs[0], width=width, panel=panel)
        if len(runs) == 1
        else comparison_figure(runs, width=width, panel=panel)
    )
    return save(shape_figure(figure, height_in, footer=footer), output)


def _drawn(view: Timeline | Comparison | NetworkMap | TerminalView, width: FigureWidth) -> Sheet:
    if isinstance(view, Comparison):
        return draw_comparison(view, width)
    if isinstance(view, Timeline):
        return draw_timeline(view, width)
    if isinstance(view, NetworkMap):
        return draw_network_map(view, width)
    return _of_terminal(view, width)


def _of_terminal(view: TerminalView, width: FigureWidth) -> Sheet:
    from skyhop.analysis.dissection import Dissection
    from skyhop.analysis.orientation import Orientation
    from skyhop.analysis.spikes import Spikes
    from skyhop.figures.dissection import dissection_figure
    from skyhop.figures.obstruction import draw_obstruction
    from skyhop.figures.orientation import orientation_figure
    from skyhop.figures.spikes import spikes_figure

    if isinstance(view, Spikes):
        return spikes_figure(view, width=width)
    if isinstance(view, Orientation):
        return orientation_figure(view, width=width)
    if isinstance(view, Dissection):
        return dissection_figure(view, width=width)
    return draw_obstruction(view, "Obstruction map", width)


def _html(
    page: RunsPage, lead: Lead | None, figures: Sequence[ReportFigure], folder: PageFiles
) -> str:
    first = 0 if lead is None else 1
    maps = {
        part.run: figure
        for part, figure in zip(
            (part for part in page.networks if part.view is not None),
            (figure for figure in figures if figure.name.startswith(f"{NETWORK}-")),
            strict=True,
        )
    }
    return render(
        "report.html.jinja",
        page=page,
        lead=lead,
        lead_figure=figures[0] if lead is not None else None,
        several=len(page.runs) > 1,
        headings=_headings(figures),
        maps=maps,
        overview=[f for f in figures[first:] if f.run is None and f not in maps.values()],
        figures={figure.run: figure for figure in figures if not figure.heading},
        of_terminals=[
            [figure for figure in figures if figure.run == index and figure.heading]
            for index in range(len(page.runs))
        ],
        figures_of_page=figures,
        folder=folder,
    )


def _headings(figures: Sequence[ReportFigure]) -> list[str]:
    """Return what the figures of all runs show: comparison, path."""
    names = [figure.name for figure in figures if figure.run is None]
    return [kind for kind in ("comparison", "path") if any(n.startswith(kind) for n in names)]
