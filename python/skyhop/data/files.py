"""Files that appear whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path

from skyhop import _core
from skyhop.errors import InputError, RunError


def write_file(file: Path, content: bytes) -> None:
    """Write a file, whole or not at all; a file of the same name stays until then as it was.

    Raises:
        InputError: something else than a file is in its place.
        RunError: it cannot be written, for example because the disk is full.
    """
    _core.replace_file(str(file), content)


def write_files(directory: Path, contents: Mapping[str, bytes]) -> None:
    """Write files below `directory`, by their path relative to it: all of them, or none.

    All of them are first written beside their places, and moved there only when every byte is on
    the disk; until then files of the same names stay as they were.

    Raises:
        InputError: `directory` does not exist, or a directory is in a file's place.
        RunError: they cannot be written, for example because the disk is full.
    """
    if not directory.is_dir():
        raise InputError(f"{directory}: there is no such directory: create it first")
    for name in contents:
        if (directory / name).is_dir():
            raise InputError(f"{directory / name}: is a directory: give the name of a file")
    # Errors name what was asked for, not the place where it was prepared.
    asked = directory / next(iter(contents), "")
    try:
        with Scratch(directory) as staging:
            staged = {staging / str(i): directory / name for i, name in enumerate(contents)}
            for temporary, content in zip(staged, contents.values(), strict=True):
                write_file(temporary, content)
            _move(staged)
    except RunError as error:
        raise RunError(f"{asked}: {str(error).partition(': ')[2]}") from None
    except OSError as error:
        raise RunError(f"{asked}: cannot write: {error.strerror}") from None


class Scratch:
    """An empty directory that goes when it is left or forgotten, and with the process.

    Where the process is killed, the next one that is made in the same place removes it.

    Args:
        directory: where it is made; by default where the system has temporary files.

    Raises:
        RunError: it cannot be made.

    Attributes:
        path: where it is.
    """

    def __init__(self, directory: Path | None = None) -> None:
        held = _core.Staging(Path(tempfile.gettempdir()) if directory is None else directory)
        self._remove = weakref.finalize(self, held.remove)
        # What holds it has a file of its own in there.
        self.path = held.path / "files"
        self.path.mkdir()

    def __enter__(self) -> Path:
        """Return where it is."""
        return self.path

    def __exit__(self, *_: object) -> None:
        """Remove it."""
        self._remove()


def _move(staged: Mapping[Path, Path]) -> None:
    """Move files into their places; directories that had to be made go again on failure."""
    made: list[Path] = []
    try:
        for place in staged.values():
            if not place.parent.exists():
                place.parent.mkdir()
                made.append(place.parent)
        for temporary, place in staged.items():
            temporary.replace(place)
    except BaseException:
        for parent in made:
            shutil.rmtree(parent)
        raise
