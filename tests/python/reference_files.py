"""Files that others published (tests/reference.toml), for tests to compare with."""

from __future__ import annotations

from pathlib import Path

import pytest
from reference import folder, found


def reference(name: str) -> Path:
    """Return a file by its name in tests/reference.toml; skip where this machine lacks it."""
    path = found(name)
    if path is None:
        pytest.skip(f"needs reference: no {folder() / name}")
    return path
