"""The studies that come with skyhop, by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import skyhop
from skyhop.errors import InputError
from skyhop.study.file import read_study_file


@dataclass(frozen=True)
class StudyEntry:
    """A study that can be run by its name."""

    name: str
    description: str
    source: str


def list_studies() -> list[StudyEntry]:
    """Return the studies of the checkout, by name.

    Raises:
        InputError: one of them is wrong.
    """
    entries = []
    for file in sorted(_directory().glob("*.toml")):
        study = read_study_file(file)
        entries.append(StudyEntry(file.stem, study.title, study.source or "skyhop"))
    return entries


def find_study(source: str) -> Path:
    """Return the file of a study: a path, or the name of one that comes with skyhop.

    Raises:
        InputError: there is no such study.
    """
    file = Path(source)
    if file.is_file():
        return file
    known = _directory() / f"{source}.toml"
    if known.is_file():
        return known
    names = ", ".join(file.stem for file in sorted(_directory().glob("*.toml")))
    raise InputError(f"{source}: no such study file; expected a file, or one of {names}")


def _directory() -> Path:
    """Return where the checkout keeps its studies."""
    return Path(skyhop.__file__).resolve().parents[2] / "studies"
