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

EXIT_FAILED = 1
EXIT_WRONG_INPUT = 2

# Work shorter than this shows no progress bar.
_QUIET_S = 2.0


def print_error(message: str) -> None:
    """Print one line to standard error."""
    print(f"skyhop: {' '.join(message.split())}", file=sys.stderr)


def print_note(message: str) -> None:
    """Print a line that is not the command's output: to standard error."""
    print(message, file=sys.stderr)


def print_rows(rows: Sequence[Mapping[str, Any]], *, as_json: bool, title: str = "") -> None:
    """Print rows as a table, or as JSON for other programs."""
    if as_json:
        print(json.dumps(list(rows), indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", header_style="bold")
    for name in rows[0] if rows else ():
        numeric = all(isinstance(row[name], int | float) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    Console().print(table)


def print_comparison(rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print one column per row, so that many figures of few runs fit a narrow terminal."""
    if as_json or not rows:
        print_rows(rows, as_json=as_json)
        return
    names = unique([str(next(iter(row.values()))) for row in rows])
    metrics = list(rows[0])[1:]
    turned = [
        {
            "": metric.replace("_", " "),
            **{n: row[metric] for n, row in zip(names, rows, strict=True)},
        }
        for metric in metrics
    ]
    print_rows(turned, as_json=False)


def unique(names: Sequence[str]) -> list[str]:
    """Return the names, numbered where one comes twice."""
    return [
        name if names.count(name) == 1 else f"{name} #{names[: place + 1].count(name)}"
        for place, name in enumerate(names)
    ]


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
