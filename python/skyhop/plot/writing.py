"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from skyhop.plot.records import ReportError
from skyhop.plot.style import png_bytes


def save(figure: Figure, output: Path | str) -> Path:
    """Write a figure as a PNG, whole or not at all, and return where.

    Raises:
        ReportError: if the name does not end in .png, or its directory does not exist.
        OSError: if it cannot be written.

    """
    output = Path(output)
    if output.suffix.lower() != ".png":
        raise ReportError(f"{output}: figures are written as PNG: give a name that ends in .png")
    write_files(output.parent, {output.name: png_bytes(figure)})
    return output


def write_files(directory: Path, contents: Mapping[str, bytes]) -> None:
    """Write files below `directory`, by their path relative to it.

    All of them are first written beside their places, and moved there only when every byte is on
    the disk; until then files of the same names stay as they were.

    Raises:
        ReportError: if `directory` does not exist, or a directory is in a file's place.
        OSError: if they cannot be written, for example because the disk is full.

    """
    if not directory.is_dir():
        raise ReportError(f"{directory}: there is no such directory: create it first")
    for name in contents:
        if (directory / name).is_dir():
            raise ReportError(f"{directory / name}: is a directory: give the name of a file")
    staging = Path(tempfile.mkdtemp(prefix=".skyhop-", dir=directory))
    first = directory / next(iter(contents), "")
    made: list[Path] = []
    try:
        staged = [(_stage(staging / str(i), data), directory / name)
                  for i, (name, data) in enumerate(contents.items())]  # fmt: skip
        for _, place in staged:
            if not place.parent.exists():
                place.parent.mkdir()
                made.append(place.parent)
        for temporary, place in staged:
            temporary.replace(place)
    except BaseException as error:
        for parent in made:
            shutil.rmtree(parent)
        if isinstance(error, OSError) and error.errno is not None:
            # Named after what was asked for, not after the place where it was prepared.
            raise OSError(error.errno, error.strerror, str(first)) from error
        raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _stage(temporary: Path, data: bytes) -> Path:
    with temporary.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return temporary
