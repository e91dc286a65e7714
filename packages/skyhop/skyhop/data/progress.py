"""Progress bars for long operations, in a notebook or on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any, Protocol, TypeAlias

Progress: TypeAlias = Callable[[int, int], None]
"""Progress callback (done, total), in units of the work such as runs or frames."""

_QUIET_S = 2.0
"""Time in s before a bar appears; shorter operations show no bar."""
_REFRESH_S = 0.2


def ignore_progress(_done: int, _total: int) -> None:
    """Discard progress: the callback that shows nothing."""


@contextmanager
def progress_bar(description: str) -> Iterator[Progress]:
    """Show a progress bar after two seconds of work; remove it when the work is done."""
    started_s = time.monotonic()
    bar: _Bar | None = None

    def advance(done: int, total: int) -> None:
        nonlocal bar
        if bar is None:
            if time.monotonic() - started_s < _QUIET_S:
                return
            bar = _new_bar(description)
        bar.show(done, total)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()


@contextmanager
def progress_or_bar(progress: Progress | None, description: str) -> Iterator[Progress]:
    """Yield the caller's callback, or the callback of a progress bar if it is None."""
    if progress is not None:
        yield progress
        return
    with progress_bar(description) as bar:
        yield bar


class _Bar(Protocol):
    def show(self, done: int, total: int) -> None: ...
    def stop(self) -> None: ...


def _new_bar(description: str) -> _Bar:
    if _is_notebook():
        return _NotebookBar(description)
    return _TerminalBar(description) if sys.stderr.isatty() else _NoBar()


def _is_notebook() -> bool:
    """Return whether this process is a Jupyter kernel, whose front end shows HTML."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class _NoBar:
    def show(self, done: int, total: int) -> None:
        pass

    def stop(self) -> None:
        pass


class _TerminalBar:
    def __init__(self, description: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar.start()
        self._task = self._bar.add_task(description, total=None)

    def show(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)

    def stop(self) -> None:
        self._bar.stop()


class _NotebookBar:
    """Progress bar made of HTML's `<progress>`, which needs no widget library."""

    def __init__(self, description: str) -> None:
        from IPython import display

        show: Any = display.display
        self._description = description
        self._started_s = self._shown_s = time.monotonic()
        self._handle: Any = show(self._drawn(0, 1), display_id=True)

    def show(self, done: int, total: int) -> None:
        now_s = time.monotonic()
        if now_s - self._shown_s >= _REFRESH_S:
            self._shown_s = now_s
            self._handle.update(self._drawn(done, total))

    def stop(self) -> None:
        self._handle.update(_Html(""))

    def _drawn(self, done: int, total: int) -> _Html:
        share = done / max(total, 1)
        took_s = time.monotonic() - self._started_s
        left = f", {took_s * (1 - share) / share:,.0f} s left" if share > 0 else ""
        return _Html(
            f'<label>{escape(self._description)} <progress max="1" value="{share:.3f}"></progress> '
            f"{100 * share:.0f} %{left}</label>"
        )


class _Html:
    def __init__(self, text: str) -> None:
        self._text = text

    def _repr_html_(self) -> str:
        return self._text
