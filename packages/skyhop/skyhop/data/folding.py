"""Names in a form for comparison; the build writes the names of cities in this form."""

from __future__ import annotations

import unicodedata


def folded(name: str) -> str:
    """Return a name case-folded, without accents and repeated spaces, for comparison."""
    if name.isascii():
        return " ".join(name.casefold().split())
    plain = unicodedata.normalize("NFKD", name.casefold())
    return " ".join("".join(c for c in plain if not unicodedata.combining(c)).split())
