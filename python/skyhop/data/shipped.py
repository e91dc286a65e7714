"""The files that come with skyhop: a wheel brings them in the package; else the checkout's."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import skyhop


@dataclass(frozen=True)
class ExampleEntry:
    """A scenario to start from, which runs by its name too."""

    name: str
    description: str
    file: Path


def shipped_files(kind: Literal["examples", "studies"]) -> dict[str, Path]:
    """Return the files of one kind by their names, in alphabetical order."""
    package = Path(skyhop.__file__).resolve().parent
    inside = package / kind
    directory = inside if inside.is_dir() else package.parents[1] / kind
    files = {file.stem: file for file in directory.glob("*.toml")}
    return dict(sorted(files.items()))


def list_examples() -> list[ExampleEntry]:
    """Return the scenarios to start from, by name."""
    return [
        ExampleEntry(name, _first_sentence(file), file)
        for name, file in shipped_files("examples").items()
    ]


def find_scenario(source: str | os.PathLike[str]) -> Path:
    """Return the file of a scenario: an example where `source` is its name and no file's."""
    file = Path(source)
    example = shipped_files("examples").get(os.fspath(source))
    return file if example is None or file.exists() else example


def _first_sentence(file: Path) -> str:
    """Return how the file's opening comment begins."""
    opening = file.read_text("utf-8").split("\n#\n", maxsplit=1)[0]
    text = " ".join(line.removeprefix("#").strip() for line in opening.splitlines())
    return text.split(". ", maxsplit=1)[0].removesuffix(".")
