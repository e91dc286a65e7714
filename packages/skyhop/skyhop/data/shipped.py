"""Files that are shipped with skyhop: inside the package of a wheel, or else in the checkout."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from skyhop.data.near_names import did_you_mean
from skyhop.errors import InputError

_PACKAGE = Path(__file__).resolve().parents[1]
"""Directory of the package `skyhop`."""


@dataclass(frozen=True)
class ExampleEntry:
    """Example scenario that skyhop ships; commands accept its name."""

    name: str
    description: str
    file: Path


def shipped_files(kind: Literal["examples", "studies"]) -> dict[str, Path]:
    """Return the shipped files of one kind by name, in alphabetical order."""
    inside = _PACKAGE / kind
    directory = inside if inside.is_dir() else _PACKAGE.parents[2] / kind
    files = {file.stem: file for file in directory.glob("*.toml")}
    return dict(sorted(files.items()))


def list_examples() -> list[ExampleEntry]:
    """Return the example scenarios, ordered by name."""
    return [
        ExampleEntry(name, _first_sentence(file), file)
        for name, file in shipped_files("examples").items()
    ]


def find_scenario(source: str | os.PathLike[str]) -> Path:
    """Return a scenario's file: the file `source` if it exists, else the example of that name.

    Raises:
        InputError: there is no such file, and the name resembles that of an example.
    """
    file, known = Path(source), shipped_files("examples")
    if file.exists():
        return file
    if hint := did_you_mean(os.fspath(source), known) if os.fspath(source) not in known else "":
        raise InputError(f"{source}: there is no such file{hint}: see skyhop list examples")
    return known.get(os.fspath(source), file)


def site_directory() -> Path:
    """Return the directory of the documentation site, which browsers open without a web server.

    Raises:
        InputError: in this checkout, the site has not been built yet.
    """
    inside = _PACKAGE / "site"
    directory = inside if inside.is_dir() else _PACKAGE.parents[2] / "build" / "docs"
    if not (directory / "index.html").is_file():
        raise InputError("docs: the site is not built here: run make docs in the checkout")
    return directory


def page_names(site: Path) -> list[str]:
    """Return the names of the site's pages, without .html, in alphabetical order."""
    names = (file.relative_to(site).with_suffix("").as_posix() for file in site.rglob("*.html"))
    return sorted(name for name in names if name != "404" and not name.startswith("assets/"))


def _first_sentence(file: Path) -> str:
    """Return the first sentence of a file's opening comment, without its full stop."""
    opening = file.read_text("utf-8").split("\n#\n", maxsplit=1)[0]
    text = " ".join(line.removeprefix("#").strip() for line in opening.splitlines())
    return text.split(". ", maxsplit=1)[0].removesuffix(".")
