"""Marks of directories from which skyhop removes files.

A user may have a directory `runs` or a file `2026-01-01.jsonl`, too. Skyhop therefore writes a file
`.skyhop` to each directory in which it later removes files by their names, and removes none from a
directory without it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from skyhop.errors import InputError

NAME = ".skyhop"
"""Name of the file that marks its directory."""


class Mark:
    """Mark of the directories of one kind.

    Args:
        what: content of such a directory, and what skyhop removes from it.
    """

    def __init__(self, what: str) -> None:
        self._text = f"skyhop: {what}\n"

    def is_on(self, directory: Path) -> bool:
        """Return whether a directory carries the mark."""
        with suppress(OSError, ValueError):
            found = (directory / NAME).read_text("utf-8")
            return found == self._text and not directory.is_symlink()
        return False

    def may_be_on(self, directory: Path) -> bool:
        """Return whether a directory carries the mark, or is empty and can get it."""
        if self.is_on(directory):
            return True
        if directory.is_symlink() or not directory.is_dir():
            return False
        # A process that is killed while it writes the mark leaves an empty file.
        mark = directory / NAME
        return all(entry == mark and not entry.stat().st_size for entry in directory.iterdir())

    def make(self, directory: Path, mode: int = 0o777) -> bool:
        """Create a directory; mark it if it is empty. Return whether it carries the mark.

        Raises:
            OSError: the directory cannot be created or written.
        """
        directory.mkdir(mode=mode, parents=True, exist_ok=True)
        if self.may_be_on(directory) and not self.is_on(directory):
            try:
                (directory / NAME).write_text(self._text, "utf-8")
            except OSError:
                # A full disk leaves neither the mark nor the directory.
                (directory / NAME).unlink(missing_ok=True)
                with suppress(OSError):
                    directory.rmdir()
                raise
        return self.is_on(directory)

    def make_own(self, directory: Path, mode: int = 0o777) -> None:
        """Create a directory with the mark; refuse a directory of the user.

        Raises:
            InputError: the directory has content, and lacks the mark.
            OSError: the directory cannot be created or written.
        """
        if not self.make(directory, mode):
            raise InputError(
                f"{directory}: is not a directory of skyhop's: rename it, or give another directory"
            )

    def remove(self, directory: Path, entries: Iterable[Path]) -> None:
        """Remove entries of a marked directory, then its mark; then the directory, if it is empty.

        A directory without the mark loses nothing. If the process is killed, the mark is there for
        the next call.

        Raises:
            OSError: an entry cannot be removed.
        """
        if not self.is_on(directory):
            return
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                elif entry.name != NAME:
                    entry.unlink()
        (directory / NAME).unlink(missing_ok=True)
        with suppress(OSError):
            directory.rmdir()
