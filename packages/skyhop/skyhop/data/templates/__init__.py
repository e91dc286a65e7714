"""Templates of new congestion controls, in C and in Python."""

from __future__ import annotations

import re
from pathlib import Path

from skyhop import _core
from skyhop.data.near_names import did_you_mean
from skyhop.errors import InputError

_NAME = "myidea"
"""Placeholder in the templates, replaced by the name of the new congestion control."""


def template(file: Path, source: str | None = None) -> str:
    """Return the text of a new congestion control.

    Args:
        file: file that it will be written to; the suffix (.c or .py) determines the language.
        source: name of the congestion control of skyhop to copy, for C only.

    Raises:
        InputError: the file's suffix or name is not allowed, or there is no such source.
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
        hint = did_you_mean(source, own)
        raise InputError(f"--from {source}{hint}: expected one of {', '.join(own)}, which are in C")
    return own[source].replace(f"SKYHOP_MODULE({source},", f"SKYHOP_MODULE({file.stem},")
