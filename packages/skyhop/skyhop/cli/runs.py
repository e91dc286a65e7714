"""Output of commands about runs: tables, sentences, CSV, JSON, warnings."""

from __future__ import annotations

import csv
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyhop.cli.terminal import print_note
from skyhop.errors import InputError

if TYPE_CHECKING:
    from skyhop.data.runs import Run


def check_form(*, as_json: bool, as_csv: bool) -> None:
    """Check that at most one of `--json` and `--csv` is given.

    Raises:
        InputError: both options are given.
    """
    if as_json and as_csv:
        raise InputError("--json and --csv: choose one")


def print_runs(directories: Sequence[Path], *, as_csv: bool = False, each: bool = False) -> None:
    """Print the runs' flows as a table, and a line about each link; or everything as CSV."""
    from skyhop.analysis.run_tables import run_tables
    from skyhop.analysis.summary import summary_rows
    from skyhop.cli.tables import cells_of, print_table, print_wrapped
    from skyhop.data.run_headers import read_run_headers

    if as_csv:
        print_csv(summary_rows(directories))
        return
    tables = run_tables(read_run_headers(directories), each=each)
    if tables.flows.rows:
        print_table(cells_of(tables.flows), importance=tables.importance, keys=tables.keys)
    if tables.senders.rows:
        print()
        print_table(cells_of(tables.senders), keys=(0, 1))
    for line in tables.links:
        print_wrapped(line)


def print_summaries(directories: Sequence[Path]) -> None:
    """Print three sentences about each set of runs of similar duration."""
    from skyhop.analysis.summary_sentences import run_summaries
    from skyhop.cli.tables import print_wrapped
    from skyhop.data.run_headers import read_run_headers

    for summary in run_summaries(read_run_headers(directories)):
        heading = f"{summary.heading}: " if summary.heading else ""
        print_wrapped(heading + " ".join(summary.sentences))
    print()


def print_result(run: Run, *, as_json: bool, as_csv: bool, has_program: bool) -> None:
    """Print the result of a run as JSON, as CSV, or as a table.

    The table goes to standard error if standard output has the output of a program.
    """
    if as_json:
        print_json(run.summary)
    elif as_csv or not has_program:
        print_runs([run.directory], as_csv=as_csv)
    else:
        with redirect_stdout(sys.stderr):
            print_runs([run.directory])


def print_whereabouts(run: Run, output: Path | None) -> None:
    """Print the warnings of a run, and its directory if the user named one."""
    print_warnings([run.directory])
    print_places([run.directory])
    if output is not None:
        print_how_to_report(output)


def print_how_to_report(output: Path) -> None:
    """Print the command that draws the runs of a directory."""
    from skyhop.data.files import as_argument

    report = shlex.join(["skyhop", "report", as_argument(output), "-o", "report.html"])
    print_note(f"{output}: done; {report} draws it")


def print_warnings(directories: Sequence[Path]) -> None:
    """Print each distinct warning of the runs to standard error, with the runs that have it."""
    from skyhop.data.run_headers import read_run_headers

    runs = read_run_headers(directories)
    said = dict.fromkeys(text for run in runs for text in run.summary.get("warnings") or [])
    for text in said:
        concerned = [run.name for run in runs if text in run.summary["warnings"]]
        of = "" if len(concerned) == len(runs) else f"{', '.join(concerned)}: "
        print_note(f"warning: {of}{text}")


def print_places(directories: Sequence[Path]) -> None:
    """Print, for each ambiguous place name of the runs' paths, which place was used."""
    from skyhop.data.run_headers import read_run_headers
    from skyhop.data.scenarios import place_notes

    notes = (note for run in read_run_headers(directories) for note in place_notes(run.scenario))
    for note in dict.fromkeys(notes):
        print_note(note)


def print_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows with the same keys as CSV (RFC 4180)."""
    writer = csv.DictWriter(sys.stdout, list(rows[0]) if rows else [])
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _cell(value) for key, value in row.items()})


def print_json(content: object) -> None:
    """Print content as JSON."""
    print(json.dumps(content, indent=2, ensure_ascii=False))


def _cell(value: object) -> object:
    return "; ".join(map(str, value)) if isinstance(value, list) else value
