"""Files that code opens for reading, as the interpreter reports them (PEP 578)."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

Note = Callable[[Path], None]
_NOT_FILES = ("/proc/", "/sys/", "/dev/")
"""Directories whose files are the kernel's state and not data."""
_thread = threading.local()


@contextmanager
def noting_opens(note: Note) -> Iterator[None]:
    """Call `note` with the absolute path of each file that this thread opens in the `with` block.

    Libraries that open files without Python, such as polars, are not seen.
    """
    _add_hook()
    before: Note | None = getattr(_thread, "note", None)
    _thread.note = note
    try:
        yield
    finally:
        _thread.note = before


@cache
def _add_hook() -> None:
    # The interpreter has no way to remove a hook.
    sys.addaudithook(_on_event)


def _on_event(event: str, arguments: tuple[object, ...]) -> None:
    if event != "open" or (note := getattr(_thread, "note", None)) is None:
        return
    # An exception here would make the open fail.
    with suppress(Exception):
        name, _, flags = arguments
        if isinstance(name, str | bytes | os.PathLike) and _is_reading(flags):
            # Links stay as they are.
            path = Path(os.path.abspath(os.fsdecode(name)))  # noqa: PTH100
            if is_data(path):
                note(path)


def is_data(path: Path) -> bool:
    """Return whether an absolute path is not one of the kernel's files."""
    return not str(path).startswith(_NOT_FILES)


def _is_reading(flags: object) -> bool:
    return (
        isinstance(flags, int)
        and flags & os.O_ACCMODE != os.O_WRONLY
        and not flags & (os.O_TRUNC | os.O_DIRECTORY)
    )
