"""A scenario as TOML: what run.json holds, written so that skyhop reads it again."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any


def scenario_toml(scenario: Mapping[str, Any]) -> str:
    """Write the scenario as TOML; what has no value, or is an empty list, is left out.

    Tables become sections, lists of tables become `[[…]]`; what is nested deeper in a list is
    written inline.
    """
    return "\n".join(_table(scenario, ())).strip() + "\n"


def _table(table: Mapping[str, Any], place: tuple[str, ...]) -> Iterator[str]:
    for key, value in table.items():
        if value not in (None, []) and not isinstance(value, Mapping) and not _is_tables(value):
            yield f"{_key(key)} = {_value(value)}"
    for key, value in table.items():
        inner = (*place, _key(key))
        if isinstance(value, Mapping):
            yield from ("", f"[{'.'.join(inner)}]")
            yield from _table(value, inner)
        elif _is_tables(value):
            for entry in value:
                yield from ("", f"[[{'.'.join(inner)}]]")
                yield from _table(entry, inner)


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _text(key)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(_value(entry) for entry in value if entry is not None)}]"
    if isinstance(value, Mapping):
        entries = (f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None)
        return f"{{ {', '.join(entries)} }}"
    return _text(str(value))


def _float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


def _text(text: str) -> str:
    # A JSON string is a TOML basic string, but for DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
