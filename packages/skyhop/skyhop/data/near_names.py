"""Names that a user may have meant by a wrong one."""

from __future__ import annotations

import difflib
import re
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


_LISTS = (
    re.compile(r"unknown (?:variant|field) `(?P<name>[^`]*)`, expected (?:one of )?(?P<known>`.*)"),
    re.compile(r'no congestion control is called "(?P<name>[^"]*)"; there are: (?P<known>.*)'),
)
"""Messages of the core about a wrong name, with the list of the right ones."""


def with_hint(message: str) -> str:
    """Return a message of the core; after a wrong name, it says what the user may have meant."""
    for pattern in _LISTS:
        found = pattern.search(message)
        if found is not None and "did you mean" not in message:
            known = re.findall(r"[\w-]+", found["known"])
            end = found.end("name") + 1
            return message[:end] + did_you_mean(found["name"], known) + message[end:]
    return message
