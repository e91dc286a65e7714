"""Build and date of the runs behind a data file of docs/results/data, by study."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from skyhop.data.files import write_file


@dataclass(frozen=True)
class Provenance:
    """Build that ran a study, and the date of the run."""

    build: str
    date: str


def read_provenance(file: Path) -> dict[str, Provenance]:
    """Read the build and date of each study; empty if the file does not exist."""
    table = tomllib.loads(file.read_text("utf-8")) if file.exists() else {}
    return {study: Provenance(m["build"], m["date"].isoformat()) for study, m in table.items()}


def write_provenance(file: Path, data: str, made: Mapping[str, Provenance]) -> None:
    """Write the build and date of each study whose runs are in the file `data`."""
    texts = [f'[{s}]\nbuild = "{m.build}"\ndate = {m.date}\n' for s, m in made.items()]
    head = f"# Build and date of the runs in {data}, by study.\n\n"
    write_file(file, (head + "\n".join(texts)).encode())
