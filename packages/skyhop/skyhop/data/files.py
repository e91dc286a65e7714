"""Atomic writing of files, and temporary directories."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path

from skyhop import _core
from skyhop.errors import InputError, RunError


def as_argument(file: Path | str) -> str:
    """Return a file's name as an argument of a command: "./-run" for "-run", which is no option."""
    return f"./{file}" if str(file).startswith("-") else str(file)


def write_file(file: Path, content: bytes) -> None:
    """Write a file atomically, replacing an existing file: it appears complete or not at all.

    Raises:
        InputError: `file` exists and is not a regular file.
        RunError: the file cannot be written, for example because the disk is full.
    """
    _core.replace_file(str(file), content)


def check_directory(directory: Path) -> None:
    """Check that a directory exists.

    Raises:
        InputError: it does not.
    """
    if not directory.is_dir():
        raise InputError(f"{directory}: there is no such directory: create it first")


def check_place(output: Path) -> None:
    """Check that the directory of a file exists and no directory is in the file's place.

    Raises:
        InputError: a file cannot be written there.
    """
    check_directory(output.parent)
    _check_no_directory(output)


def _check_no_directory(output: Path) -> None:
    if output.is_dir():
        raise InputError(f"{output}: is a directory: give the name of a file")


def write_files(directory: Path, contents: Mapping[str, bytes]) -> None:
    """Write all files below `directory`, or none; keys of `contents` are relative paths.

    The files are first written to a temporary directory in `directory`. They are moved to their
    places when every byte is on the disk; until then, existing files of the same names are
    unchanged.

    Raises:
        InputError: `directory` does not exist, or a directory is in a file's place.
        RunError: a file cannot be written, for example because the disk is full.
    """
    check_directory(directory)
    for name in contents:
        _check_no_directory(directory / name)
    # Errors name the requested file, not its temporary one.
    requested = directory / next(iter(contents), "")
    try:
        with Scratch(directory) as staging:
            staged = {staging / str(i): directory / name for i, name in enumerate(contents)}
            for temporary, content in zip(staged, contents.values(), strict=True):
                write_file(temporary, content)
            _move(staged)
    except RunError as error:
        raise RunError(f"{requested}: {str(error).partition(': ')[2]}") from None
    except OSError as error:
        raise RunError(f"{requested}: cannot write: {error.strerror}") from None


class Scratch:
    """Temporary directory, empty at first.

    The directory is removed at the end of the `with` block, when the object is garbage-collected,
    or when the process exits. If the process is killed, the next `Scratch` with the same parent
    removes it.

    Args:
        directory: parent of the directory; by default the system's directory of temporary files.

    Raises:
        RunError: the directory cannot be created.

    Attributes:
        path: the directory.
    """

    def __init__(self, directory: Path | None = None) -> None:
        staging = _core.Staging(Path(tempfile.gettempdir()) if directory is None else directory)
        self._remove = weakref.finalize(self, staging.remove)
        # A subdirectory, because the staging directory itself also holds its lock file.
        self.path = staging.path / "files"
        self.path.mkdir()

    def __enter__(self) -> Path:
        """Return the path of the directory."""
        return self.path

    def __exit__(self, *_: object) -> None:
        """Remove the directory and its content."""
        self._remove()


def _move(staged: Mapping[Path, Path]) -> None:
    """Move files to their places; on failure remove the directories created for them."""
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
