"""Ids of jobs and runs.

Ids are ULIDs, which sort by their time of creation (48 bits of milliseconds, 80 random bits).
"""

from __future__ import annotations

import re
import secrets

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_FORM = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_LENGTH = 26


def new_id(now_ns: int) -> str:
    """Return a new ULID for a creation time in ns."""
    number = ((now_ns // 1_000_000) << 80) | secrets.randbits(80)
    digits = []
    for _ in range(_LENGTH):
        number, digit = divmod(number, 32)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))


def is_id(text: str) -> bool:
    """Return whether a text has the form of a ULID."""
    return _FORM.fullmatch(text) is not None
