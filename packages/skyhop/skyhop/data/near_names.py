"""Names that a user may have meant by a wrong one."""

from __future__ import annotations

from collections.abc import Iterable

from skyhop import _core


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Return " (did you mean X?)" with the known names that resemble a wrong one; else ""."""
    return _core.did_you_mean(name, list(map(str, known))) if isinstance(name, str) else ""
