"""Catalogue of the studies that skyhop ships, by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from skyhop.data.near_names import did_you_mean
from skyhop.data.shipped import shipped_files
from skyhop.errors import InputError
from skyhop.study.file import read_study_file


@dataclass(frozen=True)
class StudyEntry:
    """Shipped study: its name, its title, the publication that it follows, and its file."""

    name: str
    description: str
    source: str
    file: Path


def list_studies() -> list[StudyEntry]:
    """Return the studies that skyhop ships, in the order of their names.

    Raises:
        InputError: a shipped study file is wrong.
    """
    entries = []
    for name, file in shipped_files("studies").items():
        study = read_study_file(file)
        entries.append(StudyEntry(name, study.title, study.source or "skyhop", file))
    return entries


def find_study(source: str) -> Path:
    """Return the file of a study; `source` is its path, or the name of a shipped study.

    Raises:
        InputError: there is neither such a file nor such a study.
    """
    file = Path(source)
    if file.is_file():
        return file
    known = shipped_files("studies")
    if source in known:
        return known[source]
    hint, names = did_you_mean(source, known), ", ".join(known)
    raise InputError(f"{source}: no such study file{hint}; expected a file, or one of {names}")
