"""TOML: read where it comes from outside, and written so that skyhop reads it again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from skyhop.errors import InputError

_DEEP_KEY = re.compile(
    r"""(?<![A-Za-z0-9_-])(?:(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){100}"""
)
"""Keys of many parts take the reader of TOML time and memory by the square of their number."""


def read_toml(text: str, source: str) -> dict[str, Any]:
    """Read TOML.

    Args:
        text: the file.
        source: what messages call it.

    Raises:
        InputError: it is none, or goes deeper than anything of ours.
    """
    # Imported here: most commands read none.
    import tomllib

    try:
        if _DEEP_KEY.search(text):
            raise RecursionError
        return tomllib.loads(text)
    except RecursionError:
        raise InputError(f"{source}: is nested too deeply") from None
    except ValueError as error:
        # A number of too many digits is one, too.
        raise InputError(f"{source}: is no TOML: {' '.join(str(error).split())}") from None


def toml_text(content: Mapping[str, Any]) -> str:
    """Write content as TOML; what has no value, or is an empty list, is left out."""
    # Imported here: most commands write none.
    import tomli_w

    return tomli_w.dumps(_given(content), indent=2)


def toml_value(value: Any) -> str:
    """Write a value as it stands behind the sign of equality, in one line."""
    if isinstance(value, Mapping):
        keys = (f"{json.dumps(str(key))} = {toml_value(inner)}" for key, inner in value.items())
        return f"{{ {', '.join(keys)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(value)


def _given(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _given(inner) for key, inner in value.items() if inner not in (None, [])}
    if isinstance(value, list):
        return [_given(inner) for inner in value if inner is not None]
    return value
