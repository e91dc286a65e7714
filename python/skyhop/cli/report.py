"""`skyhop report`: runs as one self-contained page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skyhop.cli.options import Csv, Each
from skyhop.cli.runs import check_form, print_json, print_runs, print_warnings
from skyhop.cli.terminal import print_note

HELP = """\
Draw one or more run directories as one self-contained HTML page, with its figures as PNG beside it.

Example:

  skyhop report runs/cubic runs/bbr -o report.html
"""


def report(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The page to write.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the table as JSON instead.")
    ] = False,
    as_csv: Csv = False,
    each: Each = False,
) -> None:
    """Write a report."""
    from skyhop.report import summary_rows, write_report

    check_form(as_json=as_json, as_csv=as_csv)
    page = write_report(directories, output)
    if as_json:
        print_json(summary_rows(directories))
    else:
        print_runs(directories, as_csv=as_csv, each=each)
    print_warnings(directories)
    print_note(f"report: {page}")
