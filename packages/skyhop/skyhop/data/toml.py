"""Reading and writing of TOML."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from skyhop.errors import InputError

_DEEP_KEY = re.compile(
    r"""(?<![A-Za-z0-9_-])(?:(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){100}"""
)
"""Pattern of dotted keys with 100 or more parts, for which tomllib takes quadratic time."""


def read_toml(text: str, source: str) -> dict[str, Any]:
    """Parse TOML.

    Args:
        text: content of the file.
        source: name of the file, for error messages.

    Raises:
        InputError: the text is not TOML, or is nested too deeply.
    """
    # Imported here because most commands read no TOML.
    import tomllib

    try:
        if _DEEP_KEY.search(text):
            raise RecursionError
        return tomllib.loads(text)
    except RecursionError:
        raise InputError(f"{source}: is nested too deeply") from None
    except ValueError as error:
        # Not only TOMLDecodeError: int() raises ValueError for a number of too many digits.
        raise InputError(f"{source}: is no TOML: {' '.join(str(error).split())}") from None


def toml_text(content: Mapping[str, Any]) -> str:
    """Return content as TOML text; keys whose value is None or an empty list are left out."""
    # Imported here because most commands write no TOML.
    import tomli_w

    return tomli_w.dumps(_without_nulls(content), indent=2)


def toml_value(value: Any) -> str:
    """Return a value as TOML in one line, in the form after an equals sign."""
    if isinstance(value, Mapping):
        keys = (f"{json.dumps(str(key))} = {toml_value(inner)}" for key, inner in value.items())
        return f"{{ {', '.join(keys)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(value)


def toml_override(text: str) -> str:
    """Return an override KEY=VALUE as TOML: a value that is no TOML is text, as for scenarios.

    Raises:
        InputError: the override has no key or no value.
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not (key and equals):
        raise InputError(f'--set "{text}": expected KEY=VALUE')
    try:
        read_toml(f"value = {value}", "--set")
    except InputError:
        return f"{key}={json.dumps(value)}"
    return f"{key}={value}"


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _without_nulls(inner) for key, inner in value.items() if inner not in (None, [])
        }
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value if inner is not None]
    return value
