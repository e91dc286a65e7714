"""Names that a user may have meant by a wrong one."""

from __future__ import annotations

from collections.abc import Iterable

from skyhop import _core

_MOST = 3
"""Largest number of names in a hint."""


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Return " (did you mean X?)" with the known names that resemble a wrong one; else ""."""
    if not isinstance(name, str):
        return ""
    names = list(map(str, known))
    return _core.did_you_mean(name, names) or _with_word(name, names)


def _with_word(name: str, known: Iterable[str]) -> str:
    """Return the hint with the known names that have a wrong one among their words; else ""."""
    near = [other for other in known if f"_{name.lower()}_" in f"_{other}_"]
    return f" (did you mean {', '.join(near[:_MOST])}?)" if name and near else ""
