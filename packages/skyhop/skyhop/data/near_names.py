"""Names that a user may have meant by a wrong one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST = 64
"""Letters of a wrong name that are compared, because the comparison takes quadratic time."""


def near_names(
    name: str, known: Iterable[str], *, most: int = 1, likeness: float = 0.65
) -> list[str]:
    """Return the known names that resemble a wrong one, the nearest first; case does not count."""
    by_fold = {each.casefold(): each for each in known}
    wanted = name[:_LONGEST].casefold()
    near = difflib.get_close_matches(wanted, by_fold, most, likeness)
    return [by_fold[each] for each in near]


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Return " (did you mean X?)" if a known name resembles a wrong one; else an empty text."""
    near = near_names(name, map(str, known)) if isinstance(name, str) else []
    return f" (did you mean {near[0]}?)" if near else ""
