"""Planned runs, and the digests of all that determines the result of a run."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from skyhop import _core
from skyhop.study.keys import Value

_CHUNK_BYTES = 1 << 20
"""Size from which a file of a film's directory counts as a chunk; others may be manifests."""


@dataclass(frozen=True)
class PlannedRun:
    """Planned run of a study: one point with one seed."""

    run_id: str
    """Hash of all that determines the result: scenario, seed, files, engine, kernel, core."""
    labels: Mapping[str, Value]
    seed: int
    sets: tuple[str, ...]
    """Overrides of the study's scenario or table, each KEY=VALUE."""
    path_id: str | None
    """Hash of the path, by which runs share it; None if the path cannot be shared."""
    resolved: Mapping[str, Any]
    """Scenario, or table of the engine, with all defaults filled in."""


def describe(labels: Mapping[str, object]) -> str:
    """Return a point as text, such as "pair = SD-NY, cc = cubic"."""
    return ", ".join(f"{name} = {value}" for name, value in labels.items()) or "the only point"


@cache
def core_digest() -> str:
    """Return a hash of the compiled core: after a change of the core, runs get other ids."""
    file = _core.__file__
    assert file is not None
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]


def digest(what: object) -> str:
    """Return a hash of values as JSON."""
    text = json.dumps(what, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


class FileDigests:
    """Digests of files, each of which is read once."""

    def __init__(self) -> None:
        self._known: dict[Path, str] = {}

    def of(self, named: Mapping[str, Any], directory: Path) -> dict[str, str]:
        """Return the digest of each named file that exists, by the key that names it."""
        found: dict[str, str] = {}
        for key, name in named.items():
            places = [directory / name, Path(name)] if isinstance(name, str) else []
            # `os.path` functions return False for invalid names; films and data may be directories.
            is_there = os.path.exists if key in ("data", "film") else os.path.isfile
            place = next(filter(is_there, places), None)
            if place is not None:
                if place not in self._known:
                    self._known[place] = _content(place)
                found[key] = self._known[place]
        return found


def _content(place: Path) -> str:
    """Return a digest of a file's content, or of the files in a film's directory."""
    if place.is_file():
        return hashlib.sha256(place.read_bytes()).hexdigest()
    files = sorted(file for file in place.rglob("*") if file.is_file())
    sizes = [file.stat().st_size for file in files]
    # Sessions depend only on the sizes of chunks; reading all chunks would be slow.
    contents = [_content(file) if size < _CHUNK_BYTES else str(size)
                for file, size in zip(files, sizes, strict=True)]  # fmt: skip
    return digest([[str(file.relative_to(place)) for file in files], contents])
