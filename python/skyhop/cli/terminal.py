"""What commands share on the terminal: tables, progress, errors."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skyhop.data.paths import Progress
    from skyhop.errors import SkyhopError

EXIT_FAILED = 1
EXIT_WRONG_INPUT = 2
EXIT_INTERRUPTED = 130
"""As shells say it of Ctrl-C."""

# Work shorter than this shows no progress bar.
_QUIET_S = 2.0


def print_error(message: str) -> None:
    """Print one line to standard error."""
    print(f"skyhop: {' '.join(message.split())}", file=sys.stderr)


def print_failure(error: SkyhopError) -> None:
    """Print what is wrong in one line; what a compiler said of it comes first, as it is."""
    from skyhop.errors import CompileError

    if isinstance(error, CompileError):
        sys.stderr.write(error.messages)
        print_error(error.line)
    else:
        print_error(str(error))


def print_note(message: str) -> None:
    """Print a line that is not the command's output: to standard error."""
    print(message, file=sys.stderr)


def print_rows(rows: Sequence[Mapping[str, Any]], *, as_json: bool, title: str = "") -> None:
    """Print rows as a table, or as JSON for other programs."""
    if as_json:
        print(json.dumps(list(rows), indent=2, ensure_ascii=False))
        return
    from skyhop.cli.tables import Cells, print_table

    columns = []
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        numeric = all(isinstance(value, int | float) for value in values if value is not None)
        heading, _, unit = name.replace("_", " ").rstrip(")").partition(" (")
        columns.append(Cells(heading, unit, [_cell(v) for v in values], numeric))
    print_table(columns, title=title, more="a wider terminal has them")


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


@contextmanager
def progress_bar(description: str) -> Iterator[Progress]:
    """Show a progress bar on a terminal once the work has taken two seconds."""
    started = time.monotonic()
    bar = None
    task = None

    def advance(done: int, total: int) -> None:
        nonlocal bar, task
        if not sys.stderr.isatty() or time.monotonic() - started < _QUIET_S:
            return
        if bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f} %"),
                TimeRemainingColumn(),
            )
            bar = Progress(*columns, console=Console(stderr=True), transient=True)
            bar.start()
            task = bar.add_task(description, total=total)
        if task is not None:
            bar.update(task, completed=done, total=total)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()
