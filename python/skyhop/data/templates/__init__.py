"""Congestion controls to begin with."""

from __future__ import annotations

import re
from pathlib import Path

from skyhop import _core
from skyhop.errors import InputError

_NAME = "myidea"
"""What the templates are called in their text."""


def template(file: Path, source: str | None = None) -> str:
    """Return the text of a new congestion control.

    Args:
        file: what it will be: its ending is the language.
        source: one of skyhop's own to begin with, in C.

    Raises:
        InputError: the ending or the source is none of those.
    """
    if file.suffix not in (".c", ".py"):
        raise InputError(f"{file}: expected a name that ends with .c or .py")
    if not re.fullmatch("[A-Za-z][A-Za-z0-9_]{0,14}", file.stem):
        raise InputError(
            f"{file}: name it with at most 15 of a-z, A-Z, 0-9 and _, starting with a letter"
        )
    if source is None:
        text = Path(__file__).with_name(f"{_NAME}{file.suffix}.template").read_text("utf-8")
        return text.replace(_NAME, file.stem).replace(_NAME.upper(), file.stem.upper())
    own = dict(_core.own_cc())
    if file.suffix != ".c" or source not in own:
        raise InputError(f"--from {source}: expected one of {', '.join(own)}, which are in C")
    return own[source].replace(f"SKYHOP_MODULE({source},", f"SKYHOP_MODULE({file.stem},")
