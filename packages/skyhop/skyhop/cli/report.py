"""`skyhop report`: draw runs as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skyhop.cli.figures import Figures, Footer, Height, Kinds, PanelName, Width, figure_files
from skyhop.cli.options import Csv, Each, ForceSize
from skyhop.cli.runs import check_form, print_json, print_runs, print_summaries, print_warnings
from skyhop.cli.terminal import print_note
from skyhop.data.figure_files import is_figure
from skyhop.errors import InputError

HELP = """\
Draw one or more run directories as one self-contained HTML page, and its figures as files.

An output name that ends in .png, .svg or .pdf gives one figure: a run over time, or a comparison of
several runs.

Examples:

  skyhop report runs/cubic runs/bbr -o report.html

  skyhop report runs/cubic runs/bbr -o report.html --figures paper --format pdf --width one-column

  skyhop report runs/cubic runs/bbr -o comparison.pdf --width two-column

  skyhop report runs/bbr -o srtt.pdf --panel srtt --width one-column --height 1.5 --no-footer

For a run that was fetched from a testbed, the report also shows its terminal's telemetry; a run
directory is optional:

  skyhop report fetched -o report.html
"""


def report(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="HTML page or figure to write.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the table as JSON instead.")
    ] = False,
    as_csv: Csv = False,
    each: Each = False,
    figures: Figures = None,
    kinds: Kinds = None,
    panel: PanelName = None,
    width: Width = "page",
    height: Height = None,
    footer: Footer = True,
    force_size: ForceSize = False,
) -> None:
    """Write a report of run directories."""
    from skyhop.analysis.terminal_page import fetched
    from skyhop.report import (
        summary_rows,
        write_figure,
        write_report,
        write_terminal_report,
    )

    check_form(as_json=as_json, as_csv=as_csv)
    files = figure_files(figures, kinds, width, ("png",), height_in=height, footer=footer)
    alone = is_figure(output)
    if alone and (figures is not None or kinds):
        raise InputError(f"{output}: a single figure: --figures and --format are for pages")
    if panel is not None and not alone:
        raise InputError(f"{output}: a page has all panels: --panel is for a single figure")
    places = [fetched(directory) for directory in directories]
    found = [place for place in places if place is not None]
    if found and len(found) == len(places) and not (alone or as_json or as_csv):
        print_note(f"report: {write_terminal_report(found, output, figures=files)}")
        return
    if alone:
        written = write_figure(
            directories, output, panel=panel, width=files.width, height_in=files.height_in,
            footer=files.footer, force_size=force_size,
        )  # fmt: skip
    else:
        written = write_report(directories, output, figures=files, force_size=force_size)
    if as_json:
        print_json(summary_rows(directories))
    else:
        if not as_csv:
            print_summaries(directories)
        print_runs(directories, as_csv=as_csv, each=each)
    print_warnings(directories)
    print_note(f"{'figure' if alone else 'report'}: {written}")
