"""Progress bars for long operations, in a notebook or on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from html import escape
from typing import TypeAlias

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
    show: Progress | None = None

    def advance(done: int, total: int) -> None:
        nonlocal show
        if show is None:
            if time.monotonic() - started_s < _QUIET_S:
                return
            show = shown.enter_context(_only_bar(description))
        show(done, total)

    with ExitStack() as shown:
        yield advance


@contextmanager
def progress_or_bar(progress: Progress | None, description: str) -> Iterator[Progress]:
    """Yield the caller's callback, or the callback of a progress bar if it is None."""
    if progress is not None:
        yield progress
        return
    with progress_bar(description) as bar:
        yield bar


_shown: list[ExitStack] = []
"""Bar that is shown, if any; there is one at a time, because two would write to the same line."""


@contextmanager
def _only_bar(description: str) -> Iterator[Progress]:
    """Show a bar in place of the one that is shown; that one does not come back."""
    with ExitStack() as own:
        for other in _shown:
            other.close()
        _shown[:] = [own]
        show = own.enter_context(_bar(description))
        yield lambda done, total: show(done, total) if own in _shown else None
    if own in _shown:
        _shown.remove(own)


def _bar(description: str) -> AbstractContextManager[Progress]:
    if _is_notebook():
        return _notebook_bar(description)
    return _terminal_bar(description) if sys.stderr.isatty() else nullcontext(ignore_progress)


def _is_notebook() -> bool:
    """Return whether this process is a Jupyter kernel, whose front end shows HTML."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


@contextmanager
def _terminal_bar(description: str) -> Iterator[Progress]:
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.TextColumn("{task.percentage:>3.0f} %"),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def _notebook_bar(description: str) -> Iterator[Progress]:
    """Show HTML's `<progress>`: rich's bar needs ipywidgets, which JupyterLab does not install."""
    from IPython.display import HTML, display

    started_s = shown_s = time.monotonic()

    def drawn(share: float) -> HTML:
        took_s = time.monotonic() - started_s
        left = f", {took_s * (1 - share) / share:,.0f} s left" if share > 0 else ""
        return HTML(
            f'<label>{escape(description)} <progress max="1" value="{share:.3f}"></progress> '
            f"{100 * share:.0f} %{left}</label>"
        )

    def show(done: int, total: int) -> None:
        nonlocal shown_s
        if time.monotonic() - shown_s >= _REFRESH_S:
            shown_s = time.monotonic()
            handle.update(drawn(done / max(total, 1)))

    handle = display(drawn(0.0), display_id=True)
    try:
        yield show
    finally:
        handle.update(HTML(""))
