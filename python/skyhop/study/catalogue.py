"""The studies that come with skyhop, by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from skyhop.data.shipped import shipped_files
from skyhop.errors import InputError
from skyhop.study.file import read_study_file


@dataclass(frozen=True)
class StudyEntry:
    """A study that can be run by its name."""

    name: str
    description: str
    source: str


def list_studies() -> list[StudyEntry]:
    """Return the studies that come with skyhop, by name.

    Raises:
        InputError: one of them is wrong.
    """
    entries = []
    for name, file in shipped_files("studies").items():
        study = read_study_file(file)
        entries.append(StudyEntry(name, study.title, study.source or "skyhop"))
    return entries


def find_study(source: str) -> Path:
    """Return the file of a study: a path, or the name of one that comes with skyhop.

    Raises:
        InputError: there is no such study.
    """
    file = Path(source)
    if file.is_file():
        return file
    known = shipped_files("studies")
    if source in known:
        return known[source]
    names = ", ".join(known)
    raise InputError(f"{source}: no such study file; expected a file, or one of {names}")
