"""Files that others published (tests/reference.toml), for tests to compare with."""

from __future__ import annotations

from pathlib import Path

from needs import missing
from validation.reference import found


def reference(name: str) -> Path:
    """Return a file by its name in tests/reference.toml; skip where this machine lacks it."""
    return found(name) or missing("reference", f"no {name}")
